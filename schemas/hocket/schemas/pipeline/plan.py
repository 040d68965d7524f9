"""Compiled pipelines: checked as a whole, with edges in both directions and compiled templates.

`compile_pipeline` is the only entry: the coordinator can run what it returns, and its refusals name the
field and the cure. Scopes are lexical: inside a `graph` node, `input` is that node's input and `nodes`
are the siblings there; branches and fallbacks see what their node sees.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pydantic import ValidationError

from hocket.schemas.checks.faults import EnoughFaults, Faults, listed
from hocket.schemas.errors import InvalidInput
from hocket.schemas.ids import content_hash
from hocket.schemas.json_schema.schema import Schema, compile_schema
from hocket.schemas.pipeline.agents.turns import calls_of, nodes_of, outcome_of, unfolded
from hocket.schemas.pipeline.emitted import disarmed
from hocket.schemas.pipeline.expressions import (
    Evaluate,
    compile_expression,
    compile_value,
    fails_later,
)
from hocket.schemas.pipeline.faulty.judging import judge_emitted, judged
from hocket.schemas.pipeline.flow.gates import FlowGate, compile_flow
from hocket.schemas.pipeline.input_defaults import with_defaults
from hocket.schemas.pipeline.names import read_by
from hocket.schemas.pipeline.node_parts import PlanPolicy
from hocket.schemas.pipeline.policy import PlanRefused, check_policy
from hocket.schemas.pipeline.spec import (
    MAX_NESTING,
    AgentNode,
    AgentTool,
    CallingNode,
    GraphNode,
    LlmNode,
    McpNode,
    Node,
    NodeBase,
    OwnNode,
    Pipeline,
    PlanningNode,
    RaceNode,
    fault,
    parse_pipeline,
)


class PipelineHasCycle(InvalidInput):
    """`{field}` is not valid: {reason}. {cure}"""

    code = "pipeline_has_cycle"

    @classmethod
    def of(cls, *, field: str, cycle: str) -> "PipelineHasCycle":
        """Return the error about a cycle that is written as `a -> b -> a`."""
        reason = f"the pipeline has a cycle: {cycle}"
        cure = "Remove one of these edges; reading a node in an expression also creates one."
        return cls(field=field, cycle=cycle, reason=reason, cure=cure)


@dataclass(frozen=True, slots=True, eq=False)
class NodePlan:
    """A node with its place in the graph. `path` is unique in the pipeline: `research/read`,
    branches `draft~fast`, fallbacks `draft!1`."""

    name: str
    path: str
    node: Node
    needs: tuple[str, ...]
    dependents: tuple[str, ...]
    input: Evaluate | None
    when: Evaluate | None
    over: Evaluate | None
    until: Evaluate | None
    valid: Evaluate | None
    score: Evaluate | None
    cache_key: Evaluate | None
    config: Mapping[str, Any]
    """The fields of the node's own type, for its worker."""
    body: "ScopePlan | None"
    branches: Mapping[str, "NodePlan"]
    fallbacks: tuple["NodePlan", ...]
    fast: "NodePlan | None"
    """The fast variant; its path is that of a fallback with the number 0: `draft!0`."""
    calls: Mapping[str, "NodePlan"]
    """The nodes that its handler may call; their paths are `draft/NAME`."""

    @property
    def own_fields(self) -> dict[str, Any]:
        """The fields that, together with the input, determine what its steps do."""
        if not self.calls:
            return dict(self.config)
        assert isinstance(self.node, CallingNode), self.path
        return {
            "config": dict(self.config),
            "calls": self.node.model_dump(mode="json", by_alias=True, include={"calls"})["calls"],
        }


@dataclass(frozen=True, slots=True, eq=False)
class ScopePlan:
    """Nodes that see each other; `order` is topological, and no node needs the `finals`."""

    path: str
    nodes: Mapping[str, NodePlan]
    order: tuple[str, ...]
    roots: tuple[str, ...]
    finals: tuple[str, ...]
    output: Evaluate | None
    tells_failures: bool = False
    """Whether the output reports nodes that failed, so that they neither fail nor degrade the scope."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A pipeline version that can run."""

    pipeline: Pipeline
    spec_hash: str
    root: ScopePlan
    by_path: Mapping[str, NodePlan]
    flow: tuple[FlowGate, ...] = ()
    """The gates that its runs pass before they start."""


def compile_pipeline(
    pipeline: Pipeline | Mapping[str, Any],
    *,
    known_models: Container[str] | None = None,
    applied: bool = False,
) -> Plan:
    """Return the plan of a pipeline; raise InvalidInput, naming each field and the cure, for cycles,
    unknown nodes, models and references, templates that do not parse, and a bad input schema.

    `applied` means that the pipeline was accepted by earlier rules and is not judged by newer ones."""
    by_path: dict[str, NodePlan] = {}
    if applied:
        spec = pipeline if isinstance(pipeline, Pipeline) else parse_pipeline(pipeline)
        root = _root(spec, _Compiler(by_path, known_models, None))
    else:
        found = judged(pipeline)
        spec = found.spec
        if found.faults.is_full:
            found.check()
        try:
            root = _root(spec, _Compiler(by_path, known_models, found.faults))
        except EnoughFaults:
            found.check()
            raise
        found.check()
    spec_hash = content_hash(spec.model_dump(mode="json", by_alias=True))
    return Plan(spec, spec_hash, root, by_path, compile_flow(spec.flow, applied=applied))


def _root(spec: Pipeline, compiler: "_Compiler") -> ScopePlan:
    return compiler.scope(spec.nodes, spec.output, path="", field="nodes", output_field="output")


def complete_input(plan: Plan, value: dict[str, Any]) -> dict[str, Any]:
    """Return the input of a run: the task's body, with the schema's defaults for missing fields."""
    return with_defaults(plan.pipeline.input, value)


def check_input(plan: Plan, value: Any) -> None:
    """Raise InvalidInput if a task's body, with the defaults, breaks the pipeline's input schema."""
    if not isinstance(value, dict):
        raise InvalidInput(
            field="input",
            reason=f"it is a {type(value).__name__}, not an object",
            cure="Send one JSON object.",
        )
    cure = f"Follow the input schema of pipeline `{plan.pipeline.pipeline}`."
    _input_schema(plan).check(complete_input(plan, value), "input", cure)


def compile_emitted(
    value: Any,
    policy: PlanPolicy,
    *,
    path: str,
    known_models: Container[str] | None = None,
    applied: bool = False,
) -> tuple[ScopePlan, dict[str, NodePlan]]:
    """Return the scope of the steps that a planner emitted (`{nodes, output}`) and its nodes by path.

    Raises PlanRefused if they break the policy or could not run. Their texts are data (see `emitted`).
    `applied` as in `compile_pipeline`."""
    try:
        spec = GraphNode.model_validate(
            {"type": "graph", "nodes": value["nodes"], "output": value.get("output")}
        )
        if not applied:
            check_policy(spec.nodes, policy)
        spec = disarmed(spec, applied=applied)
        if not applied:
            judge_emitted(spec)
        by_path: dict[str, NodePlan] = {}
        faults = None if applied else Faults(InvalidInput, first_only=True)
        compiler = _Compiler(by_path, known_models, faults)
        scope = compiler.scope(
            spec.nodes, spec.output, path=path, field="nodes", output_field="output"
        )
    except InvalidInput as error:
        fields = error.fields
        raise PlanRefused(
            field=fields.get("field", "nodes"),
            reason=fields.get("reason", str(error)),
            cure=fields.get("cure", ""),
        ) from None
    except ValidationError as error:
        raise PlanRefused(**fault(error).fields) from None
    except (KeyError, TypeError):
        raise PlanRefused(
            field="output", reason="it has no `nodes`", cure="Emit `{nodes: {...}, output: ...}`."
        ) from None
    return scope, by_path


def compile_turn(
    agent: AgentNode, output: Any, *, path: str
) -> tuple[ScopePlan, dict[str, NodePlan]]:
    """Return the scope of the tools that an agent's model called in a round, and its nodes by path. The
    scope's output has the tools' results, or their errors.

    Raises TurnInvalid if the worker's report of the round is impossible."""
    nodes = nodes_of(agent, calls_of(agent, path, output))
    by_path: dict[str, NodePlan] = {}
    compiler = _Compiler(by_path, None, None)
    scope = compiler.scope(nodes, None, path=path, field="calls", output_field="output")
    told = replace(
        scope, output=lambda names: outcome_of(agent, output, names["nodes"]), tells_failures=True
    )
    return told, by_path


class _Compiler:
    """The state that a whole compilation shares: the nodes by path, the known models, and the `faults`
    found; None for a pipeline that was applied, in which only single steps fail."""

    def __init__(
        self,
        by_path: dict[str, NodePlan],
        known_models: Container[str] | None,
        faults: Faults | None,
    ) -> None:
        self.by_path = by_path
        self.known_models = known_models
        self.faults = faults

    def scope(
        self,
        nodes: Mapping[str, Node],
        output: Any,
        *,
        path: str,
        field: str,
        output_field: str,
        depth: int = 0,
    ) -> ScopePlan:
        if depth > MAX_NESTING:
            raise InvalidInput(
                field=field,
                reason=f"nodes nest deeper than {MAX_NESTING}",
                cure="Move the inner part into a pipeline of its own.",
            )
        needs = {
            name: self._needs(name, node, nodes, f"{field}.{name}") for name, node in nodes.items()
        }
        order = self._topological(needs, field)
        dependents: dict[str, list[str]] = {name: [] for name in nodes}
        for name in order:
            for need in needs[name]:
                dependents[need].append(name)
        plans = {
            name: self.node(
                name,
                nodes[name],
                path=f"{path}/{name}" if path else name,
                field=f"{field}.{name}",
                needs=needs[name],
                dependents=tuple(dependents[name]),
                depth=depth,
            )
            for name in order
        }
        return ScopePlan(
            path=path,
            nodes=plans,
            order=order,
            roots=tuple(name for name in order if not needs[name]),
            finals=tuple(name for name in order if not dependents[name]),
            output=None if output is None else self._value(output, output_field),
        )

    def node(
        self,
        name: str,
        node: Node,
        *,
        path: str,
        field: str,
        needs: tuple[str, ...] = (),
        dependents: tuple[str, ...] = (),
        depth: int,
    ) -> NodePlan:
        self._check_model(node, field)
        if isinstance(node, AgentNode):
            self._check_tools(node, path, field, depth)
            node = unfolded(node)
        body, branches = self._inside(node, path, field, depth)
        fallbacks = tuple(
            self.inner(
                f"{name}!{i}", f.node, f"{path}!{i}", f"{field}.fallback.{i - 1}.node", depth
            )
            for i, f in enumerate(node.fallback, start=1)
        )
        fast = None
        if node.fast is not None:
            fast = self.inner(
                f"{name}!0", node.fast, f"{path}!0", f"{field}.fast", depth, "fast variant"
            )
        plan = NodePlan(
            name=name,
            path=path,
            node=node,
            needs=needs,
            dependents=dependents,
            input=None if node.with_ is None else self._value(node.with_, f"{field}.with"),
            when=self._expression(node.when, f"{field}.when"),
            over=self._expression(node.map.over if node.map else None, f"{field}.map.over"),
            until=self._expression(node.loop.until if node.loop else None, f"{field}.loop.until"),
            valid=self._expression(node.valid, f"{field}.valid")
            if isinstance(node, RaceNode)
            else None,
            score=self._expression(node.score, f"{field}.score")
            if isinstance(node, RaceNode)
            else None,
            cache_key=self._expression(
                node.cache.key if node.cache else None, f"{field}.cache.key"
            ),
            config=_config(node),
            body=body,
            branches=branches,
            fallbacks=fallbacks,
            fast=fast,
            calls=self._calls(node, path, field, depth),
        )
        self.by_path[path] = plan
        return plan

    def _inside(
        self, node: Node, path: str, field: str, depth: int
    ) -> tuple[ScopePlan | None, dict[str, NodePlan]]:
        """Compile the nodes of a graph, or the branches of a race."""
        body, branches = None, {}
        if isinstance(node, GraphNode):
            body = self.scope(
                node.nodes,
                node.output,
                path=path,
                field=f"{field}.nodes",
                output_field=f"{field}.output",
                depth=depth + 1,
            )
        elif isinstance(node, RaceNode):
            branches = {
                branch: self.inner(
                    branch, inner, f"{path}~{branch}", f"{field}.branches.{branch}", depth
                )
                for branch, inner in node.branches.items()
            }
        return body, branches

    def _calls(self, node: Node, path: str, field: str, depth: int) -> dict[str, NodePlan]:
        """Compile the nodes that a handler may call."""
        if not isinstance(node, CallingNode):
            return {}
        return {
            name: self.node(
                name, called, path=f"{path}/{name}", field=f"{field}.calls.{name}", depth=depth + 1
            )
            for name, called in node.calls.items()
        }

    def inner(
        self,
        name: str,
        node: Node,
        path: str,
        field: str,
        depth: int,
        kind: str = "branch or fallback",
    ) -> NodePlan:
        """Compile a branch, fallback or fast variant, whose place in the graph is its owner's."""
        for refused in ("needs", "when", "fallback", "optional", "fast"):
            if getattr(node, refused):
                self._refuse(
                    InvalidInput(
                        field=f"{field}.{refused}",
                        reason=f"a {kind} takes its node's place",
                        cure=f"Put `{refused}` on the node itself, or wrap the branch in a `graph`.",
                    )
                )
        return self.node(name, node, path=path, field=field, depth=depth + 1)

    def _check_tools(self, agent: AgentNode, path: str, field: str, depth: int) -> None:
        """Compile the nodes of an agent's tools, because only nodes that compile can be called."""
        if self.faults is not None:
            alone = _Compiler({}, self.known_models, self.faults)
            for name, tool in agent.tools.items():
                place = f"{field}.tools.{name}.node"
                alone.node(name, tool.node, path=f"{path}/{name}", field=place, depth=depth + 1)

    def _needs(self, name: str, node: Node, nodes: Container[str], field: str) -> tuple[str, ...]:
        """Return the nodes that a node waits for: its `needs`, then those that its expressions read."""
        read = read_by(node, field, applied=True)
        wanted = (*node.needs, *sorted(read))
        found = tuple(dict.fromkeys(other for other in wanted if other in nodes))
        if name not in found:
            return found
        is_told = self.faults is not None and self.faults.concern(read.get(name, ""))
        if not is_told:
            self._refuse(PipelineHasCycle.of(field=field, cycle=f"{name} -> {name}"))
        return tuple(other for other in found if other != name)

    def _topological(self, needs: Mapping[str, tuple[str, ...]], field: str) -> tuple[str, ...]:
        try:
            return tuple(TopologicalSorter(needs).static_order())
        except CycleError as error:
            cycle = " -> ".join(reversed(error.args[1]))
            self._refuse(PipelineHasCycle.of(field=field, cycle=cycle))
            return tuple(needs)

    def _value(self, value: Any, field: str) -> Evaluate:
        try:
            return compile_value(value, field)
        except InvalidInput as error:
            return self._fails(error)

    def _expression(self, text: str | None, field: str) -> Evaluate | None:
        if text is None:
            return None
        try:
            return compile_expression(text, field)
        except InvalidInput as error:
            return self._fails(error)

    def _fails(self, error: InvalidInput) -> Evaluate:
        """Return the function of a template that does not compile."""
        if self.faults is not None and not self.faults.concern(error.fields["field"]):
            self.faults.add(error)
        return fails_later(error)

    def _refuse(self, error: InvalidInput) -> None:
        """Collect a fault; raise it if it was applied nevertheless."""
        if self.faults is None:
            raise error
        self.faults.add(error)

    def _check_model(self, node: Node, field: str) -> None:
        if self.known_models is None or not isinstance(node, LlmNode | PlanningNode | AgentNode):
            return
        named = [("model", node.model)]
        if isinstance(node, PlanningNode) and node.emit is not None:
            named += [(f"emit.models.{i}", name) for i, name in enumerate(node.emit.models)]
        for place, model in named:
            if model in self.known_models:
                continue
            names = sorted(self.known_models) if isinstance(self.known_models, set | dict) else []
            known = f"known models: {listed(names)}" if names else "see the routing table"
            self._refuse(
                InvalidInput(
                    field=f"{field}.{place}",
                    reason=f"`{model}` is not a model that the gateway knows ({known})",
                    cure="Use one of them, or add it under `models:` in the configuration.",
                )
            )


_COMMON_FIELDS = frozenset(NodeBase.model_fields) | {"type"}
_CONTROL_FIELDS = frozenset({"nodes", "output", "branches", "pick", "valid", "score"})
_CALL_FIELDS = frozenset({"calls", "max_calls"})
"""Fields of nodes whose handlers call other nodes; an agent's `max_calls` is for its worker."""


def _config(node: Node) -> dict[str, Any]:
    if isinstance(node, OwnNode):
        return dict(node.config)
    hidden = _COMMON_FIELDS | _CONTROL_FIELDS
    if isinstance(node, CallingNode):
        hidden |= _CALL_FIELDS
    config = node.model_dump(mode="json", by_alias=True, exclude=set(hidden), exclude_none=True)
    if isinstance(node, AgentNode):
        config["tools"] = {name: _described(tool) for name, tool in node.tools.items()}
    return config


def _described(tool: AgentTool) -> dict[str, Any]:
    """Return the description of a tool for an agent's worker: what the model gets, or where the worker
    must ask for it."""
    told: dict[str, Any] = {"description": tool.description}
    if tool.parameters is not None:
        told["parameters"] = tool.parameters
    if isinstance(tool.node, McpNode):
        told |= {"server": tool.node.server, "tool": tool.node.tool}
    return told


@lru_cache(maxsize=1_024)
def _input_schema(plan: Plan) -> Schema:
    return compile_schema(plan.pipeline.input, "input")
