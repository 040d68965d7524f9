"""Room for blobs is given in turn, and what a step no longer waits for goes to those behind it."""

import asyncio
import hashlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.journal.journal import Journal
from hocket.workers.runtime.values.blob_room import BlobRoom
from hocket.workers.runtime.values.large_values import LargeValues
from hocket.workers.runtime.values.references import reference

BOUND_S = 10.0


async def waiting(room: BlobRoom, tenant: str, size_bytes: int) -> asyncio.Task[int]:
    task = asyncio.create_task(room.take(tenant, size_bytes))
    await asyncio.sleep(0)
    return task


async def test_a_step_that_waits_no_longer_lets_those_behind_it_go_on() -> None:
    room = BlobRoom(100)
    assert [await room.take("a", 50), await room.take("b", 30)] == [50, 30]
    large, small = await waiting(room, "c", 50), await waiting(room, "d", 10)
    assert not large.done()
    assert not small.done(), "it came later"
    large.cancel()
    assert await asyncio.wait_for(small, BOUND_S) == 10
    assert room.free_bytes == 10


async def test_a_step_that_is_cancelled_as_it_gets_its_room_gives_it_back() -> None:
    room = BlobRoom(100)
    held = await room.take("a", 50)
    late = await waiting(room, "a", 20)
    room.give_back("a", held)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    assert room.free_bytes == 100
    assert [await room.take("a", 50), await room.take("b", 50)] == [50, 50]


async def test_a_tenant_beyond_its_share_holds_up_no_other() -> None:
    room = BlobRoom(100)
    held = await room.take("a", 1_000)
    assert held == 50, "no more than its share"
    more = await waiting(room, "a", 1)
    assert await room.take("b", 50) == 50
    assert not more.done()
    room.give_back("a", held)
    assert await asyncio.wait_for(more, BOUND_S) == 1


async def test_a_step_that_holds_room_already_takes_more_beyond_the_limit() -> None:
    room = BlobRoom(100)
    await room.take("a", 50)
    assert await room.take("a", 30, waits=False) == 30
    assert room.free_bytes == 20
    room.give_back("a", 80)
    assert room.free_bytes == 100


async def test_a_task_that_outlives_its_attempt_keeps_no_room() -> None:
    data = b"x" * 1_000

    class Store:
        async def get(self, _tenant: str, _hash: str) -> bytes:
            await asyncio.sleep(0)
            return data

    values = LargeValues(cast(Any, Store()))
    attempt = SimpleNamespace(is_over=False, held_bytes=0)
    context = Context.__new__(Context)
    context._values, context._step = values, cast(Any, SimpleNamespace(tenant="a"))
    context._made = Journal.__new__(Journal)
    context._made._attempt, context._made.resolving = cast(Any, attempt), asyncio.Lock()
    loading = asyncio.create_task(
        context._resolved(reference(hashlib.sha256(data).hexdigest(), len(data), "text"))
    )
    free_bytes = values.room.free_bytes
    await asyncio.sleep(0)
    attempt.is_over = True
    await loading
    assert (values.room.free_bytes, attempt.held_bytes) == (free_bytes, 0)
