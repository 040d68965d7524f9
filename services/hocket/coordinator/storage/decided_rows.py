"""The rows of a run as they will be in Postgres when everything that is decided is written, and the
run that is made from them."""

import asyncio
from collections.abc import Iterable

from hocket.coordinator.core.run.plan.nodes import PipelinePlan
from hocket.coordinator.core.run.state.columns import (
    KEPT_COLUMNS,
    RUN_COLUMNS,
    STEP_COLUMNS,
    Columns,
    Row,
    json_column,
    parsed,
)
from hocket.coordinator.core.run.state.restore import StoredRun, restored
from hocket.coordinator.core.run.state.run import RUN_REJECTED, Owner, Run
from hocket.coordinator.storage.pending_changes import Dirty

FIRST_COLUMNS = ("pipeline", "input", "labels")
"""Columns that only the first row of a run sets. One that was rejected is replaced by the next run of
its key, which may have others."""

MANY_STEPS = 5_000
"""A run of this many steps is read back in a thread: with 200,000, that takes seconds."""
CHARS_PER_STEP = 4
"""What a planner emitted is compiled again: so many characters of it count as a step."""
CHARS_OF_VALUES = 1_000
"""So many characters of inputs and outputs, which are parsed, count as a step."""


async def read_back(stored: StoredRun, plan: PipelinePlan, owner: Owner) -> Run:
    """Return a run with its steps (`restored`), and stop nothing else for it if that takes long."""
    facts = [step["facts"] or "" for step in stored.steps]
    emitted = sum(len(one) for one in facts if '"emitted"' in one)
    values = sum(len(step["input"] or "") + len(step["output"] or "") for step in stored.steps)
    work = len(facts) + emitted // CHARS_PER_STEP + values // CHARS_OF_VALUES
    if work < MANY_STEPS:
        return restored(stored, plan, owner)
    return await asyncio.to_thread(restored, stored, plan, owner)


def as_decided(stored: StoredRun | None, unwritten: Iterable[Dirty]) -> StoredRun | None:
    """Return what Postgres has of a run, updated with what is not written yet, in its order; None
    if there is no such run. Raises the error that kept rows from being made. `unwritten` must have
    been read before `stored`."""
    row: Columns | None = None if stored is None else stored.row
    steps = {} if stored is None else {step["key"]: step for step in stored.steps}
    for dirty in unwritten:
        if dirty.fault is not None:
            raise dirty.fault
        if dirty.row is not None:
            row = _run_columns(dirty.row, row)
        for key, values in dirty.steps.items():
            if values is not None:
                made = dict(zip(STEP_COLUMNS, values, strict=True))
                before = steps.get(key, made)
                made |= {name: before[name] for name in KEPT_COLUMNS if made[name] is None}
                steps[key] = made
        row = _with_spending(row, steps, dirty.spending.values())
    return None if row is None else StoredRun(row, list(steps.values()))


def _with_spending(
    row: Columns | None, steps: dict[str, Columns], spending: Iterable[Row]
) -> Columns | None:
    """Return a run's own row with what more was spent after its end, and change those of its steps."""
    for _, key, spent_usd, facts, run_facts in spending:
        if row is not None:
            row = {**row, "spent_usd": max(row["spent_usd"], spent_usd)}
            if run_facts is not None:
                of_run = (parsed(row["facts"]) or {}) | parsed(run_facts)
                row["facts"] = json_column(of_run)
        if key in steps:
            merged = (parsed(steps[key]["facts"]) or {}) | parsed(facts)
            steps[key] = {**steps[key], "facts": json_column(merged)}
    return row


def _run_columns(row: Row, before: Columns | None) -> Columns:
    """Return a run's own row by column; the columns that only its first row sets are taken from
    `before`."""
    made = dict(zip(RUN_COLUMNS, row, strict=True))
    if before is not None and before["status"] != RUN_REJECTED:
        made |= {name: before[name] for name in FIRST_COLUMNS}
    return made
