"""Something remembered of each run, up to a number of runs, such that the runs of one tenant never push
out those of others. Pure.

Beyond the number, a tenant that has more than its share of the runs, the newest run's first, loses its
least recently used one.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class RunsByTenant(Generic[T]):
    """What is remembered, by tenant and run."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tenants: dict[str, OrderedDict[str, T]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, run: tuple[str, str]) -> bool:
        return self.get(*run) is not None

    def get(self, tenant: str, run_id: str) -> T | None:
        """Return what is remembered of a run; None if there is nothing."""
        runs = self._tenants.get(tenant)
        return None if runs is None else runs.get(run_id)

    def of(self, tenant: str, run_id: str, make: Callable[[], T]) -> T:
        """Return what is remembered of a run, made if there is nothing; that may push out another."""
        runs = self._tenants.setdefault(tenant, OrderedDict())
        found = runs.get(run_id)
        if found is None:
            found = runs[run_id] = make()
            self._count += 1
        runs.move_to_end(run_id)
        if self._count > self._limit:
            self._push_out(tenant)
        return found

    def pop(self, tenant: str, run_id: str) -> T | None:
        """Forget a run, and return what was remembered of it."""
        runs = self._tenants.get(tenant)
        found = None if runs is None else runs.pop(run_id, None)
        if found is not None:
            self._count -= 1
        if not runs:
            self._tenants.pop(tenant, None)
        return found

    def _push_out(self, newest: str) -> None:
        tenant = newest
        if len(self._tenants[newest]) <= self._limit // len(self._tenants):
            tenant = max(self._tenants, key=lambda one: len(self._tenants[one]))
        self.pop(tenant, next(iter(self._tenants[tenant])))
