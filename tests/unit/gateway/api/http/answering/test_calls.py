"""Calls over a real HTTP door: whole, as streams, stopped by a caller who goes away."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry

from hocket.gateway.api.http.answering import calls, replies
from hocket.gateway.backends.large_work import beside
from hocket.gateway.backends.openai_http import OpenAIBackend
from hocket.gateway.backends.protocol import Chunk, Chunks
from hocket.gateway.backends.reply_room import ROOM
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.protocols.json_size import LARGE_BYTES
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.process import clock
from hocket.schemas.messages import CallReply, CallRequest, Completion
from hocket.schemas.structs.usage import RecordedUsage
from support.gateway.door_rig import MODELS, Endless, asks, running
from support.gateway.routing_rig import BOUND_S, Rig, breaks, hangs, request, says

CHAT = "/v1/chat/completions"


async def test_a_call_is_answered_whole_and_booked() -> None:
    rig = Rig(MODELS, a=says("tidal"))
    async with running(rig) as door, aiohttp.ClientSession(door.url) as client:
        answer = await client.post(CHAT, json=asks())
        body = await answer.json()
    assert body["choices"][0]["message"]["content"] == "tidal"
    (record,) = rig.records
    assert answer.headers["X-Hocket-Call-Id"] == record.call_id
    assert (answer.headers["X-Hocket-Backend"], record.status) == ("a", "ok")


async def test_a_stream_ends_with_done_when_its_call_is_booked() -> None:
    rig = Rig(MODELS, a=says("tidal"))
    async with running(rig) as door, aiohttp.ClientSession(door.url) as client:
        answer = await client.post(CHAT, json=asks(stream=True))
        events = (await answer.text()).strip().split("\n\n")
        assert len(rig.records) == 1
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert events[-1] == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    said = [one["choices"][0]["delta"].get("content", "") for one in chunks if one["choices"]]
    assert "".join(said) == "tidal"


async def test_what_fails_before_the_first_chunk_of_a_stream_is_a_plain_error() -> None:
    async with (
        running(Rig(MODELS, a=breaks())) as door,
        aiohttp.ClientSession(door.url) as client,
    ):
        for stream in (False, True):
            answer = await client.post(CHAT, json=asks(stream=stream))
            assert answer.status >= 500
            assert answer.headers["Content-Type"].startswith("application/json")
            assert (await answer.json())["error"]["code"] == "backend_broken"
            assert answer.headers["x-request-id"] == answer.headers["X-Hocket-Call-Id"]
            assert (answer.headers["X-Hocket-Backend"], "X-Hocket-Cost-Usd" in answer.headers) == (
                "a",
                True,
            )


@pytest.mark.parametrize("begins", [True, False])
async def test_a_call_that_cannot_be_booked_in_time_ends_its_stream_with_an_error(
    monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    monkeypatch.setattr(calls, "BOOKING_GRACE_MS", 0.0)
    answering, release = says("tidal"), asyncio.Event()

    async def late(_: CallRequest, chunks: Chunks | None) -> Completion:
        assert chunks is not None
        if begins:
            await chunks(Chunk("tid", output_tokens=1))
        with suppress(asyncio.CancelledError):  # the time is up; it goes on as if it were booked
            await release.wait()
        await release.wait()
        await chunks(Chunk("al", output_tokens=2))
        return Completion(text="tidal")

    answering.behaviour = late
    async with running(Rig(MODELS, a=answering)) as door:
        reader, writer = await door.connect()
        head, _, content = door.request(asks(stream=True)).partition(b"\r\n\r\n")
        writer.write(head + b"\r\nX-Hocket-Timeout-Ms: 300\r\n\r\n" + content)
        held = door.door._requests._calls._bodies
        answer = await asyncio.wait_for(reader.readuntil(b'"details":{}}}}'), BOUND_S)
        assert held.held_bytes > 0  # of the call, which goes on
        release.set()
        async with asyncio.timeout(BOUND_S):
            while held.held_bytes:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        writer.write(b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        rest = await asyncio.wait_for(reader.read(), BOUND_S)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200 OK" if begins else b"HTTP/1.1 503 ")
    assert (answer.count(b"HTTP/1.1"), b'"code":"gateway_stalled"' in answer) == (1, True)
    assert rest.startswith(b"\n\n\r\n0\r\n\r\nHTTP/1.1 " if begins else b"HTTP/1.1 ")
    assert b"al" not in rest.partition(b"HTTP/1.1")[0]


async def test_a_repeated_id_joins_a_call_that_goes_on_without_its_first_caller() -> None:
    hanging, release = hangs(), asyncio.Event()

    async def until_released(call: CallRequest, chunks: Chunks | None) -> Completion:
        await release.wait()
        return await says("tidal").behaviour(call, chunks)

    hanging.behaviour = until_released
    rig = Rig(MODELS, a=hanging)
    headers = {"X-Hocket-Call-Id": "c-1"}
    async with running(rig) as door, aiohttp.ClientSession(door.url) as client:
        first = asyncio.create_task(client.post(CHAT, json=asks(), headers=headers))
        await asyncio.wait_for(hanging.called.wait(), BOUND_S)
        second = asyncio.create_task(client.post(CHAT, json=asks(), headers=headers))
        registry = door.door._requests._calls._registry
        async with asyncio.timeout(BOUND_S):
            while not registry._metrics.repeated._value.get():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
            first.cancel()
            while door.door._requests._requests > 1:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        release.set()
        assert (await asyncio.wait_for(second, BOUND_S)).status == 200
    assert (len(hanging.requests), hanging.stopped) == (1, 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_caller_who_joined_a_call_leaves_it_when_its_own_time_is_up(stream: bool) -> None:
    hanging, release = hangs(), asyncio.Event()

    async def until_released(call: CallRequest, chunks: Chunks | None) -> Completion:
        await release.wait()
        return await says("tidal").behaviour(call, chunks)

    hanging.behaviour = until_released
    rig = Rig(MODELS, a=hanging)
    named = {"X-Hocket-Call-Id": "c-1"}
    hasty = {**named, "X-Hocket-Timeout-Ms": "1"}
    async with running(rig) as door, aiohttp.ClientSession(door.url) as client:
        first = asyncio.create_task(client.post(CHAT, json=asks(), headers=named))
        await asyncio.wait_for(hanging.called.wait(), BOUND_S)
        joining = client.post(CHAT, json=asks(stream=stream), headers=hasty)
        joined = await asyncio.wait_for(joining, BOUND_S)
        told = (await joined.json())["error"]
        release.set()
        assert (await asyncio.wait_for(first, BOUND_S)).status == 200
    assert (joined.status, told["code"]) == (504, "join_timed_out")
    assert "which goes on" in told["message"]
    assert joined.headers["x-should-retry"] == "true"
    assert (len(hanging.requests), hanging.stopped) == (1, 0)


@pytest.mark.parametrize(
    "outlasts", [False, True], ids=["a call that ends soon", "one that is left"]
)
async def test_the_last_caller_of_a_call_waits_for_it_to_be_booked(outlasts: bool) -> None:
    """An answer that was made in time would be lost otherwise, and paid for again."""
    making: asyncio.Future[CallReply] = asyncio.get_running_loop().create_future()
    reply = CallReply(call_id="c-1", model="m", text="tidal")

    def leave(*_: Any) -> bool:
        asyncio.get_running_loop().call_soon(making.set_result, reply)
        return False  # nobody else waits

    registry = SimpleNamespace(
        begin=lambda *_, **__: making, outlasts=lambda _: outlasts, leave=leave
    )
    if not outlasts:
        leave()
    call = request("c-1").model_copy(update={"deadline_at_ms": clock.now_ms()})
    handling = calls.HttpCalls(cast(Any, registry), cast(Any, None))
    made = handling._made(cast(Any, SimpleNamespace(headers={})), call, None, lambda: None)
    assert await made == reply


@pytest.mark.parametrize("answered", [False, True], ids=["at its backend", "being booked"])
async def test_a_call_whose_last_caller_is_out_of_time_is_stopped_unless_it_has_an_answer(
    answered: bool,
) -> None:
    asked = says("tidal") if answered else hangs()
    rig, booking, release = Rig(MODELS, a=asked), asyncio.Event(), asyncio.Event()
    rig.now_ms = clock.now_ms()
    book = rig.book

    async def once_released(record: RecordedUsage) -> None:
        booking.set()
        await release.wait()
        await book(record)

    setattr(rig, "book", once_released)  # noqa: B010 - no method may be assigned
    registry = CallRegistry(rig.calls, GatewayMetrics(CollectorRegistry()))
    first = request("c-1").model_copy(update={"deadline_at_ms": rig.now_ms + 60_000})
    last = first.model_copy(update={"deadline_at_ms": rig.now_ms})
    handling = calls.HttpCalls(registry, cast(Any, None))
    async with asyncio.timeout(BOUND_S):
        registry.begin(first)
        await (booking if answered else asked.called).wait()
        joining = asyncio.create_task(
            handling._made(cast(Any, SimpleNamespace(headers={})), last, None, lambda: None)
        )
        await asyncio.sleep(0)
        registry.leave(first, "its caller disconnected")
        while registry.outlasts(last):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        release.set()
        reply = await joining
        await registry.drain(drain_ms=0, flush_ms=5_000)
    assert (reply.text, asked.stopped) == (("tidal", 0) if answered else ("", 1))
    assert (reply.error and reply.error.code) == (None if answered else "call_cancelled")
    assert [record.call_id for record in rig.records] == ["c-1"]


async def test_another_question_under_the_id_of_a_call_in_progress_is_refused() -> None:
    hanging = hangs()
    headers = {"X-Hocket-Call-Id": "c-1"}
    async with (
        running(Rig(MODELS, a=hanging)) as door,
        aiohttp.ClientSession(door.url) as client,
    ):
        first = asyncio.create_task(client.post(CHAT, json=asks(), headers=headers))
        await asyncio.wait_for(hanging.called.wait(), BOUND_S)
        other = asks(messages=[{"role": "user", "content": "For an adult?"}])
        held = door.door._requests._calls._bodies
        held_bytes = held.held_bytes
        answer = await asyncio.wait_for(client.post(CHAT, json=other, headers=headers), BOUND_S)
        told = (await answer.json())["error"]
        assert held.held_bytes == held_bytes
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
    assert (answer.status, told["code"]) == (409, "call_id_reused")
    assert "X-Hocket-Call-Id" in told["message"]
    assert answer.headers["X-Hocket-Call-Id"].endswith("c-1")
    assert len(hanging.requests) == 1


async def test_a_call_that_failed_is_made_again_under_its_id() -> None:
    flaky = breaks()
    rig = Rig(MODELS, a=flaky)
    headers = {"X-Hocket-Call-Id": "c-1"}
    async with running(rig) as door, aiohttp.ClientSession(door.url) as client:
        assert (await client.post(CHAT, json=asks(), headers=headers)).status == 502
        flaky.behaviour = says("tidal").behaviour
        assert (await client.post(CHAT, json=asks(), headers=headers)).status == 200


def piece(**choice: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, **choice}]}


TEXT = piece(delta={"role": "assistant", "content": "A", "reasoning_content": None}, logprobs=None)
PORT = {"index": 0, "id": "t", "function": {"name": "tide", "arguments": "{}"}, "extra_content": {}}
PLAIN = [TEXT, piece(delta={"tool_calls": [PORT]}), piece(finish_reason="stop")]
SAYS_MORE = {
    "reasoning": piece(delta={"reasoning_content": "Hm."}),
    "a refusal": piece(delta={"refusal": "No."}),
    "thinking in parts": piece(delta={"content": [{"type": "thinking", "thinking": []}]}),
    "a legacy call": piece(delta={"function_call": {"name": "tide"}}),
    "probabilities": piece(delta={"content": "B"}, logprobs={"content": []}),
    "another choice": piece(index=1, delta={"content": "B"}),
    "another completion": piece(index=1, text="B"),
}
MORE = list(SAYS_MORE.values())
IDS = ["text and a call", *SAYS_MORE]


async def has_joined(door: Any) -> None:
    """Wait until a request has joined a call."""
    repeated = door.door._requests._calls._registry._metrics.repeated
    async with asyncio.timeout(BOUND_S):
        while not repeated._value.get():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


class Streams:
    """A backend that streams events of OpenAI's API, the first at once, the others once released."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.told, self.release = asyncio.Event(), asyncio.Event()
        self.scripted = says("A")
        self.scripted.behaviour = self._behave
        self._events = events

    async def _behave(self, _: CallRequest, chunks: Chunks | None) -> Completion:
        first, *others = self._events
        for event in (first, *others):
            if chunks is not None:
                await chunks(Chunk("A" if event is TEXT else "", openai=deepcopy(event)))
            self.told.set()
            await self.release.wait()
        return Completion(text="A", finish_reason="stop", output_tokens=1)


@pytest.mark.parametrize(
    ("events", "asked"), [(PLAIN, 1), *(([TEXT, more], 2) for more in MORE)], ids=IDS
)
async def test_a_repeat_of_a_stream_is_answered_from_its_reply_if_that_says_as_much(
    events: list[dict[str, Any]], asked: int
) -> None:
    backend = Streams(*events)
    backend.release.set()
    headers = {"X-Hocket-Call-Id": "c-1"}
    async with (
        running(Rig(MODELS, a=backend.scripted)) as door,
        aiohttp.ClientSession(door.url) as client,
    ):
        for stream in (True, False):
            answer = await client.post(CHAT, json=asks(stream=stream), headers=headers)
            await answer.read()
            assert answer.status == 200
    assert len(backend.scripted.requests) == asked


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("events", "status"), [(PLAIN, 200), *(([TEXT, more], 409) for more in MORE)], ids=IDS
)
async def test_who_joins_a_stream_that_says_more_than_its_reply_is_told_so(
    events: list[dict[str, Any]], status: int, stream: bool
) -> None:
    backend = Streams(*events)
    headers = {"X-Hocket-Call-Id": "c-1"}
    async with (
        running(Rig(MODELS, a=backend.scripted)) as door,
        aiohttp.ClientSession(door.url) as client,
    ):
        first = await client.post(CHAT, json=asks(stream=True), headers=headers)
        joining = client.post(CHAT, json=asks(stream=stream), headers=headers)
        joined = asyncio.create_task(joining)
        await has_joined(door)
        backend.release.set()
        answer = await asyncio.wait_for(joined, BOUND_S)
        told = await answer.text()
        assert (await first.text()).endswith("data: [DONE]\n\n"), "it goes on"
    assert (answer.status, len(backend.scripted.requests)) == (status, 1)
    assert ("call_id_reused" in told) is (status == 409)
    assert backend.scripted.stopped == 0


async def test_who_would_join_a_stream_that_has_said_more_is_told_so_at_once() -> None:
    backend = Streams(*MORE)
    headers = {"X-Hocket-Call-Id": "c-1"}
    async with (
        running(Rig(MODELS, a=backend.scripted)) as door,
        aiohttp.ClientSession(door.url) as client,
    ):
        first = await client.post(CHAT, json=asks(stream=True), headers=headers)
        answer = await asyncio.wait_for(client.post(CHAT, json=asks(), headers=headers), BOUND_S)
        told = (await answer.json())["error"]
        backend.release.set()
        assert (await first.text()).count("data: ") == len(MORE) + 1
    assert (answer.status, told["code"], told["param"]) == (409, "call_id_reused", "call_id")
    assert "goes to the stream that began it" in told["message"]
    assert (answer.headers["x-should-retry"], answer.headers["retry-after"]) == ("true", "1")
    assert (len(backend.scripted.requests), backend.scripted.stopped) == (1, 0)


@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("stream", [False, True])
async def test_who_joined_a_stream_is_told_as_soon_as_it_says_more(
    stream: bool, gone: bool
) -> None:
    """If the request that began it has gone, nobody waits for the rest, and the call is stopped."""
    backend, more = Streams(TEXT), asyncio.Event()

    async def behave(_: CallRequest, chunks: Chunks | None) -> Completion:
        assert chunks is not None
        await chunks(Chunk("A", openai=deepcopy(TEXT)))
        await more.wait()
        await chunks(Chunk("", openai=deepcopy(SAYS_MORE["reasoning"])))
        try:
            await backend.release.wait()
        except asyncio.CancelledError:
            backend.told.set()
            raise
        return Completion(text="A", finish_reason="stop", output_tokens=1)

    backend.scripted.behaviour = behave
    headers = {"X-Hocket-Call-Id": "c-1"}
    async with (
        running(Rig(MODELS, a=backend.scripted)) as door,
        aiohttp.ClientSession(door.url) as client,
    ):
        first = await client.post(CHAT, json=asks(stream=True), headers=headers)
        joining = client.post(CHAT, json=asks(stream=stream), headers=headers)
        joined = asyncio.create_task(joining)
        await has_joined(door)
        (making,) = door.door._requests._calls._registry._held
        if gone:
            first.close()
            async with asyncio.timeout(BOUND_S):
                while making.callers > 1:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.01)
        more.set()
        answer = await asyncio.wait_for(joined, BOUND_S)
        assert (answer.status, answer.headers["x-should-retry"]) == (409, "true")
        if gone:
            await asyncio.wait_for(backend.told.wait(), BOUND_S)
        else:
            backend.release.set()
            assert (await first.text()).endswith("data: [DONE]\n\n"), "it goes on"
    assert backend.told.is_set() is gone


async def test_a_stream_of_an_endpoint_that_streams_nothing_has_all_of_its_reply() -> None:
    call = {"id": "t", "type": "function", "function": {"name": "tide", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "refusal": "No.", "tool_calls": [call]},
        {"role": "assistant", "content": "Two.", "reasoning_content": "Hm."},
    ]
    reply = {
        "id": "c",
        "object": "chat.completion",
        "choices": [
            {"index": at, "message": message, "finish_reason": "stop"}
            for at, message in enumerate(messages)
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 5},
    }

    async def answers(_: web.Request) -> web.Response:
        return web.json_response(reply)

    upstream = web.Application()
    upstream.router.add_post("/chat/completions", answers)
    async with TestServer(upstream) as server:
        spec = BackendSpec("a", "openai", "m", base_url=str(server.make_url("/")).rstrip("/"))
        backend = OpenAIBackend(spec, clock.now_ms)
        rig = Rig(MODELS, a=cast(Any, backend))
        async with running(rig) as door, aiohttp.ClientSession(door.url) as client:
            body = asks(stream=True, n=2, stream_options={"include_usage": True})
            answer = await client.post(CHAT, json=body)
            events = (await answer.text()).strip().split("\n\n")
        await backend.close()
    assert events[-1] == "data: [DONE]"
    whole, usage = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    first, second = [choice["delta"] for choice in whole["choices"]]
    assert (whole["object"], whole["model"]) == ("chat.completion.chunk", "writer")
    assert first == {**messages[0], "tool_calls": [{"index": 0, **call}]}
    assert (second, [one["index"] for one in whole["choices"]]) == (messages[1], [0, 1])
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 5)


async def test_a_caller_who_waits_to_be_asked_for_the_body_is_asked() -> None:
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        reader, writer = await door.connect()
        head, _, content = door.request(asks()).partition(b"\r\n\r\n")
        writer.write(head + b"\r\nExpect: 100-continue\r\n\r\n")
        invited = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert invited == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(content)
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()


async def test_a_caller_who_goes_away_stops_the_call_and_leaves_no_body_behind() -> None:
    hanging, endless = hangs(), Endless()
    for scripted, stream in ((hanging, False), (endless.backend, True)):
        rig = Rig(MODELS, a=scripted)
        async with running(rig) as door:
            _, writer = await door.connect()
            writer.write(door.request(asks(stream=stream)))
            await asyncio.wait_for(scripted.called.wait(), BOUND_S)
            writer.transport.abort()
            async with asyncio.timeout(BOUND_S):
                while not rig.records:  # noqa: ASYNC110 - a list tells nobody
                    await asyncio.sleep(0.01)
        assert [record.status for record in rig.records] == ["cancelled"]
        assert scripted.stopped == 1
        assert door.door._requests._calls._bodies.held_bytes == 0


async def test_a_large_answer_is_written_in_a_thread_while_its_reply_keeps_its_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[int] = []
    speaking, text = says("tidal"), "x" * (LARGE_BYTES + 1)

    async def at_length(call: CallRequest, _: Chunks | None) -> Completion:
        with ROOM.reply() as reply:
            await reply.wait_for(LARGE_BYTES)
            assert call.openai is not None
            is_much = call.openai.body["messages"][0]["content"] == "much?"
            return Completion(text=text if is_much else "tidal")

    async def noted(write: Callable[[], bytes]) -> bytes:
        held.append(ROOM.held_bytes)
        return await beside(write)

    speaking.behaviour = at_length
    monkeypatch.setattr(replies, "beside", noted)
    async with running(Rig(MODELS, a=speaking)) as door, aiohttp.ClientSession(door.url) as client:
        said = []
        for asked in ("much?", "little?"):
            body = asks() | {"messages": [{"role": "user", "content": asked}]}
            answer = await client.post(CHAT, json=body)
            said.append((await answer.json())["choices"][0]["message"]["content"])
            assert answer.headers["X-Hocket-Backend"] == "a"
    assert said == [text, "tidal"]
    assert (held, ROOM.held_bytes) == ([LARGE_BYTES], 0)
