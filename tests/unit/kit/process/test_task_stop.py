"""Stopping tasks ends, whatever the tasks do."""

import asyncio

import pytest

from hocket.kit.process import task_stop
from hocket.kit.process.task_stop import stop_tasks


async def waits_for_ever(refusals: int) -> None:
    """Take so many cancellations for nothing."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            refusals -= 1
            if refusals < 0:
                raise


async def started(refusals: int) -> asyncio.Task[None]:
    task = asyncio.create_task(waits_for_ever(refusals))
    await asyncio.sleep(0)
    return task


async def test_tasks_have_ended_when_they_are_stopped() -> None:
    tasks = [await started(0), await started(0)]
    assert await stop_tasks(tasks)
    assert all(task.cancelled() for task in tasks)
    assert await stop_tasks([])


async def test_a_task_that_takes_a_cancellation_for_nothing_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_stop, "CANCEL_AGAIN_S", 0.001)
    task = await started(2)
    assert await stop_tasks([task])
    assert task.cancelled()


async def test_a_task_that_never_ends_is_waited_for_within_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_stop, "CANCEL_AGAIN_S", 0.01)
    task = await started(1_000)
    assert not await stop_tasks([task], within_s=0.02)
    monkeypatch.setattr(task_stop, "CANCEL_AGAIN_S", 0.0)
    assert await stop_tasks([task])


async def test_what_a_stopped_task_raises_is_left_to_who_asks() -> None:
    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("at the end")

    task = asyncio.create_task(fails())
    await asyncio.sleep(0)
    assert await stop_tasks([task])
    with pytest.raises(ValueError, match="at the end"):
        task.result()
