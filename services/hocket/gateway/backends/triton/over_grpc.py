"""Triton over gRPC, using the messages of tritonclient."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import grpc
from google.protobuf.json_format import MessageToDict
from grpc import StatusCode
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from hocket.gateway.backends.endpoint_errors import (
    MAX_REASON_CHARS,
    MAX_REST_MS,
    REST_MS,
    EndpointErrors,
)
from hocket.gateway.backends.http_endpoint import MAX_REPLY_BYTES, TOO_LARGE
from hocket.gateway.backends.protocol import (
    BackendBroken,
    BackendDenied,
    BackendError,
    BackendMisconfigured,
    BackendRateLimited,
    BackendRefused,
    BackendReplyMalformed,
    BackendTimedOut,
    BackendUnreachable,
    BackendUnsuited,
)
from hocket.gateway.backends.triton.transport_protocol import Answer
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.protocols.tensors import Tensor
from hocket.gateway.core.protocols.triton import Interface, Port

PUSHBACK = "grpc-retry-pushback-ms"
"""The metadata key by which a server says how long to wait (gRPC's retry design, A6)."""
_UNCONNECTED = ("failed to connect", "errors resolving", "resolution failed")
"""What is in gRPC's messages, in lower case, when no connection was established."""
_ADDRESSES = r"ipv[46]:|unix:|dns:|://"
"""What is in gRPC's messages that name the address of a server, in which its name may be, too."""
_TOO_LARGE = re.compile(r"\b(?:(CLIENT|SERVER): )?(Sent|Received) message larger than max\b")
"""How gRPC says which side found a message too large, and whether that side was to send it. Old servers
do not say that it was they."""
_OWN_REQUEST = ("CLIENT", "Sent")
_REQUEST = (_OWN_REQUEST, ("SERVER", "Received"))
FINAL = "triton_final_response"
WITH_FINAL = "triton_enable_empty_final_response"
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_REPLY_BYTES),
    ("grpc.max_send_message_length", MAX_REPLY_BYTES),
    ("grpc.enable_retries", 0),
)
_MISCONFIGURED = (StatusCode.NOT_FOUND, StatusCode.UNIMPLEMENTED)
_DENIED = (StatusCode.UNAUTHENTICATED, StatusCode.PERMISSION_DENIED)
_REFUSED = (
    StatusCode.INVALID_ARGUMENT,
    StatusCode.OUT_OF_RANGE,
    StatusCode.FAILED_PRECONDITION,
)


class OverGrpc:
    """See `Transport`."""

    def __init__(self, spec: BackendSpec, now_ms: Callable[[], float]) -> None:
        scheme, _, place = spec.base_url.partition("://")
        if scheme == "grpcs":
            credentials = grpc.ssl_channel_credentials()
            self._channel = grpc.aio.secure_channel(place, credentials, options=_OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(place, options=_OPTIONS)
        self._stub: Any = GRPCInferenceServiceStub(self._channel)
        host = re.escape(urlsplit(spec.base_url).hostname or place)
        self._address = re.compile(rf"{_ADDRESSES}|(?<![\w.-]){host}(?![\w-])", re.IGNORECASE)
        self._spec = spec
        self._now_ms = now_ms
        self._model, self._version = spec.target, spec.triton.version
        secret = "" if spec.api_key is None else spec.api_key.get_secret_value()
        self._errors = EndpointErrors(spec.name, secret, now_ms)
        self._metadata: tuple[tuple[str, str], ...] = ()
        if secret:
            self._metadata = (("authorization", f"Bearer {secret}"),)

    async def interface(self, *, timeout_ms: float) -> Interface:
        named = {"name": self._model, "version": self._version}
        metadata = await self._ask(
            self._stub.ModelMetadata, messages.ModelMetadataRequest(**named), timeout_ms
        )
        config = (
            await self._ask(
                self._stub.ModelConfig, messages.ModelConfigRequest(**named), timeout_ms
            )
        ).config
        return Interface(
            model=metadata.name,
            inputs=dict(map(_port, metadata.inputs)),
            outputs=dict(map(_port, metadata.outputs)),
            max_batch=config.max_batch_size,
            decoupled=config.model_transaction_policy.decoupled,
        )

    async def infer(self, inputs: Sequence[Tensor], *, timeout_ms: float) -> Answer:
        response = await self._ask(self._stub.ModelInfer, self._request(inputs), timeout_ms)
        return self._answer(response)

    async def stream(self, inputs: Sequence[Tensor], *, timeout_ms: float) -> AsyncIterator[Answer]:
        request = self._request(inputs)
        request.parameters[WITH_FINAL].bool_param = True
        if request.ByteSize() > MAX_REPLY_BYTES:  # gRPC would not say so of a stream
            raise self._too_large(*_OWN_REQUEST)
        async with self._failures(timeout_ms):
            call = self._stub.ModelStreamInfer(
                _once(request), timeout=timeout_ms / 1000, metadata=self._metadata
            )
            try:
                async for response in call:
                    if response.error_message:
                        raise BackendBroken(
                            component=self._spec.name,
                            status="stream",
                            reason=self._errors.redacted(response.error_message)[:MAX_REASON_CHARS],
                        )
                    answer = self._answer(response.infer_response)
                    if answer:
                        yield answer
                    if response.infer_response.parameters[FINAL].bool_param:
                        return
            finally:
                call.cancel()

    async def load(self, *, timeout_ms: float) -> None:
        request = messages.RepositoryModelLoadRequest(model_name=self._model)
        await self._ask(self._stub.RepositoryModelLoad, request, timeout_ms)

    async def unload(self, *, timeout_ms: float) -> None:
        request = messages.RepositoryModelUnloadRequest(model_name=self._model)
        await self._ask(self._stub.RepositoryModelUnload, request, timeout_ms)

    async def ready(self, *, timeout_ms: float) -> bool:
        request = messages.ModelReadyRequest(name=self._model, version=self._version)
        try:
            response = await self._ask(self._stub.ModelReady, request, timeout_ms)
        except (BackendRefused, BackendMisconfigured, BackendBroken, BackendUnreachable):
            return False
        return bool(response.ready)

    async def statistics(self, *, timeout_ms: float) -> dict[str, Any]:
        request = messages.ModelStatisticsRequest(name=self._model, version=self._version)
        response = await self._ask(self._stub.ModelStatistics, request, timeout_ms)
        statistics: dict[str, Any] = MessageToDict(response, preserving_proto_field_name=True)
        return statistics

    async def close(self) -> None:
        await self._channel.close()

    def _request(self, inputs: Sequence[Tensor]) -> Any:
        return messages.ModelInferRequest(
            model_name=self._model,
            model_version=self._version,
            inputs=[
                messages.ModelInferRequest.InferInputTensor(
                    name=tensor.name, datatype=tensor.datatype, shape=tensor.shape
                )
                for tensor in inputs
            ],
            raw_input_contents=[tensor.content for tensor in inputs],
        )

    def _answer(self, response: Any) -> Answer:
        if len(response.outputs) != len(response.raw_output_contents):
            raise BackendReplyMalformed(
                component=self._spec.name, reason="its outputs did not arrive as raw bytes"
            )
        return {
            output.name: Tensor(output.name, output.datatype, tuple(output.shape), content)
            for output, content in zip(response.outputs, response.raw_output_contents, strict=True)
        }

    async def _ask(
        self, method: Callable[..., Awaitable[Any]], request: Any, timeout_ms: float
    ) -> Any:
        async with self._failures(timeout_ms):
            return await method(request, timeout=timeout_ms / 1000, metadata=self._metadata)

    @asynccontextmanager
    async def _failures(self, timeout_ms: float) -> AsyncIterator[None]:
        """Convert gRPC's exceptions to BackendErrors."""
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise self._failure(error, timeout_ms) from error

    def _failure(self, error: grpc.aio.AioRpcError, timeout_ms: float) -> BackendError:
        code = error.code()
        component = self._spec.name
        details = error.details() or "no reason given"
        reason = self._errors.redacted(details)[:MAX_REASON_CHARS]
        fields: dict[str, Any] = {"component": component, "status": code.name, "reason": reason}
        if code is StatusCode.UNAVAILABLE:
            return self._unreachable(details)
        if code is StatusCode.DEADLINE_EXCEEDED:
            return BackendTimedOut(component=component, timeout_ms=round(timeout_ms))
        if code is StatusCode.RESOURCE_EXHAUSTED:
            if (found := _TOO_LARGE.search(details)) is not None:
                return self._too_large(found[1] or "SERVER", found[2])
            return BackendRateLimited(**fields, retry_at_ms=self._now_ms() + _rest_ms(error))
        if code in _DENIED:
            return BackendDenied(**fields)
        if code in _MISCONFIGURED:
            return BackendMisconfigured(**fields)
        if code in _REFUSED:
            return BackendRefused(**fields)
        return BackendBroken(**fields)

    def _unreachable(self, details: str) -> BackendUnreachable:
        """Return the error for a server that gave no answer, without its address, which is nothing for
        callers."""
        unconnected = any(words in details.lower() for words in _UNCONNECTED)
        is_private = unconnected or self._address.search(details) is not None
        reason = "no connection" if is_private else details
        return BackendUnreachable(
            component=self._spec.name,
            reason=self._errors.told(reason, details),
            unconnected=unconnected,
        )

    def _too_large(self, side: str, was_to: str) -> BackendError:
        """Return the error for a message that gRPC found too large: one request, or its answer."""
        if (side, was_to) not in _REQUEST:
            return self._errors.too_large(TOO_LARGE, MAX_REPLY_BYTES)
        unsent = side == "CLIENT"
        most = f"{MAX_REPLY_BYTES} bytes" if unsent else "its server takes"
        reason = f"the request has more than {most}: send less at once"
        return BackendUnsuited(
            component=self._spec.name, status="request", reason=reason, unsent=unsent
        )


async def _once(request: Any) -> AsyncIterator[Any]:
    yield request


def _port(described: Any) -> tuple[str, Port]:
    return described.name, Port(described.datatype, tuple(described.shape))


def _rest_ms(error: grpc.aio.AioRpcError) -> float:
    for name, value in error.trailing_metadata() or ():
        if name == PUSHBACK and str(value).isascii() and str(value).isdigit():
            return min(float(value), MAX_REST_MS)
    return REST_MS
