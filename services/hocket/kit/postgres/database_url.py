"""The URL of the database: if it names several servers, the primary is asked for."""

from urllib.parse import parse_qs, urlsplit

TARGET = "target_session_attrs"


def of_primary(url: str) -> str:
    """Return the URL with `target_session_attrs=read-write` added if it names several hosts and does not
    say which of them may be used: a standby accepts no writes."""
    try:
        parts = urlsplit(url)
    except ValueError:  # whoever connects says what is wrong
        return url
    several = "," in parts.netloc.rpartition("@")[2]
    if not several or TARGET in parse_qs(parts.query):
        return url
    return f"{url}{'&' if parts.query else '?'}{TARGET}=read-write"
