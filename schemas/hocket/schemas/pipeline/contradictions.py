"""Contradictions across a whole pipeline: times that cannot be met, signals that cannot be told apart, a
pipeline that always starts itself. Of what may be meant, it only warns."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hocket.schemas.checks.faults import Faults
from hocket.schemas.errors import ErrorClass, InvalidInput
from hocket.schemas.pipeline.agents.called import called_by
from hocket.schemas.pipeline.expressions import ExpressionFailed, Reading, readings
from hocket.schemas.pipeline.names import read_by
from hocket.schemas.pipeline.node_parts import Retry
from hocket.schemas.pipeline.spec import (
    WAIT_TYPES,
    ApprovalNode,
    GraphNode,
    Node,
    Pipeline,
    PipelineNode,
    PlanningNode,
    RaceNode,
    SignalNode,
)


def check_infeasible(pipeline: Pipeline, faults: Faults) -> None:
    """Collect fast variants that are never used, and `degrade` where there is nothing to degrade."""
    every = list(all_nodes(pipeline.nodes, "nodes"))
    if pipeline.on_infeasible == "degrade":
        if not any(_may_be_spared(node) for _, node, _ in every):
            faults.add(
                InvalidInput(
                    field="on_infeasible",
                    reason="no node is `optional` or has a `fast` variant, so there is nothing to "
                    "degrade",
                    cure="Add one of the two to a node, or set `on_infeasible: fail`.",
                )
            )
        return
    for _, node, field in every:
        if node.fast is not None:
            faults.add(
                InvalidInput(
                    field=f"{field}.fast",
                    reason=f"it is never used with `on_infeasible: {pipeline.on_infeasible}`",
                    cure="Set `on_infeasible: degrade` on the pipeline, or remove it.",
                )
            )


def warnings_of(pipeline: Pipeline) -> Iterator[str]:
    """Yield warnings about what is accepted and seldom meant."""
    yield from _late_starts(pipeline)
    yield from _late_attempts(pipeline)
    yield from _prompts_with_braces(pipeline)


def _late_starts(pipeline: Pipeline) -> Iterator[str]:
    """Yield a warning for a wait before the start of runs that is as long as they may take by default.
    Nothing pauses a deadline before the start."""
    gate = None if pipeline.flow is None else pipeline.flow.debounce
    if gate is not None and gate.wait_s * 1_000 >= pipeline.slo_ms:
        yield (
            f"`flow.debounce.wait_s`: with the default deadline of {pipeline.slo_ms:.0f} ms, runs "
            "expire before they start, unless the task has a longer deadline of its own. Lower it, or "
            "raise `slo_ms`."
        )


def _late_attempts(pipeline: Pipeline) -> Iterator[str]:
    """Yield a warning for each pause before the second attempt that leaves no time for it by default."""
    if may_pause(pipeline.nodes):
        return
    for _, node, field in all_nodes(pipeline.nodes, "nodes"):
        if waits_as_long(node, pipeline.slo_ms):
            yield (
                f"`{field}.retry.backoff_ms`: with the default deadline of {pipeline.slo_ms:.0f} ms, "
                "there is never a second attempt, unless the task has a longer deadline of its own. "
                "Lower it, or raise `slo_ms`."
            )


def waits_as_long(node: Node, limit_ms: float) -> bool:
    """Tell whether a node waits at least this long before its second attempt, and not by default. Stored
    pipelines have all defaults, so that nobody can tell whether a default was written."""
    retry = node.retry
    if retry is None or retry.max_attempts < 2 or retry.backoff_ms == Retry().backoff_ms:
        return False
    return min(retry.backoff_ms, retry.max_backoff_ms) >= limit_ms


def _prompts_with_braces(pipeline: Pipeline) -> Iterator[str]:
    """Yield a warning for each approval whose prompt is written as a template."""
    for place in _places(pipeline.nodes, "nodes"):
        node, field = place.node, place.field
        if isinstance(node, ApprovalNode) and ("{{" in node.prompt or "{%" in node.prompt):
            cure = "Put the values in the node's `with`, which is shown beside it."
            if place.is_called:
                cure = "Pass the values as the input of the call, which is shown beside it."
            yield f"`{field}.prompt` is plain text, and is shown with its braces. {cure}"


def _may_be_spared(node: Node) -> bool:
    """Tell whether a node can be left out or replaced to save time; what a planner emits may be."""
    emits = isinstance(node, PlanningNode) and node.emit is not None
    return node.optional or node.fast is not None or emits


def may_pause(nodes: Mapping[str, Node]) -> bool:
    """Tell whether a node, wherever it is, may pause the run's deadline, or a planner may emit such a
    node."""
    return any(_may_pause(node) for _, node, _ in all_nodes(nodes, "nodes"))


def _may_pause(node: Node) -> bool:
    if isinstance(node, ApprovalNode | SignalNode):
        return node.pause_deadline
    emit = node.emit if isinstance(node, PlanningNode) else None
    return emit is not None and any(kind in WAIT_TYPES for kind in emit.types)


def check_signals(spec: Pipeline | GraphNode, faults: Faults) -> None:
    """Collect signals with the name of an approval, because an answer could go to either."""
    every = list(all_nodes(spec.nodes, "nodes"))
    approvals = {name: field for name, node, field in every if isinstance(node, ApprovalNode)}
    for _, node, field in every:
        if isinstance(node, SignalNode) and node.signal in approvals:
            reason = f"the approval `{approvals[node.signal]}` also listens for `{node.signal}`"
            cure = "Give the signal another name."
            faults.add(InvalidInput(field=f"{field}.signal", reason=reason, cure=cure))


class _Place(NamedTuple):
    """A node with its field, and whether it is the tool of an agent, or one that a handler calls."""

    name: str
    node: Node
    field: str
    is_called: bool = False


def all_nodes(nodes: Mapping[str, Node], field: str) -> Iterator[tuple[str, Node, str]]:
    """Yield nodes and all that are inside them, each with its name and field."""
    for place in _places(nodes, field):
        yield place.name, place.node, place.field


def _places(nodes: Mapping[str, Node], field: str) -> Iterator[_Place]:
    for name, node in nodes.items():
        yield from _with_inner(_Place(name, node, f"{field}.{name}"))


def _with_inner(outer: _Place) -> Iterator[_Place]:
    yield outer
    name, node, field, _ = outer
    if isinstance(node, GraphNode):
        yield from _places(node.nodes, f"{field}.nodes")
    elif isinstance(node, RaceNode):
        yield from _places(node.branches, f"{field}.branches")
    for place, called in called_by(node):
        own = _Place(place.split(".")[1], called, f"{field}.{place}", is_called=True)
        yield from _with_inner(own)
    for i, fallback in enumerate(node.fallback):
        yield from _with_inner(_Place(name, fallback.node, f"{field}.fallback.{i}.node"))
    if node.fast is not None:
        yield from _with_inner(_Place(name, node.fast, f"{field}.fast"))


def check_self_calls(pipeline: Pipeline) -> None:
    """Refuse a pipeline that calls itself in every run, and so without end."""
    for field, node in _always(pipeline.nodes, "nodes"):
        if isinstance(node, PipelineNode) and node.pipeline == pipeline.pipeline:
            raise InvalidInput(
                field=f"{field}.pipeline",
                reason="the pipeline calls itself in every run and never ends",
                cure="Give the node a `when` that ends the recursion, or call another pipeline.",
            )


def _always(nodes: Mapping[str, Node], field: str) -> Iterator[tuple[str, Node]]:
    """Yield the nodes that run whenever their scope does, because nothing can skip them."""
    dependents: dict[str, list[str]] = {}
    ready: list[str] = []
    for name, node in nodes.items():
        needs = needs_of(node, f"{field}.{name}")
        ready += [] if needs else [name]
        for need in needs:
            dependents.setdefault(need, []).append(name)
    seen = set(ready)
    while ready:
        name = ready.pop()
        node = nodes[name]
        if node.when is None and node.map is None:
            yield from _always_inside(node, f"{field}.{name}")
            fresh = [other for other in dependents.get(name, ()) if other not in seen]
            seen.update(fresh)
            ready += fresh


def _always_inside(node: Node, field: str) -> Iterator[tuple[str, Node]]:
    yield field, node
    if isinstance(node, GraphNode):
        yield from _always(node.nodes, f"{field}.nodes")
    elif isinstance(node, RaceNode):
        for name, branch in node.branches.items():
            if branch.map is None:
                yield from _always_inside(branch, f"{field}.branches.{name}")


def needs_of(node: Node, field: str) -> set[str]:
    """Return the siblings that a node needs, without those of templates that do not parse."""
    return {*node.needs, *read_by(node, field, applied=True)}


def check_optional(nodes: Mapping[str, Node], output: Any, field: str, faults: Faults) -> None:
    """Collect optional nodes whose failure would still break what reads their output."""
    needed = {need for name, node in nodes.items() for need in needs_of(node, f"{field}.{name}")}
    finals = [name for name in nodes if name not in needed]
    if output is None and len(finals) == 1 and nodes[finals[0]].optional:
        faults.add(
            InvalidInput(
                field=f"{field}.{finals[0]}.optional",
                reason="its output is the overall output, which would be null if it failed",
                cure="Remove `optional`, give it a `fallback`, or set `output`.",
            )
        )
    for name, node in nodes.items():
        if not node.optional and node.when is None:
            _check_reads_no_optional(node, f"{field}.{name}", nodes, faults)
        if (
            isinstance(node, GraphNode) and field == "nodes"
        ):  # further inside, others may survive it
            _check_graph_output(node, f"{field}.{name}.output", faults)


def check_output(nodes: Mapping[str, Node], output: Any, field: str, faults: Faults) -> None:
    """Collect what an optional node would break of an output if it failed."""
    for reading in readings(output, field, applied=True):
        with faults.part():
            _check_not_optional(reading, 4, "none", nodes)


def _check_graph_output(graph: GraphNode, field: str, faults: Faults) -> None:
    is_skipped = graph.map is not None and graph.map.on_item_error == "skip"
    if not (graph.optional or is_skipped or _replaces(graph, ExpressionFailed.code)):
        check_output(graph.nodes, graph.output, field, faults)


def _check_reads_no_optional(
    node: Node, field: str, nodes: Mapping[str, Node], faults: Faults
) -> None:
    replaces = _replaces(node, ExpressionFailed.code)
    for reading in readings(node.with_, f"{field}.with", applied=True):
        with faults.part():
            if not replaces:
                _check_not_optional(reading, 4, "none", nodes)
    if node.map is not None:
        over = readings(node.map.over, f"{field}.map.over", expression=True, applied=True)
        for reading in over:
            is_whole = reading.only is not None and len(reading.only) == 3
            with faults.part():
                if not (_replaces(node, InvalidInput.code) if is_whole else replaces):
                    _check_not_optional(reading, 3, "[]", nodes)


def _replaces(node: Node, code: str) -> bool:
    """Tell whether a node has a fallback for an error with this code, whose class is `invalid`."""
    known = (code, ErrorClass.INVALID.value)
    return any(not one.on or any(name in one.on for name in known) for one in node.fallback)


def _check_not_optional(
    reading: Reading, least: int, instead: str, nodes: Mapping[str, Node]
) -> None:
    """Refuse a bare path of at least `least` words that leads through an optional node's output."""
    path = reading.only
    if path is None or len(path) < least or path[0] != "nodes" or path[2] != "output":
        return
    source = nodes.get(path[1])
    if source is not None and source.optional:
        text = ".".join(path)
        raise InvalidInput(
            field=reading.field,
            reason=f"`{text}` fails if the optional node `{path[1]}` fails, because its output is then "
            f"null",
            cure=f"Provide a default, e.g. "
            f"`{text} if nodes.{path[1]}.output else {instead}`, "
            f"or remove `optional`.",
        )
