"""Holds a planner's emitted steps to its policy: they may use only what it names. Pure.

Nodes inside a graph, a race or a nested planner are one level deeper; a fallback takes its node's place.
The number of steps that actually run is counted at run time
(`coordinator/core/run/constructs/planned.py`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.pipeline.node_parts import PlanPolicy
from hocket.schemas.pipeline.spec import (
    CallingNode,
    GraphNode,
    HttpNode,
    LlmNode,
    McpNode,
    NatsNode,
    Node,
    PipelineNode,
    PlanningNode,
    PythonNode,
    RaceNode,
    RetrievalNode,
    SqlNode,
)


class PlanRefused(HocketError):
    """The planner's steps were refused: `{field}`: {reason}. {cure}"""

    code = "plan_refused"
    error_class = ErrorClass.INVALID


LISTS = (
    "types",
    "handlers",
    "models",
    "databases",
    "collections",
    "services",
    "mcp_servers",
    "nats_services",
    "pipelines",
)
BOUNDS = ("max_steps", "max_items", "max_attempts", "max_depth")


def check_policy(
    nodes: Mapping[str, Node], policy: PlanPolicy, *, field: str = "nodes", depth: int = 1
) -> None:
    """Raise PlanRefused for the first emitted node that the policy does not allow."""
    if depth > policy.max_depth:
        raise _too_deep(field, depth, policy)
    if depth == 1 and (count := _count(nodes)) > policy.max_steps:
        raise PlanRefused(
            field=field,
            reason=f"there are {count}, but the policy allows {policy.max_steps}",
            cure="Emit fewer steps.",
        )
    for name, node in nodes.items():
        place = f"{field}.{name}"
        for at, one in ((place, node), *_instead(node, place)):
            _check_node(one, policy, at, depth)
            if inside := _inside(one):
                holder = "nodes" if isinstance(one, GraphNode) else "branches"
                check_policy(inside, policy, field=f"{at}.{holder}", depth=depth + 1)


def named_by(node: Node) -> Iterator[tuple[str, str, str]]:
    """Yield the outside resources of a node: the policy's list, the node's field, and the name."""
    if isinstance(node, PythonNode):
        yield "handlers", "handler", node.handler
    elif isinstance(node, LlmNode | PlanningNode):
        yield "models", "model", node.model
        if isinstance(node, PlanningNode) and node.database is not None:
            yield "databases", "database", node.database
    elif isinstance(node, SqlNode):
        yield "databases", "database", node.database
    elif isinstance(node, RetrievalNode):
        yield "collections", "collection", node.collection
    elif isinstance(node, HttpNode):
        yield "services", "service", node.service
    elif isinstance(node, McpNode):
        yield "mcp_servers", "server", node.server
    elif isinstance(node, NatsNode):
        yield "nats_services", "service", node.service
    elif isinstance(node, PipelineNode):
        yield "pipelines", "pipeline", node.pipeline


def _check_node(node: Node, policy: PlanPolicy, field: str, depth: int) -> None:
    if node.type not in policy.types:
        raise _not_allowed(f"{field}.type", node.type, "types", policy.types)
    for kind, place, name in named_by(node):
        if name not in getattr(policy, kind):
            raise _not_allowed(f"{field}.{place}", name, kind, getattr(policy, kind))
    _check_its_authors(node, field)
    if node.retry is not None and node.retry.max_attempts > policy.max_attempts:
        raise _beyond(f"{field}.retry.max_attempts", node.retry.max_attempts, policy.max_attempts)
    if node.cache is not None and node.cache.key is not None:
        raise PlanRefused(
            field=f"{field}.cache.key",
            reason="it would choose whose cache entry the step's output becomes",
            cure="Remove it: the key is then the step's input.",
        )
    if isinstance(node, PlanningNode) and node.emit is not None:
        if depth + node.emit.max_depth > policy.max_depth:
            raise _too_deep(f"{field}.emit.max_depth", depth + node.emit.max_depth, policy)
        _check_narrower(node.emit, policy, f"{field}.emit")


def _check_its_authors(node: Node, field: str) -> None:
    """Refuse fields that only the author of a pipeline may set."""
    if isinstance(node, CallingNode) and node.calls:
        raise PlanRefused(
            field=f"{field}.calls",
            reason="a planner may not choose what handlers call",
            cure="Remove it; let the planner emit these steps, or name a pipeline that has such a node.",
        )
    if node.queue is not None:
        raise PlanRefused(
            field=f"{field}.queue",
            reason="a planner may not choose whose workers run its steps",
            cure="Remove it.",
        )


def _check_narrower(inner: PlanPolicy, outer: PlanPolicy, field: str) -> None:
    """Hold the policy of an emitted planner to that of the planner that emitted it."""
    for kind in LISTS:
        for name in getattr(inner, kind):
            if name not in getattr(outer, kind):
                raise _not_allowed(f"{field}.{kind}", name, kind, getattr(outer, kind))
    for bound in BOUNDS:
        if getattr(inner, bound) > getattr(outer, bound):
            raise _beyond(f"{field}.{bound}", getattr(inner, bound), getattr(outer, bound))
    given, allowed = inner.budget_usd, outer.budget_usd
    if given is not None and allowed is not None and given > allowed:
        raise _beyond(f"{field}.budget_usd", given, allowed)


def _not_allowed(field: str, name: str, kind: str, allowed: tuple[str, ...]) -> PlanRefused:
    return PlanRefused(
        field=field,
        reason=f"`{name}` is not among the allowed {kind}",
        cure=f"Use one of: {', '.join(allowed)}." if allowed else f"The policy allows no {kind}.",
    )


def _beyond(field: str, given: Any, allowed: Any) -> PlanRefused:
    return PlanRefused(
        field=field,
        reason=f"it is {given}, but the policy allows {allowed}",
        cure=f"Use {allowed} or less.",
    )


def _too_deep(field: str, depth: int, policy: PlanPolicy) -> PlanRefused:
    return PlanRefused(
        field=field,
        reason=f"they nest {depth} deep, but the policy allows {policy.max_depth}",
        cure="Emit a flatter graph.",
    )


def _count(nodes: Mapping[str, Node]) -> int:
    instead = [other for node in nodes.values() for _, other in _instead(node, "")]
    every = (*nodes.values(), *instead)
    return len(every) + sum(_count(_inside(node)) for node in every)


def _instead(node: Node, field: str) -> Iterator[tuple[str, Node]]:
    """Yield the nodes that may take a node's place, with their fields."""
    for i, fallback in enumerate(node.fallback):
        yield f"{field}.fallback.{i}.node", fallback.node
    if node.fast is not None:
        yield f"{field}.fast", node.fast


def _inside(node: Node) -> Mapping[str, Node]:
    if isinstance(node, GraphNode):
        return node.nodes
    return node.branches if isinstance(node, RaceNode) else {}
