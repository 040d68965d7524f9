"""LangGraph graphs inside a handler.

The output of each graph node is kept in the step's journal, so that another attempt neither repeats a
finished node nor calls its models again. Needs the package `langgraph`."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote

from langchain_core.runnables import Runnable
from langgraph.checkpoint.base import get_checkpoint_metadata
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import RESUME
from langgraph.errors import GraphBubbleUp
from langgraph.pregel import Pregel
from langgraph.pregel._read import DEFAULT_BOUND, PregelNode
from pydantic_core import to_json

from hocket.kit.process.clock import now_ms
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.journal.durable import SCOPE
from hocket.workers.runtime.journal.errors import JournalFault
from hocket.workers.runtime.journal.journal import Place

_SERDE = JsonPlusSerializer()
"""The serializer that LangGraph itself uses for checkpoints; messages, commands and dataclasses keep
their types."""

_RUN: ContextVar[int] = ContextVar("hocket_graph_run", default=0)
"""The number, within its handler, of the current run of a graph with Checkpoints."""

_NOT_ASYNC = "`Checkpoints` are written by async methods alone: `await` the graph's `a...` method"

_OPERATIONS = {
    "put": InMemorySaver.put,
    "put_writes": InMemorySaver.put_writes,
    "delete_thread": InMemorySaver.delete_thread,
}


async def run(graph: Any, given: Any, context: Context, config: Any = None, **options: Any) -> Any:
    """Run a compiled graph inside a handler's attempt, as its `ainvoke` does, with the same options.

    Another attempt continues after the nodes that finished. A node that fails raises StepFailed. A graph
    that interrupts needs a checkpointer: `Checkpoints`, or `InMemorySaver`, whose checkpoints each
    attempt rebuilds."""
    graph = durable(graph, context)
    if isinstance(graph.checkpointer, Checkpoints):
        return await graph.checkpointer.run(graph, given, config, options)
    return await graph.ainvoke(given, config, **options)


def durable(graph: Any, context: Context) -> Any:
    """Return a copy of a graph whose nodes, including those of nested graphs, are journaled steps."""
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
    """Runs what a node is bound to in its own branch of the journal, because nodes run concurrently."""

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
    """Runs what a node is bound to, unless the journal already has its output."""

    async def _run(self, given: Any, config: Any, options: dict[str, Any]) -> Any:
        async def kept() -> list[str]:
            try:
                return _packed(await self._bound.ainvoke(given, config, **options))
            except GraphBubbleUp as signal:
                raise _Interrupted(signal) from None

        try:
            value = await self._context.step(config["metadata"]["langgraph_node"], kept)
        except _Interrupted as interrupted:
            raise interrupted.signal from None
        return _unpacked(value)


class _Interrupted(JournalFault):
    """The node was interrupted: this is no result that is kept, it begins anew when it goes on."""

    code = "interrupted"

    def __init__(self, signal: GraphBubbleUp) -> None:
        super().__init__()
        self.signal = signal


def _branch_of(config: Any) -> str:
    """Return a name that is unique to a node's task in its graph and the same in all attempts: the
    graph's step, the node, and, for a task made by `Send`, its number."""
    task = config["metadata"]
    kind, *path = task["langgraph_path"]
    sent = path[:1] if kind == "__pregel_push" else []
    return quote(" ".join(map(str, (task["langgraph_step"], task["langgraph_node"], *sent))), " ")


class Checkpoints(InMemorySaver):
    """A checkpointer that keeps its checkpoints in the journal of a handler's step.

    `run` resumes from the last checkpoint that an earlier attempt wrote, instead of replaying the graph
    from its start. Checkpoints are deleted with the journal and count towards its limits. A handler may
    have one `Checkpoints`; each further one needs a branch of its own."""

    def __init__(self, context: Context) -> None:
        super().__init__(serde=_SERDE)
        self._context = context
        self._scope = f"{SCOPE.get()}#checkpoints/"
        self._loading = asyncio.Lock()
        self._next: Place | None = None
        self._is_loaded = False
        self._runs = 0
        self._written: list[tuple[int, str, Any]] = []
        """What earlier attempts did: the number of the run, the operation, and its arguments."""

    def with_allowlist(self, _extra_allowlist: Any) -> "Checkpoints":
        """Return this object itself: a copy would not know what this one has written."""
        return self

    async def run(self, graph: Any, given: Any, config: Any, options: dict[str, Any]) -> Any:
        """Run a graph with these checkpoints.

        A run that an earlier attempt began is resumed; one that it finished returns the same result. A
        checkpoint is written before the next nodes run."""
        self._runs += 1
        number = self._runs
        await self._load()

        async def state() -> list[str]:
            token = _RUN.set(number)
            try:
                done = {operation for run, operation, _ in self._written if run == number}
                goes_on = "put" in done
                if done and not goes_on:
                    self._ask_again(number)
                how = {"durability": "sync", **options}
                return _packed(await graph.ainvoke(None if goes_on else given, config, **how))
            finally:
                _RUN.reset(token)

        with self._context.branch(f"graph {number}"):
            return _unpacked(await self._context.step("graph", state))

    def _ask_again(self, number: int) -> None:
        """Forget the answers that nodes consumed in a run that is about to be given them again:
        otherwise a node that asks twice would take the first answer for its second question as well."""
        self.storage.clear()
        self.writes.clear()
        self.blobs.clear()
        for run, operation, given in self._written:
            if run == number and operation == "put_writes":
                config, writes, *task = given
                unasked = [one for one in writes if one[0] != RESUME]
                InMemorySaver.put_writes(self, config, unasked, *task)
            else:
                _OPERATIONS[operation](self, *given)

    async def aget_tuple(self, config: Any) -> Any:
        await self._load()
        return self.get_tuple(config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        await self._load()
        for one in self.list(config, **options):
            yield one

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        values = checkpoint["channel_values"]
        changed = {name: values[name] for name in new_versions if name in values}
        checkpoint = {**checkpoint, "channel_values": changed}
        metadata = get_checkpoint_metadata(config, metadata)
        return await self._do("put", _thread(config), checkpoint, metadata, dict(new_versions))

    async def aput_writes(
        self, config: Any, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        await self._do("put_writes", _thread(config), list(writes), task_id, task_path)

    def put(self, *_given: Any) -> Any:
        raise TypeError(_NOT_ASYNC)

    def put_writes(self, *_given: Any) -> None:
        raise TypeError(_NOT_ASYNC)

    def delete_thread(self, *_given: Any) -> None:
        raise TypeError(_NOT_ASYNC)

    async def adelete_thread(self, thread_id: str) -> None:
        await self._do("delete_thread", thread_id)

    async def _do(self, operation: str, *given: Any) -> Any:
        """Journal an operation that changes the checkpoints, then apply it."""
        await self._load()
        context = self._context
        place, self._next = self._next or self._next_place(), None
        value = [_RUN.get(), operation, *_packed(given)]
        with context._waits.working():
            await context._record(place, now_ms(), value, len(to_json(value)))
        return _OPERATIONS[operation](self, *given)

    async def _load(self) -> None:
        """Replay the operations that earlier attempts journaled."""
        async with self._loading:
            if self._is_loaded:
                return
            place = self._next_place()
            if place.ordinal > 1:
                raise ValueError(
                    "a handler has one `Checkpoints`; give each additional one a branch"
                )
            with self._context._waits.working():
                while (found := await self._context._journal.find(place)) is not None:
                    entry = found.entry
                    kept = await self._context._resolved(entry.value, large=entry.large)
                    number, operation, *packed = kept
                    given = _unpacked(packed)
                    _OPERATIONS[operation](self, *given)
                    self._written.append((number, operation, given))
                    place = self._next_place()
            self._next, self._is_loaded = place, True

    def _next_place(self) -> Place:
        return self._context._journal.place(self._scope, "step", "checkpoint")


def _thread(config: Any) -> dict[str, Any]:
    """Return the part of a config that says where its checkpoints are."""
    told = config["configurable"]
    names = ("thread_id", "checkpoint_ns", "checkpoint_id")
    return {"configurable": {name: told[name] for name in names if name in told}}


def _packed(value: Any) -> list[str]:
    """Return a value in a form that JSON can hold."""
    kind, data = _SERDE.dumps_typed(value)
    return [kind, b64encode(data).decode()]


def _unpacked(packed: Any) -> Any:
    kind, data = packed
    return _SERDE.loads_typed((kind, b64decode(data)))
