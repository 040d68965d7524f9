"""A task with the key of a run of another pipeline is refused, and not taken for that run."""

import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.kit.process.clock import now_ms
from hocket.schemas import ids, subjects
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import Priority, RunAccepted, TaskRejected, encoded
from support.coordinator_rig import SPEC, Rig

BOUND_S = 60
OTHER = subjects.task("default", "q")


@pytest.fixture
async def rig(bus: Bus, database_url: str) -> AsyncIterator[Rig]:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=4) as pool:
        rig = Rig(bus, pool)
        await rig.open()
        await pool.execute(
            "INSERT INTO hocket.pipeline (tenant, name, version, spec, spec_hash)"
            " VALUES ('default', 'q', 1, $1, 'x')",
            json.dumps({**SPEC, "pipeline": "q"}),
        )
        yield rig


def accepted(**fields: Any) -> RunAccepted:
    """Return the acceptance of a task with the key `order-17`."""
    return RunAccepted(
        run_id=ids.run_id("default", "order-17"),
        tenant="default",
        version=1,
        priority=Priority.STANDARD,
        deadline_at_ms=now_ms() + 60_000,
        idempotency_key="order-17",
        **fields,
    )


async def check_refused(rig: Rig, told: dict[str, Any], field: str) -> None:
    assert (told["status"], told["error"]["code"]) == ("rejected", "idempotency_key_reused")
    assert told["error"]["message"].startswith(f"`{field}` already names run ")
    (letter,) = await dead_letters.list_(rig.bus)
    assert (letter.source, letter.subject, letter.payload) == ("task", OTHER, b'{"n":1}')
    fact = await rig.bus.js.get_last_msg(
        subjects.EVENTS, subjects.event("default", "q", TaskRejected.kind)
    )
    assert json.loads(fact.data or b"")["error"]["code"] == "idempotency_key_reused"
    assert await rig.pool.fetchval("SELECT array_agg(pipeline) FROM hocket.run") == ["p"]


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ({"Hocket-Idempotency-Key": "order-17"}, "Hocket-Idempotency-Key"),
        ({"ce-source": "shop", "ce-id": "17"}, "ce-id"),
    ],
)
async def test_a_task_of_another_pipeline_with_the_key_of_a_run_is_rejected(
    rig: Rig, key: dict[str, str], field: str
) -> None:
    inbox = rig.bus.nc.new_inbox()
    told = await rig.bus.nc.subscribe(inbox)
    headers = {**key, "Hocket-Reply-To": inbox}
    async with rig.coordinator("one"):
        await rig.bus.publish(subjects.task("default", "p"), b"{}", headers=headers)
        first = json.loads((await told.next_msg(timeout=BOUND_S)).data)
        assert (first["status"], first["pipeline"]) == ("succeeded", "p")
        await rig.bus.publish(OTHER, b'{"n":1}', headers=headers)
        await check_refused(rig, json.loads((await told.next_msg(timeout=BOUND_S)).data), field)
        again = await rig.ends("default", "order-17")
    assert (again["status"], again["pipeline"]) == ("succeeded", "p")


async def test_so_is_one_that_was_admitted_before_the_run_was_written(rig: Rig) -> None:
    inbox = rig.bus.nc.new_inbox()
    told = await rig.bus.nc.subscribe(inbox)
    async with rig.coordinator("one"):
        assert (await rig.ends("default", "order-17"))["status"] == "succeeded"
        event = accepted(pipeline="q", input={"n": 1}, reply_to=inbox)
        await rig.bus.publish(subjects.log(0, event.kind), encoded(event))
        answer = json.loads((await told.next_msg(timeout=BOUND_S)).data)
        await check_refused(rig, answer, "Hocket-Idempotency-Key")
        assert (await rig.ends("acme", "after"))["status"] == "succeeded"


async def test_a_run_with_the_key_of_a_task_that_was_refused_has_its_own_row(rig: Rig) -> None:
    inbox = rig.bus.nc.new_inbox()
    told = await rig.bus.nc.subscribe(inbox)
    full = ErrorInfo(
        code="too_many_tasks_wait", message="later", error_class=ErrorClass.RATE_LIMITED
    )
    async with rig.coordinator("one"):
        refused = accepted(
            pipeline="p",
            input={"amount": 1},
            labels={"team": "a"},
            reply_to=inbox,
            rejected=full,
        )
        await rig.bus.publish(subjects.log(0, refused.kind), encoded(refused))
        answer = json.loads((await told.next_msg(timeout=BOUND_S)).data)
        assert answer["error"]["code"] == "too_many_tasks_wait", answer
        headers = {"Hocket-Idempotency-Key": "order-17", "Hocket-Reply-To": inbox}
        await rig.bus.publish(OTHER, b'{"amount":2}', headers=headers)
        answer = json.loads((await told.next_msg(timeout=BOUND_S)).data)
    assert (answer["status"], answer["pipeline"]) == ("succeeded", "q")
    row = await rig.pool.fetchrow("SELECT pipeline, status, input, labels FROM hocket.run")
    assert (row["pipeline"], row["status"]) == ("q", "succeeded")
    assert json.loads(row["input"]) == {"amount": 2}
    assert row["labels"] is None
