"""The names of approvals and signals that the runs of pipelines can wait for.

Handlers, planners and the models of agents choose names while a run is under way; without these, the
pipelines tell all names.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hocket.schemas.pipeline.plan import NodePlan, Plan
from hocket.schemas.pipeline.spec import AgentNode, ApprovalNode, PlanningNode, SignalNode
from hocket.schemas.subjects import is_own_type

ITEM_OR_ROUND = re.compile(r"\[(?:0|[1-9][0-9]*)\]|#[1-9][0-9]*")
"""The parts of a step's key that its node's path lacks."""
ANY_ITEM, ANY_ROUND = "[N]", "#N"
"""How names say that a key has the number of an item, or of a round, in this place."""
_END_OF_NODE = re.compile(r"(?=[/~!])|\Z")
_NUMBER = re.compile(r"([0-9]+)")


@dataclass(frozen=True, slots=True)
class AwaitedNames:
    """The names that the runs of a pipeline can wait for: signals, and approvals by the names of their
    nodes and by the keys of their steps. None if they can wait for anything."""

    names: frozenset[str] | None

    def has(self, name: str) -> bool:
        """Tell whether a step can wait for a name. Names with ANY_ITEM or ANY_ROUND stand for keys, and
        are none."""
        if self.names is None:
            return True
        if ANY_ITEM in name or ANY_ROUND in name:
            return False
        return ITEM_OR_ROUND.sub(_any, name) in self.names


def awaited_by(plan: Plan) -> AwaitedNames:
    """Return what the runs of a pipeline can wait for."""
    nodes = plan.by_path.values()
    if any(emits(node) or _runs_own_code(node) for node in nodes):
        return AwaitedNames(None)
    names: set[str] = set()
    for node in nodes:
        if isinstance(node.node, SignalNode):
            names.add(node.node.signal)
        elif isinstance(node.node, ApprovalNode):
            names |= {node.name, _key_of(node.path, plan.by_path)}
    return AwaitedNames(frozenset(names))


def emits(node: NodePlan) -> bool:
    """Tell whether a node has steps under it that are unknown until it has run."""
    spec = node.node
    return isinstance(spec, AgentNode) or (isinstance(spec, PlanningNode) and spec.emit is not None)


def in_order(names: Iterable[str]) -> list[str]:
    """Return names in their natural order: `n2` before `n10`."""
    return sorted(names, key=_natural)


def _key_of(path: str, by_path: Mapping[str, NodePlan]) -> str:
    """Return the key of the steps of the node at a path, with ANY_ITEM and ANY_ROUND. A fallback stands
    beside the items and rounds of its node."""
    key, begin = "", 0
    for end in (found.start() for found in _END_OF_NODE.finditer(path)):
        key += path[begin:end]
        begin = end
        if path[end : end + 1] != "!":
            key += _repeats(by_path[path[:end]])
    return key


def _repeats(node: NodePlan) -> str:
    spec = node.node
    return (ANY_ITEM if spec.map else "") + (ANY_ROUND if spec.loop else "")


def _any(number: re.Match[str]) -> str:
    return ANY_ITEM if number[0][0] == "[" else ANY_ROUND


def _natural(name: str) -> list[Any]:
    return [int(part) if i % 2 else part for i, part in enumerate(_NUMBER.split(name))]


def _runs_own_code(node: NodePlan) -> bool:
    return node.node.type == "python" or is_own_type(node.node.type)
