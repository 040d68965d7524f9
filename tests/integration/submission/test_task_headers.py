"""Headers of tasks that other clients send: in any case, and no others than there are."""

import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from support.coordinator_rig import Rig

BOUND_S = 60
TASK = subjects.task("default", "p")


@pytest.fixture
async def rig(bus: Bus, database_url: str) -> AsyncIterator[Rig]:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=4) as pool:
        rig = Rig(bus, pool)
        await rig.open()
        yield rig


async def told(rig: Rig, headers: dict[str, str], reply_header: str) -> dict[str, Any]:
    """Publish a task, and return what its publisher is told."""
    inbox = rig.bus.nc.new_inbox()
    heard = await rig.bus.nc.subscribe(inbox)
    await rig.bus.publish(TASK, b"{}", headers={**headers, reply_header: inbox})
    return dict(json.loads((await heard.next_msg(timeout=BOUND_S)).data))


async def test_a_key_in_any_case_is_one_run_and_its_budget_holds(rig: Rig) -> None:
    ends = []
    async with rig.coordinator("one"):
        for spell in (str.lower, str.upper, str.title):
            given = {"hocket-idempotency-key": "order-17", "hocket-budget-usd": "0.5"}
            headers = {spell(name): value for name, value in given.items()}
            ends.append(await told(rig, headers, spell("hocket-reply-to")))
    assert [one["status"] for one in ends] == ["succeeded"] * 3
    assert len({one["run_id"] for one in ends}) == 1
    (row,) = await rig.pool.fetch("SELECT idempotency_key, budget_usd FROM hocket.run")
    assert (row["idempotency_key"], float(row["budget_usd"])) == ("order-17", 0.5)


async def test_a_header_that_there_is_not_refuses_the_task(
    rig: Rig,
) -> None:
    headers = {"hocket-idempotency-key": "order-18", "Hocket-Budget": "0.01"}
    async with rig.coordinator("one"):
        refused = await told(rig, headers, "hocket-reply-to")
        assert (refused["status"], refused["error"]["code"]) == ("rejected", "invalid_input")
        assert refused["error"]["field"] == "Hocket-Budget"
        assert "Did you mean `Hocket-Budget-Usd`?" in refused["error"]["message"]
    (letter,) = await dead_letters.list_(rig.bus)
    assert letter.headers["hocket-idempotency-key"] == "order-18"
    assert await rig.pool.fetchval("SELECT count(*) FROM hocket.run") == 0
