"""Whether a run can still make its deadline, and how long one of its nodes may take
(`on_infeasible`).

Only measured or declared durations (`sure_ms`) of nodes that must run count: a run is never given
up because of a duration that nobody knows. A probe is not judged when its nodes start: it measures
a pipeline whose estimates would otherwise never change, because a node that is given up yields no
measurement.
"""

from hocket.coordinator.core.run.plan.nodes import Node
from hocket.coordinator.core.run.state.run import RUN_DEGRADED, RUN_FAILED, Run
from hocket.coordinator.core.run.transition import Transition
from hocket.coordinator.core.time.duration_estimates import Estimate, Expectation
from hocket.coordinator.core.time.timestamps import nearest
from hocket.schemas.errors import ErrorClass, HocketError

UNSURE_SHARE = 0.5
"""The share of the remaining time that a node gets at least, if its replacement or what follows was
never measured."""
LAST_MOMENT_SD = 2.326
"""Standard deviations of the tail that are kept free for what follows a node that is given up: 99 %
of a normal distribution, because nothing is left to give up after that."""


class DeadlineInfeasible(HocketError):
    """The run can no longer meet its deadline: node `{node}` and what follows it are expected to take
    longer than is left. Nothing more is spent (`on_infeasible: fail`)."""

    code = "deadline_infeasible"
    error_class = ErrorClass.TIMEOUT


class TooSlow(HocketError):
    """Node `{node}` was abandoned so that the run can meet its deadline (`on_infeasible: degrade`)."""

    code = "too_slow_for_deadline"
    error_class = ErrorClass.TIMEOUT


def is_judged(t: Transition) -> bool:
    """Tell whether `on_infeasible` applies when nodes of this run start; not for probes."""
    return t.plan.judges and not t.run.probe


def is_watched(t: Transition) -> bool:
    """Tell whether running nodes are given up at the last moment. In a pipeline that degrades, this
    includes those of a probe: they start unjudged, but the run is still saved."""
    return t.plan.degrades or is_judged(t)


def was_given_up(run: Run) -> bool:
    """Tell whether an ended run, or one of its nodes, was given up because the estimates left no
    time."""
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
    """Tell whether a node that starts now would miss the run's deadline, or would most likely be
    given up."""
    return t.run.paused_at_ms is None and t.now_ms > start_by_at_ms(t, node, expected)


def start_by_at_ms(t: Transition, node: Node, expected: Expectation) -> float:
    """Return the latest time (epoch ms) at which a node can start: the known part of its duration
    must end before the known part of what follows has to begin, and before the node would be given
    up, where that time is known."""
    end_at_ms = t.run.deadline_at_ms - expected.after.sure_ms
    instead = _instead_of(node, expected) if is_watched(t) else None
    if instead is not None and instead.sure_ms >= instead.mean_ms:
        end_at_ms = min(end_at_ms, _last_moment_ms(t, instead))
    return end_at_ms - expected.own.sure_ms


def give_up_at_ms(t: Transition, node: Node, expected: Expectation) -> float | None:
    """Return when a node that starts now is given up unless it has ended (epoch ms); None if never."""
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
    """Return the estimate from a given-up node's replacement to the run's end; None if the node may
    not be given up."""
    if node.fast is not None and expected.fast is not None:
        return expected.fast.then(expected.after_least)
    return expected.after_least if node.optional else None


def _last_moment_ms(t: Transition, instead: Estimate) -> float:
    return t.run.deadline_at_ms - instead.tail_ms(LAST_MOMENT_SD)
