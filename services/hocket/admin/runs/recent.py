"""Runs that this process took on a moment ago.

A run is in the database a few milliseconds after its task was taken. Who asks for it in between shall
not be told that there is no such run.
"""

from collections import OrderedDict

RECENT_RUNS_KEPT = 10_000


class RecentRuns:
    """The ids of the runs submitted last, up to `RECENT_RUNS_KEPT`."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def add(self, run_id: str) -> None:
        """Remember a run."""
        self._ids[run_id] = None
        if len(self._ids) > RECENT_RUNS_KEPT:
            self._ids.popitem(last=False)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._ids
