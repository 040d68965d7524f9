"""Which models a run will need, and when, derived from its plan as soon as it is accepted.

A node begins when all that it needs is done. Only what is surely needed and known counts: the
measured (or, with `expect`, declared) duration of what comes before, less two standard deviations,
so that no model is made ready too late because a step was quick. Nodes with a condition count,
because they may run; fallbacks and fast variants do not; a sub-run announces its own needs when it
begins.
"""

from math import sqrt

from hocket.coordinator.core.time.duration_estimates import DurationForecast
from hocket.schemas.messages import NodeExpected
from hocket.schemas.pipeline.plan import NodePlan, Plan, ScopePlan

MAX_TOLD = 200
"""The most nodes that are announced."""
SPREAD_SD = 2.0
_OWN_MODEL = frozenset({"llm", "agent", "planning"})
_HANDLERS_MODEL = frozenset({"python"})


def expected_nodes(plan: Plan, outlook: DurationForecast) -> tuple[NodeExpected, ...]:
    """Return the nodes of a plan that need a model, or may need one, with the earliest time at
    which each begins after the run's acceptance."""
    found: list[NodeExpected] = []
    _scope(plan.root, 0.0, outlook, found)
    return tuple(found[:MAX_TOLD])


def needs_models(plan: Plan) -> bool:
    """Tell whether any node of a plan needs a model, or may need one."""
    return any(node.node.type in _OWN_MODEL | _HANDLERS_MODEL for node in plan.by_path.values())


def _scope(
    scope: ScopePlan, begins_ms: float, outlook: DurationForecast, found: list[NodeExpected]
) -> None:
    ends_ms: dict[str, float] = {}
    for name in scope.order:
        node = scope.nodes[name]
        at_ms = max((ends_ms[need] for need in node.needs), default=begins_ms)
        _node(node, at_ms, outlook, found)
        ends_ms[name] = at_ms + _surely_ms(node, outlook)


def _node(
    node: NodePlan, at_ms: float, outlook: DurationForecast, found: list[NodeExpected]
) -> None:
    if node.node.type in _OWN_MODEL:
        model = node.config.get("model")
        found.append(NodeExpected(node=node.path, model=model, after_ms=at_ms))
    elif node.node.type in _HANDLERS_MODEL:
        found.append(NodeExpected(node=node.path, after_ms=at_ms))
    if node.body is not None:
        _scope(node.body, at_ms, outlook, found)
    for branch in node.branches.values():
        _node(branch, at_ms, outlook, found)


def _surely_ms(node: NodePlan, outlook: DurationForecast) -> float:
    expectation = outlook.get(node.path)
    if expectation is None:
        return 0.0
    own = expectation.own
    return max(0.0, own.sure_ms - SPREAD_SD * sqrt(own.variance))
