"""A task that grows beyond a message when it is accepted is refused with what to do about it."""

import asyncio
import json
from collections.abc import AsyncIterator

import asyncpg
import pytest

from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from support.coordinator_rig import Rig

BOUND_S = 60
MAX_TASK_BYTES = 512 * 1024


@pytest.fixture
async def rig(bus: Bus, database_url: str) -> AsyncIterator[Rig]:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=4) as pool:
        rig = Rig(bus, pool)
        await rig.open()
        yield rig


async def test_its_caller_hears_the_field_and_the_cure_and_others_go_on(rig: Rig) -> None:
    inbox = rig.bus.nc.new_inbox()
    told = await rig.bus.nc.subscribe(inbox)
    task = subjects.task("default", "p")
    body = b'{"v":[' + b",".join([b"1e15"] * 100_000) + b"]}"
    assert len(body) < MAX_TASK_BYTES
    async with (
        asyncio.timeout(BOUND_S),
        rig.coordinator("one", max_task_bytes=MAX_TASK_BYTES),
    ):
        await rig.bus.publish(task, body, headers={"Hocket-Reply-To": inbox})
        answer = json.loads((await told.next_msg(timeout=BOUND_S)).data)
        assert (await rig.ends("default", "after"))["status"] == "succeeded"
    assert answer["status"] == "rejected"
    assert (answer["error"]["code"], answer["error"]["field"]) == ("payload_too_large", "input")
    assert "Keep large values" in answer["error"]["message"]
    (letter,) = await dead_letters.list_(rig.bus)
    assert (letter.source, letter.subject) == ("task", task)
