"""Runs that this process took on a moment ago.

A run is in the database a few milliseconds after its task was taken. A request for it in between
must not be answered that there is no such run.
"""

from collections import OrderedDict

from hocket.kit.process import clock

RECENT_RUNS_KEPT = 10_000
RECENT_MS = 30_000.0
"""After so long a run is in the database, or was deleted."""


class RecentRuns:
    """The runs submitted within `RECENT_MS`, the last `RECENT_RUNS_KEPT` of them. Only their own tenant
    finds them: a wait would tell another one that there is such a run."""

    def __init__(self) -> None:
        self._taken_ms: OrderedDict[tuple[str, str], float] = OrderedDict()

    def add(self, tenant: str, run_id: str) -> None:
        """Remember a run."""
        self._taken_ms[tenant, run_id] = clock.monotonic_ms()
        if len(self._taken_ms) > RECENT_RUNS_KEPT:
            self._taken_ms.popitem(last=False)

    def __contains__(self, run: tuple[str, str]) -> bool:
        """Return whether a run, given as its tenant and its id, is one of them."""
        taken_ms = self._taken_ms.get(run)
        return taken_ms is not None and clock.monotonic_ms() - taken_ms < RECENT_MS
