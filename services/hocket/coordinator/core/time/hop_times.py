"""What steps take beside their own time: the way to a worker, the wait for a slot, the way back.

This depends on the load and not on the node, and slack does not include it. But a run that waits
until the last moment before a fast variant takes over (`on_infeasible: degrade`) must leave time
for it, once for every step that is still to come. What counts then is how long it takes for steps
in a hurry, because they overtake the others: only those are measured. A queue grows within a
second, so a long hop counts at once, and short ones only slowly bring the estimate down again.
"""

from hocket.coordinator.core.run.state.run import Run, Step
from hocket.coordinator.core.scheduling.lanes import URGENT_SLACK_MS
from hocket.coordinator.core.time.duration_estimates import DECAY, Estimate
from hocket.schemas.messages import AttemptFinished, Priority

RISE = 0.3
"""The least weight of a hop that is longer than the mean."""


def hop_ms(run: Run, step: Step, event: AttemptFinished) -> float | None:
    """Return what an ended attempt took beside its own time (ms); None if it was not in a hurry, or
    did not run."""
    if step.finished_at_ms is None or step.dispatched_at_ms is None or not event.started_at_ms:
        return None
    if run.priority is not Priority.INTERACTIVE and (step.slack_ms or 0.0) >= URGENT_SLACK_MS:
        return None
    ran_ms = max(0.0, event.finished_at_ms - event.started_at_ms)
    return max(0.0, step.finished_at_ms - step.dispatched_at_ms - ran_ms)


def observe_hop(estimate: Estimate | None, hop_ms: float) -> Estimate:
    """Return the estimate after one more hop."""
    if estimate is None or estimate.weight == 0.0:
        return Estimate(hop_ms, 0.0, 1.0)
    weight = estimate.weight * DECAY + 1.0
    delta = hop_ms - estimate.mean_ms
    share = max(RISE, 1.0 / weight) if delta > 0 else 1.0 / weight
    variance = (1.0 - share) * (estimate.variance + share * delta * delta)
    return Estimate(estimate.mean_ms + share * delta, variance, weight)
