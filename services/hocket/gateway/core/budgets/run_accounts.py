"""A bounded set of run accounts in which one tenant's runs never push out another tenant's.

Beyond the bound, the tenant with the most accounts loses its least recently used one that has no
call in flight.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Sized
from typing import Generic, Protocol, TypeVar

MAX_RUN_ACCOUNTS = 50_000
"""The most run accounts kept in memory."""


class _Account(Protocol):
    @property
    def under_way(self) -> Sized: ...


A = TypeVar("A", bound=_Account)


class RunAccounts(Generic[A]):
    """Accounts by tenant and run."""

    def __init__(self, limit: int = MAX_RUN_ACCOUNTS) -> None:
        self._limit = limit
        self._count = 0
        self._tenants: dict[str, OrderedDict[str, A]] = {}
        self._most: list[tuple[int, str]] = []
        """For each tenant, one entry for each number of accounts up to its current one;
        a heap, largest first."""

    def __len__(self) -> int:
        return self._count

    def of(self, tenant: str, run: str, make: Callable[[], A]) -> A:
        """Return the account of a run, created if new; that may evict another."""
        runs = self._tenants.get(tenant)
        account = None if runs is None else runs.get(run)
        if runs is None or account is None:
            if self._count >= self._limit:
                self._forget()
            runs = self._tenants.setdefault(tenant, OrderedDict())
            account = runs[run] = make()
            self._count += 1
            heapq.heappush(self._most, (-len(runs), tenant))
        runs.move_to_end(run)
        return account

    def _forget(self) -> None:
        """Forget one account, if any has no call in flight."""
        busy: list[tuple[int, str]] = []
        while self._most:
            count, tenant = heapq.heappop(self._most)
            runs = self._tenants[tenant]
            if len(runs) != -count:  # a lower entry of a tenant whose accounts are all busy
                busy.append((count, tenant))
                continue
            run = next((name for name, one in runs.items() if not one.under_way), None)
            if run is None:
                busy.append((count, tenant))
                continue
            del runs[run]
            self._count -= 1
            if not runs:
                del self._tenants[tenant]
            break
        for one in busy:
            heapq.heappush(self._most, one)
