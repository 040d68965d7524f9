"""TLS with NATS: the certificates that a `NATS_URL` names in its query.

`tls://nats:4222?ca=/tls/ca.crt&cert=/tls/tls.crt&key=/tls/tls.key`: the server is verified against `ca`
(by default the system's authorities), and gets the client certificate `cert` (by default none). Files
that were replaced are read again for the next connection.
"""

import ssl
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from hocket.schemas.errors import InvalidInput

FILES = ("ca", "cert", "key")


def tls_of(text: str, *, field: str = "NATS_URL") -> ssl.SSLContext | None:
    """Return the TLS context for the servers of a `NATS_URL`, None if it does not ask for TLS; raise
    InvalidInput if a file cannot be read."""
    files = certificate_files(text, field=field)
    schemes = {part.strip().partition("://")[0] for part in text.split(",")}
    if not files and not schemes & {"tls", "wss"}:
        return None
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load(context, files, field=field)
    return context


def load(context: ssl.SSLContext, files: Mapping[str, str], *, field: str = "NATS_URL") -> None:
    """Load the files into a context, again if they were replaced, for connections made from then on."""
    for kind, path in files.items():
        try:
            if kind == "ca":
                context.load_verify_locations(cafile=path)
            elif kind == "cert":
                context.load_cert_chain(path, files.get("key"))
        except (OSError, ssl.SSLError) as error:
            reason = f"{kind} {path}: {getattr(error, 'strerror', None) or error}"
            raise _invalid(field, reason) from error


def certificate_files(text: str, *, field: str = "NATS_URL") -> dict[str, str]:
    """Return the files that the query of a `NATS_URL` names, by `ca`, `cert` and `key`."""
    found: dict[str, str] = {}
    for part in text.split(","):
        for name, value in parse_qsl(urlsplit(part.strip()).query, keep_blank_values=True):
            if name not in FILES or not value:
                raise _invalid(field, f"it says `{name}={value}`")
            if found.setdefault(name, value) != value:
                raise _invalid(field, f"it names two files as `{name}`")
    if "key" in found and "cert" not in found:
        raise _invalid(field, "it names a key without a certificate")
    return found


def _invalid(field: str, reason: str) -> InvalidInput:
    cure = (
        "Write tls://HOST:PORT?ca=FILE&cert=FILE&key=FILE, with files that this process may read."
    )
    return InvalidInput(field=field, reason=reason, cure=cure)
