"""Schedules over a real NATS and Postgres: there is no coordinator, the tests read the tasks that are
submitted, and set the clock."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hocket.admin.schedules import changes, firing, store
from hocket.admin.schedules import times as schedule_times
from hocket.cli.app import app
from hocket.kit.nats import cloudevents
from hocket.schemas import ids
from hocket.schemas.labels import read_labels
from support.administration.schedule_rig import (
    PIPELINE,
    Clock,
    add_run,
    history,
    look,
    moment,
    put,
    states,
    tasks,
)
from support.rest_rig import Rest, bearer, running_rest

BOUND_S = 60.0


@pytest.fixture
def clock() -> Clock:
    return Clock(moment("2026-03-28T09:30"))


@pytest.fixture
async def rest(nats_url: str, database_url: str, clock: Clock) -> AsyncIterator[Rest]:
    async with (
        running_rest(nats_url, database_url, now=clock) as rest,
        asyncio.timeout(BOUND_S),
    ):
        assert (await rest.post("/v1/pipelines", PIPELINE)).status == 201
        yield rest


async def test_a_task_is_submitted_at_each_time_with_what_the_schedule_says(
    rest: Rest, clock: Clock
) -> None:
    task = {
        "pipeline": "report",
        "input": {"region": "eu"},
        "labels": {"team": "search"},
        "deadline_ms": 5_000,
        "budget_usd": "0.25",
        "class": "batch",
    }
    made = await put(
        rest, cron="30 2 * * *", time_zone="Europe/Berlin", task=task, time_field="as_of"
    )
    assert made["next"][0] == "2026-03-29T01:00:00Z", "02:30 is left out by the change of the clock"
    for at in (
        "2026-03-29T00:59:59",
        "2026-03-29T01:00:00",
        "2026-03-29T12:00",
        "2026-03-30T00:30:01",
    ):
        clock.set(at)
        await look(rest)
        await look(rest)
    sent = await tasks(rest)
    assert [body for _, body in sent] == [
        {"region": "eu", "as_of": "2026-03-29T03:00:00+02:00"},
        {"region": "eu", "as_of": "2026-03-30T02:30:00+02:00"},
    ]
    headers = sent[0][0]
    assert read_labels(headers[cloudevents.LABELS], "labels") == {"team": "search"}
    assert headers[cloudevents.BUDGET_USD] == "0.25"
    assert headers[cloudevents.PRIORITY] == "batch"
    assert headers[cloudevents.DEADLINE_MS] == "5000.0"


async def test_each_time_fires_once_over_a_change_of_the_clock(rest: Rest, clock: Clock) -> None:
    """Looked for every ten minutes, until 03:10 UTC of the day on which clocks change in Berlin."""
    expected = {"fixed": [], "hourly": []}
    for day, fixed, hourly in (
        ("2026-03-28", ["03:00"], ["01:00", "03:00", "04:00", "05:00"]),
        ("2026-10-24", ["02:30"], ["02:00", "02:00", "03:00", "04:00"]),
    ):
        clock.set(f"{day}T23:30")
        for name, cron in (("fixed", "30 2 * * *"), ("hourly", "0 * * * *")):
            where = {"time_zone": "Europe/Berlin", "time_field": name}
            await put(
                rest, name, cron=cron, **where, overlap="allow", catch_up="none", paused=False
            )
        until = clock() + timedelta(minutes=220)
        while clock() < until:
            clock.pass_s(600)
            await look(rest)
        for name in ("fixed", "hourly"):
            await rest.post(f"/v1/schedules/{name}/pause")
        expected["fixed"] += fixed
        expected["hourly"] += hourly
    sent = [body for _, body in await tasks(rest)]
    for name, times in expected.items():
        assert [body[name][11:16] for body in sent if name in body] == times


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("none", [("10:00", "fired"), ("11:00", "missed"), ("15:00", "fired")]),
        ("one", [("10:00", "fired"), ("11:00", "missed"), ("14:00", "fired"), ("15:00", "fired")]),
        ("all", [(f"{hour}:00", "fired") for hour in range(10, 16)]),
    ],
)
async def test_after_an_outage_of_hours_it_is_caught_up_with_by_each_policy(
    rest: Rest, clock: Clock, policy: str, expected: list[tuple[str, str]]
) -> None:
    await put(rest, catch_up=policy, overlap="allow")
    for at in ("10:00:05", "14:20", "14:21", "15:00:10"):
        clock.set(f"2026-03-28T{at}")
        await look(rest)
        await look(rest)
    assert await states(rest) == expected
    fired = [state for _, state in expected if state == "fired"]
    assert len(await tasks(rest)) == len(fired)
    told = await history(rest)
    missed = [one["until"] for one in told if one["state"] == "missed"]
    assert (
        missed
        == {"none": ["2026-03-28T14:00:00Z"], "one": ["2026-03-28T13:00:00Z"], "all": []}[policy]
    )
    late = [one["planned_at"][11:13] for one in told if one["cause"] == "caught_up"]
    assert late == {"none": [], "one": ["14"], "all": ["11", "12", "13", "14"]}[policy]


@pytest.mark.parametrize(
    ("down", "up", "hourly", "fixed"),
    [
        # 02:00 to 03:00 is left out; 02:30 is 03:00, once
        ("2026-03-29T00:30", "2026-03-29T03:30", ["03:00", "04:00", "05:00"], ["03:00"]),
        # 02:00 comes twice, and 02:30 is its first time
        ("2026-10-24T23:50", "2026-10-25T02:50", ["02:00", "02:00", "03:00"], ["02:30"]),
    ],
)
@pytest.mark.parametrize("policy", ["none", "one", "all"])
async def test_an_outage_of_hours_over_a_change_of_the_clock_is_caught_up_with_once(
    rest: Rest,
    clock: Clock,
    policy: str,
    down: str,
    up: str,
    hourly: list[str],
    fixed: list[str],
) -> None:
    """Nobody looks for three hours, in which clocks change in Berlin; then two do, again and again."""
    clock.set(down)
    for name, cron in (("fixed", "30 2 * * *"), ("hourly", "0 * * * *")):
        where = {"time_zone": "Europe/Berlin", "time_field": name}
        await put(rest, name, cron=cron, **where, overlap="allow", catch_up=policy)
    clock.set(up)
    for _ in range(3):
        await asyncio.gather(look(rest), look(rest))
    sent = [body for _, body in await tasks(rest)]
    for name, times in (("hourly", hourly), ("fixed", fixed)):
        expected = {"none": [], "one": times[-1:], "all": times}[policy]
        assert [body[name][11:16] for body in sent if name in body] == expected


async def test_an_outage_of_nats_is_caught_up_with_by_the_policy(
    rest: Rest, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(rest, catch_up="none")
    monkeypatch.setattr(type(rest.bus), "connected", property(lambda _bus: False))
    for hour in (10, 11, 12):
        clock.set(f"2026-03-28T{hour}:00:05")
        await look(rest)
    assert await states(rest) == []
    monkeypatch.undo()
    clock.set("2026-03-28T12:30")
    await look(rest)
    assert await states(rest) == [("10:00", "missed")]


async def _run_of(rest: Rest, place: int = -1) -> str:
    return str((await history(rest))[place]["run_id"])


async def test_a_run_under_way_is_not_joined_by_another_one(rest: Rest, clock: Clock) -> None:
    await put(rest, cron="0,30 * * * *", overlap="skip")
    clock.set("2026-03-28T10:00")
    await look(rest)
    clock.set("2026-03-28T10:30")
    await look(rest)  # its run is not in the database yet
    await add_run(rest, await _run_of(rest, 0))
    clock.set("2026-03-28T11:00")
    await look(rest)
    await add_run(rest, await _run_of(rest, 0), "succeeded")
    clock.set("2026-03-28T11:30")
    await look(rest)
    assert [state for _, state in await states(rest)] == ["fired", "skipped", "skipped", "fired"]
    assert len(await tasks(rest)) == 2


async def test_a_run_that_never_appears_holds_its_schedule_for_an_hour(
    rest: Rest, clock: Clock
) -> None:
    await put(rest, cron="*/20 * * * *", overlap="skip")
    for at in ("09:40", "10:00", "10:20", "10:40", "11:00"):
        clock.set(f"2026-03-28T{at}")
        await look(rest)
    assert [state for _, state in await states(rest)] == [
        "fired", "skipped", "skipped", "fired", "skipped",
    ]  # fmt: skip


async def test_one_time_waits_for_the_end_of_the_run_before_it(rest: Rest, clock: Clock) -> None:
    clock.set("2026-03-28T09:50")
    await put(rest, cron="*/20 * * * *", overlap="buffer_one")
    for at in ("10:00", "10:20", "10:40"):
        clock.set(f"2026-03-28T{at}")
        await look(rest)
    assert [state for _, state in await states(rest)] == ["fired", "buffered", "skipped"]
    await add_run(rest, await _run_of(rest, 0), "failed")
    clock.set("2026-03-28T10:50")
    await look(rest)
    await look(rest)
    assert [state for _, state in await states(rest)] == ["fired", "fired", "skipped"]
    assert len(await tasks(rest)) == 2


async def test_a_time_that_waits_goes_on_waiting_while_the_schedule_is_paused(
    rest: Rest, clock: Clock
) -> None:
    clock.set("2026-03-28T09:50")
    await put(rest, cron="*/20 * * * *", overlap="buffer_one")
    for at in ("10:00", "10:20"):
        clock.set(f"2026-03-28T{at}")
        await look(rest)
    assert (await rest.post("/v1/schedules/nightly/pause")).status == 200
    await add_run(rest, await _run_of(rest, 0), "succeeded")
    clock.set("2026-03-28T10:30")
    await look(rest)
    waiting = (await history(rest))[1]
    await firing.submit_pending(rest.app.state.context, waiting["firing_id"].partition(":")[0])
    assert await states(rest) == [("10:00", "fired"), ("10:20", "buffered")]
    assert (await rest.post("/v1/schedules/nightly/trigger")).status == 202
    await look(rest)
    outcomes = [("10:00", "fired"), ("10:20", "buffered"), ("10:30", "fired")]
    assert await states(rest) == outcomes
    await add_run(rest, await _run_of(rest, 2), "succeeded")
    assert (await rest.post("/v1/schedules/nightly/resume")).status == 200
    await look(rest)
    assert await states(rest) == [(at, "fired") for at, _ in outcomes]


async def test_the_run_before_is_cancelled(rest: Rest, clock: Clock) -> None:
    await put(rest, cron="0,30 * * * *", overlap="cancel_running")
    clock.set("2026-03-28T10:00")
    await look(rest)
    clock.set("2026-03-28T10:30")
    await look(rest)
    assert [state for _, state in await states(rest)] == ["fired", "pending"], "it is not there yet"
    first = await _run_of(rest, 0)
    await add_run(rest, first)
    await look(rest)
    assert [state for _, state in await states(rest)] == ["fired", "fired"]
    log = json.loads((await rest.bus.js.get_msg("LOG", 1)).data or b"")
    assert (log["run_id"], log["reason"]) == (first, "the next run of schedule nightly begins")


async def test_a_task_that_is_refused_is_shown_and_the_next_time_comes(
    rest: Rest, clock: Clock
) -> None:
    await put(rest, catch_up="one", overlap="skip")
    await rest.pool.execute('UPDATE hocket.schedule SET task = \'{"pipeline": "gone"}\'')
    clock.set("2026-03-28T10:00")
    await look(rest)
    await rest.pool.execute('UPDATE hocket.schedule SET task = \'{"pipeline": "report"}\'')
    clock.set("2026-03-28T11:00")
    await look(rest)
    told = await history(rest)
    assert [one["state"] for one in told] == ["failed", "fired"]
    assert told[0]["error"]["code"] == "pipeline_unknown"


async def test_a_paused_schedule_leaves_its_times_out(rest: Rest, clock: Clock) -> None:
    await put(rest, catch_up="all")
    paused = await rest.post("/v1/schedules/nightly/pause", {"reason": "moving house"})
    assert (paused.body["paused"], paused.body["next"]) == (True, [])
    assert (await put(rest, catch_up="all", description="new"))["paused"] is True
    clock.set("2026-03-28T12:30")
    await look(rest)
    resumed = await rest.post("/v1/schedules/nightly/resume")
    assert resumed.body["next"][0] == "2026-03-28T13:00:00Z"
    await look(rest)
    assert await states(rest) == []
    clock.set("2026-03-28T13:00")
    await look(rest)
    assert await states(rest) == [("13:00", "fired")]
    audit = (await rest.get("/v1/audit")).body["entries"]
    assert [one["action"] for one in audit if one["target"] == "schedule:nightly"] == [
        "schedules.create", "schedules.pause", "schedules.change", "schedules.resume",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"jitter_s": 1_800}, ["10:00"]),
        ({"jitter_s": 0}, ["10:00"]),
        ({"cron": "0 12 * * *"}, ["10:00"]),
        ({"cron": "0 12 * * *", "catch_up": "none"}, ["10:00"]),
        ({"cron": "*/30 * * * *", "jitter_s": 0}, ["10:00", "10:30"]),
        ({"time_zone": "Asia/Tokyo"}, ["10:00"]),
    ],
)
async def test_a_time_that_its_jitter_delays_is_not_lost_by_a_change_of_the_times(
    rest: Rest, clock: Clock, change: dict[str, Any], expected: list[str]
) -> None:
    said: dict[str, Any] = {"cron": "0 10 * * *", "jitter_s": 3_600, "overlap": "allow"}
    await put(rest, **said)
    clock.set("2026-03-28T10:00")
    await look(rest)
    assert await states(rest) == [], "its jitter delays it"
    await put(rest, **said | change)
    for at in ("10:00:01", "10:59:59"):
        clock.set(f"2026-03-28T{at}")
        await look(rest)
    assert await states(rest) == [(time, "fired") for time in expected]


async def test_a_time_that_came_in_an_outage_is_caught_up_with_though_the_times_change(
    rest: Rest, clock: Clock
) -> None:
    await put(rest, catch_up="all", overlap="allow")
    clock.set("2026-03-28T12:10")
    await put(rest, catch_up="all", overlap="allow", cron="*/5 * * * *")
    await look(rest)
    assert await states(rest) == [("10:00", "fired"), ("11:00", "fired"), ("12:00", "fired")]


async def test_nobody_finds_an_input_out_from_the_audit(rest: Rest) -> None:
    """A hash of the input alone would show it to whoever guesses it: most inputs are short."""
    given: dict[str, Any] = {"pipeline": "report", "input": {"customer": 4711}}
    await put(rest, task=given)
    await put(rest, task=given, description="the same input")
    await put(rest, task={**given, "input": {"customer": 4712}})
    await rest.ask("DELETE", "/v1/schedules/nightly")
    entries = (await rest.get("/v1/audit")).body["entries"]
    told = [one for one in entries if one["target"] == "schedule:nightly"]
    assert [one["action"].partition(".")[2] for one in told] == [
        "create",
        "change",
        "change",
        "delete",
    ]
    shown = [
        json.dumps(one[side]["task"]["input"])
        for one in told
        for side in ("before", "after")
        if one[side] is not None
    ]
    for customer in (4711, 4712):
        assert not any(ids.content_hash({"customer": customer}) in one for one in shown)
    created, before, after, former, changed, deleted = shown
    assert before == after, "one change shows that the input is the same"
    assert former != changed
    assert created not in (before, former)
    assert deleted != changed


async def test_a_schedule_is_triggered_by_hand_once_per_key(rest: Rest) -> None:
    await put(rest, overlap="allow")
    path = "/v1/schedules/nightly/trigger"
    asked = [await rest.post(path, {"idempotency_key": key}) for key in ("a", "a", "b")]
    asked += [await rest.ask("POST", path, headers={"Idempotency-Key": key}) for key in ("a", "b")]
    assert {one.status for one in asked} == {202}
    body, headers = {"idempotency_key": "a"}, {"Idempotency-Key": "b"}
    assert (await rest.post(path, body, headers=headers)).body["field"] == "Idempotency-Key"
    await look(rest)
    await look(rest)
    assert len(await tasks(rest)) == 2
    told = await history(rest)
    assert {(one["cause"], one["state"]) for one in told} == {("triggered", "fired")}
    assert {one["run_id"] for one in told} == {one.body["run_id"] for one in asked}


async def test_the_history_of_a_schedule_that_is_only_triggered_stays_bounded(
    rest: Rest, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "KEPT_FIRINGS", 2)
    await put(rest, overlap="allow", paused=True)
    for _ in range(6):
        clock.pass_s(1)
        assert (await rest.post("/v1/schedules/nightly/trigger")).status == 202
        await look(rest)
    assert len(await history(rest)) == 3  # the latest was still to be submitted


async def test_two_who_write_do_not_undo_each_other(rest: Rest) -> None:
    place, body = "/v1/schedules/nightly", {"cron": "0 * * * *", "task": {"pipeline": "report"}}
    made = await rest.ask("PUT", place, json=body, headers={"If-None-Match": "*"})
    again = await rest.ask("PUT", place, json=body, headers={"If-None-Match": "*"})
    assert (made.status, made.headers["Etag"]) == (201, '"1"')
    assert (again.status, again.body["code"]) == (412, "precondition_failed")
    assert again.body["cure"] or "Read it again" in again.body["detail"]
    same = await rest.ask("PUT", place, json=body)
    assert (same.status, same.headers["Etag"]) == (200, '"1"'), "nothing was changed"
    other = {**body, "description": "mine"}
    first = await rest.ask("PUT", place, json=other, headers={"If-Match": '"1"'})
    late = await rest.ask("PUT", place, json=other, headers={"If-Match": '"1"'})
    assert (first.headers["Etag"], late.status) == ('"2"', 412)
    for method, ending in (("POST", "/pause"), ("POST", "/resume"), ("DELETE", "")):
        refused = await rest.ask(method, place + ending, headers={"If-Match": '"1"'})
        assert refused.status == 412, ending
    gone = await rest.ask("DELETE", place, headers={"If-Match": '"2"'})
    assert (gone.status, (await rest.get(place)).status) == (204, 404)
    nothing = await rest.ask("PUT", place, json=body, headers={"If-Match": "*"})
    assert nothing.status == 412


async def test_the_etag_of_a_deleted_schedule_fits_no_other_of_its_name(rest: Rest) -> None:
    place, body = "/v1/schedules/nightly", {"cron": "0 * * * *", "task": {"pipeline": "report"}}
    seen = [(await rest.ask("PUT", place, json=body)).headers["Etag"]]
    for number in range(2):
        assert (await rest.ask("DELETE", place)).status == 204
        other = {**body, "description": f"another {number}"}
        seen.append((await rest.ask("PUT", place, json=other)).headers["Etag"])
        for etag in seen[:-1]:
            for method, said in (("PUT", body), ("DELETE", None)):
                refused = await rest.ask(method, place, json=said, headers={"If-Match": etag})
                assert refused.status == 412
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    ("cron", "reason"),
    [
        ("@daily", "it does not have the five fields of a cron expression"),
        ("0 30 2 * * *", "it does not have the five fields of a cron expression"),
        ("0 0 31 4 *", "its day of the month is not valid, or not in its months"),
        ("0 0 * * 9", "its day of the week is not valid"),
        ("60 * * * *", "its minute is not valid"),
    ],
)
async def test_a_refused_expression_says_what_is_wrong(rest: Rest, cron: str, reason: str) -> None:
    body = {"cron": cron, "task": {"pipeline": "report"}}
    answer = await rest.ask("PUT", "/v1/schedules/nightly", json=body)
    assert (answer.status, answer.body["field"]) == (422, "cron")
    assert reason in answer.body["detail"]
    assert "`30 6 * * 1-5`" in answer.body["detail"]


async def test_what_cannot_be_is_refused_by_its_field(rest: Rest) -> None:
    refused: list[tuple[dict[str, Any], int, str | None]] = [
        ({"cron": "0 25 * * *"}, 422, "cron"),
        ({"cron": "* * * * * *"}, 422, "cron"),
        ({"time_zone": "Mars/Olympus"}, 422, "time_zone"),
        ({"cron": "* 2 25-31 3 */7", "time_zone": "Europe/Berlin"}, 422, "cron"),
        ({"overlap": "maybe"}, 422, "overlap"),
        ({"jitter_s": 4_000}, 422, "jitter_s"),
        ({"catch_up_window_s": 10**9}, 422, "catch_up_window_s"),
        ({"task": {"pipeline": "ghost"}}, 404, None),
        ({"task": {"pipeline": "report", "version": 9}}, 422, "task.version"),
        ({"task": {"pipeline": "report", "labels": {"hocket.key": "x"}}}, 422, "task.labels"),
        ({"task": {"pipeline": "report", "input": {"x": "y" * 5_000}}}, 413, "task.input"),
        ({"task": {"pipeline": "strict"}}, 422, "task.input"),
        ({"task": {"pipeline": "strict"}, "time_field": "day"}, 201, None),
    ]
    day = {"type": "object", "required": ["day"], "properties": {"day": {"type": "string"}}}
    strict = {**PIPELINE, "pipeline": "strict", "input": day}
    assert (await rest.post("/v1/pipelines", strict)).status == 201
    for change, status, field in refused:
        body = {"cron": "0 * * * *", "task": {"pipeline": "report"}, **change}
        answer = await rest.ask("PUT", "/v1/schedules/nightly", json=body)
        found = (answer.status, answer.body.get("field"))
        assert found == (status, field), answer.body


async def test_a_budget_of_nothing_is_read_again_as_it_was_written(
    rest: Rest, clock: Clock
) -> None:
    shown = await put(rest, task={"pipeline": "report", "budget_usd": 0.0}, cron="30 9,10 * * *")
    assert shown["task"]["budget_usd"] == "0.000000000"
    clock.set("2026-03-28T10:30")
    await look(rest)
    assert await states(rest) == [("10:30", "fired")]


async def test_schedules_are_listed_a_page_at_a_time_and_only_ones_own(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        await put(rest, name, task={"pipeline": "report", "input": {"secret": 1}})
    first = (await rest.get("/v1/schedules?limit=2")).body
    second = (await rest.get(f"/v1/schedules?limit=2&after={first['next']}")).body
    assert [one["name"] for one in first["schedules"] + second["schedules"]] == ["c", "b", "a"]
    assert second["next"] is None
    assert (await rest.get("/v1/schedules?paused=true")).body["schedules"] == []
    viewer = bearer(await rest.make_key("viewer"))
    shown = (await rest.get("/v1/schedules/a", headers=viewer)).body
    assert shown["task"]["input"] is None
    stranger = bearer(await rest.make_key("admin", "rival"))
    assert (await rest.get("/v1/schedules/a", headers=stranger)).status == 404
    assert (await rest.get("/v1/schedules", headers=stranger)).body["schedules"] == []
    monkeypatch.setattr(changes, "MAX_SCHEDULES", 3)
    full = await rest.ask(
        "PUT", "/v1/schedules/d", json={"cron": "0 * * * *", "task": {"pipeline": "report"}}
    )
    assert (full.status, full.body["code"]) == (409, "schedules_full")


async def test_a_page_ends_where_inputs_are_large_and_reads_none_that_it_does_not_show(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.admin.schedules.listing.MAX_INPUT_BYTES", 1_000)
    names = [f"s{number}" for number in range(7)]
    for name in names:
        await put(rest, name, task={"pipeline": "report", "input": {"text": "x" * 400}})
    pages = [(await rest.get("/v1/schedules")).body]
    while after := pages[-1]["next"]:
        pages.append((await rest.get(f"/v1/schedules?after={after}")).body)
    shown = [one for page in pages for one in page["schedules"]]
    assert [len(page["schedules"]) for page in pages] == [3, 3, 1]
    assert [one["name"] for one in shown] == names[::-1]
    one = (await rest.get("/v1/schedules/s6")).body
    assert shown[0] == {**one, "next": one["next"][:1]}

    read: list[str] = []
    shown_of = store.shown

    def seen(row: Any, *others: Any, **options: Any) -> Any:
        read.append(row["task"])
        return shown_of(row, *others, **options)

    monkeypatch.setattr(store, "shown", seen)
    viewer = bearer(await rest.make_key("viewer"))
    page = (await rest.get("/v1/schedules", headers=viewer)).body
    assert [one["name"] for one in page["schedules"]] == names[::-1]
    assert {one["task"]["input"] for one in page["schedules"]} == {None}
    assert max(map(len, read)) < 400


async def test_times_are_searched_beside_the_event_loop(
    rest: Rest, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rare time takes the library long to find."""
    searched: set[threading.Thread] = set()

    class Seen(schedule_times.CronSim):
        def __next__(self) -> datetime:
            searched.add(threading.current_thread())
            return super().__next__()

    monkeypatch.setattr(schedule_times, "CronSim", Seen)
    rare = {"cron": "0 0 * 2 1#5", "jitter_s": 60}
    preview = await rest.post("/v1/schedule-preview?count=20", rare)
    assert [one["planned_at"][:4] for one in preview.body["times"]] == ["2044", "2072"]
    await put(rest, **rare)
    await put(rest, cron="0 0 1 1 *")
    for path in ("nightly", "nightly/next"):
        assert (await rest.get(f"/v1/schedules/{path}")).status == 200
    for done in ("pause", "resume"):
        assert (await rest.post(f"/v1/schedules/nightly/{done}")).status == 200
    clock.set("2027-01-01T00:00:01")
    await look(rest)
    assert await states(rest) == [("00:00", "fired")]
    assert searched
    assert threading.main_thread() not in searched


async def test_the_commands_of_the_docs(rest: Rest, clock: Clock) -> None:
    async def hocket(*arguments: str) -> Result:
        environment = {"HOCKET_API_URL": rest.url, "HOCKET_API_KEY": rest.key}
        return await asyncio.to_thread(
            CliRunner().invoke, app, ["schedules", *arguments], env=environment
        )

    made = await hocket(
        "put", "morning", "--cron", "30 6 * * 1-5", "--time-zone", "Europe/Berlin",
        "--pipeline", "report", "-i", "region=eu", "--time-field", "as_of",
        "--catch-up", "one", "--overlap", "skip", "--jitter-s", "30", "--label", "team=search",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    shown = json.loads((await hocket("show", "morning", "--json")).stdout)
    assert shown["task"]["input"] == {"region": "eu"}
    assert (shown["cron"], shown["jitter_s"]) == ("30 6 * * 1-5", 30)
    previewed = await hocket("preview", "30 2 * * *", "--time-zone", "Europe/Berlin", "-n", "2")
    assert previewed.stdout.split() == ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]
    coming = json.loads((await hocket("next", "morning", "-n", "1", "--json")).stdout)
    assert coming[0]["local"] == "2026-03-30T06:30:00+02:00"
    assert (
        "paused: the source moves"
        in (await hocket("pause", "morning", "--reason", "the source moves")).output
    )
    assert (await hocket("resume", "morning", "--revision", "7")).exit_code != 0
    assert (await hocket("resume", "morning", "--revision", "2")).exit_code == 0
    assert (await hocket("trigger", "morning", "--key", "by-hand-1")).output.startswith(
        "pending: r"
    )
    await look(rest)
    clock.set("2026-03-30T05:00")
    await look(rest)
    assert "triggered" in (await hocket("history", "morning")).output
    assert json.loads((await hocket("history", "morning", "--json")).stdout)[0]["state"] == "fired"
    assert "morning" in (await hocket("list")).output
    assert json.loads((await hocket("list", "--json")).stdout)[0]["name"] == "morning"
    assert (await hocket("delete", "morning")).exit_code == 0
    assert json.loads((await hocket("list", "--json")).stdout) == []


async def test_an_input_that_changes_from_1_to_true_is_a_change(rest: Rest) -> None:
    for number, value in enumerate((1, True, [0], [False], {"a": 0}, {"a": False}), 1):
        task = {"pipeline": "report", "input": {"flag": value}}
        for _ in range(2):
            shown = await put(rest, task=task)
            assert json.dumps(shown["task"]["input"]["flag"]) == json.dumps(value)
            assert shown["revision"] == number


async def test_a_run_that_outlasts_the_history_still_counts_as_under_way(
    rest: Rest, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "KEPT_FIRINGS", 2)
    await put(rest)
    clock.set("2026-03-28T10:00")
    await look(rest)
    [fired] = await history(rest)
    await add_run(rest, fired["run_id"])
    for hour in range(11, 16):
        clock.set(f"2026-03-28T{hour}:00")
        await look(rest)
    kept = [("10:00", "fired"), ("13:00", "skipped"), ("14:00", "skipped"), ("15:00", "skipped")]
    assert await states(rest) == kept
    await add_run(rest, fired["run_id"], "succeeded")
    for hour in range(16, 18):
        clock.set(f"2026-03-28T{hour}:00")
        await look(rest)
    assert [at for at, _ in await states(rest)] == ["15:00", "16:00", "17:00"]


async def test_one_time_waits_at_most_also_if_it_was_planned_after_another(
    rest: Rest, clock: Clock
) -> None:
    """Delayed by its jitter, 10:00 is due after a run that was triggered meanwhile."""
    await put(rest, overlap="buffer_one", jitter_s=600)
    assert (await rest.post("/v1/schedules/nightly/trigger")).status == 202
    await look(rest)
    [fired] = await history(rest)
    await add_run(rest, fired["run_id"])
    [time] = (await rest.get("/v1/schedules/nightly/next?count=1")).body["times"]
    planned, due = (datetime.fromisoformat(time[name]) for name in ("planned_at", "due_at"))
    clock.at = planned + (due - planned) / 2
    assert (await rest.post("/v1/schedules/nightly/trigger")).status == 202
    await look(rest)
    clock.at = due + timedelta(seconds=1)
    await look(rest)
    assert [state for _, state in await states(rest)] == ["fired", "skipped", "buffered"]


async def test_a_schedule_whose_zone_is_not_known_here_keeps_no_other_waiting(
    rest: Rest, clock: Clock
) -> None:
    """Zones are renamed and removed, and not every machine has all of them."""
    await put(rest, "lost", time_zone="Europe/Berlin")
    await put(rest, "other")
    for zone in ("Nowhere/Gone", "Europe/Berlin"):
        await rest.pool.execute(
            "UPDATE hocket.schedule SET time_zone = $1 WHERE name = 'lost'", zone
        )
        clock.set("2026-03-28T10:00")
        if zone == "Europe/Berlin":
            clock.set("2026-03-28T10:02")
        await look(rest)
        assert await states(rest, "other") == [("10:00", "fired")]
    assert await states(rest, "lost") == [("10:00", "fired")], "once its zone is known again"


async def test_times_that_wait_for_the_end_of_a_run_keep_no_others_waiting(
    rest: Rest, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing, "LOOKED_AT", 2)
    for name in ("first", "second"):
        await put(rest, name, overlap="buffer_one")
    await put(rest, "third", cron="30 11 * * *")
    clock.set("2026-03-28T10:00")
    await look(rest)
    runs = [(await history(rest, name))[0]["run_id"] for name in ("first", "second")]
    for run_id in runs:
        await add_run(rest, run_id)
    clock.set("2026-03-28T11:00")
    await look(rest)
    clock.set("2026-03-28T11:30")
    monkeypatch.setattr(firing, "LOOKED_AT", 1)
    await look(rest)
    assert await states(rest, "third") == [("11:30", "fired")]
    await add_run(rest, runs[1], "succeeded")
    await look(rest)
    assert await states(rest, "first") == [("10:00", "fired"), ("11:00", "buffered")]
    assert await states(rest, "second") == [("10:00", "fired"), ("11:00", "fired")]


async def test_a_schedule_whose_zone_is_not_known_here_is_shown_paused_and_mended(
    rest: Rest,
) -> None:
    await put(rest, time_zone="Europe/Berlin")
    await rest.pool.execute("UPDATE hocket.schedule SET time_zone = 'Nowhere/Gone'")
    place = "/v1/schedules/nightly"
    for answer in (await rest.get(place), await rest.post(f"{place}/pause")):
        assert (answer.status, answer.body["next"]) == (200, [])
    for answer in (await rest.get(f"{place}/next"), await rest.post(f"{place}/resume")):
        assert (answer.status, answer.body["code"]) == (422, "invalid_input")
        assert "no time zone `Nowhere/Gone`" in answer.body["detail"]
    assert (await rest.get("/console/schedules/nightly")).status == 200
    mended = await put(rest, time_zone="Europe/Berlin", paused=False)
    assert len(mended["next"]) == 3


async def test_who_makes_many_schedules_at_once_has_no_more_than_may_be(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MAX_SCHEDULES", 3)
    body = {"cron": "0 * * * *", "task": {"pipeline": "report"}}
    made = await asyncio.gather(
        *(rest.ask("PUT", f"/v1/schedules/s{number}", json=body) for number in range(12))
    )
    assert sorted(answer.status for answer in made) == [201] * 3 + [409] * 9
