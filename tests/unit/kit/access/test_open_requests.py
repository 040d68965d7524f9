"""What is open with a key ends with it."""

import asyncio

import pytest

from hocket.kit.access.open_requests import OpenRequests
from hocket.kit.process import clock
from hocket.schemas.access.keys import KeyRefused, Principal

BOUND_S = 20.0


def bearer(key_id: str = "k1", **fields: object) -> Principal:
    return Principal(key_id, "n", "t", "viewer", frozenset(), **fields)  # type: ignore[arg-type]


async def follow(requests: OpenRequests, key: Principal, opened: asyncio.Event) -> None:
    with requests.open(key):
        opened.set()
        await asyncio.Event().wait()


async def following(requests: OpenRequests, key: Principal) -> asyncio.Task[None]:
    opened = asyncio.Event()
    task = asyncio.create_task(follow(requests, key, opened))
    await asyncio.wait_for(opened.wait(), BOUND_S)
    return task


async def test_all_that_is_open_with_a_key_ends_as_refused_and_nothing_else() -> None:
    requests = OpenRequests()
    first, second = [await following(requests, bearer()) for _ in range(2)]
    other = await following(requests, bearer("k2"))
    requests.end("k1")
    for task in (first, second):
        with pytest.raises(KeyRefused):
            await asyncio.wait_for(task, BOUND_S)
    assert not other.done()
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other
    requests.end("k2")  # nothing is open any more


async def test_a_request_that_was_ended_can_still_be_answered() -> None:
    requests = OpenRequests()
    opened = asyncio.Event()

    async def answered() -> int:
        with pytest.raises(KeyRefused):
            await follow(requests, bearer(), opened)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    task = asyncio.create_task(answered())
    await asyncio.wait_for(opened.wait(), BOUND_S)
    requests.end("k1")
    assert await asyncio.wait_for(task, BOUND_S) == 0, "nothing waits to cancel what it does next"


async def test_what_is_open_with_a_secret_that_still_counts_goes_on() -> None:
    requests = OpenRequests()
    old, new = [await following(requests, bearer(secret_sha256=one)) for one in (b"old", b"new")]
    requests.end("k1", kept=(b"new",))
    with pytest.raises(KeyRefused):
        await asyncio.wait_for(old, BOUND_S)
    assert not new.done()
    new.cancel()


async def test_who_goes_away_by_himself_is_cancelled_and_not_refused() -> None:
    requests = OpenRequests()
    task = await following(requests, bearer())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, BOUND_S)


async def test_a_session_ends_with_the_row_that_revokes_it() -> None:
    requests = OpenRequests()
    task = await following(requests, bearer("ada", row_id="s1"))
    requests.end("ada")
    assert not task.done()
    requests.end("s1")
    with pytest.raises(KeyRefused):
        await asyncio.wait_for(task, BOUND_S)


async def test_what_came_with_a_token_ends_when_the_token_does() -> None:
    requests = OpenRequests()
    until_s = clock.now_ms() / 1000 + 0.05
    kept = await following(requests, bearer("k1", expires_at_s=until_s))  # a key: its book tells
    task = await following(requests, bearer("k2", is_token=True, expires_at_s=until_s))
    with pytest.raises(KeyRefused):
        await asyncio.wait_for(task, BOUND_S)
    assert not kept.done()
    kept.cancel()


async def test_what_came_with_a_session_ends_when_the_session_does() -> None:
    requests = OpenRequests()
    until_s = clock.now_ms() / 1000 + 0.05
    task = await following(requests, bearer("k1", session_ends_at_s=until_s))
    with pytest.raises(KeyRefused):
        await asyncio.wait_for(task, BOUND_S)
