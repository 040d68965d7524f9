"""The room for large replies: who gets it, who waits, and that none is lost."""

import asyncio
import threading
import time
from contextlib import ExitStack

import pytest

from hocket.gateway.backends import reply_room
from hocket.gateway.backends.http_reply import ReplyBroken
from hocket.gateway.backends.reply_room import HeldReply, RepliesFull, ReplyRoom, kept_replies
from hocket.gateway.core.protocols.json_size import QUICK_BYTES
from hocket.kit.process import clock
from support.gateway.routing_rig import BOUND_S

UNIT = 2 * QUICK_BYTES
"""The bytes of a reply that is counted."""


def waiting(reply: HeldReply, units: int) -> "asyncio.Task[None]":
    return asyncio.create_task(reply.wait_for(units * UNIT))


async def steps() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_reply_without_room_waits_until_others_have_gone() -> None:
    room = ReplyRoom(4 * UNIT)
    with room.reply() as first, room.reply() as second, ExitStack() as later:
        await first.wait_for(3 * UNIT)
        third = later.enter_context(room.reply())
        await second.wait_for(UNIT)
        asked = waiting(third, 2)
        await steps()
        assert (asked.done(), third.lacked_room, room.held_bytes) == (False, True, 4 * UNIT)
        first.release()
        await asyncio.wait_for(asked, BOUND_S)
        assert (second.lacked_room, room.held_bytes) == (False, 3 * UNIT)
    assert room.held_bytes == 0


async def test_the_oldest_reply_always_has_room_so_that_all_come_to_their_end() -> None:
    room = ReplyRoom(4 * UNIT)
    replies = [room.reply() for _ in range(4)]
    for reply in replies:
        await reply.wait_for(UNIT)
    asked = [waiting(reply, 3) for reply in replies]
    for at, reply in enumerate(replies):
        await asyncio.wait_for(asked[at], BOUND_S)
        assert room.held_bytes <= 4 * UNIT + 2 * UNIT
        reply.release()
    assert room.held_bytes == 0


async def test_small_replies_are_not_counted_and_never_wait() -> None:
    room = ReplyRoom(UNIT)
    with room.reply() as large, room.reply() as small:
        await large.wait_for(UNIT)
        await small.wait_for(QUICK_BYTES)
        assert room.held_bytes == UNIT


async def test_a_reply_that_becomes_smaller_leaves_its_room_to_others() -> None:
    room = ReplyRoom(2 * UNIT)
    with room.reply() as first, room.reply() as second:
        await first.wait_for(2 * UNIT)
        asked = waiting(second, 1)
        await steps()
        await first.wait_for(UNIT)
        await asyncio.wait_for(asked, BOUND_S)
        assert room.held_bytes == 2 * UNIT


async def test_a_reply_that_waits_too_long_fails_with_gateway_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reply_room, "ROOM_S", 0.0)
    room = ReplyRoom(UNIT)
    with room.reply() as first, room.reply() as second:
        await first.wait_for(UNIT)
        with pytest.raises(RepliesFull) as caught:
            await second.wait_for(UNIT)
        assert (caught.value.code, caught.value.retryable) == ("gateway_full", True)
        assert str(UNIT) in str(caught.value)
    assert room.held_bytes == 0


async def test_a_reply_waits_no_longer_than_its_call_has_time() -> None:
    room = ReplyRoom(UNIT)
    with room.reply() as first, room.reply(timeout_ms=1.0) as second:
        await first.wait_for(UNIT)
        with pytest.raises(RepliesFull):
            await asyncio.wait_for(second.wait_for(UNIT), BOUND_S)
    assert room.held_bytes == 0


@pytest.mark.parametrize(("waited_ms", "lacked_room"), [(400.0, False), (600.0, True)])
async def test_a_reply_lacked_room_if_it_waits_or_did_for_most_of_its_time(
    waited_ms: float, lacked_room: bool
) -> None:
    room, now_ms = ReplyRoom(UNIT), [0.0]
    with clock.source(time.time, lambda: now_ms[0] / 1000), room.reply() as first:
        await first.wait_for(UNIT)
        with room.reply(timeout_ms=1_000_000.0) as second:
            asked = waiting(second, 1)
            await steps()
            assert second.lacked_room
            now_ms[0] += waited_ms * 1000
            first.release()
            await asyncio.wait_for(asked, BOUND_S)
            now_ms[0] = 1_000_000.0
            assert second.lacked_room is lacked_room


async def test_the_room_of_a_reply_is_kept_while_a_thread_reads_it() -> None:
    room, begun, may_end = ReplyRoom(4 * UNIT), threading.Event(), threading.Event()

    def read() -> None:
        begun.set()
        may_end.wait(BOUND_S)

    async def call() -> None:
        with room.reply() as reply:
            await reply.wait_for(UNIT)
            await reply.read_beside(read)

    first = asyncio.create_task(call())
    assert await asyncio.to_thread(begun.wait, BOUND_S)
    second = asyncio.create_task(call())
    await steps()
    assert room.held_bytes == 2 * UNIT
    for gone in (first, second):
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
    assert room.held_bytes == UNIT  # the second was never read
    may_end.set()
    async with asyncio.timeout(BOUND_S):
        while room.held_bytes:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def test_a_reply_that_is_given_up_while_it_waits_takes_nothing() -> None:
    room = ReplyRoom(UNIT)
    with room.reply() as first:
        await first.wait_for(UNIT)
        second = room.reply()
        asked = waiting(second, 1)
        await steps()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        second.release()
    assert room.held_bytes == 0
    second.release()
    assert room.held_bytes == 0


async def test_the_room_of_a_reply_that_was_read_is_kept_until_the_answer_is_written() -> None:
    room = ReplyRoom(4 * UNIT)

    async def read(*, fails: bool) -> None:
        with room.reply() as reply:
            await reply.wait_for(UNIT)
            reply.is_long = True
            if fails:
                raise ReplyBroken("it is not whole")

    await read(fails=False)
    assert room.held_bytes == 0  # nobody keeps it
    with kept_replies() as kept:
        with pytest.raises(ReplyBroken):
            await read(fails=True)
        assert (room.held_bytes, kept.are_long) == (0, False)
        await asyncio.create_task(read(fails=False))  # as calls are made: in tasks of their own
        assert (room.held_bytes, kept.are_long) == (UNIT, True)
        await read(fails=False)  # a call that asks again, as in a cascade
        assert (room.held_bytes, kept.are_long) == (UNIT, True)
        goes_on = asyncio.create_task(read(fails=False))
    assert room.held_bytes == 0
    await goes_on  # its caller has gone
    assert room.held_bytes == 0


async def test_calls_that_ask_again_do_not_wait_for_what_they_got_before() -> None:
    room = ReplyRoom(2 * UNIT)
    begun = asyncio.Barrier(2)

    async def call() -> None:
        with kept_replies():
            with room.reply() as first:
                await first.wait_for(UNIT)
            await begun.wait()
            with room.reply() as second:
                await second.wait_for(2 * UNIT)

    await asyncio.wait_for(asyncio.gather(call(), call()), BOUND_S)
    assert room.held_bytes == 0
