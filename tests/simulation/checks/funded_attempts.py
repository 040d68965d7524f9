"""Attempts that were dispatched while some of the budget was left.

They may still be waiting for a slot, or be lost and dispatched again, when others have spent the
rest."""

from decimal import Decimal
from typing import Any

from hocket.coordinator.core.run.state.columns import RUN_COLUMNS, STEP_COLUMNS
from hocket.coordinator.storage.commit_batch import Batch
from hocket.schemas import ids


class FundedAttempts:
    """What commits say about attempts and about the money that runs have spent."""

    def __init__(self) -> None:
        self._funded: set[str] = set()
        self._spent: set[str] = set()
        """Runs that have nothing left, according to what is committed."""

    def committed(self, batch: Batch) -> None:
        """Process a commit. Its attempts were decided on the basis of what had been spent before it."""
        for values in batch.steps:
            step = dict(zip(STEP_COLUMNS, values, strict=True))
            if step["state"] == "dispatched" and step["run_id"] not in self._spent:
                attempt = ids.attempt_id(step["run_id"], step["key"], step["attempt"])
                self._funded.add(attempt)
        for values in batch.runs:
            run = dict(zip(RUN_COLUMNS, values, strict=True))
            if _is_spent(run):
                self._spent.add(run["run_id"])

    def has(self, attempt: str) -> bool:
        """Return whether an attempt was committed while its run had something left."""
        return attempt in self._funded


def _is_spent(run: dict[str, Any]) -> bool:
    budget_usd, spent_usd = run["budget_usd"], run["spent_usd"]
    return budget_usd is not None and 0 < Decimal(spent_usd) >= Decimal(budget_usd)
