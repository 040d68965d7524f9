"""Chooses the connections to give up when too much of all answers is unread."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

TOO_MUCH_UNREAD = "too much of all answers is unread"
"""Why such a connection is closed, for the log."""


class Answering(Protocol):
    """A connection whose answers may wait to be read."""

    @property
    def unread_bytes(self) -> int: ...


_Connection = TypeVar("_Connection", bound=Answering)


def most_unread(connections: Iterable[_Connection], limit_bytes: int) -> list[_Connection]:
    """Return the connections with the most unread bytes, as many as must be closed so that those of the
    others are within `limit_bytes` together."""
    held = sorted(((one.unread_bytes, one) for one in connections), key=lambda item: item[0])
    total = sum(unread for unread, _ in held)
    given_up = []
    while total > limit_bytes:
        unread, connection = held.pop()
        given_up.append(connection)
        total -= unread
    return given_up
