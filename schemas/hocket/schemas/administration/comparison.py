"""Two runs side by side, as the API shows them."""

from typing import Literal

from hocket.schemas.rest import Reply, RunSummary, Usd

Difference = Literal["only_a", "only_b", "input", "steps", "state", "output"]


class NodeSide(Reply):
    """What a node did in one of the runs: its steps (the items of a map, the rounds of a loop), how they
    ended, the `state` of the node itself, when the first step was ready (`at_ms` after the run was
    accepted), how long they ran, and what they cost."""

    steps: int
    succeeded: int
    failed: int
    state: str
    at_ms: float
    ran_ms: float | None = None
    cost_usd: Usd


class NodeComparison(Reply):
    """A node in both runs; null for a run that did not reach it. `differs` lists how the two differ
    (apart from time and cost), `first` marks the first node that does."""

    node: str
    a: NodeSide | None = None
    b: NodeSide | None = None
    differs: tuple[Difference, ...] = ()
    first: bool = False


class RunComparison(Reply):
    """Two runs, node by node, in the order in which the nodes started. `withheld`: whether inputs and
    outputs were left out of the comparison because the key lacks the permission `content.read`."""

    a: RunSummary
    b: RunSummary
    nodes: tuple[NodeComparison, ...]
    withheld: bool = False
