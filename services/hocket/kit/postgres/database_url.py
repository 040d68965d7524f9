"""The URL of the database, where it names several servers: of those the primary is asked for."""

from urllib.parse import parse_qs, urlsplit

TARGET = "target_session_attrs"


def of_primary(url: str) -> str:
    """Return the URL with `target_session_attrs=read-write`, where it names several hosts and does not
    say itself which of them may be taken: a standby takes nothing that is written."""
    parts = urlsplit(url)
    several = "," in parts.netloc.rpartition("@")[2]
    if not several or TARGET in parse_qs(parts.query):
        return url
    return f"{url}{'&' if parts.query else '?'}{TARGET}=read-write"
