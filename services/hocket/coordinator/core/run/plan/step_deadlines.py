"""Deadlines of steps, computed backward from the run's.

A step's deadline is the run's deadline minus the tail of the path behind it; its slack is what is
left beyond its own expected time. If not even the *sure* durations of the step and of that path
fit, the deadline is out of reach. The durations come from `core/time/duration_estimates.py`; sums
and tails, which every dispatch reads, are computed once per plan and state of the measurements
(`PlanForecast`).
"""

from typing import Final

from hocket.coordinator.core.run.plan.nodes import CompiledPlan, Node
from hocket.coordinator.core.time.duration_estimates import (
    NOTHING,
    UNIT,
    DurationForecast,
    Estimate,
    Expectation,
)
from hocket.coordinator.core.time.timestamps import nearest

UNKNOWN: Final = Expectation(Estimate(50.0, 625.0), NOTHING)


class NodeForecast:
    """What to expect of a step and of the path behind it, up to the run's end."""

    __slots__ = (
        "after_sure_ms",
        "after_tail_ms",
        "both_tail_ms",
        "expectation",
        "mean_ms",
        "sure_ms",
    )

    def __init__(self, expectation: Expectation) -> None:
        own, after = expectation.own, expectation.after
        self.expectation = expectation
        self.mean_ms: float = own.mean_ms
        self.sure_ms: float = own.sure_ms
        self.after_sure_ms: float = after.sure_ms
        self.after_tail_ms: float = after.tail_ms()
        self.both_tail_ms: float = own.then(after).tail_ms()

    def deadline_at_ms(self, run_deadline_at_ms: float) -> float:
        """Return the latest useful finish of the step (epoch ms)."""
        return nearest(run_deadline_at_ms - self.after_tail_ms)

    def slack_ms(self, run_deadline_at_ms: float, now_ms: float) -> float:
        """Return how much time (ms) is left if the step and the path behind it take their tail."""
        return run_deadline_at_ms - now_ms - self.both_tail_ms

    def latest_feasible_start_at_ms(self, run_deadline_at_ms: float) -> float:
        """Return the latest start of the step with which the run may just make its deadline (epoch
        ms)."""
        return run_deadline_at_ms - self.sure_ms - self.after_sure_ms


class PlanForecast:
    """What to expect of the nodes of a plan, by their index. For a node with `map` or `loop`,
    `nodes` has the node as a whole, and `units` one of its steps."""

    __slots__ = ("expected", "nodes", "units")

    def __init__(self, plan: CompiledPlan, expected: DurationForecast) -> None:
        self.expected = expected
        self.nodes: list[NodeForecast] = [
            NodeForecast(expected.get(node.path, UNKNOWN)) for node in plan.nodes
        ]
        self.units: list[NodeForecast | None] = [_unit(node, expected) for node in plan.nodes]

    def unit(self, node: Node) -> Expectation:
        """Return what to expect of one step of a node with `map` or `loop`."""
        found = self.units[node.index]
        return UNKNOWN if found is None else found.expectation


def _unit(node: Node, expected: DurationForecast) -> NodeForecast | None:
    if not (node.spec.map or node.spec.loop):
        return None
    return NodeForecast(expected.get(node.path + UNIT, UNKNOWN))
