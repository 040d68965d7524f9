"""A plan compiled for runs: nodes and edges as integer places, and what every message repeats as
text.

`PipelinePlan` is made once for a pipeline's version, `CompiledPlan` once for what a planner emits.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import to_json

from hocket.coordinator.core.run.plan.inputs import BoundInput, bound_input
from hocket.coordinator.core.time.duration_estimates import DEFAULT_TIMEOUT_MS
from hocket.schemas.pipeline.plan import NodePlan, Plan, ScopePlan
from hocket.schemas.pipeline.spec import (
    WAIT_TYPES,
    AgentNode,
    ApprovalNode,
    LlmNode,
    PlanningNode,
    SignalNode,
    pool_of,
)
from hocket.schemas.subjects import is_own_type

LEAF: Final = "leaf"
WAIT: Final = "wait"
SUBRUN: Final = "subrun"
GRAPH: Final = "graph"
MAP: Final = "map"
LOOP: Final = "loop"
RACE: Final = "race"
_ROLES: Final = {"graph": GRAPH, "race": RACE, "pipeline": SUBRUN}


class Node:
    """A node of a plan, with all that is known of it before a run. `index` is its number in its
    plan, `place` its number in its scope; `needs` and `dependents` are places."""

    __slots__ = (
        "agent",
        "body",
        "bound",
        "branches",
        "cache",
        "cached_fields",
        "calls",
        "dependents",
        "emit",
        "fallbacks",
        "fast",
        "heads",
        "index",
        "is_external",
        "keeps_journal",
        "name",
        "needs",
        "optional",
        "own_fields",
        "path",
        "pauses",
        "place",
        "plan",
        "pool",
        "prefills",
        "role",
        "role_in_map",
        "role_in_round",
        "spec",
        "static",
        "timeout_ms",
        "type",
    )

    def __init__(self, plan: NodePlan, index: int) -> None:
        spec = plan.node
        self.plan = plan
        self.spec = spec
        self.index = index
        self.name: str = plan.name
        self.path: str = plan.path
        self.type: str = spec.type
        self.pool: str = pool_of(spec)
        self.own_fields: Mapping[str, Any] = plan.own_fields
        self.place = 0
        self.needs: list[int] = []
        self.dependents: list[int] = []
        self.prefills: list[int] = []
        """The dependents whose prompts are announced when this node begins."""
        self.heads: Any = None
        """What renders the beginning of its own prompt, once asked for (`prompts.py`)."""
        self.optional: bool = spec.optional
        self.timeout_ms: float = spec.timeout_ms or DEFAULT_TIMEOUT_MS
        self.cache = spec.cache
        self.cached_fields: Any = None
        """The hash of what the keys of its cache entries begin with, once asked for (`caching.py`)."""
        self.agent = spec if isinstance(spec, AgentNode) else None
        self.emit = spec.emit if isinstance(spec, PlanningNode) else None
        self.is_external: bool = spec.effects == "external"
        self.keeps_journal = spec.type == "python" or is_own_type(spec.type)
        self.pauses = isinstance(spec, ApprovalNode | SignalNode) and spec.pause_deadline
        self.role_in_round: str = WAIT if spec.type in WAIT_TYPES else _ROLES.get(spec.type, LEAF)
        self.role_in_map: str = LOOP if spec.loop else self.role_in_round
        self.role: str = MAP if spec.map else self.role_in_map
        self.static = _static(plan, is_external=self.is_external)
        self.bound: BoundInput | None = None
        self.body: Scope | None = None
        self.branches: list[Node] = []
        self.fallbacks: list[Node] = []
        self.fast: Node | None = None
        self.calls: dict[str, Node] = {}


class Scope:
    """Nodes that see each other, by place; `finals` are those that no other node needs."""

    __slots__ = ("finals", "nodes", "output", "pending", "places", "plan", "roots")

    def __init__(self, plan: ScopePlan, nodes: list[Node]) -> None:
        self.plan = plan
        self.nodes = nodes
        self.places: dict[str, int] = {node.name: place for place, node in enumerate(nodes)}
        self.roots: list[int] = [self.places[name] for name in plan.roots]
        self.finals: list[int] = [self.places[name] for name in plan.finals]
        self.pending: list[int] = [len(node.plan.needs) for node in nodes]
        """How many needs of each node are unmet when the scope begins."""
        self.output = plan.output


class CompiledPlan:
    """The nodes of a pipeline's version, or of what a planner emitted."""

    __slots__ = ("by_path", "nodes", "root")

    def __init__(self, root: ScopePlan, by_path: Mapping[str, NodePlan]) -> None:
        self.nodes: list[Node] = [Node(plan, index) for index, plan in enumerate(by_path.values())]
        self.by_path: dict[str, Node] = {node.path: node for node in self.nodes}
        self.root: Scope = self._scope(root)

    def _scope(self, plan: ScopePlan) -> Scope:
        scope = Scope(plan, [self.by_path[one.path] for one in plan.nodes.values()])
        for place, node in enumerate(scope.nodes):
            node.place = place
            node.needs = [scope.places[name] for name in node.plan.needs]
            node.dependents = [scope.places[name] for name in node.plan.dependents]
            node.prefills = [to for to in node.dependents if _is_told_of(scope.nodes[to])]
            node.bound = bound_input(node.plan, scope.places)
            self._inside(node)
            self._bind_beside(node, scope)
        return scope

    def _inside(self, node: Node) -> None:
        plan = node.plan
        if plan.body is not None:
            node.body = self._scope(plan.body)
        node.branches = [self.by_path[one.path] for one in plan.branches.values()]
        node.fallbacks = [self.by_path[one.path] for one in plan.fallbacks]
        node.fast = None if plan.fast is None else self.by_path[plan.fast.path]
        node.calls = {name: self.by_path[one.path] for name, one in plan.calls.items()}

    def _bind_beside(self, node: Node, scope: Scope) -> None:
        """Give branches, fallbacks, fast variants and called nodes the place of their node."""
        fast = [] if node.fast is None else [node.fast]
        for inner in (*node.branches, *node.fallbacks, *fast, *node.calls.values()):
            inner.place = node.place
            inner.bound = bound_input(inner.plan, scope.places)
            self._inside(inner)
            self._bind_beside(inner, scope)


class PipelinePlan(CompiledPlan):
    """The compiled plan of a pipeline's version."""

    __slots__ = ("degrades", "fails_infeasible", "flow", "judges", "max_runs", "source")

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.root, plan.by_path)
        self.source = plan
        self.judges: bool = plan.pipeline.on_infeasible != "continue"
        self.degrades: bool = plan.pipeline.on_infeasible == "degrade"
        self.fails_infeasible: bool = plan.pipeline.on_infeasible == "fail"
        self.max_runs: int = plan.pipeline.max_runs
        self.flow = plan.flow


def answers_to(node: Node, key: str) -> tuple[str, ...]:
    """Return the names of the signals that end a step's wait: for an approval, its step's key and
    its node's name; for a signal node, the name in its spec."""
    if isinstance(node.spec, SignalNode):
        return (node.spec.signal,)
    return (key,) if key == node.name else (key, node.name)


def _is_told_of(node: Node) -> bool:
    spec = node.spec
    return isinstance(spec, LlmNode) and spec.prefill and not (spec.map or spec.loop)


def _static(plan: NodePlan, *, is_external: bool) -> str:
    """Return what the messages of all steps of a node share."""
    fields: dict[str, Any] = {
        "node": plan.path,
        "type": plan.node.type,
        "config": dict(plan.config),
        "effects_external": is_external,
    }
    if plan.node.queue is not None:
        fields["queue"] = plan.node.queue
    if plan.calls:
        fields["calls"] = list(plan.calls)
    return to_json(fields).decode()[1:-1] + ","
