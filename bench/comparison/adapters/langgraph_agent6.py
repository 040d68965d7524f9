"""Run agent6 on LangGraph with its Postgres saver, in one process, at the library's default durability.

python langgraph_agent6.py DATABASE_URL
"""

import asyncio
import sys
import uuid
from typing import Any, TypedDict

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from serving import BODY, serve

CONNECTIONS = 20
GRAPH = {
    "plan": (),
    "retrieve": ("plan",),
    "sql": ("plan",),
    "classify": ("plan",),
    "llm": ("retrieve", "sql", "classify"),
    "verify": ("llm",),
}
State = TypedDict("State", {"input": Any, **dict.fromkeys(GRAPH, Any)}, total=False)


def node(name: str, parents: tuple[str, ...]) -> Any:
    """Return a node that passes on the value it received from its first parent."""
    source = parents[0] if parents else "input"

    async def pass_along(state: State) -> dict[str, Any]:
        return {name: {"text": state[source]["text"]}}

    return pass_along


async def main(database_url: str) -> None:
    """Compile the graph over a connection pool and serve orders."""
    graph = StateGraph(State)
    for name, parents in GRAPH.items():
        graph.add_node(f"do_{name}", node(name, parents))
        graph.add_edge([f"do_{p}" for p in parents] if parents else START, f"do_{name}")
    graph.add_edge("do_verify", END)
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(
        database_url, min_size=CONNECTIONS, max_size=CONNECTIONS, kwargs=options
    ) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        runs = graph.compile(checkpointer=saver)

        async def one_run() -> None:
            thread = {"configurable": {"thread_id": uuid.uuid4().hex}}
            state = await runs.ainvoke({"input": BODY}, thread)
            assert state["verify"] == BODY, state

        await serve(one_run)


asyncio.run(main(sys.argv[1]))
