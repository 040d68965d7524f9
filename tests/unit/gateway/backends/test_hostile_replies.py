"""Replies of a backend that means harm: each costs its call a typed error, and little memory.

Over TCP, from a server that says whatever bytes the test wants.
"""

import asyncio
import json
import resource
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from itertools import chain, repeat
from typing import Any

import pytest
from pydantic import SecretStr

from hocket.gateway.api.http.answering.replies import answered
from hocket.gateway.api.http.answers import ResponseOptions, whole
from hocket.gateway.backends import endpoint_errors, http_endpoint
from hocket.gateway.backends.openai_http import OpenAIBackend
from hocket.gateway.backends.protocol import BackendError, Chunk
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.protocols.event_lines import EventLines
from hocket.gateway.core.protocols.openai_api import Assembly
from hocket.kit.process import clock
from hocket.schemas.messages import CallReply, CallRequest, ChatMessage, Completion

SECRET = "sk-very-secret-0123456789"
BOUND_S = 200.0
PATIENCE_MS = 180_000.0
"""What ends each is a bound, not this: on a busy machine it takes long until it is reached."""
MAX_GROWTH_KB = 300 * 1024
Says = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def saying(says: Says, **fields: Any) -> AsyncIterator[OpenAIBackend]:
    """A backend whose server answers each request so."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            (length,) = [
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            ]
            await reader.readexactly(length)
            await says(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    spec = BackendSpec(
        "it",
        "openai",
        "m",
        base_url=f"http://127.0.0.1:{port}/v1",
        **{"api_key": SecretStr(SECRET), **fields},
    )
    backend = OpenAIBackend(spec, clock.now_ms)
    try:
        yield backend
    finally:
        await backend.close()
        server.close()


def reply(
    content: bytes, *headers: str, status: str = "200 OK", kind: str = "application/json"
) -> Says:
    async def says(writer: asyncio.StreamWriter) -> None:
        lines = [
            f"HTTP/1.1 {status}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(content)}",
            *headers,
        ]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
        await writer.drain()

    return says


def stream(*events: bytes, last: bytes = b"data: [DONE]\n\n") -> Says:
    return reply(
        b"".join([*(b"data: " + e + b"\n\n" for e in events), last]), kind="text/event-stream"
    )


def endless(head: str, piece: bytes) -> Says:
    async def says(writer: asyncio.StreamWriter) -> None:
        writer.write(head.encode())
        while not writer.is_closing():
            writer.write(piece)
            await writer.drain()

    return says


def bomb(kind: str = "application/json") -> Says:
    async def says(writer: asyncio.StreamWriter) -> None:
        await reply(_squeezed(), "Content-Encoding: gzip", kind=kind)(writer)

    return says


@cache
def _squeezed() -> bytes:
    """Return 200 MB of JSON as a small gzip, made without having them in memory."""
    packing = zlib.compressobj(1, wbits=GZIP)
    pieces = chain([b'{"a": "'], repeat(b"x" * 1_000_000, 200), [b'"}'])
    return b"".join([*map(packing.compress, pieces), packing.flush()])


def chat(usage: Any = None, **choice: Any) -> bytes:
    message = {"role": "assistant", "content": "tidal"}
    body = {"choices": [{"message": message, "finish_reason": "stop", **choice}]}
    return json.dumps(body | ({} if usage is None else {"usage": usage})).encode()


def delta(**fields: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": {}, **fields}]}).encode()


OK = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
SSE = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
GZIP = 31
"""The format, as zlib numbers it."""
USAGE = {"prompt_tokens": 1, "completion_tokens": 1}

WHOLE = {
    "huge": endless(OK + "\r\n", b"x" * 65_536),
    "huge in tiny chunks": endless(
        OK + "Transfer-Encoding: chunked\r\n\r\n", b"2\r\nxx\r\n" * 8_192
    ),
    "values": reply(b'{"a":[' + b"[]," * 2_500_000 + b"[]]}"),
    "deep": reply(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "headers": endless("HTTP/1.1 200 OK\r\n", b"X-A: " + b"a" * 8_000 + b"\r\n"),
    "one header": endless("HTTP/1.1 200 OK\r\nX-A: ", b"a" * 65_536),
    "gzip": bomb(),
    "redirect": reply(b"", "Location: file:///etc/passwd", status="302 Found"),
    "redirect home": reply(b"", "Location: http://169.254.169.254/", status="307 Temporary"),
    "not utf-8": reply(b'{"choices": [{"message": {"content": "\xff\xfe"}}]}'),
    "nan": reply(b'{"choices": [{"message": {"content": "a"}, "x": NaN}]}'),
    "negative usage": reply(chat({"prompt_tokens": -1, "completion_tokens": 1})),
    "usage beyond belief": reply(chat({"prompt_tokens": 1, "completion_tokens": 10**9})),
    "usage beyond integers": reply(chat({"prompt_tokens": 2**70})),
    "usage of 1e400": reply(b'{"usage": {"prompt_tokens": 1e400}}'),
    "usage of text": reply(chat({"prompt_tokens": "1"})),
    "usage as a list": reply(chat([1])),
    "finish reason": reply(chat(USAGE, finish_reason={"a": 1})),
    "choices": reply(b'{"choices": {"a": 1}}'),
    "content": reply(chat(USAGE, message={"content": {"a": 1}})),
    "tool calls": reply(chat(USAGE, message={"content": "", "tool_calls": 7})),
    "not http": reply(b"", status="abc"),
    "cut": reply(b"", "Content-Length: 5"),
}
STREAMS = {
    "no newline": endless(SSE + "\r\n", b"data: " + b"x" * 65_536),
    "no end": endless(SSE + "\r\n", b"data: " + delta(delta={"content": "a"}) + b"\n\n"),
    "comments": endless(SSE + "\r\n", b": keep alive\n\n" * 4_096),
    "gzip": bomb("text/event-stream"),
    "headers": endless("HTTP/1.1 200 OK\r\n", b"X-A: " + b"a" * 8_000 + b"\r\n"),
    "redirect": reply(b"", "Location: file:///etc/passwd", status="302 Found"),
    "finish reason": stream(delta(finish_reason={"a": 1})),
    "index": stream(delta(delta={"tool_calls": [{"index": "x"}]})),
    "index of 1e400": stream(b'{"choices":[{"delta":{"tool_calls":[{"index":1e400}]}}]}'),
    "arguments": stream(delta(delta={"tool_calls": [{"function": {"arguments": 7}}]})),
    "delta": stream(delta(delta=7)),
    "choices": stream(b'{"choices": "abc"}', b'{"choices": 7}'),
    "tools without end": stream(
        *(delta(delta={"tool_calls": [{"index": n}]}) for n in range(5_000))
    ),
    "usage": stream(b'{"choices": [], "usage": {"completion_tokens": -5}}'),
    "error": stream(json.dumps({"error": {"message": "x" * 1_000_000}}).encode()),
    "error of a list": stream(b'{"error": [1, 2]}'),
    "not json": stream(b"{"),
    "a list": stream(b"[]"),
    "nothing": stream(),
}


@pytest.fixture(autouse=True)
def replies_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too large is so sooner, for the tests to be quick."""
    monkeypatch.setattr(http_endpoint, "MAX_REPLY_BYTES", 8 * 1024 * 1024)


async def asked(backend: OpenAIBackend, *, streamed: bool = False, **fields: Any) -> Completion:
    request = CallRequest.model_validate(
        {
            "call_id": "c",
            "model": "writer",
            "messages": (ChatMessage(role="user", content="How often?"),),
            "deadline_at_ms": clock.now_ms() + 60_000,
            **fields,
        }
    )

    async def take(chunk: Chunk) -> None:
        json.dumps(chunk.openai)

    chunks = take if streamed else None
    return await backend.call(request, timeout_ms=PATIENCE_MS, chunks=chunks)


async def failure(says: Says, *, streamed: bool) -> BackendError:
    """Return the error that a reply costs its call, within a bound of memory."""
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with saying(says) as backend, asyncio.timeout(BOUND_S):
        with pytest.raises(BackendError) as failed:
            await asked(backend, streamed=streamed)
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    assert grown_kb < MAX_GROWTH_KB
    assert failed.value.code != "backend_timed_out"
    assert len(str(failed.value)) < 2_000
    assert min(failed.value.spent.input_tokens, failed.value.spent.output_tokens) >= 0
    return failed.value


@pytest.mark.parametrize("says", WHOLE.values(), ids=WHOLE.keys())
async def test_a_hostile_reply_is_a_typed_error(says: Says) -> None:
    await failure(says, streamed=False)


@pytest.mark.parametrize("says", STREAMS.values(), ids=STREAMS.keys())
async def test_a_hostile_stream_is_a_typed_error(says: Says) -> None:
    await failure(says, streamed=True)


def broken_off(head: bytes, body: bytes) -> Says:
    async def says(writer: asyncio.StreamWriter) -> None:
        writer.write(head + b"\r\nContent-Length: 5000\r\n\r\n" + body)
        await writer.drain()

    return says


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_that_breaks_off_is_booked_as_far_as_it_arrived(streamed: bool) -> None:
    begun = await failure(broken_off(b"HTTP/1.1 200 OK", b"x" * 400), streamed=streamed)
    assert begun.code == "backend_unreachable"
    assert (begun.read_bytes, begun.spent.estimated) == (400, True)
    failed = await failure(broken_off(b"HTTP/1.1 500 No", b"x" * 400), streamed=streamed)
    assert (failed.spent.output_tokens, failed.spent.estimated) == (0, False)


def too_many_values(after: bytes) -> Says:
    return reply(b'{"choices":[' + b"[]," * 2_500_000 + b"[]]" + after)


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_that_is_too_large_to_read_is_booked_with_the_usage_at_its_end(
    streamed: bool,
) -> None:
    end = b',"usage":{"prompt_tokens":9,"completion_tokens":70},"system_fingerprint":"f"}'
    metered = await failure(too_many_values(end), streamed=streamed)
    assert (metered.spent.input_tokens, metered.spent.output_tokens) == (9, 70)
    assert not metered.spent.estimated
    assert (metered.code, metered.retryable) == ("backend_reply_too_large", False)
    for other in (
        b"}",
        b',"usage":{"prompt_tokens":-9}}',
        b',"a":[{"usage":{"prompt_tokens":9}}]}',
    ):
        told = await failure(too_many_values(other), streamed=streamed)
        assert (told.code, told.spent) == (metered.code, Completion(estimated=True))
        assert told.read_bytes is not None


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_beyond_the_limit_is_not_asked_for_again(streamed: bool) -> None:
    kind = "text/event-stream" if streamed else "application/json"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n"
    failed = await failure(endless(head, b"data: " + b"x" * 65_536), streamed=streamed)
    assert (failed.code, failed.retryable, failed.may_move_on, failed.may_be_charged) == (
        "backend_reply_too_large",
        False,
        False,
        True,
    )


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_encoded_answer_is_malformed_and_charged_and_an_encoded_failure_has_its_status(
    streamed: bool,
) -> None:
    answered_so = await failure(reply(b"x", "Content-Encoding: gzip"), streamed=streamed)
    assert (answered_so.code, answered_so.may_be_charged) == ("backend_reply_malformed", True)
    refused = reply(b"x", "Content-Encoding: gzip", "Retry-After: 9", status="429 Wait")
    assert (await failure(refused, streamed=streamed)).code == "backend_rate_limited"


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_failure_without_end_keeps_its_status_and_costs_nothing(streamed: bool) -> None:
    failed = await failure(endless("HTTP/1.1 500 No\r\n\r\n", b"x" * 65_536), streamed=streamed)
    assert (failed.code, failed.spent.output_tokens) == ("backend_broken", 0)


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_overloaded_backend_rests_as_long_as_it_says(streamed: bool) -> None:
    overloaded = reply(b"{}", "Retry-After: 9", status="529 Overloaded")
    failed = await failure(overloaded, streamed=streamed)
    assert failed.code == "backend_broken"
    assert failed.fields.get("retry_at_ms") is not None


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_with_half_a_character_and_an_empty_encoding_is_an_answer(
    streamed: bool,
) -> None:
    said = chat(USAGE, message={"content": "a\ud83d"})
    if streamed:
        said = b"data: " + delta(delta={"content": "a\ud83d"}, finish_reason="stop") + b"\n\n"
    kind = "text/event-stream" if streamed else "application/json"
    async with saying(reply(said, "Content-Encoding:", kind=kind)) as backend:
        assert (await asked(backend, streamed=streamed)).text == "a\ufffd"


@pytest.mark.parametrize("value", ["NaN", "1e400", '"1"', "null", "[1]"])
async def test_an_embedding_holds_finite_numbers(value: str) -> None:
    body = f'{{"data": [{{"index": 0, "embedding": [1.5, {value}]}}]}}'.encode()
    async with saying(reply(body)) as backend:
        with pytest.raises(BackendError):
            await asked(backend, messages=(), embed=("a",))


async def test_of_a_key_that_comes_twice_the_last_counts() -> None:
    body = chat(USAGE)[:-1] + b', "usage": {"completion_tokens": 3}}'
    async with saying(reply(body)) as backend:
        assert (await asked(backend)).output_tokens == 3


async def test_a_number_beyond_numbers_reaches_a_caller_as_null() -> None:
    body = chat(USAGE)[:-1] + b', "x": 1e400}'
    async with saying(reply(body)) as backend:
        made = await asked(backend, openai={"path": "chat/completions", "body": {}})
    told = ResponseOptions("chat/completions", "writer", "c", 0)
    answer = answered(whole(told, CallReply(call_id="c", openai=made.openai))).body
    assert isinstance(answer, bytes)
    assert json.loads(answer, parse_constant=pytest.fail)["x"] is None


# ---- keys -----------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "says",
    [
        reply(json.dumps({"error": {"message": f"Wrong key: {SECRET}"}}).encode(), status="401 No"),
        reply(f"Wrong key: {SECRET}".encode(), status="500 No"),
        reply(f"Wrong key: {SECRET}".encode()),
        stream(json.dumps({"error": {"message": f"Wrong key: {SECRET}"}}).encode()),
        stream(f"Wrong key: {SECRET}".encode()),
    ],
    ids=["openai", "text", "not json", "event", "not json event"],
)
async def test_a_key_that_a_backend_echoes_reaches_nobody(says: Says, streamed: bool) -> None:
    error = await failure(says, streamed=streamed)
    assert SECRET not in str(error)
    assert SECRET not in error.info().model_dump_json()


async def test_a_key_inside_an_answer_reaches_nobody() -> None:
    async with saying(reply(chat(USAGE).replace(b"tidal", SECRET.encode()))) as backend:
        made = await asked(backend, openai={"path": "chat/completions", "body": {}})
    assert SECRET not in made.model_dump_json()
    assert "[redacted]" in made.text


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_placeholder_for_a_key_is_left_in_answers(streamed: bool) -> None:
    piece = delta(delta={"content": "none"}, finish_reason="stop")
    says = stream(piece) if streamed else reply(chat(USAGE).replace(b"tidal", b"none"))
    async with saying(says, api_key=SecretStr("none")) as backend:
        assert (await asked(backend, streamed=streamed)).text == "none"


@pytest.mark.parametrize("as_json", [True, False])
async def test_a_key_at_the_end_of_a_long_reason_is_not_cut_but_left_out(as_json: bool) -> None:
    said = "x" * (endpoint_errors.MAX_REASON_CHARS - 15) + SECRET
    content = json.dumps({"error": {"message": said}}) if as_json else said
    failed = await failure(reply(content.encode(), status="401 No"), streamed=False)
    assert SECRET[:8] not in str(failed)


async def test_a_moment_to_come_back_that_is_none_is_a_usual_rest() -> None:
    header = "Retry-After: Mon, 01 Jan 2024 00:00:00 +99999999999999999999"
    failed = await failure(reply(b"{}", header, status="429 No"), streamed=False)
    assert failed.code == "backend_rate_limited"


def too_large(said: str, *headers: str, code: str = "rate_limit_exceeded") -> Says:
    error = {"message": f"{said} See the docs.", "type": "tokens", "param": None, "code": code}
    return reply(json.dumps({"error": error}).encode(), *headers, status="429 No")


ON_TOKENS = "for gpt-4o in organization org-x on tokens per min (TPM):"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("says", "rests"),
    [
        (too_large(f"Request too large {ON_TOKENS} Limit 30000, Requested 45000."), False),
        (too_large(f"Rate limit reached {ON_TOKENS} Limit 9, Used 3, Requested 45000."), False),
        (
            too_large(f"Rate limit reached {ON_TOKENS} Limit 30000, Used 29000, Requested 2000."),
            True,
        ),
        (too_large("Limit 30000, Requested 45000.", "x-ratelimit-limit-tokens: 90000"), True),
        (too_large("Limit 30000, Requested 45000.", "x-ratelimit-limit-tokens: ?"), False),
        (too_large("Limit 3, Requested 4.", f"x-ratelimit-limit-tokens: {'9' * 5_000}"), False),
        (too_large("Limit 3, Requested 4.", code="insufficient_quota"), True),
        (too_large("You requested too much."), True),
        (reply(b'{"error": "Limit 3, Requested 4."}', status="429 No"), True),
    ],
)
async def test_a_429_about_the_size_of_one_request_says_nothing_of_others(
    says: Says, rests: bool, streamed: bool
) -> None:
    failed = await failure(says, streamed=streamed)
    assert failed.may_move_on
    assert ("retry_at_ms" in failed.fields, failed.retryable) == (rests, rests)
    assert failed.code == ("backend_rate_limited" if rests else "backend_refused")


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_large_error_is_not_read_as_json(streamed: bool) -> None:
    error = json.dumps({"error": {"message": "inside"}, "more": "x" * 1_100_000}).encode()
    failed = await failure(reply(error, status="500 No"), streamed=streamed)
    assert failed.fields["reason"].startswith('{"error"')
    failed = await failure(
        reply(b'{"error": {"message": "inside"}}', status="500 No"), streamed=streamed
    )
    assert failed.fields["reason"] == "inside"


MANY = 20_000
CPU_S = 8.0


def test_a_call_in_very_many_pieces_takes_no_quadratic_time() -> None:
    call = CallRequest(
        call_id="c",
        model="m",
        deadline_at_ms=0,
        messages=(ChatMessage(role="user", content="Which?"),),
    )
    assembly = Assembly(call)
    began_s = time.process_time()
    for piece in ("a" * 20_000_000, *("b" for _ in range(MANY))):
        calls = [{"index": 0, "function": {"name": "tide", "arguments": piece}}]
        assembly.add({"choices": [{"delta": {"tool_calls": calls}}]})
    (made,) = assembly.completion().tool_calls
    assert time.process_time() - began_s < CPU_S
    assert len(made["function"]["arguments"]) == 20_000_000 + MANY


def test_a_line_in_very_many_pieces_takes_no_quadratic_time() -> None:
    lines = EventLines()
    began_s = time.process_time()
    assert lines.add(b"data: 1\n\ndata: " + b"x" * 4_000_000) == [b"data: 1", b""]
    assert not any(lines.add(b"y") for _ in range(5 * MANY))
    (line,) = lines.add(b"\nz")
    assert time.process_time() - began_s < CPU_S
    assert (len(line), lines.left_bytes) == (4_000_006 + 5 * MANY, 1)
