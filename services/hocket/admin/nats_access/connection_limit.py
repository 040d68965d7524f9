"""How many connections to NATS each tenant has at once: a server has a bound for all together
(`max_connections`), behind which the platform's own processes would find no room either.

What counts is what servers had at the last look (`connections.py`), and whom this process let in since.
Who is at the limit is refused until a look, which is made at once, says that there is room again.
Workers' keys, which are of all tenants, count by themselves.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable

from hocket.kit.access.key_book import KeyBook
from hocket.schemas.access.keys import Principal
from hocket.schemas.errors import ErrorClass, HocketError

MAX_TENANT_CONNECTIONS = 500


class TooManyConnections(HocketError):
    """`{name}` has {limit} connections to NATS already. Close some, or use one for more."""

    code = "too_many_connections"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class ConnectionLimit:
    """The connections of guests, counted."""

    def __init__(self, book: KeyBook, limit: int = MAX_TENANT_CONNECTIONS) -> None:
        self._book = book
        self._limit = limit
        self._seen: Counter[str] = Counter()
        self._let_in: Counter[str] = Counter()
        self.reached = asyncio.Event()
        """Set whenever somebody seems to be half way there: he may have closed some meanwhile."""

    def take(self, bearer: Principal) -> None:
        """Count a connection that is let in now, or raise TooManyConnections."""
        name = name_of(bearer)
        present = self._seen[name] + self._let_in[name]
        if present >= self._limit // 2:
            self.reached.set()
        if present >= self._limit:
            raise TooManyConnections(name=name, limit=self._limit)
        self._let_in[name] += 1

    def begin_look(self) -> Counter[str]:
        """Return what `looked` takes: whoever was let in before is seen."""
        self.reached.clear()
        return self._let_in.copy()

    def looked(self, before: Counter[str], key_ids: Iterable[str]) -> None:
        """Take up whose connections there are."""
        self._seen = Counter(
            name_of(bearer) for key_id in key_ids if (bearer := self._book.of(key_id)) is not None
        )
        self._let_in -= before


def name_of(bearer: Principal) -> str:
    """Return with whom a bearer shares what one may use."""
    return f"key {bearer.key_id}" if bearer.tenant is None else f"tenant {bearer.tenant}"
