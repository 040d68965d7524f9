"""Answers of Triton servers: of another version of the model, large ones, and those of gRPC itself."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import grpc
import pytest
from structlog.testing import capture_logs

from hocket.gateway.backends.http_endpoint import MAX_REPLY_BYTES
from hocket.gateway.backends.protocol import (
    BackendError,
    BackendMisconfigured,
    BackendRateLimited,
    BackendRefused,
    BackendReplyMalformed,
    BackendReplyTooLarge,
    BackendUnreachable,
    BackendUnsuited,
    CallUnsuited,
)
from hocket.gateway.backends.triton import backend as triton_backend
from hocket.gateway.backends.triton import grpc_errors
from hocket.gateway.backends.triton.backend import FORGET_MS, LARGE_BYTES, TritonBackend
from hocket.gateway.backends.triton.grpc_errors import GrpcErrors
from hocket.gateway.backends.triton.over_grpc import OverGrpc
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.protocols.tensors import Tensor, encoded
from hocket.gateway.core.protocols.triton import Interface, Port, TritonOptions, completion
from hocket.kit.process import clock
from hocket.schemas.messages import CallRequest, Completion

SPEC = BackendSpec("b", kind="triton", target="m")
CALL = CallRequest(
    call_id="c", model="m", messages=({"role": "user", "content": "x"},), deadline_at_ms=0
)
EMBED = CALL.model_copy(update={"messages": (), "embed": ("x",)})
TENSORS = CALL.model_copy(update={"messages": (), "context": {"tensors": {"new": 1}}})
HOST = "gpu-7.internal"


class Server:
    """A server whose model has these inputs and outputs, by datatype; the test replaces them."""

    def __init__(self, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.values: dict[str, Any] = {"BYTES": ["tidal"], "FP32": [[0.5, 1.0]]}
        self.asked = 0

    async def interface(self, *, timeout_ms: float) -> Interface:
        self.asked += 1
        inputs, outputs = (
            {name: Port(datatype, (1,)) for name, datatype in ports.items()}
            for ports in (self.inputs, self.outputs)
        )
        return Interface("m", inputs, outputs)

    async def infer(self, inputs: Sequence[Tensor], *, timeout_ms: float) -> dict[str, Tensor]:
        return {
            name: encoded(name, datatype, self.values[datatype])
            for name, datatype in self.outputs.items()
        }


OLD_INPUTS, OLD_OUTPUTS = {"text": "BYTES"}, {"text": "BYTES", "vector": "FP32"}


@pytest.mark.parametrize(
    ("call", "inputs", "outputs", "error"),
    [
        (CALL, {}, {"text_output": "BYTES"}, BackendReplyMalformed),
        (EMBED, {}, {"embedding": "FP32"}, BackendReplyMalformed),
        (TENSORS, {"new": "FP32"}, {}, BackendRefused),
    ],
    ids=["a text", "an embedding", "an input"],
)
async def test_the_model_is_asked_for_its_interface_again_if_that_no_longer_suits(
    call: CallRequest, inputs: dict[str, str], outputs: dict[str, str], error: type[BackendError]
) -> None:
    server = Server(OLD_INPUTS, OLD_OUTPUTS)
    backend = TritonBackend(SPEC, cast(Any, server))
    before = await backend.call(CALL, timeout_ms=60_000)
    assert await backend.call(CALL, timeout_ms=60_000) == before
    server.inputs, server.outputs = inputs or OLD_INPUTS, outputs or OLD_OUTPUTS
    with pytest.raises(error):
        await backend.call(call, timeout_ms=60_000)
    assert server.asked == 1
    made = await backend.call(call, timeout_ms=60_000)
    assert (made.text, made.embeddings) in (("tidal", ()), ("", ((0.5, 1.0),)))
    assert server.asked == 2


async def test_a_model_that_gets_an_output_for_the_text_can_be_asked() -> None:
    server = Server(OLD_INPUTS, {"vector": "FP32"})
    backend = TritonBackend(SPEC, cast(Any, server))
    with pytest.raises(BackendMisconfigured):
        await backend.call(CALL, timeout_ms=60_000)
    server.outputs = OLD_OUTPUTS
    assert (await backend.call(CALL, timeout_ms=60_000)).text == "tidal"


async def test_requests_that_do_not_suit_cause_few_questions_for_the_interface(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Callers may send any tensors, and the others' calls would wait for the interface each time."""
    now_ms = 0.0
    monkeypatch.setattr(clock, "monotonic_ms", lambda: now_ms)
    server = Server(OLD_INPUTS, OLD_OUTPUTS)
    backend = TritonBackend(SPEC, cast(Any, server))
    asked = []
    for now_ms in (0.0, 1.0, FORGET_MS - 1, FORGET_MS):  # noqa: B007 - the clock reads it
        with pytest.raises(BackendRefused):
            await backend.call(TENSORS, timeout_ms=60_000)
        await backend.call(CALL, timeout_ms=60_000)
        asked.append(server.asked)
    assert asked == [2, 2, 2, 3]


async def test_an_answer_that_came_in_time_may_be_read_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that reads large ones may be busy, however long."""
    in_force: list[float] = []
    limits: list[float] = []
    timeout_at = asyncio.timeout_at

    @asynccontextmanager
    async def until(when_s: float) -> AsyncIterator[None]:
        in_force.append(when_s)
        async with timeout_at(when_s):
            yield
        in_force.remove(when_s)

    def within(delay_s: float) -> AbstractAsyncContextManager[None]:
        return until(asyncio.get_running_loop().time() + delay_s)

    async def beside(work: Callable[[], Completion]) -> Completion:
        limits.extend(in_force)
        return work()

    monkeypatch.setattr(asyncio, "timeout", within)
    monkeypatch.setattr(asyncio, "timeout_at", until)
    monkeypatch.setattr(triton_backend, "beside", beside)
    server = Server(OLD_INPUTS, OLD_OUTPUTS)
    server.values["FP32"] = [[0.5] * (LARGE_BYTES // 4)]
    made = await TritonBackend(SPEC, cast(Any, server)).call(EMBED, timeout_ms=60_000)
    assert len(made.embeddings[0]) == LARGE_BYTES // 4
    assert limits == []


async def test_what_an_answer_counts_is_spent_even_if_it_lacks_the_embedding() -> None:
    spec = BackendSpec("b", kind="triton", target="m", triton=TritonOptions(input_tokens="n"))
    server = Server(OLD_INPUTS, {"n": "INT32", "other": "FP32", "vector": "FP32"})
    spec = replace(spec, triton=replace(spec.triton, embedding_output="gone"))
    server.values["INT32"] = [7]
    with pytest.raises(BackendReplyMalformed) as failed:
        await TritonBackend(spec, cast(Any, server)).call(EMBED, timeout_ms=60_000)
    assert failed.value.spent.input_tokens == 7


async def test_an_error_of_an_answer_does_not_say_that_nothing_was_sent() -> None:
    server = Server(OLD_INPUTS, {"a": "FP32", "b": "FP32"})
    with pytest.raises(BackendMisconfigured) as failed:
        await TritonBackend(SPEC, cast(Any, server)).call(EMBED, timeout_ms=60_000)
    assert "not sent" not in str(failed.value)


@pytest.mark.parametrize(
    ("tells", "decoupled"),
    [("finish", False), ("n", False), ("other", True)],
    ids=["how it ended", "a count", "nothing, as one of several answers"],
)
def test_an_answer_without_a_text_may_be_an_empty_one(tells: str, decoupled: bool) -> None:
    names = TritonOptions(text_output="text", finish_reason="finish", output_tokens="n")
    outputs = {"text": Port("BYTES", (1,))}
    told = {
        "finish": encoded("finish", "BYTES", ["content_filter"]),
        "n": encoded("n", "INT32", [0]),
        "other": encoded("other", "INT32", [0]),
    }
    interface = Interface("m", {}, outputs, decoupled=decoupled)
    made = completion(CALL, interface, names, [{tells: told[tells]}])
    assert made.text == ""
    assert made.finish_reason == ("content_filter" if tells == "finish" else "stop")


@pytest.mark.parametrize("is_large", [False, True])
async def test_a_large_answer_is_read_in_a_thread(
    is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    read = TritonBackend._read

    def seen(*given: Any) -> Completion:
        threads.append(threading.get_ident())
        return read(*given)

    monkeypatch.setattr(TritonBackend, "_read", seen)
    server = Server(OLD_INPUTS, OLD_OUTPUTS)
    numbers = LARGE_BYTES // 4 if is_large else 4
    server.values["FP32"] = [[0.5] * numbers]
    made = await TritonBackend(SPEC, cast(Any, server)).call(EMBED, timeout_ms=60_000)
    assert made.embeddings == ((0.5,) * numbers,)
    assert (threads == [threading.get_ident()]) is not is_large


# ---- gRPC -----------------------------------------------------------------------------------


async def failure(code: grpc.StatusCode, details: str) -> BackendError:
    spec = BackendSpec("b", "triton", "m", base_url=f"grpc://{HOST}:8001", triton=TritonOptions())
    empty = grpc.aio.Metadata()
    with pytest.raises(BackendError) as failed:
        async with GrpcErrors(spec, "", lambda: 0.0).converted(60_000):
            raise grpc.aio.AioRpcError(code, empty, empty, details)
    return failed.value


@pytest.mark.parametrize(
    ("details", "error"),
    [
        ("CLIENT: Sent message larger than max (37748769 vs. 33554432)", CallUnsuited),
        ("SERVER: Received message larger than max (9 vs. 8)", BackendUnsuited),
        ("Received message larger than max (5000000 vs. 4194304)", BackendUnsuited),
        (
            "Stream removed (CLIENT: Received message larger than max (9 vs. 8))",
            BackendReplyTooLarge,
        ),
        ("SERVER: Sent message larger than max (9 vs. 8)", BackendReplyTooLarge),
        ("Exceeds maximum queue size", BackendRateLimited),
    ],
)
async def test_a_message_that_is_too_large_is_no_rate_limit(
    details: str, error: type[BackendError]
) -> None:
    failed = await failure(grpc.StatusCode.RESOURCE_EXHAUSTED, details)
    assert type(failed) is error
    assert failed.unsent is details.startswith("CLIENT: Sent")
    if isinstance(failed, BackendReplyTooLarge):
        assert (failed.retryable, failed.spent.estimated) == (False, True)
        assert failed.read_bytes == MAX_REPLY_BYTES


async def test_a_request_that_is_too_large_for_a_stream_is_refused_unsent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """gRPC would only say that something went wrong within it."""
    monkeypatch.setattr(grpc_errors, "MAX_REPLY_BYTES", 1_000)
    spec = BackendSpec("b", "triton", "m", base_url=f"grpc://{HOST}:8001", triton=TritonOptions())
    server = OverGrpc(spec, lambda: 0.0)
    text = encoded("text", "BYTES", ["x" * 1_000])
    with pytest.raises(BackendUnsuited) as failed:
        async for _ in server.stream([text], timeout_ms=60_000):
            pass
    await server.close()
    assert failed.value.unsent
    assert "1000 bytes" in str(failed.value)


@pytest.mark.parametrize(
    ("details", "unconnected"),
    [
        ("failed to connect to all addresses; last error: UNKNOWN: ipv4:10.7.7.7:8001: x", True),
        (f"errors resolving {HOST}:8001: [field:hostname lookup error: not found]", True),
        (f"DNS resolution failed for {HOST}:8001: C-ares status is not ARES_SUCCESS", True),
        ("recvmsg:Connection reset by peer [ipv6:%5B::1%5D:8001]", False),
        (f"Peer name {HOST.upper()} is not in peer certificate", False),
    ],
)
async def test_callers_are_not_told_the_address_of_a_server_and_the_log_is(
    details: str, unconnected: bool
) -> None:
    with capture_logs() as logs:
        failed = await failure(grpc.StatusCode.UNAVAILABLE, details)
    assert isinstance(failed, BackendUnreachable)
    assert failed.fields["reason"] == "no connection"
    assert failed.unconnected is unconnected
    assert [log["reason"] for log in logs] == [details]


async def test_what_a_server_says_itself_is_told() -> None:
    with capture_logs() as logs:
        failed = await failure(grpc.StatusCode.UNAVAILABLE, "Request for unknown model: 'm'")
    assert (failed.fields["reason"], failed.unconnected) == (
        "Request for unknown model: 'm'",
        False,
    )
    assert logs == []
