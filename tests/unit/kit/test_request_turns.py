"""Turns of requests: few places, quiet callers first, no place for those that wait or have gone."""

import asyncio

import pytest

from hocket.kit import request_turns
from hocket.kit.request_turns import Turn, Turns, give_way


async def _rounds(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _worker(turn: Turn, name: str, began: list[str], go_on: asyncio.Event) -> asyncio.Task[None]:
    async def work() -> None:
        try:
            await turn.take()
            began.append(name)
            await go_on.wait()
        finally:
            turn.give_back()

    return asyncio.create_task(work())


async def test_requests_that_never_wait_do_not_all_take_their_turn_in_one_round() -> None:
    turns, done = Turns(places=2), []

    async def request(number: int) -> None:
        turn = turns.turn(number, "here", "a")
        await turn.take()
        done.append(number)
        turn.give_back()

    tasks = [asyncio.create_task(request(number)) for number in range(10)]
    await asyncio.sleep(0)
    assert len(done) == 2
    await asyncio.gather(*tasks)
    assert done == list(range(10))


@pytest.mark.parametrize(
    ("busy", "quiet"),
    [
        (("c1", "here", "a"), ("c2", "here", "a")),
        (("c1", "here", "a"), ("c2", "there", "a")),
        (("c1", "here", "a"), ("c2", "here", "b")),
    ],
)
async def test_who_asked_for_less_comes_first(
    busy: tuple[str, str, str], quiet: tuple[str, str, str]
) -> None:
    turns, began, go_on = Turns(places=1), [], asyncio.Event()
    asked = [(turns.turn(*busy), f"busy {number}") for number in range(5)]
    tasks = [_worker(turn, name, began, go_on) for turn, name in asked]
    tasks.append(_worker(turns.turn(*quiet), "quiet", began, go_on))
    await _rounds()
    assert began == ["busy 0"]

    go_on.set()
    await asyncio.gather(*tasks)

    assert began[:2] == ["busy 0", "quiet"]
    assert began[2:] == ["busy 1", "busy 2", "busy 3", "busy 4"]


async def test_newcomers_do_not_keep_a_busy_one_waiting_for_ever() -> None:
    turns = Turns()
    for _ in range(10_000):
        last = turns.turn("c", "here", "a")
    later = turns.turn("new", "there", "b")
    assert last.due_s - later.due_s <= 3 * request_turns.MAX_DELAY_S


async def test_a_request_that_gives_way_lets_the_next_one_begin() -> None:
    turns, order = Turns(places=1), []
    answered = asyncio.Event()

    async def waits() -> None:
        turn = turns.turn("c1", "here", "a")
        await turn.take()
        give_way()
        await answered.wait()
        turn.give_back()
        order.append("waited")

    async def follows() -> None:
        turn = turns.turn("c2", "here", "a")
        await turn.take()
        order.append("followed")
        turn.give_back()
        answered.set()

    await asyncio.gather(waits(), follows())
    assert order == ["followed", "waited"]


async def test_a_place_that_is_held_for_long_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_turns, "HELD_S", 0.01)
    turns = Turns(places=1)
    together = asyncio.Barrier(3)

    async def request(number: int) -> None:
        turn = turns.turn(number, "here", "a")
        await turn.take()
        await together.wait()

    async with asyncio.timeout(10):
        await asyncio.gather(*(request(number) for number in range(3)))


async def test_who_goes_away_leaves_no_place_taken() -> None:
    turns, began, go_on = Turns(places=1), [], asyncio.Event()
    tasks = [_worker(turns.turn(n, "here", "a"), str(n), began, go_on) for n in range(3)]
    await _rounds()
    tasks[1].cancel()
    await _rounds()
    tasks[0].cancel()
    await _rounds(1)
    tasks[2].cancel()
    await asyncio.wait(tasks)

    last = _worker(turns.turn(9, "here", "a"), "last", began, go_on)
    go_on.set()
    async with asyncio.timeout(10):
        await last
    assert began[-1] == "last"
