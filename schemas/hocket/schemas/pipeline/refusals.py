"""Refuses pipelines whose fields are well formed, but have settings that can have no effect, contradict
each other, or can only fail. Each refusal names the field and the cure; all are collected.

Nothing is refused that could be useful: a bound may be tight, a list empty, a node never needed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hocket.schemas.checks.faults import Faults, listed
from hocket.schemas.errors import InvalidInput
from hocket.schemas.json_schema.patterns import MAX_PATTERNS_SIZE, Patterns
from hocket.schemas.json_schema.schema import compile_schema
from hocket.schemas.pipeline.agents.called import called_by, check_calls
from hocket.schemas.pipeline.agents.tools import check_agent, check_schemas_of
from hocket.schemas.pipeline.contradictions import (
    all_nodes,
    check_infeasible,
    check_optional,
    check_output,
    check_self_calls,
    check_signals,
    may_pause,
    waits_as_long,
)
from hocket.schemas.pipeline.error_names import check_errors
from hocket.schemas.pipeline.expressions import NOT_CONSTANT, constant
from hocket.schemas.pipeline.faults import meant_type
from hocket.schemas.pipeline.names import read_by
from hocket.schemas.pipeline.node_parts import MAX_WAIT_MS, PlanPolicy
from hocket.schemas.pipeline.spec import (
    NODE_TYPES,
    WAIT_TYPES,
    AgentNode,
    ApprovalNode,
    CallingNode,
    Fallback,
    GraphNode,
    HttpNode,
    LlmNode,
    Node,
    Pipeline,
    PipelineNode,
    PlanningNode,
    RaceNode,
    SignalNode,
    runs_in_worker,
)
from hocket.schemas.subjects import is_own_type
from hocket.schemas.templates.parsing import MAX_PIPELINE_TOKENS, count_tokens

MAX_ALL_PATTERNS_SIZE = 10 * MAX_PATTERNS_SIZE
"""The most instructions that the patterns of all answer schemas of a pipeline compile to."""
NESTING_TYPES = ("graph", "race")
NAMED_BY_TYPE = {
    "python": "handlers",
    "llm": "models",
    "planning": "models",
    "sql": "databases",
    "retrieval": "collections",
    "http": "services",
    "mcp": "mcp_servers",
    "nats": "nats_services",
    "pipeline": "pipelines",
}
"""By node type: the list of a planner's policy without which no such node can be emitted."""
TAKEN = frozenset(
    {"input", "nodes", "run", "index", "round", "previous", "output", "error"}
    | {
        "true",
        "false",
        "none",
        "True",
        "False",
        "None",
        "not",
        "and",
        "or",
        "in",
        "is",
        "if",
        "else",
    }
    | {"range", "dict", "namespace", "loop", "self"}
)
"""Names that an item may not have, because they mean something else where it is read."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The time that an enclosing construct leaves a node."""

    ms: float
    whose: str
    is_deadline: bool
    """Whether it is the run's deadline, which waits may pause."""


PATH_PARAM = re.compile(r":([A-Za-z_]\w*)")
"""A parameter in the path of an `http` node (`hocket.workers.http.requests`)."""
ADDRESSES = frozenset({"validate"})
"""Names that REST uses for something other than a pipeline: POST /v1/pipelines/validate."""
EXPRESSIONS = frozenset({"when", "over", "until", "valid", "score", "key"})
"""Fields whose value is an expression, with or without braces."""


def check_pipeline(pipeline: Pipeline, faults: Faults, *, is_whole: bool) -> None:
    """Collect what makes no sense in a pipeline. Unless it `is_whole`, because a part of it was refused
    already, what depends on all of it is not judged."""
    if pipeline.pipeline in ADDRESSES:
        name = pipeline.pipeline
        reason = f"`{name}` cannot name a pipeline: /v1/pipelines/{name} is a path of the API"
        cure = f"Choose another name, for example `{name}-orders`."
        faults.add(InvalidInput(field="pipeline", reason=reason, cure=cure))
    check_schemas(pipeline.nodes, "nodes", MAX_ALL_PATTERNS_SIZE, faults)
    limit = None
    # if a node may pause the deadline, steps may take longer than `slo_ms` altogether
    if is_whole and not may_pause(pipeline.nodes):
        limit = Limit(pipeline.slo_ms, "`slo_ms`", is_deadline=True)
    check_scope(
        pipeline.nodes, pipeline.output, faults, field="nodes", limit=limit, is_whole=is_whole
    )
    check_signals(pipeline, faults)
    if is_whole:
        check_output(pipeline.nodes, pipeline.output, "output", faults)
        check_infeasible(pipeline, faults)
    if not faults:  # otherwise a node may always run only because what it needs is not known
        with faults.part():
            check_self_calls(pipeline)


def check_schemas(nodes: Mapping[str, Node], field: str, most: int, faults: Faults) -> None:
    """Collect the answer schemas that are not valid, or whose patterns, together with those of the
    schemas before them, compile to more than `most` instructions."""
    left = most
    for _, node, place in all_nodes(nodes, field):
        patterns = Patterns(min(left, MAX_PATTERNS_SIZE))
        if isinstance(node, LlmNode) and node.response_schema is not None:
            with faults.part():
                compile_schema(node.response_schema, f"{place}.response_schema", patterns)
        elif isinstance(node, AgentNode):
            with faults.part():
                check_schemas_of(node, place, patterns)
        left -= patterns.size


def check_templates(spec: Pipeline | GraphNode) -> None:
    """Refuse a pipeline, or emitted steps, whose templates would take too long to parse."""
    left = MAX_PIPELINE_TOKENS
    document = spec.model_dump(include={"nodes", "output"}, exclude_unset=True, by_alias=True)
    waiting: list[tuple[str, Any]] = [("", document)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += ((str(name), part) for name, part in value.items())
        elif isinstance(value, list | tuple):
            waiting += ((key, part) for part in value)
        elif isinstance(value, str) and ("{" in value or key in EXPRESSIONS):
            left -= count_tokens(value, left + 1, expression="{" not in value)
        if left < 0:
            raise InvalidInput(
                field="nodes",
                reason=f"its templates have more than {MAX_PIPELINE_TOKENS:,} words and symbols",
                cure="Move nodes into pipelines of their own, or build long texts in `python` nodes.",
            )


def check_scope(
    nodes: Mapping[str, Node],
    output: Any,
    faults: Faults,
    *,
    field: str,
    limit: Limit | None = None,
    is_whole: bool = True,
    is_emitted: bool = False,
) -> None:
    """Collect what makes no sense in the nodes of a scope; `is_whole` as in `check_pipeline`. Steps that
    a planner emitted are not refused for what they may never need."""
    checks = _Checks(faults, is_whole=is_whole, is_emitted=is_emitted)
    for name, node in nodes.items():
        _check_needs(name, node, nodes, f"{field}.{name}", faults)
        checks.node(node, f"{field}.{name}", limit)
    if is_whole:
        check_optional(nodes, output, field, faults)


class _Checks:
    """The checks of single nodes, wherever they are; each collects its first fault."""

    def __init__(self, faults: Faults, *, is_whole: bool, is_emitted: bool) -> None:
        self._faults = faults
        self._is_whole = is_whole
        self._is_emitted = is_emitted

    def node(self, node: Node, field: str, limit: Limit | None) -> None:
        self._own(node, field, limit)
        inner_limit = limit
        if node.timeout_ms is not None:
            inner_limit = Limit(node.timeout_ms, f"`{field}.timeout_ms`", is_deadline=False)
        if isinstance(node, GraphNode):
            check_scope(
                node.nodes,
                node.output,
                self._faults,
                field=f"{field}.nodes",
                limit=inner_limit,
                is_whole=self._is_whole,
                is_emitted=self._is_emitted,
            )
        elif isinstance(node, RaceNode):
            for branch, inner in node.branches.items():
                self.node(inner, f"{field}.branches.{branch}", inner_limit)
        for place, called in called_by(node):
            self.node(called, f"{field}.{place}", limit)
        for i, fallback in enumerate(node.fallback):
            with self._faults.part():
                _check_fallback(node, fallback, f"{field}.fallback.{i}")
            self.node(fallback.node, f"{field}.fallback.{i}.node", limit)
        if node.fast is not None:
            with self._faults.part():
                _check_fast(node, node.fast, f"{field}.fast")
            self.node(node.fast, f"{field}.fast", limit)

    def _own(self, node: Node, field: str, limit: Limit | None) -> None:
        part = self._faults.part
        for check in (_check_queue, _check_retry, _check_effects, _check_cache, _check_expect):
            with part():
                check(node, field)
        with part():
            _check_timeout(node, field, limit)
        if not self._is_emitted:
            with part():
                _check_backoff(node, field, limit)
        with part():
            _check_wait(node, field, limit)
        with part():
            _check_map(node, field)
        with part():
            _check_loop(node, field)
        with part():
            if isinstance(node, PlanningNode):
                _check_planning(node, field)
            elif isinstance(node, AgentNode):
                check_agent(node, field, self._faults)
            elif isinstance(node, CallingNode):
                check_calls(node, field, self._faults)
            elif isinstance(node, HttpNode):
                _check_path(node, field)
            elif isinstance(node, RaceNode):
                _check_race(node, field)


def _check_fallback(node: Node, fallback: Fallback, field: str) -> None:
    check_errors(fallback.on, f"{field}.on")
    if (node.map or node.loop) and fallback.node.with_ is None:
        raise InvalidInput(
            field=f"{field}.node.with",
            reason="the fallback of a node with `map` or `loop` cannot inherit its input",
            cure="Give the fallback its own `with`.",
        )


def _check_fast(node: Node, fast: Node, field: str) -> None:
    for kind, place in ((node.type, field), (fast.type, f"{field}.type")):
        if kind in WAIT_TYPES:
            raise InvalidInput(
                field=place,
                reason=f"{_a(kind)} node waits for someone, so it cannot be faster or slower",
                cure="Remove `fast`, or make the node `optional`.",
            )
    if (node.map or node.loop) and fast.with_ is None:
        raise InvalidInput(
            field=f"{field}.with",
            reason="the fast variant of a node with `map` or `loop` cannot inherit its input",
            cure="Give it its own `with` (and `map` or `loop`, if it needs them).",
        )


# ---- one node -------------------------------------------------------------------------------


def _check_needs(
    name: str, node: Node, nodes: Mapping[str, Node], field: str, faults: Faults
) -> None:
    seen: set[str] = set()
    beside: str | None = None
    for need in node.needs:
        if need in seen:
            reason, cure = f"`{need}` is listed twice", "List it once."
            faults.add(InvalidInput(field=f"{field}.needs", reason=reason, cure=cure))
        elif need not in nodes:
            if beside is None:
                beside = listed([other for other in nodes if other != name])
            cure = f"Use one of: {beside}." if beside else "Remove it."
            reason = f"there is no node `{need}` in the same scope"
            faults.add(InvalidInput(field=f"{field}.needs", reason=reason, cure=cure))
        seen.add(need)
    with faults.part():
        _check_hides_nothing(node, field)


def _check_hides_nothing(node: Node, field: str) -> None:
    if node.with_ is not None or node.map:
        return
    own = {"input": "the run's input"}
    if node.loop is not None:
        own |= {"round": "the loop's `round`", "previous": "the loop's `previous`"}
    if isinstance(node, AgentNode):
        own["previous"] = "the agent's previous round"
    for need in sorted(own.keys() & {*node.needs, *read_by(node, field, applied=True)}):
        raise InvalidInput(
            field=f"{field}.with",
            reason=f"the output of node `{need}` would hide {own[need]}, which has the same name",
            cure=f"Give the node a `with`, or rename `{need}`.",
        )


def _check_queue(node: Node, field: str) -> None:
    if node.queue is not None and not runs_in_worker(node.type):
        raise InvalidInput(
            field=f"{field}.queue",
            reason=f"{_a(node.type)} node is not run by workers",
            cure="Remove it."
            if node.type not in NESTING_TYPES
            else "Put `queue` on the nodes inside it that workers run.",
        )


def _check_effects(node: Node, field: str) -> None:
    if node.effects == "external" and not runs_in_worker(node.type):
        raise InvalidInput(
            field=f"{field}.effects",
            reason=f"{_a(node.type)} node has no external effects of its own",
            cure="Remove it."
            if node.type in WAIT_TYPES
            else "Put `effects` on the nodes that have them.",
        )


def _check_retry(node: Node, field: str) -> None:
    retry, field = node.retry, f"{field}.retry"
    if retry is None:
        return
    if not _makes_attempts(node):
        raise InvalidInput(
            field=field,
            reason=f"{_a(node.type)} node makes no attempts of its own",
            cure="Remove it." if node.type in WAIT_TYPES else "Put `retry` on the nodes inside it.",
        )
    if not retry.on:
        raise InvalidInput(
            field=f"{field}.on",
            reason="it names no error, so nothing is retried",
            cure="Name error classes, or remove `on`.",
        )
    check_errors(retry.on, f"{field}.on")
    if retry.backoff_ms > retry.max_backoff_ms:
        raise InvalidInput(
            field=f"{field}.backoff_ms",
            reason=f"it is longer than `max_backoff_ms`, {retry.max_backoff_ms:.0f} ms",
            cure="Raise `max_backoff_ms`, or lower it.",
        )


def _check_backoff(node: Node, field: str, limit: Limit | None) -> None:
    """Refuse a pause before the second attempt that leaves no time for it. A run may have a longer
    deadline than its pipeline's, so this is only a warning (`warnings_of`)."""
    if limit is None or limit.is_deadline:
        return
    if waits_as_long(node, limit.ms):
        raise InvalidInput(
            field=f"{field}.retry.backoff_ms",
            reason=f"it is not shorter than {limit.whose}, {limit.ms:.0f} ms, so there is never a "
            "second attempt",
            cure=f"Lower it, or raise {limit.whose}.",
        )


def _makes_attempts(node: Node) -> bool:
    return runs_in_worker(node.type) or node.type == "pipeline"


def _check_cache(node: Node, field: str) -> None:
    if node.cache is None:
        return
    if not _makes_attempts(node):
        raise InvalidInput(
            field=f"{field}.cache",
            reason=f"{_a(node.type)} node computes nothing of its own to cache",
            cure="Put `cache` on the nodes inside it that workers run."
            if node.type in NESTING_TYPES
            else "Remove it: each run asks again.",
        )
    if node.effects == "external":
        raise InvalidInput(
            field=f"{field}.cache",
            reason="a step served from the cache would not have its external effect",
            cure="Remove `cache`, or `effects: external`.",
        )
    if isinstance(node, PipelineNode) and node.version is None:
        raise InvalidInput(
            field=f"{field}.cache",
            reason="a new version of the sub-pipeline would be answered with the old one's output",
            cure="Name the sub-pipeline's `version`.",
        )


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} `{kind}`"


def _check_expect(node: Node, field: str) -> None:
    for name in ("mean_ms", "sd_ms") if node.expect is not None else ():
        if not getattr(node.expect, name) <= MAX_WAIT_MS:
            raise InvalidInput(
                field=f"{field}.expect.{name}",
                reason="no step can take that long",
                cure=f"Use at most {MAX_WAIT_MS} ms, the longest that a run may take.",
            )


def _check_timeout(node: Node, field: str, limit: Limit | None) -> None:
    """Refuse a timeout that exceeds the limit set around the node. Timeouts go on while the deadline is
    paused."""
    if node.timeout_ms is not None and node.type in WAIT_TYPES:
        raise InvalidInput(
            field=f"{field}.timeout_ms",
            reason=f"{_a(node.type)} node waits instead of making attempts",
            cure="Set how long it waits with `wait_ms`.",
        )
    if limit is not None and node.timeout_ms is not None and node.timeout_ms > limit.ms:
        raise InvalidInput(
            field=f"{field}.timeout_ms",
            reason=f"it is longer than {limit.whose}, {limit.ms:.0f} ms, and has no effect",
            cure=f"Lower it, or raise {limit.whose}.",
        )


def _check_wait(node: Node, field: str, limit: Limit | None) -> None:
    if not isinstance(node, ApprovalNode | SignalNode) or "wait_ms" not in node.model_fields_set:
        return
    if limit is not None and node.wait_ms > limit.ms:
        cure = f"Lower it, or raise {limit.whose}."
        if limit.is_deadline:
            cure = f"Lower it, raise {limit.whose}, or set `pause_deadline: true`."
        raise InvalidInput(
            field=f"{field}.wait_ms",
            reason=f"it is longer than {limit.whose}, {limit.ms:.0f} ms, and has no effect",
            cure=cure,
        )


def _check_loop(node: Node, field: str) -> None:
    if node.loop is not None and node.loop.on_exhausted == "fail":
        until = constant(node.loop.until)
        if until is not NOT_CONSTANT and not until:
            raise InvalidInput(
                field=f"{field}.loop.until",
                reason="it is never true, so the loop can only fail",
                cure="Write a condition, or set `on_exhausted: accept` to run all rounds.",
            )


def _check_map(node: Node, field: str) -> None:
    spec, field = node.map, f"{field}.map"
    if spec is None:
        return
    if not spec.as_.isidentifier() or spec.as_ in TAKEN:
        raise InvalidInput(
            field=f"{field}.as",
            reason=f"an item cannot be named `{spec.as_}`",
            cure="Use letters, digits and `_`, but no name that expressions already use.",
        )
    over = constant(spec.over)
    if over is NOT_CONSTANT:
        return
    if not isinstance(over, list | tuple):
        raise InvalidInput(
            field=f"{field}.over",
            reason=f"`{spec.over}` is not a list",
            cure='Name a list: `over: "{{ input.items }}"`.',
        )
    if len(over) > spec.max_items:
        raise InvalidInput(
            field=f"{field}.over",
            reason=f"it has {len(over)} items, but `max_items` is {spec.max_items}",
            cure="Raise `max_items`, or map over fewer.",
        )


def _check_race(node: RaceNode, field: str) -> None:
    if node.pick == "best" and node.score is None:
        raise InvalidInput(
            field=f"{field}.score",
            reason="`pick: best` needs a score to compare",
            cure='Add one, e.g. `score: "output.points"`.',
        )
    if node.score is not None and node.pick != "best":
        raise InvalidInput(
            field=f"{field}.score",
            reason="a score is used only with `pick: best`",
            cure="Add `pick: best`, or remove it.",
        )
    _check_can_win(node, field)


def _check_can_win(node: RaceNode, field: str) -> None:
    """Refuse tests that no branch can pass, whatever its output is."""
    valid = NOT_CONSTANT if node.valid is None else constant(node.valid)
    if valid is not NOT_CONSTANT and not valid:
        raise InvalidInput(
            field=f"{field}.valid",
            reason="it is never true, so no branch can win",
            cure="Write a condition over `output`, or remove it.",
        )
    score = NOT_CONSTANT if node.score is None else constant(node.score)
    is_number = isinstance(score, int | float) and not isinstance(score, bool)
    if score is not NOT_CONSTANT and not is_number:
        raise InvalidInput(
            field=f"{field}.score",
            reason=f"`{node.score}` is not a number, so no branch can win",
            cure='Write an expression over `output`, e.g. `score: "output.points"`.',
        )


def _check_path(node: HttpNode, field: str) -> None:
    for name in PATH_PARAM.findall(node.path):
        if name not in node.params:
            raise InvalidInput(
                field=f"{field}.params",
                reason=f"`:{name}` of the path has no value",
                cure=f"Set `params.{name}`.",
            )


def _check_planning(node: PlanningNode, field: str) -> None:
    if node.emit is None:
        _check_catalog(node, field)
        return
    for kind in node.emit.types:
        _check_emitted_type(kind, node.emit, f"{field}.emit")
    if node.catalog:
        raise InvalidInput(
            field=f"{field}.catalog",
            reason="a planner that emits steps does not see the catalog",
            cure="Remove `catalog`, or `emit`.",
        )


def _check_catalog(node: PlanningNode, field: str) -> None:
    if node.database is not None:
        return
    for i, query in enumerate(node.catalog):
        for name, param in query.params.items():
            if param.values is not None:
                raise InvalidInput(
                    field=f"{field}.catalog.{i}.params.{name}.values",
                    reason="they are read from a database, but none is named",
                    cure="Name it in the node's `database`.",
                )


def _check_emitted_type(kind: str, emit: PlanPolicy, field: str) -> None:
    if kind not in NODE_TYPES and not is_own_type(kind):
        raise InvalidInput(
            field=f"{field}.types",
            reason=f"`{kind}` is not a node type",
            cure=f"{meant_type(kind, NODE_TYPES)}Use one of: {', '.join(NODE_TYPES)}, or a type of your "
            "own: `crm.lookup`.",
        )
    if kind == "agent":
        raise InvalidInput(
            field=f"{field}.types",
            reason="a planner may not write agents: it would write their tools itself",
            cure="Let it run a `pipeline` that contains one.",
        )
    if kind in NESTING_TYPES and emit.max_depth == 1:
        raise InvalidInput(
            field=f"{field}.max_depth",
            reason=f"{_a(kind)} node contains others, which depth 1 does not allow",
            cure=f"Set `max_depth: 2` or more, or remove `{kind}` from `types`.",
        )
    named = NAMED_BY_TYPE.get(kind)
    if named is not None and not getattr(emit, named):
        raise InvalidInput(
            field=f"{field}.{named}",
            reason=f"it is missing, so no `{kind}` node may be emitted",
            cure=f"List the {named} that emitted nodes may use, or remove `{kind}` from `types`.",
        )


# ---- several nodes --------------------------------------------------------------------------
