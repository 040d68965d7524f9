"""Runs that this process took on a moment ago.

A run is in the database a few milliseconds after its task was taken. A request for it in between
must not be answered that there is no such run.
"""

from collections import OrderedDict

RECENT_RUNS_KEPT = 10_000


class RecentRuns:
    """The runs submitted last, up to `RECENT_RUNS_KEPT`. Only their own tenant finds them: a wait would
    tell another one that there is such a run."""

    def __init__(self) -> None:
        self._runs: OrderedDict[tuple[str, str], None] = OrderedDict()

    def add(self, tenant: str, run_id: str) -> None:
        """Remember a run."""
        self._runs[tenant, run_id] = None
        if len(self._runs) > RECENT_RUNS_KEPT:
            self._runs.popitem(last=False)

    def __contains__(self, run: tuple[str, str]) -> bool:
        """Return whether a run, given as its tenant and its id, is one of them."""
        return run in self._runs
