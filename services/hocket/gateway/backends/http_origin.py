"""The origin of a plain URL, one that needs no quoting, joining or login rules."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

_PLAIN = re.compile(r"[A-Za-z0-9/_.~:@!$&'()*+,;=-]*")
_AUTHORITY = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
"""A host and optional port, without user name and password."""
HTTP_PORT = 80


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a plain URL; `authority` is host and port as in the Host header."""

    host: str
    port: int
    authority: str
    path: str

    @classmethod
    def of(cls, url: str) -> "Origin | None":
        """Return the origin of a URL; None if the URL is not simple enough."""
        parts = urlsplit(url)
        try:
            port = parts.port or HTTP_PORT
        except ValueError:
            return None
        simple = parts.scheme == "http" and is_plain(parts.path)
        if not simple or parts.query or parts.fragment or not _AUTHORITY.fullmatch(parts.netloc):
            return None
        assert parts.hostname is not None, "an authority has a host"
        return cls(parts.hostname, port, parts.netloc, parts.path)


def is_plain(path: str) -> bool:
    """Return whether a path is unaffected by quoting and joining."""
    return _PLAIN.fullmatch(path) is not None and "/." not in path
