"""The contract of every kind of backend, and what only the HTTP kind does."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from types import ModuleType
from typing import Any, Protocol

import grpc
import pytest

from hocket.gateway.backends import build
from hocket.gateway.backends.protocol import (
    Backend,
    BackendBroken,
    BackendDenied,
    BackendError,
    BackendMisconfigured,
    BackendRateLimited,
    BackendRefused,
    BackendReplyMalformed,
    BackendTimedOut,
    BackendUnreachable,
    Chunk,
)
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.errors import RoutingInvalid
from hocket.gateway.core.protocols.triton import TritonOptions
from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput
from hocket.schemas.messages import CallRequest, ChatMessage, Completion, Document, OpenAIBody
from support.gateway.mock_anthropic import running_anthropic
from support.gateway.mock_triton import Failure, Triton, running_triton
from support.gateway.mock_upstream import TIDAL, Upstream, delta, running_upstream

NOW_MS = 1_800_000_000_000.0
LONG_MS = 60_000.0
BOUND_S = 60.0


class World(Protocol):
    """A kind of backend together with the model behind it, which the test controls."""

    backend: Backend
    called: asyncio.Event
    cancelled: asyncio.Event

    def hang(self) -> None: ...
    def fail(self, error: type[HocketError]) -> None: ...
    def answer_nonsense(self) -> None: ...


class HttpWorld:
    STATUS: dict[type[HocketError], int] = {
        BackendBroken: 503,
        BackendRateLimited: 429,
        BackendDenied: 401,
        BackendMisconfigured: 404,
        BackendRefused: 400,
    }

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.called, self.cancelled = upstream.called, upstream.cancelled
        self.backend = build(self.spec(upstream.base_url), lambda: NOW_MS)

    def spec(self, base_url: str) -> BackendSpec:
        return BackendSpec("b", "openai", "m-1", base_url=base_url)

    def hang(self) -> None:
        self.upstream.answer = self.upstream.hangs

    def fail(self, error: type[HocketError]) -> None:
        self.upstream.answer = self.upstream.fails(self.STATUS[error], **{"Retry-After": "3"})

    def answer_nonsense(self) -> None:
        self.upstream.answer = self.upstream.sends(b"<html>")


class AnthropicWorld(HttpWorld):
    STATUS = HttpWorld.STATUS | {BackendBroken: 529}

    def spec(self, base_url: str) -> BackendSpec:
        return BackendSpec("b", "anthropic", "m-1", base_url=base_url)


class FunctionWorld:
    def __init__(self) -> None:
        self.called, self.cancelled = asyncio.Event(), asyncio.Event()
        self._behave: Callable[[CallRequest], Awaitable[Any]] = self._completes
        module = ModuleType("tests_scripted_model")
        module.__dict__["complete"] = self._complete
        sys.modules[module.__name__] = module
        spec = BackendSpec("b", "function", "tests_scripted_model:complete")
        self.backend = build(spec, lambda: NOW_MS)

    async def _complete(self, request: CallRequest) -> Any:
        self.called.set()
        return await self._behave(request)

    async def _completes(self, request: CallRequest) -> Completion:
        if request.embed:
            vectors = tuple((float(index), 0.5) for index in range(len(request.embed)))
            return Completion(embeddings=vectors, input_tokens=11)
        wants_json = request.response_schema is not None
        return Completion(
            text='{"port": "Brest"}' if wants_json else "tidal",
            data={"port": "Brest"} if wants_json else None,
            input_tokens=120,
            output_tokens=7,
            cached_tokens=20,
            finish_reason="stop",
        )

    def hang(self) -> None:
        async def hangs(_: CallRequest) -> Any:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise

        self._behave = hangs

    def fail(self, error: type[HocketError]) -> None:
        async def fails(_: CallRequest) -> Any:
            raise error(component="b", status=1, reason="no luck", retry_at_ms=NOW_MS + 3_000)

        self._behave = fails

    def answer_nonsense(self) -> None:
        async def nonsense(_: CallRequest) -> Any:
            return "tidal"

        self._behave = nonsense


class TritonWorld:
    FAILURES: dict[type[HocketError], Failure] = {
        BackendBroken: Failure(500, grpc.StatusCode.INTERNAL),
        BackendRateLimited: Failure(429, grpc.StatusCode.RESOURCE_EXHAUSTED),
        BackendDenied: Failure(401, grpc.StatusCode.UNAUTHENTICATED),
        BackendMisconfigured: Failure(404, grpc.StatusCode.NOT_FOUND),
        BackendRefused: Failure(400, grpc.StatusCode.INVALID_ARGUMENT),
    }

    def __init__(self, triton: Triton, base_url: str) -> None:
        self.triton = triton
        self.called, self.cancelled = triton.called, triton.cancelled
        options = TritonOptions(
            input_tokens="TOKENS_IN", output_tokens="TOKENS_OUT", cached_tokens="TOKENS_CACHED"
        )
        spec = BackendSpec("b", "triton", "m-1", base_url=base_url, triton=options)
        self.backend = build(spec, lambda: NOW_MS)

    def hang(self) -> None:
        self.triton.behave = self.triton.hangs

    def fail(self, error: type[HocketError]) -> None:
        self.triton.behave = self.triton.fails(self.FAILURES[error])

    def answer_nonsense(self) -> None:
        self.triton.nonsense = True


class Seen:
    """The chunks of a call."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    async def __call__(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)


def http_spec(base_url: str) -> BackendSpec:
    return BackendSpec("b", "openai", "m-1", base_url=base_url)


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with running_upstream() as running:
        yield running


@pytest.fixture(params=["http", "anthropic", "function", "triton-http", "triton-grpc"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "anthropic":
        async with running_anthropic() as anthropic:
            world = AnthropicWorld(anthropic)
            yield world
            await world.backend.close()
        return
    if request.param == "function":
        yield FunctionWorld()
        return
    if request.param.startswith("triton"):
        async with running_triton() as triton:
            over_grpc = request.param == "triton-grpc"
            tritons = TritonWorld(triton, triton.grpc_url if over_grpc else triton.http_url)
            yield tritons
            await tritons.backend.close()
        return
    async with running_upstream() as running:
        world = HttpWorld(running)
        yield world
        await world.backend.close()


@pytest.fixture
async def http(upstream: Upstream) -> AsyncIterator[HttpWorld]:
    world = HttpWorld(upstream)
    yield world
    await world.backend.close()


def chat(content: str = "How often?", **fields: Any) -> CallRequest:
    return CallRequest(
        call_id="c",
        model="writer",
        messages=(ChatMessage(role="user", content=content),),
        deadline_at_ms=NOW_MS + LONG_MS,
        **fields,
    )


def embed(*texts: str) -> CallRequest:
    return CallRequest(call_id="c", model="e", embed=texts, deadline_at_ms=NOW_MS + LONG_MS)


# ---- every kind -----------------------------------------------------------------------------


async def test_a_call_returns_its_text_with_what_it_used(world: World) -> None:
    made = await world.backend.call(chat(), timeout_ms=LONG_MS)
    written = 30 if isinstance(world, AnthropicWorld) else 0
    assert made == Completion(
        text="tidal",
        input_tokens=120,
        output_tokens=7,
        cached_tokens=20,
        cache_write_tokens=written,
        finish_reason="stop",
    )


async def test_the_chunks_of_a_call_are_its_text(world: World) -> None:
    seen = Seen()
    made = await world.backend.call(chat(), timeout_ms=LONG_MS, chunks=seen)
    assert (seen.text, made.text, made.finish_reason) == ("tidal", "tidal", "stop")
    assert (made.input_tokens, made.output_tokens, made.cached_tokens) == (120, 7, 20)


async def test_a_call_that_came_in_openais_shape_is_answered_like_any_other(world: World) -> None:
    body = {"model": "writer", "messages": [{"role": "user", "content": "How often?"}]}
    asked = chat().model_copy(
        update={"messages": (), "openai": OpenAIBody(path="chat/completions", body=body)}
    )
    made = await world.backend.call(asked, timeout_ms=LONG_MS)
    assert (made.text, made.output_tokens) == ("tidal", 7)


async def test_embeddings_come_in_the_order_of_the_texts(world: World) -> None:
    if isinstance(world, AnthropicWorld):
        with pytest.raises(BackendRefused, match="no embeddings"):
            await world.backend.call(embed("0"), timeout_ms=LONG_MS)
        return
    made = await world.backend.call(embed("0", "1", "2"), timeout_ms=LONG_MS)
    assert made.embeddings == ((0.0, 0.5), (1.0, 0.5), (2.0, 0.5))
    assert (made.input_tokens, made.output_tokens) == (11, 0)


async def test_a_response_schema_gives_the_value_as_data(world: World) -> None:
    wanted = chat("How often? As JSON.", response_schema={"type": "object"})
    made = await world.backend.call(wanted, timeout_ms=LONG_MS)
    assert made.data == {"port": "Brest"}


async def test_a_call_that_takes_too_long_times_out(world: World) -> None:
    await world.backend.call(
        chat(), timeout_ms=LONG_MS
    )  # connects: on a busy machine that takes long
    world.hang()
    with pytest.raises(BackendTimedOut):
        await world.backend.call(chat(), timeout_ms=50)


async def test_a_call_that_timed_out_stops_the_work_behind_it(world: World) -> None:
    world.hang()
    timeout_ms = 50
    while not world.called.is_set():  # on a busy machine the time may be up before work has begun
        with pytest.raises((BackendTimedOut, BackendUnreachable)):
            await world.backend.call(chat(), timeout_ms=timeout_ms)
        timeout_ms *= 2
    await asyncio.wait_for(world.cancelled.wait(), BOUND_S)


async def test_a_cancelled_call_stops_the_work_behind_it(world: World) -> None:
    world.hang()
    task = asyncio.create_task(_called(world.backend))
    await asyncio.wait_for(world.called.wait(), BOUND_S)
    task.cancel()
    await asyncio.wait_for(world.cancelled.wait(), BOUND_S)
    assert (await asyncio.gather(task, return_exceptions=True))[0].__class__ is (
        asyncio.CancelledError
    )


async def test_nonsense_is_an_error_that_names_the_backend(world: World) -> None:
    world.answer_nonsense()
    with pytest.raises(BackendReplyMalformed) as failed:
        await world.backend.call(chat(), timeout_ms=LONG_MS)
    assert failed.value.info().component == "b"


@pytest.mark.parametrize(
    ("error", "retryable", "may_move_on"),
    [
        (BackendBroken, True, True),
        (BackendRateLimited, True, True),
        (BackendDenied, False, True),
        (BackendMisconfigured, False, True),
        (BackendRefused, False, False),
    ],
)
async def test_a_failure_is_typed(
    world: World, error: type[Any], retryable: bool, may_move_on: bool
) -> None:
    world.fail(error)
    with pytest.raises(error) as failed:
        await world.backend.call(chat(), timeout_ms=LONG_MS)
    assert (failed.value.retryable, failed.value.may_move_on) == (retryable, may_move_on)


async def test_a_rate_limit_says_when_to_come_again(world: World) -> None:
    world.fail(BackendRateLimited)
    with pytest.raises(BackendRateLimited) as failed:
        await world.backend.call(chat(), timeout_ms=LONG_MS)
    assert failed.value.info().retry_at_ms == NOW_MS + 3_000


# ---- HTTP only ------------------------------------------------------------------------------


async def test_documents_and_parameters_reach_the_endpoint(http: HttpWorld) -> None:
    schema = {"type": "object"}
    request = chat(
        documents=(Document(id="P1", text="Twice a day."),),
        max_tokens=9,
        temperature=0.2,
        response_schema=schema,
    )
    await http.backend.call(request, timeout_ms=LONG_MS)
    assert http.upstream.paths == ["/v1/chat/completions"]
    assert http.upstream.bodies == [
        {
            "model": "m-1",
            "messages": [
                {"role": "user", "content": "How often?\n\nSources:\n\n[P1]\nTwice a day."}
            ],
            "max_tokens": 9,
            "temperature": 0.2,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": schema},
            },
        }
    ]


def as_it_came(path: str, **body: Any) -> CallRequest:
    openai = OpenAIBody.model_validate({"path": path, "body": {"model": "writer", **body}})
    return CallRequest(call_id="c", model="writer", openai=openai, deadline_at_ms=NOW_MS + LONG_MS)


async def test_a_body_goes_out_as_it_came_but_for_the_model(http: HttpWorld) -> None:
    asked = as_it_came("chat/completions", messages=[{"role": "user"}], logit_bias={"5": 1}, n=2)
    made = await http.backend.call(asked, timeout_ms=LONG_MS)
    (sent,) = http.upstream.bodies
    assert sent == {**asked.openai.body, "model": "m-1"} if asked.openai else None
    assert made.openai is not None
    assert made.openai["choices"][0]["message"]["content"] == "tidal"


async def test_tools_go_out_and_their_calls_come_back(http: HttpWorld) -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "tide", "arguments": "{}"}}
    message = {"content": None, "tool_calls": [call]}
    http.upstream.answer = http.upstream.sends(
        {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
    )
    tool = {"type": "function", "function": {"name": "tide"}}
    asked = chat(tools=(tool,), tool_choice="required")
    earlier = (
        ChatMessage(role="assistant", content="", tool_calls=(call,)),
        ChatMessage(role="tool", content="5 m", tool_call_id="t1"),
    )
    asked = asked.model_copy(update={"messages": (*asked.messages, *earlier)})
    made = await http.backend.call(asked, timeout_ms=LONG_MS)
    assert (made.text, made.tool_calls, made.finish_reason) == ("", (call,), "tool_calls")
    (sent,) = http.upstream.bodies
    assert (sent["tools"], sent["tool_choice"]) == ([tool], "required")
    assert sent["messages"][1:] == [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "5 m", "tool_call_id": "t1"},
    ]


async def test_a_legacy_completion_has_its_own_endpoint(http: HttpWorld) -> None:
    http.upstream.answer = http.upstream.sends({"choices": [{"text": "tidal"}]})
    made = await http.backend.call(as_it_came("completions", prompt="x"), timeout_ms=LONG_MS)
    assert (made.text, http.upstream.paths) == ("tidal", ["/v1/completions"])


async def test_packed_vectors_are_passed_on_as_they_are(http: HttpWorld) -> None:
    http.upstream.answer = http.upstream.sends({"data": [{"index": 0, "embedding": "AAAA"}]})
    asked = as_it_came("embeddings", input="x", encoding_format="base64")
    made = await http.backend.call(asked, timeout_ms=LONG_MS)
    assert made.openai == {"data": [{"index": 0, "embedding": "AAAA"}]}


async def test_usage_is_asked_for_in_a_stream(http: HttpWorld) -> None:
    seen = Seen()
    asked = as_it_came("chat/completions", messages=[], stream_options={"extra": 1})
    await http.backend.call(asked, timeout_ms=LONG_MS, chunks=seen)
    (sent,) = http.upstream.bodies
    assert sent["stream_options"] == {"extra": 1, "include_usage": True}
    assert [chunk.is_usage for chunk in seen.chunks] == [False] * 4 + [True]
    assert [chunk.openai for chunk in seen.chunks] == list(TIDAL)


async def test_tool_calls_are_put_together_from_a_stream(http: HttpWorld) -> None:
    first = {"index": 0, "id": "t1", "function": {"name": "tide", "arguments": ""}}
    second = {"index": 1, "id": "t2", "function": {"name": "wind", "arguments": "{}"}}
    more = [{"index": 0, "function": {"arguments": part}} for part in ('{"port":', '"Brest"}')]
    http.upstream.answer = http.upstream.streams(
        *(delta(tool_calls=[call]) for call in (first, second, *more)), delta("tool_calls")
    )
    made = await http.backend.call(chat(), timeout_ms=LONG_MS, chunks=Seen())
    assert [call["function"] for call in made.tool_calls] == [
        {"name": "tide", "arguments": '{"port":"Brest"}'},
        {"name": "wind", "arguments": "{}"},
    ]
    assert [call["id"] for call in made.tool_calls] == ["t1", "t2"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_text_that_comes_in_parts_with_its_thinking_is_read(
    http: HttpWorld, streamed: bool
) -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Let me look it up."}]}
    parts = [thought, {"type": "text", "text": "ti"}, {"type": "text", "text": "dal"}]
    if streamed:
        http.upstream.answer = http.upstream.streams(
            *(delta(content=[part]) for part in parts[:-1]), delta(content="dal"), delta("stop")
        )
    else:
        message = {"role": "assistant", "content": parts}
        http.upstream.answer = http.upstream.sends(
            {"choices": [{"message": message, "finish_reason": "stop"}]}
        )
    seen = Seen()
    made = await http.backend.call(chat(), timeout_ms=LONG_MS, chunks=seen if streamed else None)
    assert (made.text, made.finish_reason) == ("tidal", "stop")
    assert made.output_tokens > 10, "its thinking is estimated, too"
    assert seen.text == ("tidal" if streamed else "")


@pytest.mark.parametrize("index", [{"index": 0}, {"index": None}, {}])
async def test_parallel_tool_calls_under_one_index_stay_apart(
    http: HttpWorld, index: dict[str, Any]
) -> None:
    calls = [
        {**index, "id": f"t{n}", "function": {"name": "tide", "arguments": part}}
        for n, part in enumerate(('{"port":"Brest"}', '{"port":"Calais"}'))
    ]
    more = {**index, "id": "made up", "function": {"arguments": " "}}
    http.upstream.answer = http.upstream.streams(
        *(delta(tool_calls=[call]) for call in (*calls, more)), delta("tool_calls")
    )
    made = await http.backend.call(chat(), timeout_ms=LONG_MS, chunks=Seen())
    assert [call["function"] for call in made.tool_calls] == [
        {"name": "tide", "arguments": '{"port":"Brest"}'},
        {"name": "tide", "arguments": '{"port":"Calais"} '},
    ]


@pytest.mark.parametrize(
    ("events", "then", "error"),
    [
        ((delta(content="ti"),), "[DONE]", BackendBroken),
        ((delta(content="ti"),), "", BackendBroken),
        ((delta(content="ti"),), "cut", BackendUnreachable),
        ((delta(content="ti"), {"error": {"message": "out of memory"}}), "[DONE]", BackendBroken),
        ((delta(content="ti"), {"choices": [5]}), "[DONE]", BackendReplyMalformed),
        ((delta(content="ti"), 5), "[DONE]", BackendReplyMalformed),
    ],
)
async def test_a_stream_that_breaks_is_an_error_that_says_what_it_spent(
    http: HttpWorld, events: tuple[Any, ...], then: str, error: type[BackendError]
) -> None:
    http.upstream.answer = http.upstream.streams(*events, then=then)
    seen = Seen()
    with pytest.raises(error) as failed:
        await http.backend.call(chat(), timeout_ms=LONG_MS, chunks=seen)
    assert (seen.text, failed.value.spent.output_tokens) == ("ti", 1)


@pytest.mark.parametrize("then", ["", "[DONE]", "cut"])
@pytest.mark.parametrize(
    "event",
    [TIDAL[0], {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}],
    ids=["a role", "results of a filter"],
)
async def test_a_stream_that_ends_before_it_says_anything_leaves_room_for_another_backend(
    http: HttpWorld, event: dict[str, Any], then: str
) -> None:
    http.upstream.answer = http.upstream.streams(event, then=then)
    seen = Seen()
    asked = as_it_came("chat/completions", messages=[{"role": "user"}])
    with pytest.raises((BackendBroken, BackendUnreachable)) as failed:
        await http.backend.call(asked, timeout_ms=LONG_MS, chunks=seen)
    assert (seen.chunks, failed.value.may_move_on) == ([], True)


@pytest.mark.parametrize("then", ["", "[DONE]"])
async def test_a_stream_of_two_choices_that_ends_within_one_is_broken_unless_it_says_that_it_is_done(
    http: HttpWorld, then: str
) -> None:
    second = {"choices": [{"index": 1, "delta": {"content": "lo"}, "finish_reason": None}]}
    http.upstream.answer = http.upstream.streams(
        delta(content="tidal"), second, delta("stop"), then=then
    )
    asked = as_it_came("chat/completions", messages=[{"role": "user"}], n=2)
    calling = http.backend.call(asked, timeout_ms=LONG_MS, chunks=Seen())
    if then:
        assert (await calling).text == "tidal"
        return
    with pytest.raises(BackendBroken, match="too early") as failed:
        await calling
    assert (failed.value.spent.output_tokens, failed.value.spent.estimated) == (2, True)


async def test_signs_of_life_in_a_stream_are_passed_over(http: HttpWorld) -> None:
    http.upstream.answer = http.upstream.streams(TIDAL[0], b"", b" ", *TIDAL[1:], b"")
    seen = Seen()
    made = await http.backend.call(chat(), timeout_ms=LONG_MS, chunks=seen)
    assert (made.text, seen.text) == ("tidal", "tidal")


async def test_a_cancelled_stream_closes_its_connection(http: HttpWorld) -> None:
    http.upstream.answer = http.upstream.streams(delta(content="ti"), then="hang")
    began = asyncio.Event()

    async def seen(_: Chunk) -> None:
        began.set()

    calling = asyncio.ensure_future(
        http.backend.call(chat(), timeout_ms=LONG_MS, chunks=seen)  # type: ignore[arg-type]
    )
    await asyncio.wait_for(began.wait(), BOUND_S)
    calling.cancel()
    await asyncio.wait_for(http.upstream.cancelled.wait(), BOUND_S)
    await asyncio.gather(calling, return_exceptions=True)


async def test_an_endpoint_that_does_not_stream_is_taken_at_its_word(http: HttpWorld) -> None:
    whole = {"choices": [{"message": {"content": "tidal"}, "finish_reason": "stop"}]}
    http.upstream.answer = http.upstream.sends(whole)
    seen = Seen()
    made = await http.backend.call(chat(), timeout_ms=LONG_MS, chunks=seen)
    assert (made.text, seen.text) == ("tidal", "tidal")


async def test_the_key_is_sent_as_a_bearer_token(upstream: Upstream) -> None:
    from pydantic import SecretStr

    spec = BackendSpec("b", "openai", "m", base_url=upstream.base_url, api_key=SecretStr("k-1"))
    backend = build(spec, lambda: NOW_MS)
    await backend.call(chat(), timeout_ms=LONG_MS)
    await backend.close()
    assert upstream.headers[0]["Authorization"] == "Bearer k-1"


@pytest.mark.parametrize("chunks", [None, Seen()])
async def test_azure_gets_its_key_and_its_version_where_it_wants_them(
    upstream: Upstream, chunks: Seen | None
) -> None:
    from pydantic import SecretStr

    spec = BackendSpec(
        "b",
        "openai",
        "gpt-4o",
        base_url=f"{upstream.base_url}/openai/deployments/my%20o3",
        api_key=SecretStr("k-1"),
        key_header="api-key",
        api_version="2024-10-21",
    )
    backend = build(spec, lambda: NOW_MS)
    made = await backend.call(chat(), timeout_ms=LONG_MS, chunks=chunks)
    await backend.close()
    assert made.text == "tidal"
    assert upstream.paths == ["/v1/openai/deployments/my o3/chat/completions"]
    assert upstream.queries == ["api-version=2024-10-21"]
    assert upstream.headers[0]["api-key"] == "k-1"
    assert "Authorization" not in upstream.headers[0]


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    async with running_upstream() as gone:
        base_url = gone.base_url
    backend = build(http_spec(base_url), lambda: NOW_MS)
    with pytest.raises(BackendUnreachable) as failed:
        await backend.call(chat(), timeout_ms=LONG_MS)
    await backend.close()
    assert failed.value.may_move_on


@pytest.mark.parametrize(
    ("retry_after", "rest_ms"),
    [
        ("2.5", 2_500),
        ("Fri, 15 Jan 2027 08:00:07 GMT", 7_000),
        ("soon", 1_000),
        ("nan", 1_000),
        ("-5", 0),
        ("999999999", 300_000),
    ],
)
async def test_retry_after_is_read_in_every_form(
    http: HttpWorld, retry_after: str, rest_ms: float
) -> None:
    http.upstream.answer = http.upstream.fails(429, **{"Retry-After": retry_after})
    with pytest.raises(BackendRateLimited) as failed:
        await http.backend.call(chat(), timeout_ms=LONG_MS)
    assert failed.value.info().retry_at_ms == NOW_MS + rest_ms


@pytest.mark.parametrize(("headers", "rest_ms"), [({"Retry-After": "7"}, 7_000.0), ({}, None)])
async def test_a_server_that_is_unavailable_may_say_for_how_long(
    http: HttpWorld, headers: dict[str, str], rest_ms: float | None
) -> None:
    http.upstream.answer = http.upstream.fails(503, **headers)
    with pytest.raises(BackendBroken) as failed:
        await http.backend.call(chat(), timeout_ms=LONG_MS)
    expected = None if rest_ms is None else NOW_MS + rest_ms
    assert failed.value.info().retry_at_ms == expected


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"choices": []},
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": 5}}]},
        {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": -1}},
        {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": "many"}},
    ],
)
async def test_a_broken_completion_is_an_error(http: HttpWorld, body: Any) -> None:
    http.upstream.answer = http.upstream.sends(body)
    with pytest.raises(BackendReplyMalformed):
        await http.backend.call(chat(), timeout_ms=LONG_MS)


FLAGGED = {
    "code": 403,
    "message": "Your chosen model requires moderation and your input was flagged",
    "metadata": {
        "reasons": ["violence"],
        "flagged_input": "How do I ...",
        "provider_name": "OpenAI",
        "model_slug": "openai/gpt-4o",
    },
}
"""What OpenRouter says of a prompt that was flagged."""


@pytest.mark.parametrize("chunks", [None, Seen()])
@pytest.mark.parametrize(
    ("status", "said", "error"),
    [
        (403, FLAGGED, BackendRefused),
        (403, {**FLAGGED, "metadata": {"provider_name": "OpenAI"}}, BackendDenied),
        (403, {**FLAGGED, "metadata": None}, BackendDenied),
        (403, "flagged_input", BackendDenied),
        (429, FLAGGED, BackendRateLimited),
    ],
)
async def test_a_prompt_that_moderation_flagged_is_refused_and_no_fault_of_the_backend(
    http: HttpWorld, status: int, said: Any, error: type[BackendError], chunks: Seen | None
) -> None:
    http.upstream.answer = http.upstream.sends({"error": said}, status)
    with pytest.raises(error, match="flagged") as failed:
        await http.backend.call(chat(), timeout_ms=LONG_MS, chunks=chunks)
    refused = error is BackendRefused
    assert (failed.value.error_class is ErrorClass.INVALID, failed.value.may_move_on) == (
        refused,
        not refused,
    )


@pytest.mark.parametrize("way", ["whole", "stream", "whole instead of a stream"])
@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"code": 429, "message": "Provider returned error"}, BackendRateLimited),
        ({"code": "429", "message": "Provider returned error"}, BackendRateLimited),
        ({"code": 400, "message": "Provider returned error"}, BackendRefused),
        ({"code": 502, "message": "Provider returned error"}, BackendBroken),
        ({"code": 403, "message": "Provider returned error"}, BackendDenied),
        (FLAGGED | {"message": "Provider returned error"}, BackendRefused),
        ({"type": "invalid_request_error", "message": "Provider returned error"}, BackendRefused),
        ({"code": "x", "type": 5, "message": "Provider returned error"}, BackendBroken),
        ({"code": 200, "message": "Provider returned error"}, BackendBroken),
        ("Provider returned error", BackendBroken),
    ],
)
async def test_an_error_instead_of_an_answer_is_what_it_says_and_costs_nothing(
    http: HttpWorld, said: Any, error: type[BackendError], way: str
) -> None:
    answer = http.upstream.streams if way == "stream" else http.upstream.sends
    http.upstream.answer = answer({"error": said})
    seen = None if way == "whole" else Seen()
    with pytest.raises(error, match="Provider returned error") as failed:
        await http.backend.call(chat(), timeout_ms=LONG_MS, chunks=seen)
    assert failed.value.spent == Completion()


@pytest.mark.parametrize("way", ["whole", "stream", "whole instead of a stream"])
@pytest.mark.parametrize("reported", [{"error": {"code": 502, "message": "cut off"}}, {}])
async def test_an_answer_that_ends_with_an_error_is_that_error_and_costs_what_was_metered(
    http: HttpWorld, reported: dict[str, Any], way: str
) -> None:
    usage = {"prompt_tokens": 40, "completion_tokens": 3}
    message = {"role": "assistant", "content": "ti"}
    end = {"index": 0, "finish_reason": "error", **reported}
    if way == "stream":
        http.upstream.answer = http.upstream.streams(
            {**delta(content="ti"), "usage": usage}, {"choices": [{**end, "delta": {}}]}
        )
    else:
        body = {"choices": [{**end, "message": message}], "usage": usage}
        http.upstream.answer = http.upstream.sends(body)
    seen = None if way == "whole" else Seen()
    with pytest.raises(BackendBroken, match="cut off" if reported else "no reason") as failed:
        await http.backend.call(chat(), timeout_ms=LONG_MS, chunks=seen)
    assert (failed.value.spent.input_tokens, failed.value.spent.output_tokens) == (40, 3)


async def test_an_answer_beside_an_error_is_an_answer(http: HttpWorld) -> None:
    choice = {"message": {"content": "tidal"}, "finish_reason": "stop"}
    http.upstream.answer = http.upstream.sends({"error": "", "choices": [choice]})
    assert (await http.backend.call(chat(), timeout_ms=LONG_MS)).text == "tidal"


async def test_a_broken_completion_that_was_metered_says_what_it_used(http: HttpWorld) -> None:
    http.upstream.answer = http.upstream.sends({"choices": [], "usage": {"prompt_tokens": 40}})
    with pytest.raises(BackendReplyMalformed) as failed:
        await http.backend.call(chat(), timeout_ms=LONG_MS)
    assert failed.value.spent.input_tokens == 40


async def test_missing_embeddings_are_an_error(http: HttpWorld) -> None:
    http.upstream.answer = http.upstream.sends({"data": [{"index": 0, "embedding": [1.0]}]})
    with pytest.raises(BackendReplyMalformed, match="1 embeddings for 2 texts"):
        await http.backend.call(embed("a", "b"), timeout_ms=LONG_MS)


async def test_a_redirect_is_not_followed(http: HttpWorld) -> None:
    http.upstream.answer = http.upstream.fails(307, Location="http://127.0.0.1:9/")
    with pytest.raises(BackendMisconfigured):
        await http.backend.call(chat(), timeout_ms=LONG_MS)


# ---- functions only -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("no_such_module_here:f", "cannot be imported"),
        ("json:no_such_function", "cannot be imported"),
        ("json:dumps", "not an async function"),
    ],
)
def test_a_function_that_cannot_be_had_is_refused_at_start(target: str, reason: str) -> None:
    with pytest.raises(RoutingInvalid, match=reason):
        build(BackendSpec("b", "function", target), lambda: NOW_MS)


async def test_a_generator_gives_its_text_piece_by_piece() -> None:
    async def tells(_: CallRequest) -> AsyncIterator[str | Completion]:
        yield "ti"
        yield "dal"
        yield Completion(input_tokens=3, output_tokens=2, finish_reason="length")

    module = ModuleType("tests_telling_model")
    module.__dict__["tell"] = tells
    sys.modules[module.__name__] = module
    backend = build(BackendSpec("b", "function", "tests_telling_model:tell"), lambda: NOW_MS)
    seen = Seen()
    made = await backend.call(chat(), timeout_ms=LONG_MS, chunks=seen)
    assert [chunk.text for chunk in seen.chunks] == ["ti", "dal"]
    assert (made.text, made.input_tokens, made.finish_reason) == ("tidal", 3, "length")


async def test_a_function_that_leaves_out_embeddings_is_an_error() -> None:
    world = FunctionWorld()

    async def forgets(_: CallRequest) -> Any:
        return Completion(embeddings=((1.0,),), input_tokens=3)

    world._behave = forgets
    asked = as_it_came("embeddings", input=["a", "b"])
    with pytest.raises(BackendReplyMalformed, match="1 embeddings for 2 texts") as raised:
        await world.backend.call(asked, timeout_ms=LONG_MS)
    assert raised.value.spent.input_tokens == 3


async def test_a_typed_error_of_a_function_is_kept() -> None:
    world = FunctionWorld()

    async def refuses(_: CallRequest) -> Any:
        raise InvalidInput(field="messages", reason="empty", cure="Say something.")

    world._behave = refuses
    with pytest.raises(InvalidInput):
        await world.backend.call(chat(), timeout_ms=LONG_MS)


async def _called(backend: Backend) -> Completion:
    return await backend.call(chat(), timeout_ms=LONG_MS)
