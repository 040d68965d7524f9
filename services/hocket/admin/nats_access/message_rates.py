"""Limits the messages that each tenant sends to NATS. For each request of a guest, a server remembers
where the answer goes for as long as one may come, so a guest that sends requests without end would
exhaust its memory.

Each tenant has a token bucket that refills at MESSAGES_PER_S. A tenant that empties it loses its
connections, and is let in again after BARRED_S. Workers' keys, which belong to all tenants, are each
counted separately.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from hocket.admin.nats_access.connection_limit import name_of
from hocket.kit.access.key_book import KeyBook
from hocket.schemas.access.keys import Principal
from hocket.schemas.errors import ErrorClass, HocketError

MESSAGES_PER_S = 10_000.0
BURST = 100_000
BARRED_S = 30.0
NEW_S = 2.0
"""How much older than the last look a connection that it did not see may be: looking takes time."""


class Heard(NamedTuple):
    """A connection, its key, how many messages it has sent since it was opened, and how long ago that
    was."""

    connection: str
    key_id: str
    messages: int
    age_s: float


class TooManyMessages(HocketError):
    """`{name}` sent more than {limit} messages a second to NATS for too long. Its keys can connect
    again after {after_s} s; send fewer, or several things in one message."""

    code = "too_many_messages"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class MessageRates:
    """Counts the messages of guests."""

    def __init__(
        self,
        book: KeyBook,
        clock_s: Callable[[], float],
        *,
        per_s: float = MESSAGES_PER_S,
        burst: float = BURST,
    ) -> None:
        self._book = book
        self._clock_s = clock_s
        self._per_s = per_s
        self._burst = burst
        self._sent: dict[str, int] = {}
        self._used: dict[str, float] = {}
        """What is missing from each bucket that is not full."""
        self._looked_s = clock_s()
        self._barred: dict[str, float] = {}

    def check(self, bearer: Principal) -> None:
        """Raise TooManyMessages for a bearer that may not connect again yet."""
        name = name_of(bearer)
        if self._is_barred(name):
            raise TooManyMessages(name=name, limit=int(self._per_s), after_s=int(BARRED_S))

    def looked(self, heard: Iterable[Heard]) -> set[str]:
        """Record what every connection has sent; return the connections that have to be closed."""
        now_s = self._clock_s()
        since_s = now_s - self._looked_s
        filled = self._per_s * since_s
        self._looked_s = now_s
        sent: dict[str, int] = {}
        used: dict[str, float] = {}
        keys: dict[str, str] = {}
        for one in heard:
            bearer = self._book.of(one.key_id)
            if bearer is None:
                continue
            name = keys[one.connection] = name_of(bearer)
            sent[one.connection] = one.messages
            used[name] = used.get(name, 0.0) + self._lately(one, since_s)
        self._sent = sent
        left = {
            name: self._used.get(name, 0.0) + used.get(name, 0.0) - filled
            for name in self._used | used
        }
        self._used = {name: missing for name, missing in left.items() if missing > 0}
        for name, missing in self._used.items():
            if missing > self._burst:
                self._barred[name] = now_s + BARRED_S
        for name in [name for name in self._barred if not self._is_barred(name)]:
            del self._barred[name]
        return {one for one, name in keys.items() if self._is_barred(name)}

    def _lately(self, one: Heard, since_s: float) -> float:
        """Return how many messages a connection has sent since the last look. One that was there but not
        seen (this process had not started, or a server did not answer) may have sent them over days."""
        known = self._sent.get(one.connection)
        if known is not None:
            return one.messages - known
        lately_s = since_s + NEW_S
        return one.messages * min(1.0, lately_s / one.age_s) if one.age_s > 0 else one.messages

    def _is_barred(self, name: str) -> bool:
        return self._barred.get(name, 0.0) > self._clock_s()
