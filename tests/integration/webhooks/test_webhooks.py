"""Webhooks over REST, and what they are told of: ends of runs that are read from a real NATS, and
approvals that wait."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hocket.admin.webhooks import changes, end_reader, intake, messages, store, upkeep
from hocket.cli.app import app
from hocket.kit.nats.protocol import RawMessage
from hocket.schemas.access.nats_table import WEBHOOKS
from hocket.schemas.administration.webhooks import Delivery
from hocket.schemas.errors import ErrorClass, ErrorInfo
from support.administration.schedule_rig import PIPELINE, Clock, add_run, moment
from support.administration.webhook_rig import (
    WAIT_S,
    Receiver,
    deliveries,
    delivering,
    ended,
    publish,
    put,
    receiving,
    send,
    until_waiting,
)
from support.rest_rig import Rest, bearer, running_rest

BOUND_S = 60.0
URL = "https://hooks.example.com/x"


@pytest.fixture
def clock() -> Clock:
    return Clock(moment("2026-03-01T00:00"))


@pytest.fixture
async def rest(nats_url: str, database_url: str, clock: Clock) -> AsyncIterator[Rest]:
    async with (
        running_rest(nats_url, database_url, now=clock) as rest,
        asyncio.timeout(BOUND_S),
    ):
        assert (await rest.post("/v1/pipelines", PIPELINE)).status == 201
        yield rest


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


async def reading(rest: Rest) -> asyncio.Task[None]:
    """Take in the ends of runs; return once the stream is read."""
    task = asyncio.create_task(intake.run(rest.app.state.context))
    await until_read(rest, is_read=True)
    return task


async def until_read(rest: Rest, *, is_read: bool) -> None:
    js = rest.bus.js
    while is_read != (  # noqa: ASYNC110
        WEBHOOKS in [one.name for one in await js.consumers_info("EVENTS")]
    ):
        await asyncio.sleep(0.01)


async def told(rest: Rest, name: str) -> list[tuple[str, str]]:
    return sorted((one["run_id"], one["event"]) for one in await deliveries(rest, name))


async def test_each_webhook_is_told_of_what_it_asks_for_once(rest: Rest) -> None:
    await put(rest, "all", URL)
    await put(rest, "failures", URL, events=["run.failed", "run.expired"], pipelines=["report"])
    await put(rest, "acme", URL, labels={"customer": "acme"})
    await put(rest, "off", URL, enabled=False)
    rival = bearer(await rest.make_key("admin", "rival"))
    made = await rest.ask("PUT", "/v1/webhooks/other", json={"url": URL}, headers=rival)
    assert made.status == 201
    task = await reading(rest)
    await publish(
        rest,
        ended("r1"),
        ended("r1"),  # it is told at least once
        ended("r2", "succeeded", labels={"customer": "acme", "team": "x"}),
        ended("r3", "expired", pipeline="index"),
        ended("r4", "expired"),
        ended("r5", "cancelled", tenant="rival", labels={"customer": "acme"}),
    )
    await until_waiting(rest, 8)
    task.cancel()
    assert await told(rest, "all") == [
        ("r1", "run.failed"), ("r2", "run.succeeded"), ("r3", "run.expired"), ("r4", "run.expired"),
    ]  # fmt: skip
    assert await told(rest, "failures") == [("r1", "run.failed"), ("r4", "run.expired")]
    assert await told(rest, "acme") == [("r2", "run.succeeded")]
    assert await told(rest, "off") == []
    others = (await rest.get("/v1/webhooks/other/deliveries", headers=rival)).body["deliveries"]
    assert [one["run_id"] for one in others] == ["r5"]


async def test_what_a_killed_process_had_not_written_is_told_by_another_one(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one ends between reading and writing; its messages come again, and are the same."""
    await put(rest, "all", URL)
    monkeypatch.setattr(intake, "ACK_WAIT_MS", 1_000.0)
    reached = asyncio.Event()
    real = intake.keep

    async def hang(*_given: Any) -> None:
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(intake, "keep", hang)
    first = await reading(rest)
    await publish(rest, ended("r1"), ended("r2"))
    await reached.wait()
    first.cancel()
    await asyncio.wait({first})
    monkeypatch.setattr(intake, "keep", real)
    second = await reading(rest)
    await until_waiting(rest, 2)
    second.cancel()
    assert await told(rest, "all") == [("r1", "run.failed"), ("r2", "run.failed")]


async def test_ends_are_read_only_while_there_is_a_webhook(
    nats_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end_reader, "LOOK_S", 0.1)
    async with running_rest(nats_url, database_url) as rest, asyncio.timeout(BOUND_S):
        tasks = [asyncio.create_task(intake.run(rest.app.state.context)) for _ in range(2)]
        await publish(rest, ended("r1"))
        for count, (name, run_id) in enumerate((("first", "r2"), ("second", "r3")), start=1):
            await until_read(rest, is_read=False)
            await put(rest, name, URL)
            now_ms = time.time() * 1_000
            await publish(
                rest, ended(run_id, finished_at_ms=now_ms)
            )  # whether or not it is read by then
            await until_waiting(rest, count)
            assert await told(rest, name) == [(run_id, "run.failed")]
            assert (await rest.ask("DELETE", f"/v1/webhooks/{name}")).status == 204
        await until_read(rest, is_read=False)
        for task in tasks:
            task.cancel()


async def test_a_consumer_that_another_process_deleted_is_made_anew(rest: Rest) -> None:
    await put(rest, "all", URL)
    task = await reading(rest)
    await rest.bus.js.delete_consumer("EVENTS", WEBHOOKS)
    await publish(rest, ended("r1"))
    await until_waiting(rest, 1)
    task.cancel()
    assert await told(rest, "all") == [("r1", "run.failed")]


async def test_outputs_and_texts_of_errors_are_told_only_where_they_were_asked_for(
    rest: Rest, receiver: Receiver
) -> None:
    await put(rest, "bare", receiver.url)
    await put(rest, "whole", receiver.url, content=True)
    error = ErrorInfo(code="c", message="of Ada", error_class=ErrorClass.PERMANENT)
    task = await reading(rest)
    await publish(
        rest,
        ended("r1", error=error.model_dump()),
        ended("r2", "succeeded", output={"name": "Ada"}, cost_usd="1E-7"),
        ended("r3", "succeeded", output={"text": "Ada" * 30_000}),
    )
    await until_waiting(rest, 6)
    task.cancel()
    async with delivering(rest) as sender:
        await send(sender)
    by_run: dict[str, list[Any]] = {"r1": [], "r2": [], "r3": []}
    for got in sorted(receiver.got, key=lambda one: len(one.text)):
        by_run[got.body["data"]["run_id"]].append(got)
    for bare, whole in by_run.values():
        assert "Ada" not in bare.text
        assert bare.headers["webhook-id"] == whole.headers["webhook-id"]
    assert by_run["r1"][1].body["data"]["error"]["message"] == "of Ada"
    assert by_run["r2"][1].body["data"]["output"] == {"name": "Ada"}
    assert by_run["r3"][1].body["data"]["output_left_out"] is True
    assert by_run["r2"][0].body == {
        "type": "run.succeeded",
        "timestamp": "2026-03-29T00:00:01.000Z",
        "data": {
            "run_id": "r2", "pipeline": "report", "version": 1, "status": "succeeded",
            "accepted_at": "2026-03-29T00:00:00.000Z", "finished_at": "2026-03-29T00:00:01.000Z",
            "deadline_at": "2026-03-29T00:00:02.000Z", "met_deadline": True,
            "cost_usd": "0.0000001", "labels": {},
            "error": None, "url": "/v1/runs/r2",
        },
    }  # fmt: skip
    operator = bearer(await rest.make_key("operator"))
    asked = {"url": URL, "content": True}
    refused = await rest.ask("PUT", "/v1/webhooks/w", json=asked, headers=operator)
    assert (refused.status, refused.body["code"]) == (403, "permission_missing")
    [delivery, *_] = await deliveries(rest, "whole")
    place = f"/v1/webhooks/whole/deliveries/{delivery['message_id']}"
    assert (await rest.get(place, headers=operator)).body["body"] is None
    assert (await rest.get(place)).body["body"]["type"].startswith("run.")


async def test_an_output_that_was_too_large_for_its_event_is_told_to_be_left_out(
    rest: Rest,
) -> None:
    await put(rest, "whole", URL, content=True)
    task = await reading(rest)
    await publish(rest, ended("r1", "succeeded", output_left_out=True))
    await until_waiting(rest, 1)
    task.cancel()
    data = json.loads(await rest.pool.fetchval("SELECT body FROM hocket.webhook_delivery"))["data"]
    assert (data["output"], data["output_left_out"]) == (None, True)


async def test_an_end_is_written_out_once_for_all_who_see_as_much_of_it(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other requests get their turn between two ends."""
    for number in range(3):
        await put(rest, f"whole{number}", URL, content=True)
        await put(rest, f"bare{number}", URL)
    turns, written = 0, list[tuple[int, str]]()
    real = messages.body

    def body(event: str, at: datetime, data: Any) -> str:
        written.append((turns, data["run_id"]))
        return real(event, at, data)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(messages, "body", body)
    other = asyncio.create_task(others())
    ends = [ended(f"r{number}", "succeeded", output={"name": "Ada"}) for number in range(2)]
    subject = "hocket.event.default.report.run-finished"
    batch = [RawMessage(subject, "nobody", end.model_dump_json().encode(), b"") for end in ends]
    await intake.take(rest.app.state.context, batch)
    other.cancel()
    assert [run_id for _, run_id in written] == ["r0", "r0", "r1", "r1"]
    assert len({turn for turn, _ in written}) == 2
    for number in range(3):
        for name in (f"whole{number}", f"bare{number}"):
            assert len(await deliveries(rest, name)) == 2


async def test_a_webhook_is_not_told_of_what_came_before_it_was_made_or_enabled_again(
    rest: Rest, clock: Clock
) -> None:
    async def tell(run_id: str, at: str) -> None:
        end = ended(run_id, finished_at_ms=moment(at).timestamp() * 1_000)
        data = end.model_dump_json().encode()
        message = RawMessage("hocket.event.default.report.run-finished", "nobody", data, b"")
        await intake.take(rest.app.state.context, [message])

    await put(rest, "ops", URL)
    await tell("r1", "2026-02-28T23:59:59")
    await tell("r2", "2026-03-01T00:00:00")
    await rest.post("/v1/webhooks/ops/disable")
    clock.set("2026-03-02T00:00")
    await rest.post("/v1/webhooks/ops/enable")
    await tell("r3", "2026-03-01T23:59:59")
    await tell("r4", "2026-03-02T00:00:01")
    assert await told(rest, "ops") == [("r2", "run.failed"), ("r4", "run.failed")]


async def test_a_webhook_with_many_deliveries_is_deleted_at_once_and_they_go_in_portions(
    rest: Rest, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "AT_ONCE", 2)
    await put(rest, "ops", URL)
    for _ in range(5):
        assert (await rest.post("/v1/webhooks/ops/test")).status == 202
    async with rest.pool.acquire() as other, other.transaction():
        # its outcome is being written
        await other.execute("SELECT FROM hocket.webhook_delivery LIMIT 1 FOR UPDATE")
        async with asyncio.timeout(WAIT_S):
            assert (await rest.ask("DELETE", "/v1/webhooks/ops")).status == 204
    assert (await rest.get("/v1/webhooks/ops")).status == 404
    assert (await rest.get("/v1/webhooks")).body["webhooks"] == []
    monkeypatch.setattr(changes, "MAX_WEBHOOKS", 1)
    await put(rest, "ops", URL)
    await rest.post("/v1/webhooks/ops/test")

    one, left = upkeep.Upkeep(rest.app.state.context), list[tuple[int, int]]()
    for _ in range(4):
        await one.look()
        left.append(
            (
                await rest.pool.fetchval("SELECT count(*) FROM hocket.webhook"),
                await rest.pool.fetchval("SELECT count(*) FROM hocket.webhook_delivery"),
            )
        )
    assert left == [(2, 4), (2, 2), (1, 1), (1, 1)]
    assert len(await deliveries(rest, "ops")) == 1


async def test_a_webhook_that_is_deleted_meanwhile_fails_no_message_of_others(rest: Rest) -> None:
    await put(rest, "gone", URL)
    await put(rest, "ops", URL)
    ids = dict(await rest.pool.fetch("SELECT name, webhook_id FROM hocket.webhook"))
    context = rest.app.state.context
    kept = [
        (webhook_id, messages.message_id(name), "run.failed", "r1", None, "{}")
        for name, webhook_id in ids.items()
    ]
    async with rest.pool.acquire() as other, other.transaction():
        await other.execute("DELETE FROM hocket.webhook WHERE name = 'gone'")
        writing = asyncio.create_task(intake.keep(context, kept, {ids["gone"]: 1}))
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        while not await other.fetchval(waits):  # noqa: ASYNC110  # of the database
            await asyncio.sleep(0.01)
    await writing
    assert await told(rest, "ops") == [("r1", "run.failed")]
    assert await rest.pool.fetchval("SELECT count(*) FROM hocket.webhook_delivery") == 1


async def test_who_may_not_see_content_cannot_have_messages_that_were_stored_with_it(
    rest: Rest, receiver: Receiver
) -> None:
    """An operator may change a webhook's URL, and have its messages of the last days sent again."""
    await put(rest, "whole", URL, content=True)
    error = ErrorInfo(code="c", message="of Ada", error_class=ErrorClass.PERMANENT)
    task = await reading(rest)
    await publish(
        rest,
        ended("r1", error=error.model_dump()),
        ended("r2", "succeeded", output={"name": "Ada"}),
    )
    await until_waiting(rest, 2)
    task.cancel()
    operator = bearer(await rest.make_key("operator"))
    changed = {"url": receiver.url}
    answer = await rest.ask("PUT", "/v1/webhooks/whole", json=changed, headers=operator)
    assert answer.status == 200, answer.body
    async with delivering(rest) as sender:
        await send(sender)
        for delivery in await deliveries(rest, "whole"):
            again = f"/v1/webhooks/whole/deliveries/{delivery['message_id']}/redeliver"
            assert (await rest.ask("POST", again, headers=operator)).status == 202
        await send(sender)
    assert [got.body["data"]["run_id"] for got in receiver.got].count("r1") == 2
    assert len(receiver.got) == 4
    for got in receiver.got:
        assert "Ada" not in got.text
        assert "output" not in got.body["data"]


async def test_an_approval_that_waits_is_told_once(rest: Rest, clock: Clock) -> None:
    await put(rest, "people", URL, events=["run.waiting"])
    await put(rest, "index", URL, events=["run.waiting"], pipelines=["index"])
    run_id = "r" + "1" * 24
    await add_waiting(
        rest,
        run_id,
        ("ok", clock() + timedelta(minutes=1)),
        ("old", clock() - timedelta(minutes=1)),
    )
    clock.pass_s(90)
    for _ in range(2):
        await intake.take_approvals(rest.app.state.context)
    [one] = await deliveries(rest, "people")
    assert (one["event"], one["run_id"]) == ("run.waiting", run_id)
    shown = (await rest.get(f"/v1/webhooks/people/deliveries/{one['message_id']}")).body["body"]
    assert (shown["data"]["step"], "about" in shown["data"]) == ("ok", False)
    assert await deliveries(rest, "index") == []


async def test_an_approval_that_waits_for_longer_than_deliveries_are_kept_is_told_once(
    rest: Rest, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "AT_ONCE", 2)
    context = rest.app.state.context
    await put(rest, "people", URL)
    for _ in range(3):
        await rest.post("/v1/webhooks/people/test")
    run_id = "r" + "1" * 24
    await add_waiting(rest, run_id, ("ok", clock() + timedelta(minutes=1)))
    clock.pass_s(90)
    await intake.take_approvals(context)
    [first] = [one for one in await deliveries(rest, "people") if one["event"] == "run.waiting"]
    one, now_ms = upkeep.Upkeep(context), 0.0
    monkeypatch.setattr(upkeep, "clock", SimpleNamespace(monotonic_ms=lambda: now_ms))

    clock.pass_s(15 * 86_400)
    for _ in range(2):
        await one.look()
    await intake.take_approvals(context)
    assert await deliveries(rest, "people") == [first]

    await rest.pool.execute("UPDATE hocket.step SET state = 'succeeded'")
    now_ms = upkeep.PRUNE_S * 1000 - 1
    await one.look()
    assert await deliveries(rest, "people") == [first], "it looks for old ones only now and then"
    now_ms = upkeep.PRUNE_S * 1000
    await one.look()
    assert await deliveries(rest, "people") == []


async def test_approvals_for_which_one_webhook_has_no_room_keep_no_other_waiting(
    rest: Rest, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are told once it has room."""
    monkeypatch.setattr(intake, "APPROVALS_AT_ONCE", 2)
    monkeypatch.setattr(intake, "MAX_WAITING", 1)
    await put(rest, "full", URL, events=["run.waiting"], pipelines=["report"])
    other = bearer(await rest.make_key("admin", tenant="rival"))
    made = await rest.ask("PUT", "/v1/webhooks/other", json={"url": URL}, headers=other)
    assert made.status == 201
    steps = [(f"s{number}", clock() + timedelta(seconds=number)) for number in range(4)]
    await add_waiting(rest, "r" + "1" * 24, *steps)
    await add_waiting(rest, "r" + "2" * 24, steps[-1], tenant="rival")
    clock.pass_s(90)
    for _ in range(2):
        await intake.take_approvals(rest.app.state.context)
    [first] = await deliveries(rest, "full")
    theirs = (await rest.get("/v1/webhooks/other/deliveries", headers=other)).body["deliveries"]
    assert len(theirs) == 1
    assert (await rest.get("/v1/webhooks/full")).body["dropped"] == 0
    await rest.pool.execute("UPDATE hocket.webhook_delivery SET state = 'dead'")
    await intake.take_approvals(rest.app.state.context)
    assert {one["message_id"] for one in await deliveries(rest, "full")} > {first["message_id"]}


async def test_approvals_that_begin_ahead_of_this_clock_keep_no_other_waiting(
    rest: Rest, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "APPROVALS_AT_ONCE", 2)
    await put(rest, "people", URL, events=["run.waiting"])
    steps = [(f"s{number}", clock() + timedelta(seconds=5)) for number in range(4)]
    await add_waiting(rest, "r" + "1" * 24, *steps)
    for _ in range(2):
        await intake.take_approvals(rest.app.state.context)
    assert len(await deliveries(rest, "people")) == 4


async def test_a_tenant_whose_approvals_cannot_be_looked_for_keeps_no_others_waiting(
    rest: Rest, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(rest, "people", URL, events=["run.waiting"])
    other = bearer(await rest.make_key("admin", tenant="rival"))
    made = await rest.ask("PUT", "/v1/webhooks/other", json={"url": URL}, headers=other)
    assert made.status == 201
    await add_waiting(rest, "r" + "1" * 24, ("s", clock()))
    await add_waiting(rest, "r" + "2" * 24, ("s", clock()), tenant="rival")
    takes_too_long = intake.APPROVALS.replace("tenant = $1", "tenant = $1 AND delayed($1)")
    await rest.pool.execute("""
        CREATE FUNCTION delayed(tenant text) RETURNS boolean LANGUAGE plpgsql AS $$
        BEGIN
            IF tenant = 'default' THEN RAISE query_canceled; END IF;
            RETURN true;
        END $$""")
    monkeypatch.setattr(intake, "APPROVALS", takes_too_long)
    await intake.take_approvals(rest.app.state.context)
    theirs = (await rest.get("/v1/webhooks/other/deliveries", headers=other)).body["deliveries"]
    assert [one["event"] for one in theirs] == ["run.waiting"]
    assert await deliveries(rest, "people") == []
    monkeypatch.undo()
    await intake.take_approvals(rest.app.state.context)
    assert len(await deliveries(rest, "people")) == 1


async def test_what_webhooks_were_told_of_an_approval_is_in_an_index_of_its_own(rest: Rest) -> None:
    """There may be many of a run's deliveries, and they are looked at again at every look."""
    async with rest.pool.acquire() as connection, connection.transaction():
        for setting in ("enable_seqscan", "enable_bitmapscan"):
            await connection.execute(f"SET LOCAL {setting} = off")
        query = f"EXPLAIN (COSTS off) {intake.APPROVALS}"
        lines = await connection.fetch(query, "default", 100, 100)
    plan = "\n".join(line[0].strip() for line in lines)
    index = "Index Only Scan using webhook_delivery_waiting on webhook_delivery d"
    assert f"{index}\nIndex Cond: ((run_id = r_1.run_id) AND (step = s_1.key))" in plan


async def test_a_list_of_deliveries_reads_no_bodies(rest: Rest, clock: Clock) -> None:
    await put(rest, "people", URL, events=["run.waiting"])
    await add_waiting(rest, "r" + "1" * 24, ("s", clock()))
    await intake.take_approvals(rest.app.state.context)
    async with rest.pool.acquire() as connection:
        statement = await connection.prepare(store.DELIVERIES)
        columns = {column.name for column in statement.get_attributes()}
    assert columns == set(Delivery.model_fields)
    [one] = await deliveries(rest, "people")
    assert one["event"] == "run.waiting"


async def test_the_etag_of_a_deleted_webhook_fits_no_other_of_its_name(rest: Rest) -> None:
    await put(rest, "people", URL)
    place = "/v1/webhooks/people"
    seen = [(await rest.get(place)).headers["Etag"]]
    await put(rest, "people", f"{URL}/2")
    seen.append((await rest.get(place)).headers["Etag"])
    for _ in range(2):
        assert (await rest.ask("DELETE", place)).status == 204
        await put(rest, "people", f"{URL}/3")
        for etag in seen:
            for method in ("PUT", "DELETE"):
                body = {"url": URL} if method == "PUT" else None
                refused = await rest.ask(method, place, json=body, headers={"If-Match": etag})
                assert refused.status == 412
        await upkeep.Upkeep(rest.app.state.context).look()
        seen.append((await rest.get(place)).headers["Etag"])
    assert len(set(seen)) == len(seen)


async def add_waiting(
    rest: Rest, run_id: str, *steps: tuple[str, datetime], tenant: str = "default"
) -> None:
    """Write a run whose approvals wait since then."""
    await add_run(rest, run_id, tenant=tenant)
    await rest.pool.executemany(
        "INSERT INTO hocket.step (run_id, key, path, type, role, parent, state, attempt, ready_at)"
        " VALUES ($1, $2, $2, 'approval', 'step', '', 'waiting', 1, $3)",
        [(run_id, key, since) for key, since in steps],
    )


async def test_who_makes_many_webhooks_at_once_has_no_more_than_may_be(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MAX_WEBHOOKS", 3)
    made = await asyncio.gather(
        *(rest.ask("PUT", f"/v1/webhooks/w{number}", json={"url": URL}) for number in range(12))
    )
    assert sorted(answer.status for answer in made) == [201] * 3 + [409] * 9


async def test_more_than_may_wait_is_dropped_and_counted(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "MAX_WAITING", 3)
    await put(rest, "all", URL)
    task = await reading(rest)
    for number in range(5):
        await publish(rest, ended(f"r{number}"))
    async with asyncio.timeout(WAIT_S):
        while (await rest.get("/v1/webhooks/all")).body["dropped"] < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    task.cancel()
    refused = await rest.post("/v1/webhooks/all/test")
    assert (refused.status, refused.body["code"]) == (409, "webhook_queue_full")
    assert len(await deliveries(rest, "all")) == 3


async def test_two_who_write_do_not_undo_each_other(rest: Rest) -> None:
    place, body = "/v1/webhooks/ops", {"url": URL}
    made = await rest.ask("PUT", place, json=body, headers={"If-None-Match": "*"})
    assert (made.status, made.headers["Etag"]) == (201, '"1"')
    same = await rest.ask("PUT", place, json=body)
    assert (same.status, same.body["secret"], same.headers["Etag"]) == (200, None, '"1"')
    for method, ending in (("PUT", ""), ("POST", "/disable"), ("DELETE", "")):
        refused = await rest.ask(
            method, place + ending, json=body if not ending else None, headers={"If-Match": '"7"'}
        )
        assert (refused.status, refused.body["code"]) == (412, "precondition_failed"), ending
    disabled = await rest.post(f"{place}/disable")
    assert (disabled.body["enabled"], disabled.body["disabled_reason"]) == (False, "by hand")
    kept = await rest.ask("PUT", place, json={**body, "description": "x"})
    assert kept.body["enabled"] is False, "it stays as it is"
    assert (await rest.ask("DELETE", place)).status == 204
    audit = (await rest.get("/v1/audit")).body["entries"]
    assert [one["action"] for one in audit if one["target"] == "webhook:ops"] == [
        "webhooks.create", "webhooks.disable", "webhooks.change", "webhooks.delete",
    ]  # fmt: skip


async def test_what_cannot_be_is_refused_by_its_field(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for change, field in (
        ({"url": "http://hooks.example.com/"}, "url"),
        ({"url": "https://10.0.0.1/"}, "url"),
        ({"url": "ftp://x/"}, "url"),
        ({"url": URL, "events": []}, "events"),
        ({"url": URL, "events": ["run.exploded"]}, "events.0"),
        ({"url": URL, "pipelines": []}, "pipelines"),
        ({"url": URL, "colour": "red"}, "colour"),
    ):
        answer = await rest.ask("PUT", "/v1/webhooks/ops", json=change)
        assert (answer.status, answer.body["field"]) == (422, field), answer.body
    missing = await rest.get("/v1/webhooks/none")
    assert (missing.status, missing.body["code"]) == (404, "webhook_unknown")
    monkeypatch.setattr(changes, "MAX_WEBHOOKS", 1)
    await put(rest, "ops", URL)
    unknown = await rest.post(f"/v1/webhooks/ops/deliveries/msg_{'0' * 24}/redeliver")
    assert (unknown.status, unknown.body["code"]) == (404, "delivery_unknown")
    full = await rest.ask("PUT", "/v1/webhooks/more", json={"url": URL})
    assert (full.status, full.body["code"]) == (409, "webhooks_full")


async def test_the_command_sends_all_dead_messages_again_whatever_a_request_may(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "REDELIVERED_AT_ONCE", 2)
    await put(rest, "ops", URL)
    for _ in range(5):
        assert (await rest.post("/v1/webhooks/ops/test")).status == 202
    await rest.pool.execute("UPDATE hocket.webhook_delivery SET state = 'dead', created_at = now()")
    environment = {"HOCKET_API_URL": rest.url, "HOCKET_API_KEY": rest.key}
    done = await asyncio.to_thread(
        CliRunner().invoke, app, ["webhooks", "redeliver", "ops"], env=environment
    )
    assert "5 messages will be sent again" in done.output
    assert len(await deliveries(rest, "ops", "?state=pending")) == 5


async def test_the_commands_of_the_docs(rest: Rest, receiver: Receiver) -> None:
    async def hocket(*arguments: str) -> Result:
        environment = {"HOCKET_API_URL": rest.url, "HOCKET_API_KEY": rest.key}
        return await asyncio.to_thread(
            CliRunner().invoke, app, ["webhooks", *arguments], env=environment
        )

    made = await hocket(
        "put", "ops", receiver.url, "--event", "run.failed", "--event", "run.waiting",
        "--pipeline", "report", "--label", "team=search",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    assert made.stdout.strip().startswith("whsec_")
    shown = json.loads((await hocket("show", "ops", "--json")).stdout)
    assert (shown["events"], shown["labels"]) == (["run.failed", "run.waiting"], {"team": "search"})
    message = (await hocket("test", "ops")).stdout.strip()
    async with delivering(rest) as sender:
        await send(sender)
        assert [got.headers["webhook-id"] for got in receiver.got] == [message]
        again = await hocket("redeliver", "ops", message)
        assert again.exit_code == 0, again.output
        await send(sender)
    assert len(receiver.got) == 2
    assert "0 messages" in (await hocket("redeliver", "ops", "--hours", "3")).output
    listed = json.loads((await hocket("deliveries", "ops", "--json")).stdout)
    assert [one["state"] for one in listed] == ["delivered"]
    assert "webhook.test" in (await hocket("deliveries", "ops", "--state", "delivered")).output
    assert (
        (await hocket("rotate", "ops", "--overlap-s", "3600")).stdout.strip().startswith("whsec_")
    )
    assert "disabled: by hand" in (await hocket("disable", "ops")).output
    assert "enabled" in (await hocket("enable", "ops")).output
    assert "ops" in (await hocket("list")).output
    assert (await hocket("delete", "ops", "--revision", "1")).exit_code != 0
    assert (await hocket("delete", "ops")).exit_code == 0
    assert json.loads((await hocket("list", "--json")).stdout) == []
