"""The clock of schedules is Postgres's: a REST process whose own clock is wrong decides nothing else."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from structlog.testing import capture_logs

from hocket.admin.context import Context, utc_now
from hocket.admin.schedules import changes, firing, planned_times
from hocket.admin.schedules.planned_times import PlannedTimes
from support.administration.schedule_rig import PIPELINE, Clock, history, look, moment, put
from support.rest_rig import Rest, running_rest

BOUND_S = 60.0
YEARLY = "0 0 1 1 *"


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest, asyncio.timeout(BOUND_S):
        assert (await rest.post("/v1/pipelines", PIPELINE)).status == 201
        yield rest


def ahead() -> datetime:
    return utc_now() + timedelta(days=1_000)


async def planned(rest: Rest) -> datetime:
    found = await rest.pool.fetchval("SELECT planned_at FROM hocket.schedule")
    assert isinstance(found, datetime)
    return found


async def test_a_process_whose_clock_is_ahead_moves_no_schedule(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await put(rest, cron=YEARLY)
    before = await planned(rest)
    assert made["next"][0] == before.isoformat().replace("+00:00", "Z")
    wrong: Context = replace(rest.app.state.context, now=ahead)
    await firing.look(wrong)
    assert await planned(rest) == before
    assert await history(rest) == []

    monkeypatch.setattr(rest.app.state, "context", wrong)
    for path in ("nightly/pause", "nightly/resume"):
        assert (await rest.post(f"/v1/schedules/{path}")).status == 200
    assert await planned(rest) == before
    assert (await put(rest, cron=YEARLY, jitter_s=1))["next"] == made["next"]
    assert (await rest.get("/v1/schedules/nightly")).body["next"] == made["next"]
    times = (await rest.get("/v1/schedules/nightly/next?count=3")).body["times"]
    assert [one["planned_at"] for one in times] == made["next"]
    preview = await rest.post("/v1/schedule-preview?count=3", {"cron": YEARLY})
    assert [one["planned_at"] for one in preview.body["times"]] == made["next"]
    fired = (await rest.post("/v1/schedules/nightly/trigger")).body
    assert fired["planned_at"] < ahead().isoformat()


@pytest.fixture
def clock() -> Clock:
    return Clock(moment("2026-05-04T09:30"))


@pytest.fixture
async def set_rest(nats_url: str, database_url: str, clock: Clock) -> AsyncIterator[Rest]:
    """An API at which Postgres's clock is the one that the test sets."""
    async with (
        running_rest(nats_url, database_url, now=clock) as rest,
        asyncio.timeout(BOUND_S),
    ):
        assert (await rest.post("/v1/pipelines", PIPELINE)).status == 201
        yield rest


async def test_when_the_clock_of_postgres_was_ahead_schedules_are_put_back_and_fire_once(
    set_rest: Rest, clock: Clock
) -> None:
    rest = set_rest
    await put(rest, overlap="allow")
    clock.set("2026-05-07T10:00:05")
    await look(rest)
    clock.set("2026-05-04T09:30")
    shown = (await rest.get("/v1/schedules/nightly")).body
    assert shown["next"][0] == "2026-05-07T11:00:00Z", "the time at which it would fire"
    times = (await rest.get("/v1/schedules/nightly/next?count=1")).body["times"]
    assert times[0]["planned_at"] == shown["next"][0]

    context = rest.app.state.context
    with capture_logs() as logs:
        await asyncio.gather(*(PlannedTimes().check(context) for _ in range(3)))
    assert {one["event"] for one in logs} == {"schedule_put_back"}
    shown = (await rest.get("/v1/schedules/nightly")).body
    assert shown["next"][0] == "2026-05-04T10:00:00Z"
    for at in ("10:00", "10:00:30", "11:00"):
        clock.set(f"2026-05-04T{at}")
        await asyncio.gather(look(rest), look(rest))
    await look(rest)
    fired = [one["planned_at"] for one in await history(rest) if one["state"] == "fired"]
    assert fired == [
        "2026-05-04T10:00:00Z",
        "2026-05-04T11:00:00Z",
        "2026-05-07T10:00:00Z",
    ]
    clock.set("2026-05-07T10:00:05")
    await look(rest)
    await look(rest)
    assert [one["planned_at"] for one in await history(rest)].count(fired[-1]) == 1


async def test_all_schedules_are_checked_one_portion_after_the_other(
    set_rest: Rest, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = set_rest
    monkeypatch.setattr(planned_times, "CHECKED_AT_ONCE", 2)
    names = [f"s{number}" for number in range(5)]
    for name in names:
        await put(rest, name, paused=name == "s4")
    moved = "UPDATE hocket.schedule SET planned_at = $1, due_at = $1"
    far = moment("2026-06-01T10:00")
    await rest.pool.execute(moved, far)
    checks, context = PlannedTimes(), rest.app.state.context
    counts = []
    for _ in range(3):
        await checks.check_portion(context)
        counts.append(
            await rest.pool.fetchval(
                "SELECT count(*) FROM hocket.schedule WHERE planned_at < $1", far
            )
        )
    assert counts == [2, 4, 4], "a paused one gets its time when it is resumed"
    await rest.pool.execute(moved, far)
    await checks.check(context)
    await checks.check(context)
    left = await rest.pool.fetchval(
        "SELECT count(*) FROM hocket.schedule WHERE planned_at = $1", far
    )
    assert left == 3, "the second check comes too soon after the first"


async def test_a_schedule_that_somebody_is_changing_is_left_to_him(
    set_rest: Rest, clock: Clock
) -> None:
    rest, far = set_rest, moment("2026-06-01T10:00")
    await put(rest)
    await rest.pool.execute("UPDATE hocket.schedule SET planned_at = $1, due_at = $1", far)
    async with rest.pool.acquire() as connection, connection.transaction():
        await connection.fetchrow(changes.store.LOCKED, "default", "nightly")
        await PlannedTimes().check(rest.app.state.context)
    assert await planned(rest) == far
