"""Runs that were submitted to this process a moment ago.

A run appears in the database a few milliseconds after its task was accepted. A request in between must
not be told that there is no such run, or that it was refused if an earlier task with its key was.
"""

from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from hocket.kit.process import clock

RECENT_RUNS_KEPT = 10_000
RECENT_MS = 30_000.0
"""After so long, a run is in the database or has been deleted."""


class RecentRuns:
    """The runs submitted within `RECENT_MS`, the last `RECENT_RUNS_KEPT` of them. Only their own tenant
    finds them: for another tenant, the wait alone would reveal that the run exists."""

    def __init__(self) -> None:
        self._taken_ms: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._refused_at: dict[tuple[str, str], datetime] = {}

    def add(self, tenant: str, run_id: str, refused_at: datetime | None = None) -> None:
        """Remember a run, and when the task before it with its key was refused."""
        self._taken_ms[tenant, run_id] = clock.monotonic_ms()
        if refused_at is not None:
            self._refused_at[tenant, run_id] = refused_at
        if len(self._taken_ms) > RECENT_RUNS_KEPT:
            first, _ = self._taken_ms.popitem(last=False)
            self._refused_at.pop(first, None)

    def awaits(self, run: tuple[str, str], row: Mapping[str, Any] | None) -> bool:
        """Return whether a run, given as `(tenant, run_id)`, is one of them and not in the database yet,
        where its id has this row."""
        if row is None:
            return run in self
        refused_at = self._refused_at.get(run)
        return refused_at is not None and row["finished_at"] == refused_at and run in self

    def __contains__(self, run: tuple[str, str]) -> bool:
        """Return whether a run, given as `(tenant, run_id)`, is one of them."""
        taken_ms = self._taken_ms.get(run)
        return taken_ms is not None and clock.monotonic_ms() - taken_ms < RECENT_MS
