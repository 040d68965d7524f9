"""Large replies are read beside the event loop, in their order, and counted until they are given up or
sent on."""

import asyncio
import json
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hocket.gateway.backends import http_endpoint, large_work
from hocket.gateway.backends.http_endpoint import MANY_VALUES, HttpEndpoint, Reply
from hocket.gateway.backends.large_work import beside
from hocket.gateway.backends.openai_http import OpenAIBackend
from hocket.gateway.backends.protocol import (
    BackendReplyTooLarge,
    BackendTimedOut,
    Chunk,
    LargeEvent,
)
from hocket.gateway.backends.reply_room import ROOM, HeldReply, RepliesFull, ReplyRoom
from hocket.gateway.core.config.table import BackendSpec
from hocket.kit.process import clock
from hocket.schemas.messages import CallRequest
from support.gateway.routing_rig import BOUND_S, request

PATIENCE_MS = 180_000.0
MANY = [[]] * (MANY_VALUES + 1)
Says = Callable[[asyncio.StreamWriter], Awaitable[None]]


def asked() -> CallRequest:
    body = {"messages": [{"role": "user", "content": "?"}]}
    return request(messages=(), openai={"path": "chat/completions", "body": body})


def whole(text: str = "tidal", **fields: Any) -> bytes:
    choice = {"message": {"content": text}, "finish_reason": "stop"} | fields
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 1}}).encode()


def event(text: str, reason: str | None = None, **fields: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": reason} | fields
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def reply(content: bytes, kind: str = "application/json") -> Says:
    async def says(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        await writer.drain()

    return says


async def steps() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def server(says: Says) -> AsyncIterator[str]:
    """The URL of a server that answers each request so."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
            await reader.readexactly(int(length))
            await says(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    listening.close()


@asynccontextmanager
async def saying(says: Says) -> AsyncIterator[OpenAIBackend]:
    async with server(says) as url:
        backend = OpenAIBackend(BackendSpec("it", "openai", "m", base_url=url), clock.now_ms)
        yield backend
        await backend.close()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each JSON object was read beside the event loop."""
    found: list[bool] = []
    own, object_of = threading.get_ident(), HttpEndpoint.object_of

    def noted(endpoint: HttpEndpoint, content: bytes) -> dict[str, Any]:
        found.append(threading.get_ident() != own)
        return object_of(endpoint, content)

    monkeypatch.setattr(HttpEndpoint, "object_of", noted)
    return found


@pytest.mark.parametrize(
    ("content", "is_apart"),
    [
        (whole(), False),
        (whole("tide " * 50_000), False),
        (whole("tide " * 300_000), True),
        (whole(logprobs=MANY), True),
        (whole("tide " * 50_000 + "\ud83d"), True),
        (whole("\ud83d"), False),
    ],
    ids=["small", "medium", "large", "many_values", "medium_and_cut", "small_and_cut"],
)
async def test_a_large_reply_is_read_in_a_thread_and_a_small_one_at_once(
    content: bytes, is_apart: bool, threads: list[bool]
) -> None:
    async with saying(reply(content)) as backend:
        made = await backend.call(asked(), timeout_ms=PATIENCE_MS)
    text = json.loads(content)["choices"][0]["message"]["content"]
    assert made.text == text.replace("\ud83d", "\ufffd")
    assert (threads, ROOM.held_bytes) == ([is_apart], 0)


async def test_the_events_of_a_stream_keep_their_order_if_one_of_them_is_read_in_a_thread(
    threads: list[bool],
) -> None:
    came: list[tuple[str, bool]] = []

    async def take(chunk: Chunk) -> None:
        came.append((chunk.text, isinstance(chunk.openai, LargeEvent)))

    events = (
        event("a"),
        event("b", logprobs=MANY),
        event("c"),
        event("d", "stop"),
        b"data: [DONE]\n\n",
    )
    async with saying(reply(b"".join(events), "text/event-stream")) as backend:
        made = await backend.call(asked(), timeout_ms=PATIENCE_MS, chunks=take)
    assert came == [("a", False), ("b", True), ("c", False), ("d", False)]
    assert (threads, made.text) == ([False, True, False, False], "abcd")
    assert ROOM.held_bytes == 0


async def test_a_large_event_of_a_stream_is_held_until_it_is_sent_on() -> None:
    may_end, held_bytes = asyncio.Event(), list[int]()
    large = list["weakref.ref[LargeEvent]"]()

    async def says(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        writer.write(event("a", logprobs=MANY))
        await writer.drain()
        await asyncio.wait_for(may_end.wait(), BOUND_S)
        writer.write(event("b", "stop") + b"data: [DONE]\n\n")

    async def take(chunk: Chunk) -> None:
        held_bytes.append(ROOM.held_bytes)
        if isinstance(chunk.openai, LargeEvent):
            large.append(weakref.ref(chunk.openai))

    async with saying(says) as backend:
        calling = asyncio.create_task(backend.call(asked(), timeout_ms=PATIENCE_MS, chunks=take))
        async with asyncio.timeout(BOUND_S):
            while not large or large[0]() is not None:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        assert (calling.done(), ROOM.held_bytes) == (False, 0)
        may_end.set()
        made = await asyncio.wait_for(calling, BOUND_S)
    assert (made.text, held_bytes[0] > 0, held_bytes[1:]) == ("ab", True, [0])


async def test_a_whole_reply_where_a_stream_was_asked_for_is_read_in_a_thread(
    threads: list[bool],
) -> None:
    came: list[Chunk] = []

    async def take(chunk: Chunk) -> None:
        came.append(chunk)

    async with saying(reply(whole(logprobs=MANY))) as backend:
        made = await backend.call(asked(), timeout_ms=PATIENCE_MS, chunks=take)
    assert [(one.text, type(one.openai)) for one in came] == [("tidal", LargeEvent)]
    assert (threads, made.text, ROOM.held_bytes) == ([True], "tidal", 0)


async def test_an_event_with_too_many_values_ends_its_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_endpoint, "MAX_EVENT_VALUES", MANY_VALUES)

    async def take(_: Chunk) -> None: ...

    events = event("a") + event("b", logprobs=MANY)
    async with saying(reply(events, "text/event-stream")) as backend:
        with pytest.raises(BackendReplyTooLarge, match=f"{MANY_VALUES} values") as caught:
            await backend.call(asked(), timeout_ms=PATIENCE_MS, chunks=take)
    assert (caught.value.spent.output_tokens, ROOM.held_bytes) == (1, 0)


async def test_a_reply_is_counted_until_nobody_reads_it_if_its_call_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, may_end = threading.Event(), threading.Event()

    def slow(_: HttpEndpoint, __: bytes) -> dict[str, Any]:
        reading.set()
        may_end.wait(BOUND_S)
        return {}

    monkeypatch.setattr(HttpEndpoint, "object_of", slow)
    async with saying(reply(whole("tide " * 300_000))) as backend:
        calling = asyncio.create_task(backend.call(asked(), timeout_ms=PATIENCE_MS))
        assert await asyncio.to_thread(reading.wait, BOUND_S)
        assert ROOM.held_bytes > 0
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert ROOM.held_bytes > 0
        may_end.set()
        async with asyncio.timeout(BOUND_S):
            while ROOM.held_bytes:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)


async def test_large_work_is_done_one_by_one_and_not_for_those_who_have_gone() -> None:
    begun, may_end = threading.Event(), threading.Event()
    now, most, done = list[str](), list[int](), list[str]()

    def work(name: str) -> str:
        now.append(name)
        most.append(len(now))
        begun.set()
        may_end.wait(BOUND_S)
        now.remove(name)
        done.append(name)
        return name

    first = asyncio.create_task(beside(lambda: work("first")))
    assert await asyncio.to_thread(begun.wait, BOUND_S)
    gone = asyncio.create_task(beside(lambda: work("gone")))
    last = asyncio.create_task(beside(lambda: work("last")))
    await steps()
    assert large_work._thread._work_queue.empty()  # where they could not be given up
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    may_end.set()
    assert await asyncio.wait_for(asyncio.gather(first, last), BOUND_S) == ["first", "last"]
    assert (done, most) == (["first", "last"], [1, 1])
    assert large_work._thread._max_workers == 1


async def test_large_work_that_has_begun_has_its_turn_until_it_ends_although_its_caller_has_gone() -> (
    None
):
    begun, may_end, done = threading.Event(), threading.Event(), list[str]()

    def fail() -> None:
        begun.set()
        may_end.wait(BOUND_S)
        done.append("first")
        raise ValueError("nobody hears it")

    gone = asyncio.create_task(beside(fail))
    assert await asyncio.to_thread(begun.wait, BOUND_S)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    last = asyncio.create_task(beside(lambda: done.append("last")))
    await steps()
    assert large_work._thread._work_queue.empty()
    may_end.set()
    await asyncio.wait_for(last, BOUND_S)
    assert done == ["first", "last"]


async def _begun(endpoint: HttpEndpoint, room: ReplyRoom, path: str) -> asyncio.Task[Reply]:
    """Begin a request, and return its task once its reply has a place in the room, beside another."""
    sending = asyncio.create_task(endpoint.send("POST", path, b"{}", timeout_ms=PATIENCE_MS))
    async with asyncio.timeout(BOUND_S):
        while len(room._replies) < 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    return sending


@pytest.mark.parametrize("path", ["x", "x y"], ids=["own_client", "aiohttp"])
async def test_a_reply_without_room_is_read_on_once_there_is_some(path: str) -> None:
    room, content = ReplyRoom(1_000_000), b"x" * 900_000
    async with server(reply(content)) as url:
        endpoint = HttpEndpoint("it", url, headers={}, limit=9, now_ms=clock.now_ms, room=room)
        with room.reply() as other:
            await other.wait_for(1_000_000)
            sending = await _begun(endpoint, room, path)
            assert (sending.done(), room.held_bytes) == (False, 1_000_000)
        got = await asyncio.wait_for(sending, BOUND_S)
        await endpoint.close()
    assert (got.content, room.held_bytes) == (content, 0)


@pytest.mark.parametrize("path", ["x", "x y"], ids=["own_client", "aiohttp"])
async def test_a_server_is_not_blamed_for_the_time_that_its_reply_waited_for_room(
    path: str,
) -> None:
    room = ReplyRoom(1_000_000)
    async with server(reply(b"x" * 900_000)) as url:
        endpoint = HttpEndpoint("it", url, headers={}, limit=9, now_ms=clock.now_ms, room=room)
        with room.reply() as other:
            await other.wait_for(1_000_000)
            sending = await _begun(endpoint, room, path)
            (waiting,) = [one for one in room._replies if one is not other]
            waiting._give_up()
            with pytest.raises(RepliesFull):
                await asyncio.wait_for(sending, BOUND_S)
        await endpoint.close()
    assert room.held_bytes == 0


async def test_a_reply_waits_for_the_room_of_its_values_only_while_its_call_has_time() -> None:
    content = json.dumps(MANY, separators=(",", ":")).encode()
    room, now_s = ReplyRoom(len(content) + 1_000_000), [0.0]

    async def says(writer: asyncio.StreamWriter) -> None:
        now_s[0] = PATIENCE_MS / 1000
        await reply(content)(writer)

    async with server(says) as url:
        endpoint = HttpEndpoint("it", url, headers={}, limit=9, now_ms=clock.now_ms, room=room)
        with clock.source(time.time, lambda: now_s[0]), room.reply() as other:
            await other.wait_for(1_000_000)
            asking = endpoint.ask("POST", "x", b"{}", timeout_ms=PATIENCE_MS, read=lambda _: None)
            with pytest.raises(RepliesFull):
                await asyncio.wait_for(asking, BOUND_S)
        await endpoint.close()
    assert room.held_bytes == 0


@pytest.mark.parametrize(
    ("lacked_room", "error"), [(False, BackendTimedOut), (True, RepliesFull)], ids=["no", "yes"]
)
async def test_a_server_is_not_blamed_for_a_reply_that_lacked_room(
    lacked_room: bool, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeldReply, "lacked_room", lacked_room)
    endpoint = HttpEndpoint("it", "http://x", headers={}, limit=9, now_ms=clock.now_ms)
    made = endpoint._unanswered(TimeoutError(), PATIENCE_MS, ROOM.reply())
    await endpoint.close()
    assert type(made) is error
