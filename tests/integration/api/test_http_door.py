"""The HTTP door of a real gateway, through the official OpenAI client, unchanged.

Behind it an emulated engine (tools, embeddings, streams) and an upstream that does what the test says.
"""

import asyncio
import gzip
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp.compression_utils import ZLibDecompressor
from openai import AsyncOpenAI, OpenAI
from typing_extensions import Buffer

from hocket.gateway.core.config.access import hashed
from hocket.kit.embedded import EmbeddedServers
from support.gateway.gateway_process import BOUND_S, running_gateway
from support.gateway.http_house import House, client, house, models, upstream
from support.gateway.mock_upstream import Upstream, delta

__all__ = ["client", "house", "upstream"]

BOTH = ["engine", "claude"]
"""Models of one engine: one by OpenAI's API, one by Anthropic's."""
CANCEL_TRIALS = 20
CANCEL_BOUND_MS = 50.0
ASK: Any = [{"role": "user", "content": "How high is the tide in Brest?"}]
TIDE: Any = {
    "type": "function",
    "function": {
        "name": "tide",
        "parameters": {
            "type": "object",
            "properties": {"port": {"type": "string", "enum": ["Brest"]}},
            "required": ["port"],
        },
    },
}
SECRET = "hk-for-tests"


# ---- what is answered -----------------------------------------------------------------------


async def test_a_chat_is_answered_under_the_name_that_was_asked_for(
    client: AsyncOpenAI, upstream: Upstream
) -> None:
    made = await client.chat.completions.create(model="scripted", messages=ASK, top_p=0.5)
    assert (made.model, made.choices[0].message.content) == ("scripted", "tidal")
    assert made.usage is not None
    assert made.usage.prompt_tokens_details is not None
    assert (made.usage.prompt_tokens, made.usage.prompt_tokens_details.cached_tokens) == (120, 20)
    (sent,) = upstream.bodies
    assert (sent["model"], sent["top_p"], sent["messages"]) == ("m-1", 0.5, ASK)


async def test_the_synchronous_client_works_too(house: House) -> None:
    def ask() -> str | None:
        with OpenAI(base_url=house.gateway.url, api_key="x", max_retries=0) as client:
            made = client.chat.completions.create(model="engine", messages=ASK, max_tokens=3)
            return made.choices[0].finish_reason

    assert await asyncio.to_thread(ask) == "length"


async def test_a_stream_brings_what_the_whole_answer_is(client: AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(model="engine", messages=ASK, max_tokens=20)
    stream = await client.chat.completions.create(
        model="engine", messages=ASK, max_tokens=20, stream=True
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert {chunk.model for chunk in chunks} == {"engine"}
    assert all(chunk.usage is None for chunk in chunks)


@pytest.mark.parametrize("model", BOTH)
async def test_usage_comes_in_a_stream_where_it_is_asked_for(
    client: AsyncOpenAI, model: str
) -> None:
    stream = await client.chat.completions.create(
        model=model,
        messages=ASK,
        max_tokens=20,
        stream=True,
        stream_options={"include_usage": True},
    )
    last = [chunk async for chunk in stream][-1]
    assert last.usage is not None
    assert (last.choices, last.usage.completion_tokens) == ([], 20)


@pytest.mark.parametrize("model", BOTH)
async def test_tools_are_called_and_answered(client: AsyncOpenAI, model: str) -> None:
    asked = await client.chat.completions.create(model=model, messages=ASK, tools=[TIDE])
    message = asked.choices[0].message
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("tide", '{"port": "Brest"}')
    answer: Any = {"role": "tool", "tool_call_id": call.id, "content": "5.1 m"}
    after = await client.chat.completions.create(
        model=model, messages=[*ASK, message, answer], tools=[TIDE]
    )
    assert after.choices[0].finish_reason == "stop"
    assert after.choices[0].message.content


@pytest.mark.parametrize("model", BOTH)
async def test_a_tools_call_is_streamed(client: AsyncOpenAI, model: str) -> None:
    async with client.chat.completions.stream(
        model=model, messages=ASK, tools=[TIDE | {"strict": True}]
    ) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.tool_calls is not None
    assert final.choices[0].message.tool_calls[0].function.arguments == '{"port": "Brest"}'


async def test_embeddings_are_the_same_packed_or_not(client: AsyncOpenAI) -> None:
    texts = ["high tide", "low tide"]
    packed = await client.embeddings.create(model="engine", input=texts)  # base64 on the wire
    plain = await client.embeddings.create(model="engine", input=texts, encoding_format="float")
    assert len(packed.data) == 2
    for one, two in zip(packed.data, plain.data, strict=True):
        assert one.embedding == pytest.approx(two.embedding, abs=1e-6)


@pytest.mark.parametrize("model", BOTH)
async def test_legacy_completions_are_answered_and_streamed(
    client: AsyncOpenAI, model: str
) -> None:
    whole = await client.completions.create(model=model, prompt="The tide", max_tokens=8)
    stream = await client.completions.create(
        model=model, prompt="The tide", max_tokens=8, stream=True
    )
    text = "".join([chunk.choices[0].text async for chunk in stream])
    assert text == whole.choices[0].text != ""


async def test_models_are_those_of_the_routing_table(client: AsyncOpenAI) -> None:
    listed = [model.id async for model in client.models.list()]
    assert {"scripted", "guarded", "engine", "hocket-extractive"} <= set(listed)
    assert (await client.models.retrieve("engine")).id == "engine"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nobody")


async def test_a_model_that_is_a_function_answers_and_streams(client: AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(model="hocket-extractive", messages=ASK)
    stream = await client.chat.completions.create(
        model="hocket-extractive",
        messages=ASK,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None


# ---- who it is for --------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["X-Hocket-Run-Id", "x-litellm-trace-id", "x-session-id"])
async def test_a_call_is_booked_on_the_run_its_headers_name(
    house: House, client: AsyncOpenAI, upstream: Upstream, header: str
) -> None:
    made = await client.chat.completions.with_raw_response.create(
        model="scripted",
        messages=ASK,
        extra_headers={
            header: f"run-{header}",
            "X-Hocket-Tenant": "acme",
            "X-Hocket-Pipeline": "report",
            "X-Hocket-Node": "draft",
            "X-Hocket-Version": "3",
        },
    )
    booked = await house.booked(f"run-{header}")
    who = booked.attribution
    assert (who.tenant, who.pipeline, who.node, who.version) == ("acme", "report", "draft", 3)
    assert booked.cost_usd == Decimal("0.000134")  # 120 in at 1, 7 out at 2 millionths
    assert made.headers["x-hocket-cost-usd"] == "0.000134"
    assert made.headers["x-hocket-call-id"] == booked.call_id
    assert made.headers["x-hocket-backend"] == "scripted"


async def test_a_stream_is_booked_with_what_it_metered(house: House, client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="engine",
        messages=ASK,
        max_tokens=20,
        stream=True,
        extra_headers={"X-Hocket-Run-Id": "streamed"},
    )
    async for _ in stream:
        pass
    assert (await house.booked("streamed")).output_tokens == 20


async def test_the_same_call_id_joins_the_call_under_way(
    client: AsyncOpenAI, upstream: Upstream
) -> None:
    upstream.answer = upstream.hangs
    same: Any = {"model": "scripted", "messages": ASK, "extra_headers": {"X-Hocket-Call-Id": "c-1"}}
    first = asyncio.create_task(client.chat.completions.create(**same))
    await asyncio.wait_for(upstream.called.wait(), BOUND_S)
    joined = asyncio.create_task(client.chat.completions.create(**same))
    other = same | {"extra_headers": {"X-Hocket-Call-Id": "c-1", "X-Hocket-Tenant": "other"}}
    upstream.called.clear()
    alone = asyncio.create_task(client.chat.completions.create(**other))
    await asyncio.wait_for(upstream.called.wait(), BOUND_S)
    upstream.release.set()
    await asyncio.gather(first, joined, alone)
    assert len(upstream.bodies) == 2  # another tenant's id is another id


async def test_keys_say_who_comes_and_for_which_models(
    house: House, servers: EmbeddedServers, tmp_path: Path, upstream: Upstream
) -> None:
    keys = [{"name": "ci", "sha256": hashed(SECRET), "tenant": "acme", "models": ["scripted"]}]
    section = models(upstream, "http://127.0.0.1:9")
    async with running_gateway(
        servers.nats_url, tmp_path, section, access={"keys": keys}
    ) as gateway:
        async with AsyncOpenAI(base_url=gateway.url, api_key="hk-other") as stranger:
            with pytest.raises(openai.AuthenticationError):
                await stranger.chat.completions.create(model="scripted", messages=ASK)
        async with AsyncOpenAI(base_url=gateway.url, api_key=SECRET) as known:
            headers = {"X-Hocket-Run-Id": "keyed"}
            await known.chat.completions.create(
                model="scripted", messages=ASK, extra_headers=headers
            )
            assert (await house.booked("keyed")).attribution.tenant == "acme"
            assert [model.id async for model in known.models.list()] == ["scripted"]
            with pytest.raises(openai.PermissionDeniedError):
                await known.chat.completions.create(model="engine", messages=ASK)
            with pytest.raises(openai.PermissionDeniedError, match="X-Hocket-Tenant"):
                await known.chat.completions.create(
                    model="scripted", messages=ASK, extra_headers={"X-Hocket-Tenant": "other"}
                )


async def test_a_key_of_the_configuration_does_not_join_the_call_of_another(
    servers: EmbeddedServers, tmp_path: Path, upstream: Upstream
) -> None:
    keys = [
        {"name": "ci", "sha256": hashed(SECRET), "tenant": "acme", "models": ["scripted"]},
        {"name": "guest", "sha256": hashed("hk-guest"), "tenant": "acme", "models": ["guarded"]},
    ]
    section = models(upstream, "http://127.0.0.1:9")
    upstream.answer = upstream.hangs
    ask: Any = {"messages": ASK, "extra_headers": {"X-Hocket-Call-Id": "c-1"}}
    async with (
        running_gateway(servers.nats_url, tmp_path, section, access={"keys": keys}) as gateway,
        AsyncOpenAI(base_url=gateway.url, api_key=SECRET) as known,
        AsyncOpenAI(base_url=gateway.url, api_key="hk-guest") as guest,
    ):
        first = asyncio.create_task(known.chat.completions.create(model="scripted", **ask))
        await asyncio.wait_for(upstream.called.wait(), BOUND_S)
        upstream.called.clear()
        alone = asyncio.create_task(guest.chat.completions.create(model="guarded", **ask))
        await asyncio.wait_for(upstream.called.wait(), BOUND_S)
        upstream.release.set()
        await asyncio.gather(first, alone)
    assert len(upstream.bodies) == 2  # `guest` may not call the model of `ci`


# ---- what goes wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error", "param"),
    [
        ({"model": "nobody"}, openai.NotFoundError, None),
        ({"messages": []}, openai.BadRequestError, "messages"),
        ({"messages": [{"role": "user", "content": 5}]}, openai.BadRequestError, None),
        ({"temperature": 9}, openai.BadRequestError, "temperature"),
        ({"extra_headers": {"X-Hocket-Priority": "now"}}, openai.BadRequestError, None),
        ({"extra_headers": {"X-Hocket-Timeout-Ms": "nan"}}, openai.BadRequestError, None),
        ({"extra_headers": {"X-Hocket-Tenant": "a.b"}}, openai.BadRequestError, None),
    ],
)
async def test_a_bad_request_is_refused_as_the_client_expects(
    client: AsyncOpenAI, fields: dict[str, Any], error: type[Exception], param: str | None
) -> None:
    with pytest.raises(error) as refused:
        await client.chat.completions.create(**{"model": "engine", "messages": ASK, **fields})
    body = refused.value.body  # type: ignore[attr-defined]
    assert body["message"]
    assert param is None or body["param"] == param


@pytest.mark.parametrize("stream", [False, True])
async def test_a_field_that_may_choose_a_price_is_refused_and_goes_nowhere(
    client: AsyncOpenAI, upstream: Upstream, stream: bool
) -> None:
    options: Any = {"model": "scripted", "messages": ASK, "stream": stream}
    for name, value in (("service_tier", "priority"), ("models", ["dear/model"])):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(**options, extra_body={name: value})
        assert (refused.value.code, refused.value.param) == ("field_not_passed", name)
    assert upstream.bodies == []


async def test_fields_of_engines_and_those_that_a_backend_lets_through_go_on(
    client: AsyncOpenAI, upstream: Upstream
) -> None:
    extra = {"top_k": 5, "min_p": 0.1, "chat_template_kwargs": {"enable_thinking": False}}
    await client.chat.completions.create(model="scripted", messages=ASK, extra_body=extra)
    await client.chat.completions.create(model="tiered", messages=ASK, service_tier="flex")
    first, second = upstream.bodies
    assert extra.items() <= first.items()
    assert second["service_tier"] == "flex"


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (503, openai.InternalServerError, "backend_broken"),
        (401, openai.InternalServerError, "backend_denied"),
        (400, openai.BadRequestError, "backend_refused"),
        (429, openai.RateLimitError, "backend_rate_limited"),
    ],
)
async def test_a_backends_error_is_typed_data(
    client: AsyncOpenAI, upstream: Upstream, status: int, error: type[Exception], code: str
) -> None:
    upstream.answer = upstream.fails(status, **{"Retry-After": "0.2"})
    with pytest.raises(error) as failed:
        await client.chat.completions.create(model="scripted", messages=ASK)
    body = failed.value.body  # type: ignore[attr-defined]
    assert (body["code"], body["hocket"]["component"]) == (code, "scripted")


async def test_the_clients_own_retries_wait_as_long_as_they_are_told(
    house: House, upstream: Upstream
) -> None:
    upstream.answer = upstream.fails(429, **{"Retry-After": "0.2"})
    async with house.client(max_retries=1) as patient:
        with pytest.raises(openai.RateLimitError):
            await patient.chat.completions.create(model="scripted", messages=ASK)
    assert len(upstream.bodies) == 2


async def test_a_call_takes_as_long_as_it_may(client: AsyncOpenAI, upstream: Upstream) -> None:
    upstream.answer = upstream.hangs
    with pytest.raises(openai.InternalServerError) as failed:
        await client.chat.completions.create(
            model="scripted", messages=ASK, extra_headers={"X-Hocket-Timeout-Ms": "1000"}
        )
    assert failed.value.status_code == 504
    await asyncio.wait_for(upstream.cancelled.wait(), BOUND_S)


async def test_a_client_that_is_out_of_patience_stops_its_call(
    client: AsyncOpenAI, upstream: Upstream
) -> None:
    upstream.answer = upstream.hangs
    patience_s = 0.2
    while not upstream.called.is_set():  # on a busy machine it may end before the call has begun
        with pytest.raises((openai.APITimeoutError, openai.InternalServerError)):
            await client.chat.completions.create(model="scripted", messages=ASK, timeout=patience_s)
        patience_s *= 2
    await asyncio.wait_for(upstream.cancelled.wait(), BOUND_S)


async def test_a_stream_that_was_left_is_stopped_at_the_upstream(
    house: House, client: AsyncOpenAI, upstream: Upstream
) -> None:
    took_ms = []
    for number in range(CANCEL_TRIALS):
        upstream.cancelled.clear()
        upstream.answer = upstream.streams(delta(content="ti"), then="hang")
        stream = await client.chat.completions.create(
            model="scripted",
            messages=ASK,
            stream=True,
            extra_headers={"X-Hocket-Run-Id": f"left-{number}"},
        )
        await anext(aiter(stream))
        left_s = time.perf_counter()
        await stream.close()
        await asyncio.wait_for(upstream.cancelled.wait(), BOUND_S)
        took_ms.append((time.perf_counter() - left_s) * 1000)
    assert min(took_ms) < CANCEL_BOUND_MS, took_ms  # a busy machine only ever makes it later
    booked = await house.eventually_booked("left-0")
    assert (booked.status, booked.output_tokens) == ("cancelled", 1)


async def test_an_answer_that_nobody_waits_for_is_stopped_at_the_upstream(
    client: AsyncOpenAI, upstream: Upstream
) -> None:
    upstream.answer = upstream.hangs
    asking = asyncio.create_task(client.chat.completions.create(model="scripted", messages=ASK))
    await asyncio.wait_for(upstream.called.wait(), BOUND_S)
    asking.cancel()
    await asyncio.wait_for(upstream.cancelled.wait(), BOUND_S)


async def test_a_stream_that_cannot_begin_is_begun_elsewhere(
    client: AsyncOpenAI, upstream: Upstream
) -> None:
    upstream.answer = upstream.fails(503)
    for _ in range(2):  # whichever of the two is asked first
        stream = await client.chat.completions.create(
            model="guarded", messages=ASK, max_tokens=4, stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert len(text) == 16  # four tokens of the emulator


async def test_a_stream_that_breaks_ends_with_the_error(
    client: AsyncOpenAI, upstream: Upstream
) -> None:
    upstream.answer = upstream.streams(delta(content="ti"), then="cut")
    stream = await client.chat.completions.create(model="scripted", messages=ASK, stream=True)
    seen = []
    with pytest.raises(openai.APIError) as failed:
        await collect(seen, stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in seen) == "ti"
    assert failed.value.code == "backend_unreachable"


async def test_a_stream_that_fails_before_it_begins_is_a_plain_error(
    client: AsyncOpenAI, upstream: Upstream
) -> None:
    upstream.answer = upstream.fails(400)
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(model="scripted", messages=ASK, stream=True)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/chat/completions", 405),
        ("DELETE", "/models", 405),
        ("GET", "/nowhere", 404),
        ("POST", "/models/engine/x", 405),
        ("GET", "/openapi.json", 200),
        ("HEAD", "/models", 200),
    ],
)
async def test_paths_and_methods(house: House, method: str, path: str, status: int) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, house.gateway.url + path) as response,
    ):
        assert response.status == status
        if method != "HEAD":
            assert await response.json()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": 5}', b'{"a":' * 5_000, b"\xff"])
async def test_what_is_no_body_is_a_bad_request(house: House, body: bytes) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"{house.gateway.url}/chat/completions",
            data=body,
            headers={"Content-Type": "application/json"},
        ) as response,
    ):
        assert response.status == 400
        assert (await response.json())["error"]["code"] == "invalid_request"


async def collect(seen: list[Any], stream: Any) -> None:
    async for chunk in stream:
        seen.append(chunk)  # noqa: PERF401  # what came before the failure counts


async def test_a_compressed_body_is_refused_and_never_unpacked(
    house: House, client: AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked: list[int] = []
    real = ZLibDecompressor.decompress_sync

    def noted(self: ZLibDecompressor, data: Buffer, max_length: int = 0) -> bytes:
        unpacked.append(len(bytes(data)))
        return real(self, data, max_length)

    monkeypatch.setattr(ZLibDecompressor, "decompress_sync", noted)
    headers = {
        "Authorization": f"Bearer {client.api_key}",
        "Content-Type": "application/json",
        "Content-Encoding": "gzip",
    }
    bomb = gzip.compress(b'{"model": "' + bytes(1_000_000))
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{client.base_url}chat/completions", data=bomb, headers=headers) as reply,
    ):
        assert (reply.status, (await reply.json())["error"]["code"]) == (415, "body_encoded")
    assert unpacked == []
