"""A place for a query of Postgres stays taken until the server has ended the query's statement."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import repeat

import pytest
from sqlalchemy.exc import TimeoutError as PoolTimeout
from structlog.testing import capture_logs

from hocket.workers.sql.errors import SqlUnavailable
from hocket.workers.sql.places import (
    LOGGED_FROM_LOOK,
    MAX_PAUSE_S,
    UNSURE_S,
    Places,
    Reading,
    State,
    Statement,
)

STATEMENT = Statement(17, "1.5", "1.0")


class Server:
    """Tells about its statements what the test says, one state a look, once the test lets it."""

    def __init__(self, states: Iterable[State] = ()) -> None:
        self.states = iter(states)
        self.asked: list[list[int]] = []
        self.may_tell = asyncio.Event()

    async def look(self, statements: Sequence[Statement]) -> list[State]:
        self.asked.append([statement.pid for statement in statements])
        await self.may_tell.wait()
        return [next(self.states)] * len(statements)


class Clock:
    """A clock that only pauses move on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    async def pause(self, pause_s: float) -> None:
        self.now_s += pause_s
        await asyncio.sleep(0)


async def test_a_given_up_statement_keeps_its_place_until_the_server_has_ended_it() -> None:
    server = Server([State.WORKING, State.UNSURE, State.WORKING, State.ENDED])
    places = _places(server)
    first = asyncio.create_task(places.read(_stuck))
    await _turns()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):  # the caller goes on before the server has told
        await first
    second = asyncio.create_task(places.read(_answered))
    await _turns()
    assert not second.done()
    server.may_tell.set()
    assert await second == "rows"
    assert server.asked == [[17]] * 4


async def test_a_place_is_given_back_when_the_server_has_not_told_for_long() -> None:
    clock = Clock()

    def states() -> Iterable[State]:
        while clock.now_s < UNSURE_S / 2:
            yield State.UNSURE
        yield State.WORKING
        while True:
            yield State.UNSURE

    server = Server(states())
    server.may_tell.set()
    places = _places(server, clock=clock)
    with pytest.raises(OSError, match="cut"):
        await places.read(_cut)
    assert await places.read(_answered) == "rows"
    assert 0 <= clock.now_s - 1.5 * UNSURE_S <= 2 * MAX_PAUSE_S


async def test_a_place_is_given_back_at_once_where_the_login_may_not_look() -> None:
    server = Server(repeat(State.HIDDEN))
    server.may_tell.set()
    places = _places(server)
    with capture_logs() as logs:
        for _ in range(3):
            with pytest.raises(OSError, match="cut"):
                await places.read(_cut)
        assert await places.read(_answered) == "rows"
    assert server.asked == [[17]] * 3
    assert [line["event"] for line in logs] == ["sql_statements_not_visible"]


@pytest.mark.parametrize(
    ("states", "events"),
    [
        ([State.WORKING] * (LOGGED_FROM_LOOK - 1) + [State.ENDED], []),
        ([State.UNSURE] * LOGGED_FROM_LOOK + [State.ENDED], []),
        (
            [State.UNSURE] * LOGGED_FROM_LOOK + [State.WORKING] * 3 + [State.ENDED],
            ["sql_statement_goes_on", "sql_statement_ended"],
        ),
    ],
    ids=["it ends soon", "nothing is told", "it works on"],
)
async def test_what_is_known_to_work_on_is_logged_once(
    states: list[State], events: list[str]
) -> None:
    server = Server(states)
    server.may_tell.set()
    places = _places(server)
    with capture_logs() as logs:
        with pytest.raises(OSError, match="cut"):
            await places.read(_cut)
        assert await places.read(_answered) == "rows"
    assert [line["event"] for line in logs] == events


async def test_statements_that_wait_for_a_look_share_the_next_one() -> None:
    server = Server([State.ENDED, State.ENDED])
    places = _places(server, size=4)
    for pid in range(1, 5):
        with pytest.raises(OSError, match="cut"):
            await places.read(_cut_of(pid))
    await _turns()
    server.may_tell.set()
    await asyncio.gather(*(places.read(_answered) for _ in range(5)))
    assert server.asked == [[1], [2, 3, 4]]


async def test_a_statement_that_the_server_has_answered_is_not_looked_for() -> None:
    server = Server()
    places = _places(server)
    with pytest.raises(ValueError, match="no such table"):
        await places.read(_refused)
    assert await places.read(_answered) == "rows"
    assert await places.read(_answered) == "rows"
    assert server.asked == []


async def test_a_caller_that_is_cancelled_while_it_waits_takes_no_place() -> None:
    places = _places(Server())
    may_end = asyncio.Event()

    async def held(_reading: Reading) -> str:
        await may_end.wait()
        return "held"

    first = asyncio.create_task(places.read(held))
    second = asyncio.create_task(places.read(_answered))
    await _turns()
    second.cancel()
    may_end.set()
    assert await first == "held"
    assert await places.read(_answered) == "rows"
    assert second.cancelled()


async def test_a_caller_that_is_cancelled_as_its_error_arrives_frees_no_place() -> None:
    places = _places(Server(), timeout_s=0.0)
    answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def failing(reading: Reading) -> str:
        reading.left = STATEMENT
        return await answered

    first = asyncio.create_task(places.read(failing))
    await _turns()
    answered.set_exception(OSError("cut"))  # it wakes the task first, and that its caller
    asyncio.get_running_loop().call_soon(first.cancel)
    await asyncio.wait({first})
    assert first.cancelled()
    with pytest.raises(PoolTimeout, match="1 are kept"):
        await places.read(_answered)
    await places.close()


async def test_who_gets_no_place_is_told_how_many_are_kept() -> None:
    places = _places(Server(), timeout_s=0.0)
    first = asyncio.create_task(places.read(_stuck))
    await _turns()
    first.cancel()
    await _turns()
    with pytest.raises(PoolTimeout, match="1 are kept"):
        await places.read(_answered)
    await places.close()


async def test_closing_gives_up_what_runs_and_what_is_kept() -> None:
    places = _places(Server(), size=2)
    kept, running, waiting = (asyncio.create_task(places.read(_stuck)) for _ in range(3))
    await _turns()
    kept.cancel()
    await _turns()
    await places.close()
    await asyncio.wait({kept, running, waiting})
    assert kept.cancelled()
    for task in (running, waiting):  # nobody cancelled these
        with pytest.raises(SqlUnavailable, match="the worker closes"):
            await task


async def test_closing_does_not_break_off_what_is_being_stopped() -> None:
    places = _places(Server())
    may_stop, stopped = asyncio.Event(), asyncio.Event()

    async def stopping(reading: Reading) -> str:
        reading.left = STATEMENT
        try:
            await asyncio.Event().wait()
        finally:
            await may_stop.wait()
            stopped.set()
        return ""

    reader = asyncio.create_task(places.read(stopping))
    await _turns()
    reader.cancel()
    await asyncio.wait({reader})
    closing = asyncio.create_task(places.close())
    await _turns()
    may_stop.set()
    await closing
    assert stopped.is_set()


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 10])
@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_an_event_loop_that_ends_does_not_wait_for_the_server(
    *, is_cancelled: bool, turns: int
) -> None:
    server = Server()
    places = _places(server, size=2)
    may_stop, stopped = asyncio.Event(), asyncio.Event()

    async def slowly_stopped(reading: Reading) -> str:
        try:
            return await _stuck(reading)
        finally:
            await may_stop.wait()
            stopped.set()

    before = asyncio.all_tasks()
    readers = [asyncio.create_task(places.read(work)) for work in (_stuck, slowly_stopped)]
    await _turns()
    for reader in readers:
        if is_cancelled:
            reader.cancel()
    await _turns(turns)
    begun, looks = asyncio.all_tasks() - before, len(server.asked)
    # Each once, as `asyncio.run` does at its end; the callers last, so that they notice it last.
    for task in sorted(begun, key=readers.__contains__):
        task.cancel()
    await _turns()
    may_stop.set()
    await _turns()
    assert [task for task in begun if not task.done()] == []
    assert len(server.asked) == looks
    assert is_cancelled or stopped.is_set()


async def _stuck(reading: Reading) -> str:
    reading.left = STATEMENT
    await asyncio.Event().wait()
    return ""


async def _cut(reading: Reading) -> str:
    return await _cut_of(STATEMENT.pid)(reading)


def _cut_of(pid: int) -> Callable[[Reading], Awaitable[str]]:
    async def cut(reading: Reading) -> str:
        reading.left = Statement(pid, "1.5", "1.0")
        raise OSError("the connection was cut")

    return cut


async def _refused(_reading: Reading) -> str:
    raise ValueError("no such table")


async def _answered(_reading: Reading) -> str:
    return "rows"


async def _turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _places(
    server: Server, *, size: int = 1, timeout_s: float = 60.0, clock: Clock | None = None
) -> Places:
    clock = clock or Clock()
    return Places(
        "shop", server.look, size=size, timeout_s=timeout_s, pause=clock.pause, clock=clock
    )
