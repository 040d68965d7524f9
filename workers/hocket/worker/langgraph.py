"""Graphs of LangGraph inside a handler: what each node gave is in the step's journal, so that neither a
node that was done nor a model is asked again, whatever becomes of the attempt. Needs the package
`langgraph`."""

from base64 import b64decode, b64encode
from typing import Any
from urllib.parse import quote

from langchain_core.runnables import Runnable
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.errors import GraphBubbleUp
from langgraph.pregel import Pregel
from langgraph.pregel._read import DEFAULT_BOUND, PregelNode

from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.journal.errors import JournalFault

_SERDE = JsonPlusSerializer()
"""What LangGraph itself keeps checkpoints with: messages, commands, and dataclasses have their types."""


async def run(graph: Any, given: Any, context: Context, config: Any = None, **options: Any) -> Any:
    """Run a compiled graph as its `ainvoke` does, with these options, within the attempt of a handler.

    Another attempt goes on behind the nodes that ended. A node that fails raises StepFailed. A graph
    that is interrupted needs a checkpointer: `InMemorySaver`, for what is in it follows from the
    journal."""
    return await durable(graph, context).ainvoke(given, config, **options)


def durable(graph: Any, context: Context) -> Any:
    """Return a graph whose nodes, those of graphs in it included, are steps of the journal."""
    nodes = {name: _node(node, context) for name, node in graph.nodes.items()}
    return graph.copy({"nodes": nodes})


def _node(node: PregelNode, context: Context) -> PregelNode:
    bound = node.bound
    if bound is DEFAULT_BOUND:
        return node
    if isinstance(bound, Pregel):
        return node.copy({"bound": _InBranch(durable(bound, context), context)})
    if (node.metadata or {}).get("journal") is False:
        return node.copy({"bound": _InBranch(bound, context)})
    return node.copy({"bound": _Once(bound, context)})


class _InBranch(Runnable[Any, Any]):
    """Runs what a node has in a branch of its own: nodes run side by side."""

    def __init__(self, bound: Any, context: Context) -> None:
        self._bound = bound
        self._context = context

    def invoke(self, *_args: Any, **_options: Any) -> Any:
        raise TypeError("a graph in a handler is run by `await run(graph, input, context)`")

    async def ainvoke(self, given: Any, config: Any = None, **options: Any) -> Any:
        with self._context.branch(_branch_of(config)):
            return await self._run(given, config, options)

    async def _run(self, given: Any, config: Any, options: dict[str, Any]) -> Any:
        return await self._bound.ainvoke(given, config, **options)


class _Once(_InBranch):
    """Runs what a node has where the journal does not have what it gave."""

    async def _run(self, given: Any, config: Any, options: dict[str, Any]) -> Any:
        async def kept() -> list[str]:
            try:
                value = await self._bound.ainvoke(given, config, **options)
            except GraphBubbleUp as signal:
                raise _Interrupted(signal) from None
            kind, data = _SERDE.dumps_typed(value)
            return [kind, b64encode(data).decode()]

        try:
            kind, data = await self._context.step(config["metadata"]["langgraph_node"], kept)
        except _Interrupted as interrupted:
            raise interrupted.signal from None
        return _SERDE.loads_typed((kind, b64decode(data)))


class _Interrupted(JournalFault):
    """The node was interrupted: this is no result that is kept, it begins anew when it goes on."""

    code = "interrupted"

    def __init__(self, signal: GraphBubbleUp) -> None:
        super().__init__()
        self.signal = signal


def _branch_of(config: Any) -> str:
    """Return what tells a node's task from all others of its graph, the same in all attempts: the step,
    the node, and its number where it was sent for."""
    task = config["metadata"]
    kind, *path = task["langgraph_path"]
    sent = path[:1] if kind == "__pregel_push" else []
    return quote(" ".join(map(str, (task["langgraph_step"], task["langgraph_node"], *sent))), " ")
