"""The types of settings, which are checked as they are read.

A process with an invalid setting does not start, and says which one it is.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

from hocket.kit.postgres.database_url import of_primary
from hocket.kit.web_requests import HostMissing, name_of
from hocket.schemas.access.group_roles import SIGNING_ALGORITHMS, parse_group_roles
from hocket.schemas.access.keys import parts_of
from hocket.schemas.capabilities import keys_of
from hocket.schemas.checks.plain_json import parse_json
from hocket.schemas.errors import InvalidInput
from hocket.schemas.subjects import TOKEN

MAX_TEXT_CHARS = 4_096
MAX_PORT = 65_535
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
OWN_PATHS = ("console", "v1", "docs", "sign-in", "openapi.json", "healthz", "readyz")
"""The first parts of all paths of the REST service."""
_HOST = re.compile(r"[A-Za-z0-9_.:%-]{1,253}")
_NO_SITE = "null"
"""What browsers send as the origin of a page that is of no site, such as a file."""
_USUAL_PORTS = {"http": ":80", "https": ":443"}
_POSTGRES = ("postgresql", "postgres")


def _text(text: str) -> str:
    """Refuse text that is empty, too long, not Unicode, or not printable. No error contains the value,
    because it may be a secret."""
    if not text:
        raise ValueError("it is empty")
    if len(text) > MAX_TEXT_CHARS:
        raise ValueError(f"it is longer than {MAX_TEXT_CHARS} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it is not UTF-8") from None
    if not text.isprintable():
        raise ValueError("it contains an unprintable character")
    return text


def _words(text: str) -> str:
    return _text(text) if text else text


def _unset(value: object) -> object:
    return None if value == "" else value


def _host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise ValueError("it is neither a host's name nor an IP address")
    return text


def _database_url(text: str) -> str:
    try:
        parts = urlsplit(_text(text))
        hosts = parts.netloc.rpartition("@")[2].split(",")
        has_ports = all(_is_port(host.rpartition("]")[2].partition(":")[2]) for host in hosts)
    except ValueError as error:
        raise ValueError(f"{error}; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE") from None
    if parts.scheme not in _POSTGRES or not has_ports:
        raise ValueError("write postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
    return of_primary(text)


def _is_port(text: str) -> bool:
    return not text or (text.isascii() and text.isdigit() and 0 < int(text[:6]) <= MAX_PORT)


def _http_url(text: str) -> str:
    try:
        parts = urlsplit(_text(text))
        has_place = bool(parts.hostname) and parts.port != 0
    except ValueError:
        has_place = False
    if not has_place or parts.scheme not in ("http", "https") or " " in text:
        raise ValueError("write http://HOST:PORT/PATH")
    return text


def _issuer(text: str) -> str:
    parts = urlsplit(_http_url(text))
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError("write https://HOST/PATH")
    if parts.scheme != "https" and parts.hostname not in LOOPBACK:
        raise ValueError("write https://HOST/PATH; http is only for this machine")
    return text


def _algorithms(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names or set(names) - set(SIGNING_ALGORITHMS):
        raise ValueError(f"choose from {', '.join(SIGNING_ALGORITHMS)}")
    return names


def _group_roles(given: dict[str, str]) -> dict[str, str]:
    parse_group_roles(given)
    return given


def _json(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_json(value)
    except InvalidInput as error:
        raise ValueError(str(error.fields["reason"])) from None


def _listed(value: object) -> object:
    """Return the parts of `a, b`."""
    if not isinstance(value, str):
        return value
    return tuple(_text(part.strip()) for part in value.split(",") if part.strip())


def _each(read: Callable[[str], str]) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    """Return a reader of lists, which refuses one with the number of its first wrong entry."""

    def read_all(listed: tuple[str, ...]) -> tuple[str, ...]:
        found = []
        for number, entry in enumerate(listed, start=1):
            try:
                found.append(read(entry))
            except ValueError as error:
                raise ValueError(f"entry {number} {error}") from None
        return tuple(found)

    return read_all


def _host_name(text: str) -> str:
    """Return the name of a host as requests are compared with it, which is without a port."""
    if "/" in text:
        raise ValueError(
            "has a scheme or a path, and is no host; write hocket.example.com or *.example.com"
        )
    try:
        return name_of(text)
    except HostMissing:  # such as an IPv6 address without brackets
        return text.lower()


def _host_and_port(place: str) -> tuple[str, int | None]:
    """Return what a URL has of a place; an empty host if it is none."""
    try:
        parts = urlsplit(f"//{place}")
        return (parts.hostname or "").lower(), parts.port
    except ValueError:
        return "", None


def _private_host(text: str) -> str:
    """Return a host as the URLs of webhooks are compared with it."""
    if any(mark in text for mark in "/*"):
        raise ValueError("has a scheme, a path or a `*`, and is no host; write hooks.internal")
    place = f"[{text}]" if text.count(":") > 1 and "[" not in text else text
    host, port = _host_and_port(place)
    if host and port is not None and "@" not in text:
        raise ValueError(
            "has a port, but allows all ports of a host. Write the host without a port"
        )
    name, whole = host.rstrip("."), f"[{host}]" if ":" in host else host
    if not name or place.lower() != whole or any(one.isspace() for one in text):
        raise ValueError("is no host; write hooks.internal, 10.0.0.7 or ::1")
    return name


def _origin(text: str) -> str:
    """Return an origin as browsers send it, without its usual port."""
    scheme, separator, rest = text.lower().partition("://")
    if (scheme, separator) == (_NO_SITE, ""):
        return scheme
    place = rest.rstrip("/")
    if not scheme or not separator or "*" in text or any(mark in place for mark in "/?#"):
        raise ValueError(
            "is not the origin of a site; write https://console.example.com or http://localhost:3000,"
            " with its scheme, and without a path or *"
        )
    return f"{scheme}://{place.removesuffix(_USUAL_PORTS.get(scheme, ''))}"


def _secret(value: SecretStr) -> SecretStr:
    _text(value.get_secret_value())
    return value


def _keys(secret: SecretStr) -> SecretStr:
    keys_of(_text(secret.get_secret_value()))
    return secret


def _access_key(secret: SecretStr) -> SecretStr:
    if parts_of(secret.get_secret_value()) is None:
        raise ValueError("it is not of the form hk_<12 hexadecimal digits>_<64 more>")
    return secret


def _folder(path: Path) -> Path:
    """Return a path with `~` replaced by the home folder; refuse one that cannot exist in any file
    system."""
    _text(str(path) if path.parts else "")
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError("it begins with `~`, and there is no such home folder") from None


def _tenant(name: str) -> str:
    if not TOKEN.fullmatch(name):
        raise ValueError(
            "it is no name of a tenant: letters, digits, `-` and `_`, starting with a letter or digit"
        )
    return name


def _no_flag(value: object) -> object:
    """Refuse true and false, which count as 1 and 0 otherwise."""
    if isinstance(value, bool):
        raise ValueError("it is not a number")
    return value


def _root_path(path: str) -> str:
    """Refuse a path that the service would take for one of its own, so that nothing there would be
    found any more."""
    if path.removeprefix("/").partition("/")[0] in OWN_PATHS:
        own = ", ".join(f"/{name}" for name in OWN_PATHS)
        raise ValueError(f"it begins like the service's own addresses ({own}); write /hocket")
    return path


Text = Annotated[str, AfterValidator(_text)]
Folder = Annotated[Path, AfterValidator(_folder)]
Words = Annotated[str, AfterValidator(_words)]
"""Text that may be empty."""
Secret = Annotated[SecretStr, AfterValidator(_secret)]
Keys = Annotated[SecretStr, AfterValidator(_keys)]
"""One secret key, or several."""
AccessKey = Annotated[SecretStr, AfterValidator(_access_key)]
"""The text of a key of REST and of the HTTP door."""
Host = Annotated[str, AfterValidator(_host)]
RootPath = Annotated[str, AfterValidator(_root_path)]
"""A path of a proxy; empty for none."""
DatabaseUrl = Annotated[str, AfterValidator(_database_url)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
EmptyIsNone = BeforeValidator(_unset)
"""Treats a variable that is set to the empty string as one that is not set."""
Listed = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)]
"""Several words in one variable, separated by commas."""
HostNames = Annotated[Listed, AfterValidator(_each(_host_name))]
"""Names that a `Host` header may have; `*.` stands for any name below, `*` alone for any name."""
PrivateHosts = Annotated[Listed, AfterValidator(_each(_private_host))]
"""Names that the URL of a webhook may have."""
Origins = Annotated[Listed, AfterValidator(_each(_origin))]
"""Values that browsers may send as `Origin`."""
Issuer = Annotated[str, AfterValidator(_issuer)]
"""The URL of an identity provider, exactly as it names itself."""
Algorithms = Annotated[Listed, AfterValidator(_algorithms)]
GroupRoles = Annotated[
    dict[str, str], NoDecode, BeforeValidator(_json), AfterValidator(_group_roles)
]
"""A JSON object: the role of each group."""
PeriodName = Literal["runs", "usage", "content"]
"""The kinds of data for which a tenant may have a retention period of its own."""
_Days = Annotated[int, BeforeValidator(_no_flag), Field(ge=1, le=36_500)]
TenantPeriods = Annotated[
    dict[Annotated[Text, AfterValidator(_tenant)], dict[PeriodName, _Days]],
    NoDecode,
    BeforeValidator(_json),
]
"""A JSON object: by tenant, the number of days that each kind of data is kept."""
Weights = Annotated[
    dict[Text, Annotated[float, Field(gt=0, le=1_000)]], NoDecode, BeforeValidator(_json)
]
"""A JSON object of numbers."""
