"""What handlers log goes from a worker to Postgres, and to those who may see it; nobody writes into a
run of which he got no step."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
import structlog
from typer.testing import CliRunner

from hocket.cli.app import app as cli
from hocket.kit.logs.run_lines import LineHandler, add_run, keeping
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.postgres.database import connect_pool
from hocket.ledger.lines.door import LineDoor, write
from hocket.ledger.upkeep import day_partitions
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.checks.redaction import Redactor
from hocket.schemas.messages import encoded
from hocket.schemas.tracing.log_lines import AttemptLines, LineBatch, LogLine
from hocket.workers.runtime.execution.context import Context
from support.rest_rig import bearer, running_rest
from support.runs.rows import insert_run
from support.worker_rig import Rig, eventually

NOW_MS = 1_800_000_000_000.0
RUN = "r" + "1" * 24
KEY = Capabilities([b"k" * 32])
SECRET = "sk-0123456789"


@pytest.fixture
async def pool(database_url: str) -> "AsyncIterator[asyncpg.Pool[asyncpg.Record]]":
    pool = await connect_pool(database_url, size=4, name="test")
    async with pool.acquire() as connection:
        await day_partitions.make_ahead(connection)
    yield pool
    await pool.close()


def lines(*texts: str, first: int = 0, **fields: Any) -> AttemptLines:
    """Lines of an attempt that proves itself, unless `fields` change what it proves."""
    proof = KEY.of_attempt("default", RUN, "a", 1, NOW_MS)
    return AttemptLines.model_validate(
        {
            "tenant": "default",
            "run_id": RUN,
            "step": "a",
            "attempt": 1,
            "dispatched_at_ms": NOW_MS,
            "capability": proof,
            "worker": "w",
            "lines": [
                {"number": first + number, "at_ms": NOW_MS + first + number, "text": text}
                for number, text in enumerate(texts)
            ],
            **fields,
        }
    )


async def test_what_a_handler_logs_is_kept_beside_its_step(
    bus: Bus, pool: asyncpg.Pool, nats_url: str
) -> None:
    log = structlog.wrap_logger(
        structlog.ReturnLogger(),
        processors=[
            add_run,
            structlog.processors.add_log_level,
            keeping(Redactor([SECRET])),
            structlog.processors.JSONRenderer(),
        ],
    )
    library = logging.Logger("library")
    library.addHandler(LineHandler(Redactor([SECRET])))

    async def chatty(context: Context) -> dict[str, Any]:
        log.info("looked_up", key=SECRET, found=3)
        library.warning("slow")
        return {}

    rig = await Rig.open(nats_url)
    step = rig.step(dispatched_at_ms=NOW_MS)
    proof = KEY.of_attempt(step.tenant, step.run_id, step.step, step.attempt, NOW_MS)
    async with LineDoor(bus, pool, KEY).open(), rig.worker({"python": chatty}):
        await rig.send(**step.model_copy(update={"capability": proof}).model_dump())

        async def there() -> bool:
            return bool(await pool.fetchval("SELECT count(*) = 2 FROM hocket.log_line"))

        await eventually(there)
    await rig.close()
    found = await pool.fetch("SELECT * FROM hocket.log_line ORDER BY number")
    assert [(row["text"], row["level"]) for row in found] == [
        ("looked_up", "info"),
        ("slow", "warning"),
    ]
    assert json.loads(found[0]["fields"]) == {"key": "***", "found": 3}
    assert {(row["tenant"], row["run_id"], row["step"]) for row in found} == {
        ("t", step.run_id, "s")
    }


async def test_lines_without_the_capability_of_their_attempt_are_not_written(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    forged = (
        lines("no proof", capability=""),
        lines("another tenant's run", tenant="rival"),
        lines("another run", run_id="r" + "2" * 24),
        lines("another step", step="b"),
        lines("another attempt", attempt=2),
        lines("another dispatch", dispatched_at_ms=NOW_MS + 1),
    )
    async with LineDoor(bus, pool, KEY).open():
        batch = LineBatch(attempts=(*forged, lines("mine")))
        await bus.request(f"{subjects.WORKER_LINES}.python", encoded(batch), timeout_ms=5_000)
        for malformed in (b"", b"{}", b"[]", b'{"attempts": 1}', b"x" * 3_000_000):
            with pytest.raises(BusUnavailable):
                await bus.request(f"{subjects.WORKER_LINES}.python", malformed, timeout_ms=100)
    rows = await pool.fetch("SELECT text FROM hocket.log_line")
    assert [row["text"] for row in rows] == ["mine"]


async def test_a_batch_that_comes_twice_is_written_once_and_a_run_has_a_bound(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.ledger.lines.door.MAX_RUN_LINES", 5)
    for _ in range(2):
        await write(pool, [lines("one", "two", "three"), lines("three again", first=2)])
    await write(pool, [lines(*"defgh", first=3), lines("x", delivery=2)])
    rows = await pool.fetch("SELECT number, text FROM hocket.log_line ORDER BY number")
    assert [tuple(row) for row in rows] == [
        (0, "one"), (1, "two"), (2, "three"), (3, "d"), (4, "e"),
    ]  # fmt: skip


@pytest.mark.parametrize("fields", ["[1]", "{", "null", "NaN", "[" * 4_000])
async def test_fields_that_are_no_object_are_left_out(fields: str, pool: asyncpg.Pool) -> None:
    line = LogLine(number=0, at_ms=NOW_MS, text="a\0b", fields=fields)
    await write(pool, [lines().model_copy(update={"lines": (line,)})])
    row = await pool.fetchrow("SELECT text, fields FROM hocket.log_line")
    assert (row["text"], row["fields"]) == ("a\ufffdb", None)


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        (r'{"\ud83d": "a\u0000\udc00"}', {"\ufffd": "a\ufffd\ufffd"}),
        (r'{"a": "\\u0000 \\\u0000 \ud83d\ude00"}', {"a": "\\u0000 \\\ufffd \U0001f600"}),
    ],
)
async def test_fields_are_kept_but_for_what_postgres_cannot_store(
    fields: str, kept: dict[str, str], pool: asyncpg.Pool
) -> None:
    line = LogLine(number=0, at_ms=NOW_MS, text="a", fields=fields)
    await write(pool, [lines("beside", first=1), lines().model_copy(update={"lines": (line,)})])
    found = await pool.fetch("SELECT fields FROM hocket.log_line ORDER BY number")
    assert (json.loads(found[0]["fields"]), len(found)) == (kept, 2)


async def test_lines_are_read_in_pages_by_step_and_level_by_those_who_may(
    pool: asyncpg.Pool, nats_url: str, database_url: str
) -> None:
    levels = ("debug", "info", "warning", "error", "critical")
    told = [
        {"number": number, "at_ms": NOW_MS + number, "level": level, "text": f"{level} \x1b[31m"}
        for number, level in enumerate(levels)
    ]
    told[1]["fields"] = '{"n": 1}'
    await write(pool, [lines(lines=told), lines("other", step="b:1", first=7)])
    async with running_rest(nats_url, database_url) as rest:
        await insert_run(rest.pool, RUN, datetime.now(UTC))
        first = await rest.get(f"/v1/runs/{RUN}/logs?limit=4")
        rest_of = await rest.get(f"/v1/runs/{RUN}/logs?limit=4&after={first.body['next']}")
        bad = await rest.get(f"/v1/runs/{RUN}/logs?level=error")
        of_step = await rest.get(f"/v1/runs/{RUN}/logs?step=b:1")
        wrong = await rest.get(f"/v1/runs/{RUN}/logs?after=1:x")
        viewer = await rest.get(
            f"/v1/runs/{RUN}/logs", headers=bearer(await rest.make_key("viewer"))
        )
        rival = await rest.get(
            f"/v1/runs/{RUN}/logs", headers=bearer(await rest.make_key("admin", "rival"))
        )
        arguments = ["--api", rest.url, "logs", RUN, "--level", "warning"]
        environment = {"HOCKET_API_KEY": rest.key}
        shown = await asyncio.to_thread(CliRunner().invoke, cli, arguments, env=environment)
        arguments = ["--api", rest.url, "logs", RUN, "--step", "none"]
        none = await asyncio.to_thread(CliRunner().invoke, cli, arguments, env=environment)
    texts = [line["text"] for page in (first, rest_of) for line in page.body["lines"]]
    assert texts == [*(f"{level} \x1b[31m" for level in levels), "other"]
    assert (first.body["lines"][1]["fields"], rest_of.body["next"]) == ({"n": 1}, None)
    assert [line["level"] for line in bad.body["lines"]] == ["error", "critical"]
    assert [line["text"] for line in of_step.body["lines"]] == ["other"]
    assert (wrong.status, wrong.error["code"]) == (422, "invalid_input")
    assert viewer.body["withheld"] is True
    assert {(line["text"], line["fields"]) for line in viewer.body["lines"]} == {(None, None)}
    assert rival.status == 404
    assert shown.exit_code == 0, shown.output
    assert "No stored log line of this run matches." in none.output
    assert "\x1b" not in shown.output
    assert "warning" in shown.output
    assert "debug" not in shown.output


async def test_lines_of_a_deleted_run_are_not_of_the_run_with_its_id(
    pool: asyncpg.Pool, nats_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.ledger.lines.door.MAX_RUN_LINES", 2)
    before = datetime.now(UTC) - timedelta(days=5)
    async with pool.acquire() as connection:
        await day_partitions._make(connection, "log_line", before.date())
    await pool.executemany(
        "INSERT INTO hocket.log_line (tenant, run_id, step, attempt, delivery, number, at, level, text,"
        " kept_at) VALUES ('default', $1, 'a', 1, 1, $2, $3, 'info', 'former', $3)",
        [(RUN, number, before) for number in range(2)],
    )
    async with running_rest(nats_url, database_url) as rest:
        await insert_run(rest.pool, RUN, datetime.now(UTC))
        await write(pool, [lines("one", "two", "three")])
        shown = (await rest.get(f"/v1/runs/{RUN}/logs")).body
    assert [line["text"] for line in shown["lines"]] == ["one", "two"]
