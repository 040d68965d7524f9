"""When a server is taken for silent."""

import asyncio
import time

from hocket.kit.nats.consumers.silence import STOOD_STILL_S, is_silent_before

SILENCE_S = 0.05
BOUND_S = 20.0


async def test_a_server_that_says_nothing_is_silent() -> None:
    loop = asyncio.get_running_loop()
    heard_s = loop.time()
    async with asyncio.timeout(BOUND_S):
        assert await is_silent_before(asyncio.Event(), SILENCE_S, lambda: loop.time() - heard_s)
    assert loop.time() - heard_s >= SILENCE_S


async def test_a_moment_too_short_to_wait_for_is_over() -> None:
    now_s = asyncio.get_running_loop().time()
    left_s = now_s * 1e-17
    assert now_s + left_s == now_s
    async with asyncio.timeout(BOUND_S):
        assert await is_silent_before(asyncio.Event(), left_s, lambda: 0.0)


async def test_one_that_was_heard_meanwhile_is_waited_for_from_then_on() -> None:
    event, looks = asyncio.Event(), 0

    def silent_s() -> float:
        nonlocal looks
        looks += 1
        if looks == 4:
            event.set()
        return 0.0

    async with asyncio.timeout(BOUND_S):
        assert not await is_silent_before(event, SILENCE_S, silent_s)
    assert looks == 4


async def test_a_process_that_stood_still_reads_first_what_came_meanwhile() -> None:
    event, heard = asyncio.Event(), False

    def silent_s() -> float:
        return 0.0 if heard else 2 * STOOD_STILL_S

    late = asyncio.create_task(is_silent_before(event, 2 * STOOD_STILL_S + SILENCE_S, silent_s))
    await asyncio.sleep(0)
    time.sleep(2 * STOOD_STILL_S)  # noqa: ASYNC251 (the whole process)
    for _ in range(3):  # the look that came late
        await asyncio.sleep(0)
    assert not late.done()
    heard = True
    event.set()
    assert not await late
