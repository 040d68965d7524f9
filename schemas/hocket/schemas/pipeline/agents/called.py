"""Nodes that run when they are called: the tools of agents, and the nodes that handlers call. The call
gives their input and decides when they run, so the nodes themselves may specify neither."""

from collections.abc import Iterator

from hocket.schemas.checks.faults import Faults
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.spec import AgentNode, CallingNode, Node

IN_A_GRAPH = ("with_", "when", "map", "loop")
"""Fields that a called node cannot use, but nodes inside a `graph` can."""
NOT_OF_CALLED = ("needs", "optional", "fast")


def called_by(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield the nodes that a node can call, with their places in it."""
    if isinstance(node, AgentNode):
        for name, tool in node.tools.items():
            yield f"tools.{name}.node", tool.node
    elif isinstance(node, CallingNode):
        for name, called in node.calls.items():
            yield f"calls.{name}", called


def check_calls(node: CallingNode, field: str, faults: Faults) -> None:
    """Collect what keeps nodes under `calls` from being called by a handler."""
    if "max_calls" in node.model_fields_set and not node.calls:
        reason = "the handler has no nodes to call"
        cure = "Name nodes under `calls`, or remove it."
        faults.add(InvalidInput(field=f"{field}.max_calls", reason=reason, cure=cure))
    for name, called in node.calls.items():
        with faults.part():
            check_called(called, f"{field}.calls.{name}", "what the handler passes")


def check_called(node: Node, field: str, given: str) -> None:
    """Raise InvalidInput if a node specifies something that its calls decide; `given` says, for the
    error, what its input is."""
    for name in (*IN_A_GRAPH, *NOT_OF_CALLED):
        if getattr(node, name):
            written = name.rstrip("_")
            cure = "Remove it."
            if name in IN_A_GRAPH:
                cure = f"Make it a `graph` and put `{written}` on a node inside it,"
                cure += f" where `input` is {given}."
            raise InvalidInput(
                field=f"{field}.{written}",
                reason=f"the node runs when it is called, and its input is {given}",
                cure=cure,
            )
