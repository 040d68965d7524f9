"""Which names an expression may read, depending on its place; others are refused before anything runs.

Everywhere: `input`, `nodes` (the siblings), `run`. In addition, from the layers around a step: the item
(`item`, or the name given by `as`) and `index` in a map, `round` and `previous` in a loop, `error` in a
fallback; `output` in `until`, `valid` and `score`. Templates that a worker renders (prompts, queries,
parameters) see only `input`. The fields of `input` are known if the node's `with` names them, or if the
pipeline's input schema allows no others. Then the fields that a worker reads by name must be among them:
`documents`, and what it uses in place of a missing `prompt` or `query`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Never

from hocket.schemas.checks.faults import Faults, listed
from hocket.schemas.errors import ErrorInfo, InvalidInput
from hocket.schemas.pipeline.expressions import Reading, readings
from hocket.schemas.pipeline.flow.spec import FLOW_KINDS, Flow
from hocket.schemas.pipeline.spec import (
    AgentNode,
    AgentTool,
    CallingNode,
    GraphNode,
    HttpNode,
    LlmNode,
    McpNode,
    NatsNode,
    Node,
    NodeBase,
    PlanningNode,
    RaceNode,
    RetrievalNode,
    SqlNode,
)

NODE_FIELDS = frozenset({"output", "error", "state"})
RUN_FIELDS = frozenset({"id", "pipeline", "version", "tenant"})
ERROR_FIELDS = frozenset(ErrorInfo.model_fields)

_EVERYWHERE = frozenset({"input", "nodes", "run"})
_WHERE = {
    "item": "It is available in the `with` of a node that has `map`.",
    "index": "It is available in the `with` of a node that has `map`.",
    "round": "It is available in the `with` and `until` of a node that has `loop`.",
    "previous": "It is available in the `with` and `until` of a node that has `loop`.",
    "output": "It is available in `until`, `valid` and `score`.",
    "error": "It is available in the `with` of a fallback.",
}


@dataclass(frozen=True, slots=True)
class Keys:
    """The fields of an input, and the cure if another one is read."""

    names: frozenset[str]
    cure: str


_UNKNOWN = Keys(frozenset(), "")
"""The keys of an owner's input that are not known before the run."""


@dataclass(frozen=True, slots=True)
class Known:
    """The names that expressions in one place may read."""

    names: frozenset[str]
    nodes: Mapping[str, Node]
    outer: frozenset[str]
    """Nodes and names of enclosing scopes, which expressions here cannot see."""
    input: Keys | None
    faults: Faults
    refused: frozenset[str] = frozenset()
    """The fields of nodes whose definition is refused: which names they may read is not known."""
    is_open: bool = False
    """Whether any name may be read, because it is not known which."""

    def also(self, *names: str) -> "Known":
        return replace(self, names=self.names | set(names))


def check_names(
    nodes: Mapping[str, Node],
    output: Any,
    faults: Faults,
    *,
    schema: Mapping[str, Any],
    refused: frozenset[str] = frozenset(),
) -> None:
    """Collect the expressions of a pipeline that do not parse, or read something unavailable. `refused`
    are the fields of nodes whose own definition is refused."""
    known = Known(_EVERYWHERE, nodes, frozenset(), _schema_keys(schema), faults, refused)
    _check_scope(nodes, output, "nodes", "output", known)


def check_flow_names(flow: Flow | None, faults: Faults, *, schema: Mapping[str, Any]) -> None:
    """Collect the keys of a pipeline's `flow` that do not parse, or read something unavailable."""
    known = Known(frozenset({"input"}), {}, frozenset(), _schema_keys(schema), faults)
    for kind in FLOW_KINDS if flow is not None else ():
        spec = getattr(flow, kind)
        if spec is not None and spec.key is not None:
            for reading in readings(spec.key, f"flow.{kind}.key", faults=faults):
                _check(reading, known)


def read_by(node: NodeBase, field: str, *, applied: bool = False) -> dict[str, str]:
    """Return the siblings that a node reads, each with the field that reads it, in its own expressions
    and in those of its branches, fallbacks and fast variant. `applied` as in `readings`."""
    found: dict[str, str] = {}
    for reading in _own_readings(node, field, applied=applied):
        for name in reading.nodes:
            found.setdefault(name, reading.field)
    for place, inner in _inner(node, field):
        for name, at in read_by(inner, place, applied=applied).items():
            found.setdefault(name, at)
    return found


def _check_scope(
    nodes: Mapping[str, Node], output: Any, field: str, output_field: str, known: Known
) -> None:
    for name, node in nodes.items():
        _check_node(name, node, f"{field}.{name}", known, owner=None)
    for reading in readings(output, output_field, faults=known.faults):
        _check(reading, known)


def _check_node(
    name: str,
    node: Node,
    field: str,
    known: Known,
    *,
    owner: Keys | None,
    itself: str = "Remove it, or read another node.",
) -> None:
    """Check a node, or a branch or fallback, whose input without a `with` is its `owner`'s. `itself` is
    the cure if it reads its own node."""
    if field in known.refused:
        known = replace(known, is_open=True, input=None)
    own = known
    if node.when is not None:
        _check_expression(name, node.when, f"{field}.when", known, itself)
    if node.map is not None:
        _check_expression(name, node.map.over, f"{field}.map.over", own, itself)
        own = own.also(node.map.as_, "index")
    if node.loop is not None:
        own = own.also("round", "previous")
        cure = "Read `output`, the output of this round."
        _check_expression(name, node.loop.until, f"{field}.loop.until", own.also("output"), cure)
        itself = "Read `previous`, the output of the previous round."
    for reading in readings(node.with_, f"{field}.with", faults=known.faults):
        _check_own(name, reading, own, itself)
    if node.cache is not None and node.cache.key is not None:
        _check_expression(name, node.cache.key, f"{field}.cache.key", own, itself)
    given = _input_keys(node, field, own, owner)
    _check_worker_reads(node, field, given, known.faults)
    _check_inner(name, node, field, own, given)
    for i, fallback in enumerate(node.fallback):
        place, cure = f"{field}.fallback.{i}.node", "Read `error`: the node has no output."
        inside = known.also("error")
        _check_node(name, fallback.node, place, inside, owner=given or _UNKNOWN, itself=cure)
    if node.fast is not None:
        cure = "Read another node: this one has no output yet."
        _check_node(name, node.fast, f"{field}.fast", known, owner=given or _UNKNOWN, itself=cure)


def _check_inner(name: str, node: Node, field: str, known: Known, given: Keys | None) -> None:
    """Check the nodes inside a race or graph; `given` are the keys of its input."""
    if isinstance(node, RaceNode):
        cure = "Read `output`, the output of a branch."
        for text, place in ((node.valid, "valid"), (node.score, "score")):
            if text is not None:
                _check_expression(name, text, f"{field}.{place}", known.also("output"), cure)
        for branch, inner in node.branches.items():
            _check_node(name, inner, f"{field}.branches.{branch}", known, owner=given or _UNKNOWN)
    if isinstance(node, GraphNode):
        outer = known.outer | set(known.nodes) | (known.names - _EVERYWHERE)
        inside = replace(known, names=_EVERYWHERE, nodes=node.nodes, outer=outer, input=given)
        _check_scope(node.nodes, node.output, f"{field}.nodes", f"{field}.output", inside)
    if isinstance(node, AgentNode):
        for tool_name, tool in node.tools.items():
            _check_tool(tool_name, tool, f"{field}.tools.{tool_name}", known)
    if isinstance(node, CallingNode):
        for called_name, called in node.calls.items():
            _check_called(called_name, called, f"{field}.calls.{called_name}", known)


def _check_tool(name: str, tool: AgentTool, field: str, known: Known) -> None:
    """Check the node of a tool, which sees only the call's arguments as its `input`."""
    given = _schema_keys(tool.parameters or {})
    if given is not None:
        cure = f"Add `{{name}}` to `{field}.parameters.properties`, which allows nothing else."
        given = replace(given, cure=cure)
    seen = replace(known, names=_EVERYWHERE, nodes={}, outer=frozenset(), input=given)
    nodes = [(tool.node, f"{field}.node")]
    nodes += [
        (one.node, f"{field}.node.fallback.{i}.node") for i, one in enumerate(tool.node.fallback)
    ]
    for node, place in nodes:
        own = given if node.with_ is None else _input_keys(node, place, seen, None)
        _check_worker_reads(node, place, own, known.faults)
        _check_inner(name, node, place, seen, own)


def _check_called(name: str, node: Node, field: str, known: Known) -> None:
    """Check a node that a handler calls, which sees only the call's `input`."""
    names = frozenset({"input", "run"})
    seen = replace(known, names=names, nodes={}, outer=frozenset(), input=None)
    _check_node(name, node, field, seen, owner=_UNKNOWN)


def _check_expression(name: str, text: str, field: str, known: Known, itself: str) -> None:
    for reading in readings(text, field, expression=True, faults=known.faults):
        _check_own(name, reading, known, itself)


def _check_own(name: str, reading: Reading, known: Known, itself: str) -> None:
    """Check what a node reads; it cannot read itself."""
    if name in reading.nodes:
        reason = "it reads the node itself, which has not ended yet"
        known.faults.add(InvalidInput(field=reading.field, reason=reason, cure=itself))
    else:
        _check(reading, known)


def _check_worker_reads(node: Node, field: str, given: Keys | None, faults: Faults) -> None:
    """Check what the node's worker reads from its input: in templates, and by name."""
    for reading in _worker_readings(node, field, faults):
        _check_worker(reading, given, faults)
    if given is None:
        return
    if isinstance(node, LlmNode):
        for i, path in enumerate(node.documents):
            with faults.part():
                _check_document(path, f"{field}.documents.{i}", given)
    own, names = _read_instead(node)
    if names and given.names.isdisjoint(names):
        shown = " or ".join(f"`{name}`" for name in names)
        cure = given.cure.format(name=names[0])
        faults.add(
            InvalidInput(
                field=f"{field}.{own}",
                reason=f"it is missing, and the input has no {shown} to use instead",
                cure=f"Set `{own}`, or let the input have `{names[0]}`: {cure[0].lower()}{cure[1:]}",
            )
        )


def _check_document(path: str, field: str, given: Keys) -> None:
    name = path.split(".")[0]
    if name not in given.names:
        raise InvalidInput(
            field=field,
            reason=f"it reads `input.{name}`, but the input has no `{name}`",
            cure=given.cure.format(name=name),
        )


def _read_instead(node: Node) -> tuple[str, tuple[str, ...]]:
    """Return a field that a node does not have, and the fields of its input of which its worker then
    needs one; no names if it needs none."""
    if isinstance(node, PlanningNode | AgentNode) and node.prompt is None:
        return "prompt", ("question",)
    if isinstance(node, RetrievalNode) and node.query is None:
        return "query", ("query", "queries")
    if isinstance(node, SqlNode) and node.query is None:
        return "query", ("sql",)
    return "", ()


def _check_worker(reading: Reading, given: Keys | None, faults: Faults) -> None:
    for name in sorted(reading.names - {"input"}):
        faults.add(
            InvalidInput(
                field=reading.field,
                reason=f"it reads `{name}`, but a worker knows only the step's `input`",
                cure=f"Put it into `with` and read it as `input.{name if name != 'nodes' else 'NAME'}`.",
            )
        )
    seen = Known(frozenset({"input"}), {}, frozenset(), given, faults)
    _check_paths(reading, seen)


def _check(reading: Reading, known: Known) -> None:
    _check_paths(reading, known)
    for name in sorted(reading.names - known.names) if not known.is_open else ():
        known.faults.add(
            InvalidInput(
                field=reading.field,
                reason=f"it reads `{name}`, but there is no such name here",
                cure=_cure_of_name(name, known),
            )
        )


def _check_paths(reading: Reading, known: Known) -> None:
    for path in reading.paths:
        if len(path) > 1 and path[0] in reading.names & known.names:
            with known.faults.part():
                _check_path(reading, path, known)


def _check_path(reading: Reading, path: tuple[str, ...], known: Known) -> None:
    root, name = path[:2]
    if root == "nodes":
        _check_node_path(reading, path, known)
    elif root == "run" and name not in RUN_FIELDS:
        _no_such_field(reading.field, root, name, RUN_FIELDS)
    elif root == "error" and name not in ERROR_FIELDS:
        _no_such_field(reading.field, root, name, ERROR_FIELDS)
    elif root == "input" and known.input is not None:
        if name in known.input.names or path[:2] in reading.guarded:
            return
        raise InvalidInput(
            field=reading.field,
            reason=f"it reads `input.{name}`, but the input has no `{name}`",
            cure=known.input.cure.format(name=name),
        )


def _check_node_path(reading: Reading, path: tuple[str, ...], known: Known) -> None:
    name = path[1]
    if name not in known.nodes:
        _no_such_node(reading.field, name, known)
    if len(path) > 2 and path[2] not in NODE_FIELDS:
        raise InvalidInput(
            field=reading.field,
            reason=f"it reads `nodes.{name}.{path[2]}`; a node has `output`, `error` and `state`",
            cure=f"Read `nodes.{name}.output.{path[2]}` if it is part of the output.",
        )
    is_of_error = len(path) > 3 and path[2] == "error" and path[:2] not in reading.guarded
    if is_of_error and path[3] not in ERROR_FIELDS:
        _no_such_field(reading.field, f"nodes.{name}.error", path[3], ERROR_FIELDS)


def _no_such_node(field: str, name: str, known: Known) -> Never:
    dashed = next((node for node in known.nodes if node.startswith(f"{name}-")), None)
    cure = f"Use one of: {listed(known.nodes)}." if known.nodes else "Remove it."
    if dashed is not None:
        cure = f"Write a name with `-` as `nodes['{dashed}']`."
    elif name in known.outer:
        cure = "The nodes of a graph see only each other: pass it in through the graph's `with`."
    raise InvalidInput(
        field=field, reason=f"it reads `nodes.{name}`, but there is no such node here", cure=cure
    )


def _no_such_field(field: str, root: str, name: str, fields: frozenset[str]) -> Never:
    raise InvalidInput(
        field=field,
        reason=f"it reads `{root}.{name}`, but `{root}` has no `{name}`",
        cure=f"Use one of: {', '.join(sorted(fields))}.",
    )


def _cure_of_name(name: str, known: Known) -> str:
    if name in known.nodes:
        return f"Read `nodes.{name}.output`."
    if name in known.outer:
        return "The nodes of a graph do not see it: pass it in through the graph's `with`."
    return _WHERE.get(name, f"Use one of: {', '.join(sorted(known.names))}.")


# ---- what each place reads ------------------------------------------------------------------


def _own_readings(node: NodeBase, field: str, *, applied: bool = False) -> Iterator[Reading]:
    yield from readings(node.with_, f"{field}.with", applied=applied)
    texts = [(node.when, "when")]
    if node.map is not None:
        texts.append((node.map.over, "map.over"))
    if node.loop is not None:
        texts.append((node.loop.until, "loop.until"))
    if node.cache is not None:
        texts.append((node.cache.key, "cache.key"))
    if isinstance(node, RaceNode):
        texts += [(node.valid, "valid"), (node.score, "score")]
    for text, place in texts:
        if text is not None:
            yield from readings(text, f"{field}.{place}", expression=True, applied=applied)


def _inner(node: NodeBase, field: str) -> Iterator[tuple[str, NodeBase]]:
    for i, fallback in enumerate(node.fallback):
        yield f"{field}.fallback.{i}.node", fallback.node
    if node.fast is not None:
        yield f"{field}.fast", node.fast
    if isinstance(node, RaceNode):
        for branch, inner in node.branches.items():
            yield f"{field}.branches.{branch}", inner


def _worker_readings(node: Node, field: str, faults: Faults) -> Iterator[Reading]:
    """Yield the readings of the templates that the node's worker renders over its input."""
    templates: dict[str, Any] = {}
    if isinstance(node, LlmNode | AgentNode):
        templates = {"prompt": node.prompt, "system": node.system}
    elif isinstance(node, PlanningNode):
        templates = {"prompt": node.prompt}
    elif isinstance(node, RetrievalNode):
        templates = {"query": node.query}
    elif isinstance(node, SqlNode):
        templates = {"params": node.params}
    elif isinstance(node, HttpNode):
        templates = {"params": node.params, "query": node.query, "headers": node.headers}
        templates |= {"body": node.body}
    elif isinstance(node, McpNode):
        templates = {"arguments": node.arguments}
    elif isinstance(node, NatsNode):
        templates = {"headers": node.headers, "body": node.body}
    for place, value in templates.items():
        yield from readings(value, f"{field}.{place}", faults=faults)


def _input_keys(node: Node, field: str, own: Known, owner: Keys | None) -> Keys | None:
    if node.with_ is not None:
        return Keys(frozenset(node.with_), f"Add `{{name}}` to `{field}.with`.")
    layers = own.names - _EVERYWHERE
    if node.map is not None:
        cure = "Without `with`, an item's input is the item and its index; add it to `with`."
        return Keys(layers, cure)
    if owner is not None:
        if owner is _UNKNOWN:
            return None
        return owner if node.loop is None else replace(owner, names=owner.names | layers)
    try:
        needs = {*node.needs, *read_by(node, field)}
    except InvalidInput:  # what the node reads is not known
        return None
    cure = (
        "Without `with`, the input is `input` (the run's) and the outputs of `needs`; add it there."
    )
    return Keys(layers | needs | {"input"}, cure)


def _schema_keys(schema: Mapping[str, Any]) -> Keys | None:
    open_ended = {"patternProperties", "$ref", "allOf", "anyOf", "oneOf"} & set(schema)
    if schema.get("additionalProperties") is not False or open_ended:
        return None
    cure = "Add `{name}` to `input.properties`, which allows nothing else."
    return Keys(frozenset(schema.get("properties", {})), cure)
