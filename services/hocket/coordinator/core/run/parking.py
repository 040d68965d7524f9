"""When a run is idle: nobody works on it, and there is nothing to do until an event or a point in
time.

Such a run need not stay in memory. It is parked: its row says until when, and it is loaded again by
the next event that names it, or when its time has come.
"""

from hocket.coordinator.core.flow.entry import waits_for_flow
from hocket.coordinator.core.run.plan.nodes import SUBRUN
from hocket.coordinator.core.run.state.run import (
    DISPATCHED,
    LOOKING_UP,
    TERMINAL,
    WAITING,
    Run,
    Step,
    is_suspended,
)

PERSON_QUIET_MS = 2_000.0
"""A run that waits for a person, a signal or its turn to start is parked after this long without an
event ..."""
PERSON_WAKE_MS = 10_000.0
"""... unless it wakes within this time."""
OTHER_QUIET_MS = 30_000.0
"""The same for a run that waits for a sub-run or a backoff, which are over sooner."""
OTHER_WAKE_MS = 60_000.0
NEVER_MS = 253_370_764_800_000.0
"""The year 9999."""


def rests_until(run: Run, *, quiet_ms: float, now_ms: float) -> float | None:
    """Return when a run that had no event for `quiet_ms` wants to be woken (epoch ms; NEVER_MS if
    only an event can wake it), or None if it should stay in memory."""
    if run.has_ended or quiet_ms < PERSON_QUIET_MS:
        return None
    for_person = waits_for_flow(run)
    for step in run.steps.values():
        if step.state in TERMINAL:
            continue
        if _is_worked_on(step):
            return None
        for_person = for_person or _waits(step)
    wake_at_ms = NEVER_MS if run.armed_at_ms is None else run.armed_at_ms
    if for_person:
        return wake_at_ms if wake_at_ms > now_ms + PERSON_WAKE_MS else None
    if quiet_ms < OTHER_QUIET_MS or wake_at_ms <= now_ms + OTHER_WAKE_MS:
        return None
    return wake_at_ms


def _is_worked_on(step: Step) -> bool:
    return step.state == LOOKING_UP or (step.state == DISPATCHED and step.role != SUBRUN)


def _waits(step: Step) -> bool:
    """Tell whether a step waits for something outside, for an unknown time."""
    return step.state == WAITING or is_suspended(step)
