"""Whether a run can still make its deadline, and until when one of its nodes may take
(`on_infeasible`).

What counts are durations that are measured or said (`sure_ms`) of nodes that must run; of what
nobody knows a run is never given up. A probe is not judged when its nodes start: it measures a
pipeline whose estimates would else stand for ever, for what is given up measures nothing.
"""

from hocket.coordinator.core.run.plan.nodes import Node
from hocket.coordinator.core.run.state.run import RUN_DEGRADED, RUN_FAILED, Run
from hocket.coordinator.core.run.transition import Transition
from hocket.coordinator.core.time.duration_estimates import Estimate, Expectation
from hocket.coordinator.core.time.timestamps import nearest
from hocket.schemas.errors import ErrorClass, HocketError

UNSURE_SHARE = 0.5
"""A node is left this share of the time at least, where what would come instead of it and behind it
was never measured."""
LAST_MOMENT_SD = 2.326
"""Standard deviations of tail that are left free for what comes after a node is given up: 99 % of a
normal distribution, for there is nothing left to be given up then."""


class DeadlineInfeasible(HocketError):
    """The run cannot meet its deadline any more: node `{node}` and what follows it are expected to
    take longer than is left. Nothing more is spent (`on_infeasible: fail`)."""

    code = "deadline_infeasible"
    error_class = ErrorClass.TIMEOUT


class TooSlow(HocketError):
    """Node `{node}` was given up so that the run can meet its deadline (`on_infeasible: degrade`)."""

    code = "too_slow_for_deadline"
    error_class = ErrorClass.TIMEOUT


def is_judged(t: Transition) -> bool:
    """Tell whether the pipeline wants infeasible runs treated in some way."""
    return t.plan.judges and not t.run.probe


def is_watched(t: Transition) -> bool:
    """Tell whether nodes that run are given up at the last moment. Those of a probe are where the
    pipeline degrades: they begin as they are, and its run is saved all the same."""
    return t.plan.degrades or is_judged(t)


def was_given_up(run: Run) -> bool:
    """Tell whether an ended run was given up, or a node of it: for want of time, by the estimates."""
    if run.status == RUN_FAILED:
        return run.error is not None and run.error.code == DeadlineInfeasible.code
    if run.status != RUN_DEGRADED:
        return False
    errors = (step.error for step in run.steps.values())
    return any(error is not None and error.code == TooSlow.code for error in errors)


def may_be_spared(t: Transition, node: Node) -> bool:
    """Tell whether something is done about a node that starts too late."""
    if not is_judged(t):
        return False
    return t.plan.fails_infeasible or node.fast is not None or node.optional


def is_too_late(t: Transition, node: Node, expected: Expectation) -> bool:
    """Tell whether a node that starts now would miss the run's deadline, or be given up most
    likely."""
    return t.run.paused_at_ms is None and t.now_ms > start_by_at_ms(t, node, expected)


def start_by_at_ms(t: Transition, node: Node, expected: Expectation) -> float:
    """Return when a node must have started: so that what is sure of it ends by the moment at which
    what is sure behind it still fits, and by that at which it is given up, where this is known."""
    end_at_ms = t.run.deadline_at_ms - expected.after.sure_ms
    instead = _instead_of(node, expected) if is_watched(t) else None
    if instead is not None and instead.sure_ms >= instead.mean_ms:
        end_at_ms = min(end_at_ms, _last_moment_ms(t, instead))
    return end_at_ms - expected.own.sure_ms


def give_up_at_ms(t: Transition, node: Node, expected: Expectation) -> float | None:
    """Return when a node that starts now must have ended, or something else is done about it."""
    if not is_watched(t) or t.run.paused_at_ms is not None:
        return None
    deadline_at_ms = t.run.deadline_at_ms
    if t.plan.fails_infeasible:
        sure_ms = expected.after.sure_ms
        return nearest(deadline_at_ms - sure_ms) if sure_ms > 0 else None
    instead = _instead_of(node, expected)
    if instead is None:
        return None
    at_ms = _last_moment_ms(t, instead)
    if instead.sure_ms < instead.mean_ms:
        at_ms = max(at_ms, t.now_ms + UNSURE_SHARE * (deadline_at_ms - t.now_ms))
    at_ms = nearest(at_ms)
    return at_ms if at_ms > t.now_ms else None


def _instead_of(node: Node, expected: Expectation) -> Estimate | None:
    """Return what comes instead of a node that is given up, to the run's end."""
    if node.fast is not None and expected.fast is not None:
        return expected.fast.then(expected.after_least)
    return expected.after_least if node.optional else None


def _last_moment_ms(t: Transition, instead: Estimate) -> float:
    return t.run.deadline_at_ms - instead.tail_ms(LAST_MOMENT_SD)
