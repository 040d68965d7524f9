"""Runs that were submitted to this process a moment ago.

A run appears in the database a few milliseconds after its task was accepted. A request in between must
not be told that there is no such run.
"""

from collections import OrderedDict

from hocket.kit.process import clock

RECENT_RUNS_KEPT = 10_000
RECENT_MS = 30_000.0
"""After so long, a run is in the database or has been deleted."""


class RecentRuns:
    """The runs submitted within `RECENT_MS`, the last `RECENT_RUNS_KEPT` of them. Only their own tenant
    finds them: for another tenant, the wait alone would reveal that the run exists."""

    def __init__(self) -> None:
        self._taken_ms: OrderedDict[tuple[str, str], float] = OrderedDict()

    def add(self, tenant: str, run_id: str) -> None:
        """Remember a run."""
        self._taken_ms[tenant, run_id] = clock.monotonic_ms()
        if len(self._taken_ms) > RECENT_RUNS_KEPT:
            self._taken_ms.popitem(last=False)

    def __contains__(self, run: tuple[str, str]) -> bool:
        """Return whether a run, given as `(tenant, run_id)`, is one of them."""
        taken_ms = self._taken_ms.get(run)
        return taken_ms is not None and clock.monotonic_ms() - taken_ms < RECENT_MS
