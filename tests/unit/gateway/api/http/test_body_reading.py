"""Large bodies are read beside the event loop, one at a time, and counted until nobody reads them."""

import asyncio
import json
import sys
import threading
from collections import Counter
from typing import Any

import pytest

from hocket.gateway.api.http import bodies, body_reading, body_types
from hocket.gateway.api.http.body_reading import MANY_VALUES, BodyReading
from hocket.gateway.api.http.intake import Bodies, Body
from hocket.gateway.core.protocols.json_size import LARGE_BYTES
from hocket.gateway.core.protocols.openai_api import CHAT
from hocket.gateway.core.protocols.responses.request import RESPONSES
from support.gateway.routing_rig import BOUND_S

LARGE = b"[" + b",".join([b"10000"] * (MANY_VALUES + 2_000)) + b"]"
SMALL = b"[1]"


def body_of(held: Bodies, content: bytes) -> Body:
    body = Body(held, "acme")
    body.take(len(content))
    body.content = content
    return body


async def test_a_large_body_or_one_of_many_values_is_read_in_a_thread_and_another_at_once() -> None:
    reading, held = BodyReading(), Bodies()
    own, prepared = threading.get_ident(), list[int]()

    def read(content: bytes) -> tuple[int, int]:
        return len(json.loads(content)), threading.get_ident()

    def prepare(_: object) -> None:
        prepared.append(threading.get_ident())

    long_text = b'"' + b"tide " * 100_000 + b'"'
    assert await reading.read(body_of(held, SMALL), read, prepare) == (1, own)
    assert await reading.read(body_of(held, long_text), read, prepare) == (500_000, own)
    assert prepared == []
    values, thread = await reading.read(body_of(held, LARGE), read, prepare)
    assert (values, thread != own) == (MANY_VALUES + 2_000, True)
    assert prepared == [thread]
    image = b'"' + b"A" * LARGE_BYTES + b'"'
    size, thread = await reading.read(body_of(held, image), read, prepare)
    assert (size, thread != own) == (LARGE_BYTES, True)
    assert prepared[1:] == [thread]


async def test_a_large_body_is_released_if_its_caller_goes_while_it_is_weighed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, held = BodyReading(), Bodies()
    weighing, may_end = threading.Event(), threading.Event()

    def weigh(_: bytes) -> int:
        weighing.set()
        may_end.wait(BOUND_S)
        return 1

    monkeypatch.setattr(body_reading, "parsed_bytes", weigh)
    body = body_of(held, b" " * (LARGE_BYTES + 1))
    asking = asyncio.create_task(reading.read(body, json.loads, lambda _: None))
    assert await asyncio.to_thread(weighing.wait, BOUND_S)
    asking.cancel()
    waiting = asyncio.create_task(
        reading.read(body_of(held, b" " * (LARGE_BYTES + 1)), json.loads, lambda _: None)
    )
    await asyncio.sleep(0)
    assert held.held_bytes == 2 * (LARGE_BYTES + 1)
    waiting.cancel()
    for gone in (asking, waiting):
        with pytest.raises(asyncio.CancelledError):
            await gone
    assert held.held_bytes == LARGE_BYTES + 1  # the second was never weighed; the first still is
    may_end.set()
    async with asyncio.timeout(BOUND_S):
        while held.held_bytes:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def test_large_bodies_are_read_one_at_a_time_and_released_if_nobody_waits_any_more() -> None:
    reading, held = BodyReading(), Bodies()
    begun, may_end = threading.Event(), threading.Event()
    read_now, most = list[int](), list[int]()

    def read(_: bytes) -> None:
        read_now.append(1)
        most.append(len(read_now))
        begun.set()
        may_end.wait(BOUND_S)
        read_now.pop()

    def wait(content: bytes) -> "asyncio.Task[None]":
        return asyncio.create_task(reading.read(body_of(held, content), read, lambda _: None))

    first = wait(LARGE)
    assert await asyncio.to_thread(begun.wait, BOUND_S)
    second, third = wait(LARGE), wait(LARGE)
    await asyncio.sleep(0)
    before = held.held_bytes
    first.cancel()
    second.cancel()
    for gone in (first, second):
        with pytest.raises(asyncio.CancelledError):
            await gone
    assert held.held_bytes == before * 2 / 3  # the second was never read; the first still is
    may_end.set()
    await asyncio.wait_for(third, BOUND_S)
    assert (held.held_bytes, most) == (before / 3, [1, 1])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "?"}] * 500}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "?"}] * 500}]}),
        (RESPONSES, {"input": [{"role": "user", "content": "?"}] * 500}),
        (
            RESPONSES,
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "?"}] * 500}]},
        ),
    ],
)
def test_other_threads_get_a_turn_at_each_item_while_a_long_list_is_validated(
    path: str, body: dict[str, Any]
) -> None:
    """Pydantic alone holds the interpreter for seconds, in whatever thread."""
    called: Counter[str] = Counter()

    def count(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename == body_types.__file__:
            called[frame.f_code.co_name] += 1

    sys.setprofile(count)
    try:
        bodies.checked(path, {"model": "writer", **body})
    finally:
        sys.setprofile(None)
    assert called.total() >= 500
