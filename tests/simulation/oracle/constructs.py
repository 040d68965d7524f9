"""The constructs of a pipeline, by the names of the spec."""

from hocket.coordinator.core.machine.plan.nodes import Node, PipelinePlan

SUPPORTED = frozenset(
    """plain needs when map loop race graph fallback fast optional retry timeout cache pipeline approval
    signal planning external expect prefill budget on_infeasible with output""".split()
)
"""What the new core does. A run with anything else is told of, and not compared."""


def constructs_of(plan: PipelinePlan) -> tuple[str, ...]:
    """Return what a pipeline uses."""
    found = {"plain"}
    for node in plan.nodes:
        found |= _of_node(node)
    spec = plan.source.pipeline
    if spec.on_infeasible != "continue":
        found.add("on_infeasible")
    if spec.budget_usd is not None:
        found.add("budget")
    if spec.output is not None:
        found.add("output")
    return tuple(sorted(found))


def _of_node(node: Node) -> set[str]:
    spec = node.spec
    flags = {
        "needs": node.needs,
        "when": spec.when,
        "map": spec.map,
        "loop": spec.loop,
        "fallback": spec.fallback,
        "fast": spec.fast,
        "optional": spec.optional,
        "retry": spec.retry,
        "timeout": spec.timeout_ms,
        "cache": spec.cache,
        "external": node.is_external,
        "expect": spec.expect,
        "with": spec.with_,
        "planning": node.emit,
        "prefill": getattr(spec, "prefill", False),
    }
    found = {name for name, flag in flags.items() if flag}
    if node.type in ("race", "graph", "pipeline", "approval", "signal"):
        found.add(node.type)
    return found
