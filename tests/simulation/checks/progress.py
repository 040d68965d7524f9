"""Whether the platform was at work: a run that waited for others until its deadline is not stuck."""

from typing import Any

from simulation.engine.database import Database

RECENT_MS = 30_000.0
"""Nothing takes longer where no node hangs: neither a step nor the pause before it is tried again."""
AT_WORK = frozenset({"succeeded", "failed"})


def stood_still(database: Database, row: dict[str, Any]) -> bool:
    """Return whether no step of any run ended by itself in the last time before the run's deadline.

    Where only two of twenty runs may run at once, each of hundreds of steps, the last are too late."""
    since_ms, until_ms = row["deadline_at"] - RECENT_MS, row["deadline_at"]
    return not any(
        step["state"] in AT_WORK and since_ms <= (step["finished_at"] or 0.0) <= until_ms
        for steps in database.steps.values()
        for step in steps.values()
    )
