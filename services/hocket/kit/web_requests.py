"""Which HTTP requests are accepted at all, so that a web page cannot act through a user's browser; and
where they are listened for.

A page of any site can make the browsers of its visitors send requests to this machine. Three rules
prevent this, for every HTTP server of the platform:

- `Host` must be a name of this server, because DNS rebinding makes a page's own name resolve to our
  address. An IP address is accepted: only this server can have served a page under it.
- `Origin`, if a browser sends it, must be this server's own or an allowed one. There is no CORS.
- `Sec-Fetch-Site: cross-site` is refused, except when a person follows a link.

In addition, a body must declare its `Content-Type`, because a form cannot send `application/json`.
"""

import socket
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import ErrorClass, HocketError

MAX_HOST_CHARS = 255
MAX_SHOWN_CHARS = 100
LOOPBACK_NAMES = frozenset({"localhost"})
NETWORK_BYTES = 8
"""The first bytes of an IPv6 address that count as one address, because a host may choose the rest."""
UNSPECIFIED = frozenset({"", "0.0.0.0", "::", "*"})
ANY = "*"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
JSON_TYPES = ("application/json",)
FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")
"""Media types that a page of another origin may send without a preflight request."""


class HostMissing(HocketError):
    """The request has no valid `Host` header ({reason}). Send exactly one, with the server's name."""

    code = "host_missing"
    error_class = ErrorClass.INVALID


class HostNotServed(HocketError):
    """`Host: {host}` is not a name of this server. Use its address, or add the name to
    HOCKET_ALLOWED_HOSTS."""

    code = "host_not_served"
    error_class = ErrorClass.INVALID


class OriginRefused(HocketError):
    """A web page of `{origin}` may not use this server. Add the origin to HOCKET_ALLOWED_ORIGINS if it
    is yours."""

    code = "origin_refused"
    error_class = ErrorClass.INVALID


class MediaTypeUnsupported(HocketError):
    """`Content-Type: {given}` is not accepted here. Send {allowed} in UTF-8, and say so in
    `Content-Type`."""

    code = "unsupported_media_type"
    error_class = ErrorClass.INVALID


class BodyEncoded(HocketError):
    """`Content-Encoding: {given}` is not accepted here. Send the body without an encoding."""

    code = "body_encoded"
    error_class = ErrorClass.INVALID


@dataclass(frozen=True, slots=True)
class WebRules:
    """The names that a server answers to, and the origins whose pages may use it."""

    hosts: frozenset[str] = LOOPBACK_NAMES
    origins: frozenset[str] = frozenset()

    @classmethod
    def of(cls, served: str, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> "WebRules":
        """Return the rules of a server that listens on `served`, with the configured hosts and
        origins."""
        names = {name.lower().rstrip(".") for name in hosts}
        own = set() if served in UNSPECIFIED else {served.lower()}
        return cls(
            hosts=LOOPBACK_NAMES | own | names,
            origins=frozenset(origin.lower().rstrip("/") for origin in origins),
        )

    def check(
        self,
        method: str,
        *,
        host: Sequence[str],
        origin: Sequence[str] = (),
        fetch_site: str | None = None,
        fetch_mode: str | None = None,
        fetch_dest: str | None = None,
    ) -> None:
        """Check a request by its headers; raise HostMissing, HostNotServed or OriginRefused."""
        if len(host) != 1:
            raise HostMissing(field="Host", reason="none was sent" if not host else "two were sent")
        if not _is_served(self, host[0]):
            raise HostNotServed(field="Host", host=shown_text(host[0], MAX_SHOWN_CHARS))
        for one in origin:
            if not self._trusts(one, host[0]):
                raise OriginRefused(field="Origin", origin=shown_text(one, MAX_SHOWN_CHARS))
        if fetch_site == "cross-site" and not origin:
            follows_link = (method, fetch_mode, fetch_dest) == ("GET", "navigate", "document")
            if not follows_link:
                raise OriginRefused(field="Sec-Fetch-Site", origin="another site")

    def serves(self, name: str) -> bool:
        """Tell whether a name is one of this server."""
        if name in self.hosts or ANY in self.hosts or _is_address(name):
            return True
        return any(
            pattern.startswith("*.") and name.endswith(pattern[1:]) for pattern in self.hosts
        )

    def _trusts(self, origin: str, host: str) -> bool:
        given = origin.lower()
        scheme, separator, place = given.partition("://")
        own = bool(separator) and scheme in ("http", "https") and place == host.lower()
        return own or given in self.origins


@lru_cache(maxsize=256)
def _is_served(rules: WebRules, host: str) -> bool:
    """Tell whether a `Host` header names this server; raises HostMissing."""
    return rules.serves(name_of(host))


def check_encoding(given: Sequence[str]) -> None:
    """Accept a body that is not compressed, or raise BodyEncoded: decompressing one can cost a
    thousand times what sending it does."""
    if any(one.strip().lower() not in ("", "identity") for one in given):
        raise BodyEncoded(
            field="Content-Encoding", given=shown_text(", ".join(given), MAX_SHOWN_CHARS)
        )


def check_media_type(
    given: Sequence[str], allowed: Collection[str] = JSON_TYPES, *, empty: bool = False
) -> None:
    """Accept the `Content-Type` of a body, or raise MediaTypeUnsupported. If the body is empty, only
    types that a form can send are refused."""
    if empty and not any(one.strip().lower().startswith(FORM_TYPES) for one in given):
        return
    value = given[0] if len(given) == 1 else ""
    kind, *parameters = (part.strip() for part in value.split(";"))
    accepted = kind.lower() in allowed
    for parameter in parameters:
        name, _, text = parameter.partition("=")
        if name.strip().lower() == "charset":
            accepted &= text.strip(" \"'").lower() in ("utf-8", "utf8", "us-ascii")
    if not accepted:
        raise MediaTypeUnsupported(
            field="Content-Type",
            given=shown_text(", ".join(given), MAX_SHOWN_CHARS) or "(none)",
            allowed=" or ".join(allowed),
        )


def name_of(host: str) -> str:
    """Return the name in a `Host` header, without its port; raises HostMissing."""
    if not 0 < len(host) <= MAX_HOST_CHARS or not host.isascii():
        raise HostMissing(field="Host", reason="it cannot be a name")
    if host.startswith("["):
        name, separator, port = host[1:].partition("]")
        port = port.removeprefix(":") if separator and port[:1] in ("", ":") else "?"
    else:
        name, _, port = host.partition(":")
    if not name or (port and not port.isdigit()):
        raise HostMissing(field="Host", reason="it cannot be a name")
    return name.lower().rstrip(".")


def open_listener(host: str, port: int, backlog: int) -> socket.socket:
    """Return a socket that listens; `::` is every address, also of IPv4 where the system allows it.
    Raises OSError or UnicodeError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=family, backlog=backlog, dualstack_ipv6=both)


def counted_address(host: str) -> str:
    """Return the address that the requests of a host count for: of IPv6 its network."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    network = address.packed[:NETWORK_BYTES] + bytes(16 - NETWORK_BYTES)
    return f"{IPv6Address(network)}/{8 * NETWORK_BYTES}"


def in_url(host: str) -> str:
    """Return a host as it stands before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
