"""Handlers with a journal, and processes with workers that each kill themselves at one point:
`python -m support.durable.handlers NATS_URL POINT ...`."""

import asyncio
import operator
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph

from hocket.kit.nats.bus import Bus
from hocket.worker.langgraph import run
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.functions import described, run_function
from hocket.workers.runtime.execution.step_threads import StepThreads
from hocket.workers.runtime.journal.store import JournalStore
from support.durable.framework_agents import agents_sdk, pydantic_agent
from support.worker_rig import running_worker

CALLS = 10
ACK_WAIT_S = 1.0


class Said(TypedDict):
    """The state of a graph."""

    said: Annotated[list[str], operator.add]


async def agent(context: Context, die: str = "") -> list[str]:
    """In ten operations, alternately ask a model about the last text and do something with its answer.
    x"""
    said = ["begin"]
    for number in range(1, CALLS // 2 + 1):
        _die(die, "before", 2 * number - 1)
        reply = await context.model("clerk", f"{number} {said[-1]}")
        _die(die, "after", 2 * number - 1)
        said.append(reply.text)
        _die(die, "before", 2 * number)
        said.append(await context.step("noted", note, context, said[-1]))
        _die(die, "after", 2 * number)
    return said


async def graph_agent(context: Context, die: str = "") -> list[str]:
    """Ask a model ten times, each time with the last answer, in ten nodes of a LangGraph graph."""

    def node(number: int) -> Any:
        async def ask(state: Said) -> Said:
            _die(die, "before", number)
            reply = await context.model("clerk", f"{number} {state['said'][-1]}")
            _die(die, "after", number)
            return {"said": [reply.text]}

        return ask

    graph = StateGraph(Said)
    graph.add_sequence([(f"ask {number}", node(number)) for number in range(1, CALLS + 1)])
    graph.add_edge(START, "ask 1")
    state = await run(graph.compile(), {"said": ["begin"]}, context)
    return list(state["said"])


AGENTS: dict[str, Callable[[Context, str], Awaitable[Any]]] = {
    "plain": agent,
    "langgraph": graph_agent,
    "openai-agents": agents_sdk,
    "pydantic-ai": pydantic_agent,
}


async def note(context: Context, text: str) -> str:
    """Make a request to the outside world, through the gateway but not in the journal."""
    reply = await context.model("world", text, journal=False)
    return reply.text


def node_type(point: str) -> str:
    """Return the node type whose steps only the worker with that point (`plain before 3`) runs."""
    return "durable." + point.replace(" ", "_").replace("-", "_")


def handler(threads: StepThreads, framework: str, die: str = "") -> Any:
    async def handle(context: Context) -> Any:
        async def call(_given: Any, context: Context) -> Any:
            return await AGENTS[framework](context, die)

        return await run_function(described("agent", call), context, threads)

    return handle


def _die(point: str, where: str, number: int) -> None:
    if point == f"{where} {number}":
        os.kill(os.getpid(), signal.SIGKILL)


async def _serve(nats_url: str, point: str) -> None:
    framework, die = point.split(" ", 1)
    where, _, number = die.partition(" ")
    if where in ("unwritten", "written"):
        write, left = JournalStore.write, [int(number)]

        async def dying(self: JournalStore, *args: Any, **kwargs: Any) -> int:
            left[0] -= 1
            if where == "unwritten":
                _die(die, where, int(number) + left[0])
            seq = await write(self, *args, **kwargs)
            _die(die, where, int(number) + left[0])
            return seq

        JournalStore.write = dying  # type: ignore[method-assign]
    with closing(StepThreads(2)) as threads:
        bus = await Bus.connect(nats_url, name=point)
        handlers = {node_type(point): handler(threads, framework, die)}
        async with running_worker(bus, handlers, name=node_type(point)[8:], ack_wait_s=ACK_WAIT_S):
            await asyncio.sleep(60)


if __name__ == "__main__":
    for each in sys.argv[2:]:
        if os.fork() == 0:
            asyncio.run(_serve(sys.argv[1], each))
            sys.exit()
    for _ in sys.argv[2:]:
        os.wait()  # a child ends once it has had its step
