"""The node types on their real parts: Postgres behind sql, planning and retrieval, NATS in front."""

from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from nats.aio.msg import Msg

from hocket.schemas import subjects
from hocket.schemas.errors import ErrorClass
from hocket.schemas.messages import CallReply, CallRequest
from hocket.schemas.pipeline.spec import WORKER_TYPES
from hocket.workers.nodes.registry import handlers
from hocket.workers.nodes.resources import Resources
from hocket.workers.retrieval.connections import IndexConnections
from hocket.workers.retrieval.index import add_folder
from hocket.workers.runtime.execution.step_threads import StepThreads
from hocket.workers.sql.targets import Targets
from support.worker_rig import Rig

TABLES = """
CREATE SCHEMA w;
CREATE TABLE w.rain (city text, day date, mm numeric);
INSERT INTO w.rain VALUES
    ('Oslo', '2024-03-01', 2.5), ('Oslo', '2024-03-02', 10), ('Bergen', '2024-03-01', 40);
"""


@pytest.fixture
async def rig(nats_url: str) -> AsyncIterator[Rig]:
    rig = await Rig.open(nats_url)
    yield rig
    await rig.close()


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await asyncpg.create_pool(database_url, min_size=1, max_size=4, timeout=10)
    await pool.execute(TABLES)
    yield pool
    await pool.close()


@pytest.fixture
async def nodes(pool: asyncpg.Pool, database_url: str) -> AsyncIterator[dict[str, Any]]:
    targets = Targets({"weather": {"url": database_url, "tables": ["w.*"]}})
    with closing(StepThreads(2)) as threads:
        yield handlers(
            WORKER_TYPES, Resources(threads=threads, targets=targets, index=IndexConnections(pool))
        )
    await targets.close()


async def test_a_sql_step_gives_its_rows(rig: Rig, nodes: dict[str, Any]) -> None:
    async with rig.worker(nodes):
        step = await rig.send(
            type="sql",
            config={
                "database": "weather",
                "query": "SELECT day, mm FROM w.rain WHERE city = :city ORDER BY day",
                "params": {"city": "{{ input.where }}"},
            },
            input={"name": "rain", "where": "Oslo"},
        )
        output = (await rig.result(step)).output
    assert output["name"] == "rain"
    assert output["columns"] == ["day", "mm"]
    assert output["rows"] == [["2024-03-01", "2.5"], ["2024-03-02", 10]]
    assert (output["row_count"], output["truncated"]) == (2, False)


async def test_a_sql_step_runs_the_query_of_a_plan(rig: Rig, nodes: dict[str, Any]) -> None:
    planned = {
        "name": "top",
        "sql": """SELECT city FROM w.rain WHERE day >= CAST(CAST(:since AS text) AS date)
                  ORDER BY mm DESC LIMIT 1""",
        "params": {"since": "2024-03-02"},
    }
    async with rig.worker(nodes):
        step = await rig.send(type="sql", config={"database": "weather"}, input=planned)
        result = await rig.result(step)
    assert result.error is None
    assert result.output["rows"] == [["Oslo"]]


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("DELETE FROM w.rain", "sql_not_one_select"),
        ("SELECT * FROM hocket.run", "sql_table_refused"),
        ("SELECT nothing FROM w.rain", "sql_invalid"),
    ],
)
async def test_a_query_that_may_not_run_is_a_typed_error(
    rig: Rig, nodes: dict[str, Any], sql: str, code: str
) -> None:
    async with rig.worker(nodes):
        step = await rig.send(type="sql", config={"database": "weather"}, input={"sql": sql})
        error = (await rig.result(step)).error
    assert error is not None
    assert (error.code, error.error_class) == (code, ErrorClass.INVALID)


async def test_a_planning_step_tells_the_model_the_values_that_the_database_has(
    rig: Rig, nodes: dict[str, Any]
) -> None:
    told: list[CallRequest] = []

    async def on_call(msg: Msg) -> None:
        request = CallRequest.model_validate_json(msg.data)
        told.append(request)
        plan = {
            "questions": ["How much?"],
            "searches": [],
            "queries": [{"name": "rain", "params": {"city": "bergen"}}],
        }
        reply = CallReply(call_id=request.call_id, data=plan, model=request.model)
        rig.bus.publish_nowait(msg.reply, reply.model_dump_json().encode())

    await rig.bus.subscribe(subjects.GATEWAY_CALL, on_call)
    await rig.bus.nc.flush()
    query = {
        "name": "rain",
        "description": "Rain of a city",
        "sql": "SELECT sum(mm) FROM w.rain WHERE city = :city",
        "params": {"city": {"values": "SELECT DISTINCT city FROM w.rain ORDER BY city"}},
    }
    async with rig.worker(nodes):
        step = await rig.send(
            type="planning",
            config={"model": "planner", "database": "weather", "catalog": [query]},
            input={"question": "How much rain had Bergen?"},
        )
        result = await rig.result(step)
    assert result.error is None
    assert told[0].context["values"] == {
        "SELECT DISTINCT city FROM w.rain ORDER BY city": ["Bergen", "Oslo"]
    }
    assert '["Bergen", "Oslo"]' in told[0].messages[0].content
    assert result.output["queries"] == [
        {"name": "rain", "sql": query["sql"], "params": {"city": "Bergen"}}
    ]
    assert result.output["searches"] == ["How much rain had Bergen?"]


async def test_a_retrieval_step_gives_passages_with_their_places(
    rig: Rig, nodes: dict[str, Any], pool: asyncpg.Pool, tmp_path: Path
) -> None:
    (tmp_path / "rain.md").write_text("# Rain\n\nIn Bergen it rains on most days of the year.\n")
    (tmp_path / "sun.md").write_text("# Sun\n\nIn Seville the sun shines.\n")
    await add_folder(pool, tmp_path, "weather", tenant="t")
    async with rig.worker(nodes):
        step = await rig.send(
            type="retrieval",
            config={"collection": "weather", "top_k": 1},
            input={"queries": ["rain in Bergen", "days of rain"]},
        )
        result = await rig.result(step)
    assert result.error is None
    (passage,) = result.output["passages"]
    assert passage["source"] == "rain.md"
    assert "rains on most days" in passage["text"]
    assert {"id", "title", "start", "end", "score"} <= set(passage)


async def test_a_search_in_an_unknown_collection_is_a_typed_error(
    rig: Rig, nodes: dict[str, Any]
) -> None:
    async with rig.worker(nodes):
        step = await rig.send(type="retrieval", config={"collection": "x"}, input={"query": "q"})
        error = (await rig.result(step)).error
    assert error is not None
    assert error.code == "collection_unknown"
