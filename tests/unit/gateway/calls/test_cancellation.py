"""What a call waits for or works on is stopped by its cancellation, and by nothing else is it taken for
stopped."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.errors import CallStopped

Way = Callable[[Cancellation, Awaitable[int]], Awaitable[int]]
WAYS: list[Way] = [
    lambda cancellation, work: cancellation.run(work),
    lambda cancellation, work: cancellation.guard(asyncio.ensure_future(work)),
]


async def slow() -> int:
    await asyncio.sleep(60)
    return 1


async def begun(work: Awaitable[int]) -> "asyncio.Task[int]":
    """Return a task that has come to where it waits."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0.01)
    assert isinstance(task, asyncio.Task)
    return task


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_not_stopped_has_its_result(way: Way) -> None:
    async def quick() -> int:
        return 7

    assert await way(Cancellation(), quick()) == 7


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_stopped_says_why_and_its_task_goes_on(way: Way) -> None:
    cancellation = Cancellation()

    async def call() -> int:
        with pytest.raises(CallStopped, match="someone asked for it"):
            await way(cancellation, slow())
        await asyncio.sleep(0)  # a cancellation that is left over would end this
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    task = await begun(call())
    cancellation.cancel("someone asked for it")
    cancellation.cancel("and asked again")
    assert await task == 0


@pytest.mark.parametrize("way", WAYS)
async def test_who_is_cancelled_is_not_stopped(way: Way) -> None:
    task = await begun(way(Cancellation(), slow()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("way", WAYS)
async def test_who_is_cancelled_and_stopped_at_once_is_cancelled(way: Way) -> None:
    cancellation = Cancellation()
    task = await begun(way(cancellation, slow()))
    cancellation.cancel("someone asked for it")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("way", WAYS)
async def test_a_backend_that_gives_up_by_itself_stops_its_call(way: Way) -> None:
    async def gives_up() -> int:
        raise asyncio.CancelledError

    with pytest.raises(CallStopped, match="gave up"):
        await way(Cancellation(), gives_up())


async def test_work_that_ends_although_it_is_stopped_has_its_result() -> None:
    cancellation = Cancellation()

    async def stubborn() -> int:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return 3
        return 4

    async def call() -> tuple[int, int]:
        made = await cancellation.run(stubborn())
        task = asyncio.current_task()
        assert task is not None
        return made, task.cancelling()

    task = asyncio.create_task(call())
    await asyncio.sleep(0.01)
    cancellation.cancel("someone asked for it")
    assert await task == (3, 0)


async def test_a_time_limit_inside_the_work_is_the_works_own() -> None:
    async def limited() -> int:
        async with asyncio.timeout(0.01):
            return await slow()

    with pytest.raises(TimeoutError):
        await Cancellation().run(limited())
