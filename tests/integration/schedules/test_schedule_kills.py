"""Each time of a schedule fires once, where several processes submit tasks and some of them are killed,
at any place: between deciding and submitting, and between submitting and writing that it was done."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from hocket.admin.schedules import firing
from hocket.schemas import ids, subjects
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
from support.places import PACKAGES
from support.rest_rig import Rest, running_rest

BOUND_S = 90.0
BEGIN = "2026-03-28T23:30:00+00:00"
SPEED = 1_200
"""Twenty minutes a second: each look finds a time or two."""
KILLS = 2


@pytest.fixture
def clock() -> Clock:
    return Clock(moment("2026-03-28T23:30"))


@pytest.fixture
async def rest(nats_url: str, database_url: str, clock: Clock) -> AsyncIterator[Rest]:
    async with (
        running_rest(nats_url, database_url, now=clock) as rest,
        asyncio.timeout(BOUND_S),
    ):
        assert (await rest.post("/v1/pipelines", PIPELINE)).status == 201
        yield rest


async def killed_at(rest: Rest, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Look for what is due, and end, like a process that is killed, where `name` is reached."""
    reached = asyncio.Event()

    async def hang(*_given: Any, **_more: Any) -> None:
        reached.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(firing, name, hang)
        looking = asyncio.create_task(look(rest))
        await reached.wait()
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking


async def test_a_process_that_is_killed_at_any_place_doubles_and_loses_nothing(
    rest: Rest, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0
    for overlap in ("skip", "allow", "buffer_one", "cancel_running"):
        for place in ("submit_pending", "_submit", "_write"):
            clock.set("2026-03-28T23:30")
            await put(rest, f"{overlap}-{place}", overlap=overlap)
            clock.set("2026-03-29T00:00")
            await killed_at(rest, monkeypatch, place)
            submitted = len(await rest.message_ids(subjects.TASKS)) - count
            assert submitted == (1 if place == "_write" else 0), place
            await look(rest)
            await look(rest)
            assert await states(rest, f"{overlap}-{place}") == [("00:00", "fired")]
            count += 1
            assert len(await rest.message_ids(subjects.TASKS)) == count, (overlap, place)


async def test_a_task_that_the_stream_has_forgotten_is_known_by_its_run(
    rest: Rest, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(rest)
    clock.set("2026-03-29T00:00")
    await killed_at(rest, monkeypatch, "_write")
    [told] = await history(rest)
    assert told["state"] == "pending"
    await add_run(rest, told["run_id"])
    await rest.bus.js.purge_stream(subjects.TASKS)
    await look(rest)
    assert await states(rest) == [("00:00", "fired")]
    assert await rest.stored(subjects.TASKS) == 0


async def test_two_processes_of_which_one_is_killed_again_and_again(
    rest: Rest, clock: Clock, nats_url: str, database_url: str
) -> None:
    """Over the night in which the clocks of Berlin change: each quarter of an hour once."""
    names = [f"s{n}" for n in range(10)]
    for name in names:
        zone = {"time_zone": "Europe/Berlin", "time_field": "at"}
        await put(rest, name, cron="*/15 * * * *", **zone, overlap="allow", catch_up="all")
    began_s = time.time()
    environment = {
        **os.environ,
        "BEGIN_S": str(began_s),
        "PYTHONPATH": PACKAGES,
    }

    async def start() -> asyncio.subprocess.Process:
        module = "support.administration.schedule_process"
        arguments = (sys.executable, "-m", module, nats_url, database_url, BEGIN, str(SPEED))
        process = await asyncio.create_subprocess_exec(
            *arguments, env=environment, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        return process

    async def fired(more: int) -> None:
        """Wait until so many more tasks were submitted."""
        wanted = await rest.stored(subjects.TASKS) + more
        while await rest.stored(subjects.TASKS) < wanted:  # noqa: ASYNC110  # of other processes
            await asyncio.sleep(0.01)

    steady, shaky = await start(), await start()
    try:
        for _ in range(KILLS):
            await fired(7)
            shaky.send_signal(signal.SIGKILL)
            await shaky.wait()
            await fired(7)
            shaky = await start()
        await fired(7)
    finally:
        for process in (steady, shaky):
            process.kill()
            await process.wait()
    clock.at = max([moment(at) for at in await _decided(rest)])
    await look(rest)  # what was decided and not submitted
    # one that was killed behind its publish has published again: intake knows a task by its key
    sent = {(headers["Hocket-Idempotency-Key"].split(":")[1], body["at"])
            for headers, body in await tasks(rest)}  # fmt: skip
    decided = await rest.pool.fetch(
        "SELECT schedule_id, array_agg(planned_at ORDER BY planned_at) AS times,"
        " bool_and(state = 'fired') AS fired FROM hocket.schedule_firing GROUP BY 1"
    )
    assert len(decided) == len(names)
    assert len(sent) == sum(len(row["times"]) for row in decided)
    for row in decided:
        assert row["fired"], "nothing was missed, nothing is left"
        minutes = [(at - moment("2026-03-28T23:30")).total_seconds() / 60 for at in row["times"]]
        assert minutes == [15.0 * n for n in range(1, len(minutes) + 1)], "none was left out"


async def _decided(rest: Rest) -> list[str]:
    rows = await rest.pool.fetch("SELECT planned_at FROM hocket.schedule_firing")
    return [row["planned_at"].replace(tzinfo=None).isoformat() for row in rows]


def test_the_run_of_a_time_follows_from_schedule_and_time() -> None:
    key = firing.key_of("s1:1774742400000000")
    assert key == "schedule:s1:1774742400000000"
    assert ids.run_id("acme", key) != ids.run_id("rival", key)
