"""Schedules that are changed or paused while times that have come are still to be submitted."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from hocket.admin.schedules import catch_up, firing
from support.administration.schedule_rig import (
    PIPELINE,
    Clock,
    history,
    look,
    moment,
    put,
    states,
    tasks,
)
from support.rest_rig import Rest, running_rest

BOUND_S = 60.0
DELAYED: dict[str, Any] = {"cron": "0 10 * * *", "jitter_s": 3_600, "overlap": "allow"}
"""The time is 10:00, and its jitter delays it by more than a minute."""
LEFT_OUT = "the schedule was paused"


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


async def pause(rest: Rest, way: str, **said: Any) -> None:
    """Pause the schedule by its own request, or by one that replaces it."""
    if way == "pause":
        assert (await rest.post("/v1/schedules/nightly/pause", {"reason": "x"})).status == 200
    else:
        changed = {"cron": "0 12 * * *"} if way == "other times" else {}
        assert (await put(rest, **{**said, **changed}, paused=True))["paused"]


async def resume(rest: Rest, way: str, **said: Any) -> str:
    """Resume the schedule in the same way, and return its next time."""
    if way == "pause":
        return str((await rest.post("/v1/schedules/nightly/resume")).body["next"][0])
    return str((await put(rest, **said, paused=False))["next"][0])


async def left_out(rest: Rest) -> list[tuple[str, str]]:
    """Return the first and the last time of each line of times that were left out for a pause."""
    return [
        (one["planned_at"][11:16], one["until"][11:16])
        for one in await history(rest)
        if (one["state"], one["reason"]) == ("missed", LEFT_OUT)
    ]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("none", [("10:00", "missed"), ("15:00", "fired")]),
        ("one", [("10:00", "missed"), ("15:00", "fired")]),
        ("all", [(f"{hour}:00", "fired") for hour in range(10, 16)]),
    ],
    ids=["none", "one", "all"],
)
async def test_all_that_was_missed_is_decided_when_the_times_change(
    rest: Rest,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    expected: list[tuple[str, str]],
) -> None:
    """Also if it is as much as is decided at once, and the latest one is on time."""
    monkeypatch.setattr(catch_up, "MAX_AT_ONCE", 6)
    said = {"catch_up": policy, "overlap": "allow"}
    await put(rest, **said)
    clock.set("2026-03-28T15:00:05")
    changed = await put(rest, **said, cron="*/20 * * * *")
    assert changed["next"][0] == "2026-03-28T15:20:00Z"
    await look(rest)
    assert await states(rest) == expected
    assert len(await tasks(rest)) == sum(state == "fired" for _, state in expected)


@pytest.mark.parametrize("pending", [0, 100], ids=["nothing pending", "all pending"])
async def test_of_very_many_that_were_missed_a_change_submits_some_and_leaves_out_the_rest(
    rest: Rest, clock: Clock, pending: int
) -> None:
    """They were ten thousand, before whose end the new times did not run, and no pause stopped them."""
    assert catch_up.MAX_AT_ONCE == 100
    said = {"catch_up": "all", "overlap": "allow"}
    await put(rest, **said, cron="* * * * *")
    clock.set("2026-03-28T14:00:45")  # 09:31 to 14:00
    if pending:
        assert await firing.decide(rest.app.state.context) == 1
        assert await counts(rest) == {"pending": pending}
    changed = await put(rest, **said, cron="5 * * * *")
    assert changed["next"][0] == "2026-03-28T14:05:00Z"
    assert await counts(rest) == {"pending": 100, "missed": 1}
    [missed] = [one for one in await history(rest) if one["state"] == "missed"]
    assert (missed["planned_at"][11:16], missed["until"][11:16]) == ("11:11", "14:00")
    assert missed["reason"] == "its times were changed"

    await put(rest, **said, cron="6 * * * *")
    assert await counts(rest) == {"pending": 100, "missed": 1}, "nothing has come meanwhile"
    for _ in range(100 // firing.SUBMITTED_AT_ONCE):
        await look(rest)
    assert await counts(rest) == {"fired": 100, "missed": 1}
    clock.set("2026-03-28T14:06:05")
    await look(rest)
    assert await counts(rest) == {"fired": 101, "missed": 1}


async def counts(rest: Rest) -> dict[str, int]:
    """Return how many lines of the history have each state."""
    rows = await rest.pool.fetch("SELECT state FROM hocket.schedule_firing")
    return dict(Counter(row["state"] for row in rows))


@pytest.mark.parametrize("way", ["pause", "put", "other times"])
async def test_a_pause_before_all_is_caught_up_with_is_told_in_the_history(
    rest: Rest, clock: Clock, way: str
) -> None:
    said = {"catch_up": "all", "overlap": "allow"}
    await put(rest, **said)
    clock.set("2026-03-28T13:10")
    await pause(rest, way, **said)
    assert await left_out(rest) == [("10:00", "13:00")]
    clock.set("2026-03-28T14:30")
    await pause(rest, "pause")  # with another reason
    assert await resume(rest, way, **said) == "2026-03-28T15:00:00Z"
    await look(rest)
    assert await states(rest) == [("10:00", "missed")], "nothing of what came during the pause"
    clock.set("2026-03-28T15:00:05")
    await look(rest)
    assert await states(rest) == [("10:00", "missed"), ("15:00", "fired")]


async def test_a_pause_of_a_schedule_whose_zone_is_not_known_here_is_told_as_well(
    rest: Rest, clock: Clock
) -> None:
    await put(rest)
    await rest.pool.execute("UPDATE hocket.schedule SET time_zone = 'Nowhere/Gone'")
    clock.set("2026-03-28T13:10")
    assert (await rest.post("/v1/schedules/nightly/pause")).status == 200
    assert await left_out(rest) == [("10:00", "10:00")]


async def delayed(rest: Rest) -> datetime:
    """Create a schedule whose time is delayed by its jitter, and return when it is due."""
    await put(rest, **DELAYED)
    [time] = (await rest.get("/v1/schedules/nightly/next?count=1")).body["times"]
    due_at = datetime.fromisoformat(time["due_at"])
    if due_at < moment("2026-03-28T10:01"):  # it is derived from the schedule's id, which is random
        assert (await rest.ask("DELETE", "/v1/schedules/nightly")).status == 204
        return await delayed(rest)
    return due_at


@pytest.mark.parametrize("way", ["pause", "put"])
async def test_a_time_that_is_due_only_after_the_pause_is_submitted(
    rest: Rest, clock: Clock, way: str
) -> None:
    due_at = await delayed(rest)
    clock.set("2026-03-28T10:00:05")
    await pause(rest, way, **DELAYED)
    assert await left_out(rest) == [("10:00", "10:00")], "as long as it is paused"
    clock.pass_s(1)
    assert await resume(rest, way, **DELAYED) == "2026-03-29T10:00:00Z"
    assert await states(rest) == []
    clock.at = due_at + timedelta(seconds=1)
    await look(rest)
    await look(rest)
    assert await states(rest) == [("10:00", "fired")]


@pytest.mark.parametrize("way", ["pause", "put", "other times"])
async def test_a_time_that_would_have_been_due_in_the_pause_is_left_out(
    rest: Rest, clock: Clock, way: str
) -> None:
    due_at = await delayed(rest)
    clock.set("2026-03-28T10:00:05")
    await pause(rest, way, **DELAYED)
    if way != "other times":
        clock.at = due_at + timedelta(seconds=1)
    assert await resume(rest, way, **DELAYED) == "2026-03-29T10:00:00Z"
    await look(rest)
    assert await states(rest) == [("10:00", "missed")]


async def test_a_time_that_came_in_the_pause_is_left_out_though_it_is_due_later(
    rest: Rest, clock: Clock
) -> None:
    due_at = await delayed(rest)
    assert (await rest.post("/v1/schedules/nightly/pause")).status == 200
    clock.set("2026-03-28T10:00:05")
    assert await resume(rest, "pause") == "2026-03-29T10:00:00Z"
    clock.at = due_at + timedelta(seconds=1)
    await look(rest)
    assert await states(rest) == []
