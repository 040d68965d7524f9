"""Limits the number of connections to NATS per tenant. A server has one limit for all connections
(`max_connections`); if tenants exhausted it, the platform's own processes could not connect either.

The count is what the servers reported at the last look (`connections.py`) plus the connections that this
process has accepted since. A tenant at the limit is refused until the next look, which happens at once,
shows room again. Workers' keys, which belong to all tenants, are each counted separately.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable

from hocket.kit.access.key_book import KeyBook
from hocket.schemas.access.keys import Principal
from hocket.schemas.errors import ErrorClass, HocketError

MAX_TENANT_CONNECTIONS = 500


class TooManyConnections(HocketError):
    """`{name}` already has {limit} connections to NATS. Close some, or use one for several
    purposes."""

    code = "too_many_connections"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class ConnectionLimit:
    """Counts the connections of guests."""

    def __init__(self, book: KeyBook, limit: int = MAX_TENANT_CONNECTIONS) -> None:
        self._book = book
        self._limit = limit
        self._seen: Counter[str] = Counter()
        self._let_in: Counter[str] = Counter()
        self.reached = asyncio.Event()
        """Set whenever a tenant seems to be halfway to the limit, so that the servers are asked again:
        it may have closed some connections meanwhile."""

    def take(self, bearer: Principal) -> None:
        """Count a connection that is about to be accepted, or raise TooManyConnections."""
        name = name_of(bearer)
        present = self._seen[name] + self._let_in[name]
        if present >= self._limit // 2:
            self.reached.set()
        if present >= self._limit:
            raise TooManyConnections(name=name, limit=self._limit)
        self._let_in[name] += 1

    def begin_look(self) -> Counter[str]:
        """Return the counts to pass to `looked`: the connections accepted before the look, which it will
        see."""
        self.reached.clear()
        return self._let_in.copy()

    def looked(self, before: Counter[str], key_ids: Iterable[str]) -> None:
        """Update the counts to the connections that the servers reported."""
        self._seen = Counter(
            name_of(bearer) for key_id in key_ids if (bearer := self._book.of(key_id)) is not None
        )
        self._let_in -= before


def name_of(bearer: Principal) -> str:
    """Return the name under which a bearer's use is counted: its tenant, or its key if it is of all
    tenants."""
    return f"key {bearer.key_id}" if bearer.tenant is None else f"tenant {bearer.tenant}"
