"""Limits the messages that each tenant sends to NATS. For each request of a guest, a server remembers
where the answer goes for as long as one may come, so a guest that sends requests without end would
exhaust its memory.

Each tenant has a token bucket that refills at MESSAGES_PER_S. A tenant that empties it loses its
connections, and is let in again after BARRED_S. Workers' keys, which belong to all tenants, are each
counted separately.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from hocket.admin.nats_access.connection_limit import name_of
from hocket.kit.access.key_book import KeyBook
from hocket.schemas.access.keys import Principal
from hocket.schemas.errors import ErrorClass, HocketError

MESSAGES_PER_S = 10_000.0
BURST = 100_000
BARRED_S = 30.0

Heard = tuple[str, str, int]
"""A connection, its key, and how many messages it has sent since it was opened."""


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
        filled = self._per_s * (now_s - self._looked_s)
        self._looked_s = now_s
        sent: dict[str, int] = {}
        used: Counter[str] = Counter()
        keys: dict[str, str] = {}
        for connection, key_id, messages in heard:
            bearer = self._book.of(key_id)
            if bearer is None:
                continue
            keys[connection] = name_of(bearer)
            sent[connection] = messages
            used[keys[connection]] += messages - self._sent.get(connection, 0)
        self._sent = sent
        left = {name: self._used.get(name, 0.0) + used[name] - filled for name in self._used | used}
        self._used = {name: missing for name, missing in left.items() if missing > 0}
        for name, missing in self._used.items():
            if missing > self._burst:
                self._barred[name] = now_s + BARRED_S
        for name in [name for name in self._barred if not self._is_barred(name)]:
            del self._barred[name]
        return {one for one, name in keys.items() if self._is_barred(name)}

    def _is_barred(self, name: str) -> bool:
        return self._barred.get(name, 0.0) > self._clock_s()
