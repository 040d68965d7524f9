"""Triton over gRPC, using the messages of tritonclient."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from hocket.gateway.backends.http_endpoint import MAX_REPLY_BYTES
from hocket.gateway.backends.protocol import (
    BackendBroken,
    BackendMisconfigured,
    BackendRefused,
    BackendUnreachable,
)
from hocket.gateway.backends.triton.grpc_errors import GrpcErrors
from hocket.gateway.backends.triton.transport_protocol import Answer
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.protocols.tensors import Tensor
from hocket.gateway.core.protocols.triton import Interface, Port

FINAL = "triton_final_response"
WITH_FINAL = "triton_enable_empty_final_response"
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_REPLY_BYTES),
    ("grpc.max_send_message_length", MAX_REPLY_BYTES),
    ("grpc.enable_retries", 0),
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
        self._model, self._version = spec.target, spec.triton.version
        secret = "" if spec.api_key is None else spec.api_key.get_secret_value()
        self._errors = GrpcErrors(spec, secret, now_ms)
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
        self._errors.check_size(request.ByteSize())  # gRPC would not say so of a stream
        async with self._errors.converted(timeout_ms):
            call = self._stub.ModelStreamInfer(
                _once(request), timeout=timeout_ms / 1000, metadata=self._metadata
            )
            try:
                async for response in call:
                    if response.error_message:
                        raise self._errors.of_stream(response.error_message)
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
            raise self._errors.unreadable()
        return {
            output.name: Tensor(output.name, output.datatype, tuple(output.shape), content)
            for output, content in zip(response.outputs, response.raw_output_contents, strict=True)
        }

    async def _ask(
        self, method: Callable[..., Awaitable[Any]], request: Any, timeout_ms: float
    ) -> Any:
        async with self._errors.converted(timeout_ms):
            return await method(request, timeout=timeout_ms / 1000, metadata=self._metadata)


async def _once(request: Any) -> AsyncIterator[Any]:
    yield request


def _port(described: Any) -> tuple[str, Port]:
    return described.name, Port(described.datatype, tuple(described.shape))
