"""Prompts and answers from a gateway to Postgres, in partitions that come and go; who may read them."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from nats.aio.msg import Msg
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from hocket.admin.content.endpoints import content_of_call
from hocket.admin.context import READS_OF_TENANT
from hocket.cli.app import app as cli
from hocket.gateway.content.recorder import ContentRecorder
from hocket.gateway.core.content.policy import ContentPolicy
from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.database import connect_pool
from hocket.ledger.content.door import ContentDoor, write
from hocket.ledger.upkeep import day_partitions
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import Attribution, CallReply, CallRequest, ChatMessage
from hocket.schemas.tracing.content import CallContent
from support.rest_rig import bearer, running_rest
from support.runs.rows import insert_run

BOUND_S = 20.0
RUN = "r" + "1" * 24
KEY, OTHER = Capabilities([b"k" * 32]), Capabilities([b"o" * 32])
ALL = ContentPolicy("full")


@pytest.fixture
async def pool(database_url: str) -> "AsyncIterator[asyncpg.Pool[asyncpg.Record]]":
    pool = await connect_pool(database_url, size=4, name="test")
    async with pool.acquire() as connection:
        await day_partitions.make_ahead(connection)
    yield pool
    await pool.close()


def call(number: int, tenant: str = "default") -> tuple[CallRequest, CallReply]:
    request = CallRequest(
        call_id=f"{RUN}:a:1:1:{number}",
        model="m",
        messages=(ChatMessage(role="user", content=f"question {number} \0"),),
        deadline_at_ms=0,
        attribution=Attribution(tenant=tenant, pipeline="p", run_id=RUN, step="a", attempt=1),
    )
    return request, CallReply(call_id=request.call_id, text=f"answer {number}")


async def test_content_is_written_once_and_shown_to_those_who_may_see_it(
    bus: Bus, pool: asyncpg.Pool, nats_url: str, database_url: str
) -> None:
    recorder = ContentRecorder(bus, lambda: ALL, CollectorRegistry(), KEY)
    async with ContentDoor(bus, pool, KEY).open(), recorder.running():
        for number in (1, 2, 2):  # the same call twice is kept once
            recorder.record(*call(number))
        recorder.record(*call(3, tenant="rival"))
    async with running_rest(nats_url, database_url) as rest:
        shown = await rest.get(f"/v1/content?run={RUN}")
        assert [one["answer"] for one in shown.body["content"]] == [
            {"text": "answer 1"},
            {"text": "answer 2"},
        ]
        assert shown.body["content"][0]["prompt"] == {
            "messages": [{"role": "user", "content": "question 1 \ufffd"}]
        }
        first = (await rest.get(f"/v1/content?run={RUN}&limit=1")).body
        last = (await rest.get(f"/v1/content?run={RUN}&limit=1&after={first['next']}")).body
        assert (first["truncated"], last["truncated"], last["next"]) == (True, False, None)
        assert first["content"] + last["content"] == shown.body["content"]
        for role, status in (("viewer", 403), ("operator", 403), ("developer", 200)):
            key = await rest.make_key(role)
            answer = await rest.get(f"/v1/content?run={RUN}", headers=bearer(key))
            assert answer.status == status, role


async def test_the_content_of_a_call_is_found_by_its_id_whichever_run_it_names(
    pool: asyncpg.Pool, nats_url: str, database_url: str
) -> None:
    """Calls of the HTTP door need not name a run, or name one from elsewhere."""
    long_id = f"{RUN}:{'n' * 300}:1:1:1"
    calls = {"http:1": None, "http:2": "job-7", f"{RUN}:a:1:1:1": RUN, long_id: None}
    kept = (
        CallContent(
            call_id=call_id, attribution=Attribution(tenant="default", run_id=run), model="m",
            kept="full", prompt={}, answer={"text": call_id}, started_at_ms=1_800_000_000_000.0,
        )
        for call_id, run in calls.items()
    )  # fmt: skip
    await write(pool, tuple(kept))
    async with running_rest(nats_url, database_url) as rest:
        for call_id in calls:
            shown = (await rest.get(f"/v1/content?call={call_id}:r1")).body
            assert [one["answer"]["text"] for one in shown["content"]] == [call_id]
            assert (shown["truncated"], shown["next"]) == (False, None)
        assert (await rest.get("/v1/content?call=http:2&run=job-8")).body["content"] == []
        neither = await rest.get("/v1/content")
        rival = bearer(await rest.make_key("developer", "rival"))
        foreign = await rest.get("/v1/content?call=http:1", headers=rival)
        operator = bearer(await rest.make_key("operator"))
        forbidden = await rest.get("/v1/content?call=http:1", headers=operator)
        environment = {"HOCKET_API_KEY": rest.key}
        for call_id in ("http:1", long_id):
            arguments = ["--api", rest.url, "runs", "show", call_id, "--content"]
            told = await asyncio.to_thread(CliRunner().invoke, cli, arguments, env=environment)
            assert f"answer: {call_id}" in told.output.replace("\n", ""), told.output
    assert (neither.status, neither.body["field"]) == (422, "run")
    assert "`call`" in neither.body["cure"]
    assert foreign.body["content"] == []
    assert forbidden.status == 403


async def test_a_page_of_content_ends_when_it_is_large_and_the_next_one_goes_on(
    bus: Bus, pool: asyncpg.Pool, nats_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two that are longer than it in bytes, not in characters, are on pages of their own."""
    monkeypatch.setattr("hocket.admin.content.endpoints.MAX_CONTENT_BYTES", 3_000)
    who = Attribution(tenant="default", run_id=RUN, step="a", attempt=1)
    texts = ("short", "long" + "\N{GRINNING FACE}" * 1_000, "short", "long" + "x" * 4_000, "last")
    kept = (
        CallContent(
            call_id=f"c{number}", attribution=who, model="m", kept="full", prompt={},
            answer={"text": text}, started_at_ms=1_800_000_000_000.0 + number,
        )
        for number, text in enumerate(texts)
    )  # fmt: skip
    await write(pool, tuple(kept))
    async with running_rest(nats_url, database_url) as rest:
        pages = [(await rest.get(f"/v1/content?run={RUN}")).body]
        while after := pages[-1]["next"]:
            pages.append((await rest.get(f"/v1/content?run={RUN}&after={after}")).body)
        arguments = ["--api", rest.url, "runs", "show", RUN, "--content"]
        environment = {"HOCKET_API_KEY": rest.key}
        shown = await asyncio.to_thread(CliRunner().invoke, cli, arguments, env=environment)
    found = [[one["call_id"] for one in page["content"]] for page in pages]
    assert found == [["c0", "c1"], ["c2", "c3"], ["c4"]]
    assert [page["truncated"] for page in pages] == [True, True, False]
    assert shown.output.count("answer:") == len(texts), shown.output


async def test_the_content_that_a_tenant_reads_leaves_connections_for_others(
    pool: asyncpg.Pool, nats_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, begun, done = 0, asyncio.Event(), asyncio.Event()

    async def slow(*_: Any, **__: Any) -> tuple[list[asyncpg.Record], bool]:
        nonlocal reading
        reading += 1
        if reading >= READS_OF_TENANT:
            begun.set()
        await done.wait()
        return [], False

    monkeypatch.setattr("hocket.admin.content.endpoints.large_rows", slow)
    async with running_rest(nats_url, database_url) as rest, asyncio.timeout(BOUND_S):
        path = f"/v1/content?run={RUN}"
        asked = [asyncio.create_task(rest.get(path)) for _ in range(2 * READS_OF_TENANT)]
        await begun.wait()
        other = await rest.get("/v1/runs")
        at_once = reading
        done.set()
        assert (other.status, at_once) == (200, READS_OF_TENANT)
        assert {answer.status for answer in await asyncio.gather(*asked)} == {200}


@pytest.mark.parametrize("together", [True, False])
async def test_content_of_two_tenants_under_one_id_is_kept_of_both(
    bus: Bus, pool: asyncpg.Pool, together: bool
) -> None:
    recorder = ContentRecorder(bus, lambda: ALL, CollectorRegistry(), KEY)
    tenants = ("default", "rival")
    async with ContentDoor(bus, pool, KEY).open():
        for some in (tenants,) if together else [(tenant,) for tenant in tenants]:
            async with recorder.running():
                for tenant in some:
                    recorder.record(*call(1, tenant))
    rows = await pool.fetch("SELECT tenant FROM hocket.content ORDER BY tenant")
    assert tuple(row["tenant"] for row in rows) == tenants


async def test_what_no_gateway_sealed_is_not_kept_and_what_is_not_kept_is_counted(
    bus: Bus, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.gateway.content.recorder.TIMEOUT_MS", 50.0)
    monkeypatch.setattr("hocket.gateway.content.recorder.FLUSH_S", 0.01)
    registry = CollectorRegistry()
    recorder = ContentRecorder(bus, lambda: ALL, registry, OTHER)
    async with ContentDoor(bus, pool, KEY).open(), recorder.running():
        recorder.record(*call(1))
        async with asyncio.timeout(BOUND_S):
            while not registry.get_sample_value("hocket_content_dropped_total"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert await pool.fetchval("SELECT count(*) FROM hocket.content") == 0


@pytest.mark.parametrize("is_answered", [True, False])
async def test_what_is_on_its_way_when_the_gateway_stops_is_kept_or_counted(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, is_answered: bool
) -> None:
    monkeypatch.setattr("hocket.gateway.content.recorder.FLUSH_S", 0.01)
    monkeypatch.setattr("hocket.gateway.content.recorder.CLOSE_S", BOUND_S if is_answered else 0.1)
    asked = asyncio.Event()

    async def hear(message: Msg) -> None:
        asked.set()
        await asyncio.sleep(0.1)  # the gateway stops meanwhile
        if is_answered:
            await bus.nc.publish(message.reply, b"{}")

    await bus.subscribe(subjects.LEDGER_CONTENT, hear)
    registry = CollectorRegistry()
    recorder = ContentRecorder(bus, lambda: ALL, registry)
    async with recorder.running():
        recorder.record(*call(1))
        async with asyncio.timeout(BOUND_S):
            await asked.wait()
        recorder.record(*call(2))
    told = [
        registry.get_sample_value(f"hocket_content_{what}_total") for what in ("kept", "dropped")
    ]
    assert told == ([2, 0] if is_answered else [0, 2])


async def test_what_waits_is_bounded(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.gateway.content.recorder.MAX_WAITING", 2)
    registry = CollectorRegistry()
    recorder = ContentRecorder(bus, lambda: ALL, registry)
    for number in range(5):
        recorder.record(*call(number))
    assert registry.get_sample_value("hocket_content_dropped_total") == 3


def three_days_ago() -> datetime:
    return datetime.now(UTC) - timedelta(days=3)


async def test_days_are_made_ahead_and_dropped_behind_while_others_write(
    pool: asyncpg.Pool,
) -> None:
    today = datetime.now(UTC).date()
    async with pool.acquire() as connection, pool.acquire() as other:
        for back in (1, 5, 6):
            await day_partitions._make(connection, "content", today - timedelta(days=back))
            at = datetime.now(UTC) - timedelta(days=back)
            await _insert(connection, f"c{back}", at)
        # one was detached by a process that was killed before it dropped it
        await connection.execute(
            f"ALTER TABLE hocket.content DETACH PARTITION "
            f"hocket.content_{today - timedelta(days=6):%Y%m%d} CONCURRENTLY"
        )
        async with other.transaction():
            await _insert(other, "now", datetime.now(UTC))  # holds its locks until the end
            dropping = asyncio.create_task(
                day_partitions.drop_behind(connection, "content", three_days_ago())
            )
            found = await pool.fetchval("SELECT count(*) FROM hocket.content WHERE call_id = 'c1'")
            assert found == 1
        assert await asyncio.wait_for(dropping, BOUND_S) == 2
        await day_partitions.make_ahead(connection)  # changes nothing
        names = await connection.fetch(day_partitions.NAMES, "content")
    days = [today + timedelta(days=ahead) for ahead in (-1, 0, 1, 2, 3)]
    assert [row["name"] for row in names] == [f"content_{day:%Y%m%d}" for day in days]
    kept = await pool.fetch("SELECT call_id FROM hocket.content ORDER BY kept_at")
    assert [row["call_id"] for row in kept] == ["c1", "now"]


async def test_a_day_with_more_rows_than_can_be_counted_in_time_is_dropped(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pool.acquire() as connection:
        day = datetime.now(UTC) - timedelta(days=6)
        await day_partitions._make(connection, "content", day.date())
        await _insert(connection, "old", day)
        await connection.execute("ANALYZE hocket.content")
        fetchval = asyncpg.Connection.fetchval

        async def fetched(
            self: asyncpg.Connection, query: str, *values: Any, **options: Any
        ) -> Any:
            if "count(*)" in query:
                raise TimeoutError
            return await fetchval(self, query, *values, **options)

        monkeypatch.setattr(asyncpg.Connection, "fetchval", fetched)
        assert await day_partitions.drop_behind(connection, "content", three_days_ago()) == 1
    assert not await pool.fetch("SELECT FROM hocket.content")


async def test_several_ledgers_make_partitions_at_once(database_url: str) -> None:
    pool = await connect_pool(database_url, size=4, name="test")

    async def make() -> None:
        async with pool.acquire() as connection:
            await day_partitions.make_ahead(connection)

    await asyncio.gather(*(make() for _ in range(4)))
    content = CallContent(
        call_id="c", attribution=Attribution(), model="m", kept="full", prompt={}, answer={},
        started_at_ms=1.0,
    )  # fmt: skip
    await write(pool, (content,))
    assert await pool.fetchval("SELECT count(*) FROM hocket.content") == 1
    await pool.close()


async def test_content_of_a_deleted_run_is_not_of_the_run_with_its_id_that_has_calls_of_the_same_ids(
    pool: asyncpg.Pool, nats_url: str, database_url: str
) -> None:
    now, call_id = datetime.now(UTC), f"{RUN}:a:1:1:1"
    before = now - timedelta(days=5)
    async with pool.acquire() as connection:
        await day_partitions._make(connection, "content", before.date())
    who = Attribution(tenant="default", run_id=RUN, step="a", attempt=1)
    former, new = (
        CallContent(
            call_id=call_id, attribution=who, model="m", kept="full", prompt={}, answer={"text": text},
            started_at_ms=at.timestamp() * 1_000,
        )
        for text, at in (("former", before), ("new", now))
    )  # fmt: skip
    await write(pool, (former,))
    await pool.execute(
        "WITH moved AS (DELETE FROM hocket.content RETURNING *)"
        " INSERT INTO hocket.content (call_id, tenant, run_id, step, attempt, model, kept, prompt,"
        " answer, started_at, kept_at) SELECT call_id, tenant, run_id, step, attempt, model, kept,"
        " prompt, answer, started_at, started_at FROM moved"
    )
    assert await content_of_call(pool, "default", RUN, call_id)  # its run may be deleted already
    await insert_run(pool, RUN, now)
    assert await content_of_call(pool, "default", RUN, call_id) is None
    for _ in range(2):
        await write(pool, (new,))
    found = await content_of_call(pool, "default", RUN, call_id)
    assert found is not None
    assert found.answer == {"text": "new"}
    async with running_rest(nats_url, database_url) as rest:
        shown = (await rest.get(f"/v1/content?run={RUN}")).body["content"]
    assert [one["answer"] for one in shown] == [{"text": "new"}]


async def _insert(connection: asyncpg.Connection, call_id: str, at: datetime) -> None:
    await connection.execute(
        """INSERT INTO hocket.content (call_id, tenant, model, kept, prompt, answer, started_at,
        kept_at) VALUES ($1, 't', 'm', 'full', '{}', '{}', $2, $2)""",
        call_id,
        at,
    )
