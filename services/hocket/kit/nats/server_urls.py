"""`NATS_URL`: the address of one NATS server, or of several of a cluster, separated by commas."""

from urllib.parse import SplitResult, unquote, urlsplit

from hocket.schemas.errors import InvalidInput

SCHEMES = ("nats", "tls", "ws", "wss")
MAX_SERVERS = 64


def server_urls(text: str, *, field: str = "NATS_URL") -> list[str]:
    """Return the URLs of the servers in `nats://a:4222,nats://b:4222`, or raise InvalidInput, which
    shows no password. A server without a scheme gets that of the first one, or `nats`. The query, which
    names certificates (server_tls.py), is removed."""
    named = [bare for part in text.split(",") if (bare := part.partition("?")[0].strip())]
    if not named or len(named) > MAX_SERVERS:
        raise _invalid(field, f"it names {len(named)} servers")
    scheme, mark, _ = named[0].partition("://")
    named = [part if "://" in part else f"{scheme if mark else 'nats'}://{part}" for part in named]
    kinds = {_checked(part, field).scheme.startswith("ws") for part in named}
    if len(kinds) > 1:
        raise _invalid(field, "it mixes `nats` or `tls` with `ws` or `wss`")
    return named


def without_passwords(text: str) -> str:
    """Return the servers of a `NATS_URL` without users, passwords and tokens, for messages."""
    return ",".join(_bare(part) for part in text.split(","))


def passwords_of(text: str) -> list[str]:
    """Return the secrets in a `NATS_URL`, as written and decoded: passwords, and user names without a
    password, which are tokens."""
    found = []
    for part in text.split(","):
        account, at, _ = part.strip().rpartition("://")[2].rpartition("@")
        if at:
            secret = account.partition(":")[2] or account
            found += [secret, unquote(secret)]
    return [secret for secret in found if secret]


def _checked(url: str, field: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        has_place = bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number, or brackets do not match
        raise _invalid(field, f"`{_bare(url)}` has no valid host and port") from None
    if parts.scheme not in SCHEMES:
        raise _invalid(field, f"`{_bare(url)}` does not begin with one of {', '.join(SCHEMES)}")
    if not has_place or not url.isprintable() or " " in url:
        raise _invalid(field, f"`{_bare(url)}` has no valid host and port")
    return parts


def _bare(url: str) -> str:
    scheme, mark, rest = url.strip().rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def _invalid(field: str, reason: str) -> InvalidInput:
    cure = "Write nats://HOST:PORT; for a cluster, several separated by commas."
    return InvalidInput(field=field, reason=reason, cure=cure)
