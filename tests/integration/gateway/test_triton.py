"""A real Triton Inference Server behind the gateway: text, embeddings, tensors, an ensemble, streams,
loading and unloading, statistics, cancellation, and a server that is killed.

The server comes from PyPI into the user's cache (see tests/support/gateway/triton_server.py); where it
cannot run the tests are skipped with the reason.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.kit.process import clock
from hocket.schemas import subjects
from hocket.schemas.messages import (
    BackendControl,
    BackendControlled,
    CallCancelled,
    CallReply,
    CallRequest,
    ChatMessage,
)
from support.gateway.gateway_process import BOUND_MS, BOUND_S, call, records, running_gateway
from support.gateway.mock_upstream import Upstream, running_upstream
from support.gateway.triton_server import TritonMissing, TritonServer, running_triton_server

NUMBERS = itertools.count(1)
MODELS = ("shout", "lengths", "shout_lengths", "scale", "teller", "sleeper")


@pytest.fixture(scope="module")
async def triton(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TritonServer]:
    try:
        async with running_triton_server(tmp_path_factory.mktemp("triton")) as server:
            yield server
    except TritonMissing as missing:
        pytest.skip(f"no Triton here: {missing}")


@pytest.fixture(scope="module")
async def bus(
    triton: TritonServer, servers: EmbeddedServers, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Bus]:
    """The bus of one gateway over all models of the server, each both ways."""
    bus = await Bus.connect(servers.nats_url, name="test")
    await ensure_streams(bus)
    folder = tmp_path_factory.mktemp("gateway")
    async with (
        running_upstream() as spare,
        running_gateway(servers.nats_url, folder, section(triton, spare)),
    ):
        yield bus
    for stream in await bus.js.streams_info():
        assert stream.config.name is not None
        await bus.js.delete_stream(stream.config.name)
    await bus.close()


@pytest.fixture(params=["http", "grpc"])
def way(request: pytest.FixtureRequest) -> str:
    """How the gateway reaches the server; models are named `<way>-<model>`."""
    return str(request.param)


def section(triton: TritonServer, upstream: Upstream) -> dict[str, Any]:
    options: dict[str, dict[str, str]] = {
        "shout": {"input_tokens": "TOKENS_IN", "output_tokens": "TOKENS_OUT"}
    }
    models = {
        f"{way}-{model}": {"backends": [backend(url, f"{way}-{model}", **options.get(model, {}))]}
        for way, url in (("http", triton.http_url), ("grpc", triton.grpc_url))
        for model in MODELS
    }
    spare = {
        "name": "spare",
        "base_url": upstream.base_url,
        "model": "m-1",
        "prices": {"input_usd_per_mtok": "999"},
    }
    guarded = [backend(triton.grpc_url, "first-shout"), spare]
    return {**models, "voice": {"backends": guarded}}


def backend(url: str, name: str, **options: str) -> dict[str, Any]:
    prices = {"input_usd_per_mtok": "1", "output_usd_per_mtok": "2"}
    model = name.partition("-")[2]
    where = {"name": name, "kind": "triton", "base_url": url, "model": model}
    return {**where, "prices": prices, "triton": options, "stops_on_disconnect": True}


def wanted(model: str, text: str = "", **fields: Any) -> CallRequest:
    messages = (ChatMessage(role="user", content=text),) if text else ()
    return CallRequest.model_validate(
        {
            "call_id": f"{model}:{next(NUMBERS)}",
            "model": model,
            "messages": messages,
            "deadline_at_ms": clock.now_ms() + BOUND_MS,
            **fields,
        }
    )


async def control(bus: Bus, action: str, name: str) -> BackendControlled:
    asked = BackendControl.model_validate({"action": action, "backend": name})
    message = await bus.request(
        subjects.GATEWAY_CONTROL, asked.model_dump_json().encode(), timeout_ms=BOUND_MS
    )
    return BackendControlled.model_validate_json(message.data)


def code(reply: CallReply) -> str:
    return reply.error.code if reply.error is not None else ""


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not holds():  # noqa: ASYNC110 - files of another process
            await asyncio.sleep(0.01)


async def test_a_model_gets_text_and_gives_text_and_is_booked(way: str, bus: Bus) -> None:
    reply = await call(bus, wanted(f"{way}-shout", "hear the tide"))
    (booked,) = [one for one in await records(bus) if one.call_id == reply.call_id]
    assert (code(reply), reply.text, reply.finish_reason) == ("", "HEAR THE TIDE", "stop")
    assert (booked.input_tokens, booked.output_tokens) == (3, 3)
    assert str(booked.cost_usd) == "0.000009"  # 3 tokens at 1 and 3 at 2 millionths


async def test_more_texts_than_a_batch_holds_are_embedded_in_order(way: str, bus: Bus) -> None:
    texts = tuple("x" * length + "A" for length in range(9))  # a batch holds 4
    reply = await call(bus, wanted(f"{way}-lengths", embed=texts))
    assert reply.embeddings == tuple((float(length + 1), 1.0) for length in range(9))


async def test_an_ensemble_is_one_model(way: str, bus: Bus) -> None:
    reply = await call(bus, wanted(f"{way}-shout_lengths", embed=("tide", "sea 1")))
    assert reply.embeddings == ((4.0, 4.0), (5.0, 3.0))  # all letters are capitals by then


async def test_tensors_go_in_by_name_and_come_out_by_name(way: str, bus: Bus) -> None:
    tensors = {"X": [[1.5, 2.0, -1.0], [0.0, 0.25, 1e300]], "FACTOR": 2}
    reply = await call(bus, wanted(f"{way}-scale", context={"tensors": tensors}))
    assert reply.data == {"Y": [[3.0, 4.0, -2.0], [0.0, 0.5, 2e300]]}


@pytest.mark.parametrize(
    ("tensors", "named"),
    [
        ({"X": [[1.0]], "Z": 1}, "Z"),
        ({"X": [[1.0], [2.0, 3.0]]}, "different lengths"),
        ({"X": [["one"], ["two"]]}, "not FP64"),
        ({"X": [[1.0], [2.0]]}, "expected 2 inputs but got 1"),
    ],
)
async def test_a_bad_tensor_is_refused(
    way: str, bus: Bus, tensors: dict[str, Any], named: str
) -> None:
    reply = await call(bus, wanted(f"{way}-scale", context={"tensors": tensors}))
    assert reply.error is not None
    assert reply.error.code == "backend_refused"
    assert named in reply.error.message


async def test_a_model_that_answers_word_by_word_is_read_to_its_end(way: str, bus: Bus) -> None:
    reply = await call(bus, wanted(f"{way}-teller", "two tides a day"))
    if way == "http":  # which carries one answer to a request
        assert code(reply) == "backend_misconfigured"
        return
    assert reply.text == "two tides a day "


async def test_a_call_cancelled_over_grpc_is_cancelled_on_the_server(
    bus: Bus, tmp_path: Path
) -> None:
    """Over HTTP this server does not notice that its caller has left."""
    asked = wanted("grpc-sleeper", str(tmp_path))
    waiting = asyncio.create_task(call(bus, asked))
    await until((tmp_path / "began").exists)
    cancelled = CallCancelled(call_id=asked.call_id)
    bus.publish_nowait(subjects.GATEWAY_CANCEL, cancelled.model_dump_json().encode())
    assert code(await waiting) == "call_cancelled"
    await until((tmp_path / "cancelled").exists)


async def test_an_unloaded_model_fails_with_a_type_until_it_is_loaded(way: str, bus: Bus) -> None:
    unloaded = await control(bus, "unload", f"{way}-shout")
    assert (unloaded.error, unloaded.ready) == (None, False)
    assert code(await call(bus, wanted(f"{way}-shout", "hear"))).startswith("backend_")
    loaded = await control(bus, "load", f"{way}-shout")
    assert (loaded.error, loaded.ready) == (None, True)
    assert (await call(bus, wanted(f"{way}-shout", "hear"))).text == "HEAR"


async def test_statistics_count_what_was_asked(way: str, bus: Bus) -> None:
    before = await inferences(bus, f"{way}-lengths")
    for _ in range(3):
        await call(bus, wanted(f"{way}-lengths", embed=("tide",)))
    counted = 0
    while counted < 3:  # a server counts behind its answer
        counted = await inferences(bus, f"{way}-lengths") - before
    assert counted == 3


async def inferences(bus: Bus, name: str) -> int:
    status = await control(bus, "status", name)
    assert status.statistics is not None
    (counted,) = status.statistics["model_stats"]
    return int(counted.get("inference_count", 0))  # protobuf leaves zeros out


@pytest.mark.parametrize(
    ("action", "name", "expected"),
    [
        ("load", "nobody", "backend_unknown"),
        ("status", "hocket-extractive", "backend_not_loadable"),
    ],
)
async def test_what_cannot_be_controlled_says_why(
    bus: Bus, action: str, name: str, expected: str
) -> None:
    done = await control(bus, action, name)
    assert done.error is not None
    assert done.error.code == expected


async def test_a_killed_server_is_a_typed_error_and_the_next_backend_serves(
    triton: TritonServer, bus: Bus
) -> None:
    """When it is back it is asked again."""
    assert (await call(bus, wanted("voice", "hear"))).backend == "first-shout"
    await triton.kill()
    served = await call(bus, wanted("voice", "hear"))
    alone = [await call(bus, wanted(f"{way}-shout", "hear")) for way in ("http", "grpc")]
    await triton.start()
    assert (code(served), served.backend, served.text) == ("", "spare", "tidal")
    assert [code(reply) for reply in alone] == ["backend_unreachable"] * 2
    for model in ("http-shout", "grpc-shout"):
        assert await answered(bus, model) == "HEAR"


async def answered(bus: Bus, model: str) -> str:
    """Ask until the model answers: a connection that failed is tried again after a pause."""
    async with asyncio.timeout(BOUND_S):
        while True:
            reply = await call(bus, wanted(model, "hear"))
            if not code(reply):
                return reply.text
