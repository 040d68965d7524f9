"""A local server that speaks Triton's protocol over HTTP and gRPC, for answers that a real one cannot
be made to give. Its only model `m-1` takes TEXT and returns text, tokens and vectors; the test controls
it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from aiohttp import web
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc.service_pb2_grpc import (
    GRPCInferenceServiceServicer,
    add_GRPCInferenceServiceServicer_to_server,
)

from hocket.gateway.core.protocols.tensors import Tensor, decoded, encoded

HEADER_LENGTH = "Inference-Header-Content-Length"
INPUTS = {"TEXT": ("BYTES", (-1, 1))}
OUTPUTS = {
    "ANSWER": ("BYTES", (-1, 1)),
    "VECTOR": ("FP32", (-1, 2)),
    "TOKENS_IN": ("INT32", (-1, 1)),
    "TOKENS_OUT": ("INT32", (-1, 1)),
    "TOKENS_CACHED": ("INT32", (-1, 1)),
}
MAX_BATCH = 2
Infer = Callable[[list[str]], Awaitable[dict[str, Tensor]]]


class Failure(Exception):
    """An error that the model answers with: a status for HTTP, a code for gRPC."""

    def __init__(self, status: int, code: grpc.StatusCode) -> None:
        super().__init__("no luck")
        self.status, self.code = status, code


class Triton:
    """The server's addresses, the requests that it received, and its model's behaviour."""

    def __init__(self) -> None:
        self.http_url = self.grpc_url = ""
        self.batches: list[list[str]] = []
        self.called, self.cancelled = asyncio.Event(), asyncio.Event()
        self.behave: Infer = self.completes
        self.nonsense = False
        self.loaded: list[str] = []

    async def infer(self, content: bytes, shape: tuple[int, ...]) -> dict[str, Tensor]:
        texts = [row[0] for row in decoded(Tensor("TEXT", "BYTES", shape, content))]
        self.batches.append(texts)
        self.called.set()
        return await self.behave(texts)

    async def completes(self, texts: list[str]) -> dict[str, Tensor]:
        """Return `tidal` (JSON if the prompt asks for it) with 120 tokens in, 20 cached, 7 out. For
        texts that are numbers, return the vectors [number, 0.5], and 11 tokens in total."""
        numbers = [int(text) for text in texts if text.isdigit()]
        one = [len(texts), 1]
        if numbers:
            tokens_in, tokens_out, cached = [11 if n == 0 else 0 for n in numbers], 0, 0
        else:
            tokens_in, tokens_out, cached = [120] * len(texts), 7, 20
        answer = '{"port": "Brest"}' if "JSON" in texts[0] else "tidal"
        made = [
            encoded("ANSWER", "BYTES", [answer] * len(texts), one),
            encoded("VECTOR", "FP32", [[float(n), 0.5] for n in numbers or [0]]),
            encoded("TOKENS_IN", "INT32", tokens_in, one),
            encoded("TOKENS_OUT", "INT32", [tokens_out] * len(texts), one),
            encoded("TOKENS_CACHED", "INT32", [cached] * len(texts), one),
        ]
        return {tensor.name: tensor for tensor in made}

    async def hangs(self, texts: list[str]) -> dict[str, Tensor]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        raise AssertionError("it hangs for ever")

    def fails(self, failure: Failure) -> Infer:
        async def infer(texts: list[str]) -> dict[str, Tensor]:
            raise failure

        return infer


# ---- HTTP -----------------------------------------------------------------------------------


def _application(triton: Triton) -> web.Application:
    async def metadata(_: web.Request) -> web.Response:
        ports = {
            kind: [
                {"name": name, "datatype": datatype, "shape": shape}
                for name, (datatype, shape) in described.items()
            ]
            for kind, described in (("inputs", INPUTS), ("outputs", OUTPUTS))
        }
        return web.json_response({"name": "m-1", **ports})

    async def config(_: web.Request) -> web.Response:
        return web.json_response({"name": "m-1", "max_batch_size": MAX_BATCH})

    async def infer(request: web.Request) -> web.Response:
        content = await request.read()
        at = int(request.headers[HEADER_LENGTH])
        shape = tuple(json.loads(content[:at])["inputs"][0]["shape"])
        try:
            made = await triton.infer(content[at:], shape)
        except Failure as failure:
            error = {"error": str(failure)}
            return web.json_response(error, status=failure.status, headers={"Retry-After": "3"})
        if triton.nonsense:
            return web.Response(body=b"<html>")
        outputs = [
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": tensor.shape,
                "parameters": {"binary_data_size": len(tensor.content)},
            }
            for tensor in made.values()
        ]
        head = json.dumps({"model_name": "m-1", "outputs": outputs}).encode()
        body = head + b"".join(tensor.content for tensor in made.values())
        return web.Response(body=body, headers={HEADER_LENGTH: str(len(head))})

    async def loads(request: web.Request) -> web.Response:
        triton.loaded.append(request.match_info["action"])
        return web.Response()

    application = web.Application()
    application.router.add_get("/v2/models/m-1", metadata)
    application.router.add_get("/v2/models/m-1/config", config)
    application.router.add_post("/v2/models/m-1/infer", infer)
    application.router.add_post("/v2/repository/models/m-1/{action}", loads)
    return application


# ---- gRPC -----------------------------------------------------------------------------------


class _Servicer(GRPCInferenceServiceServicer):  # type: ignore[misc]
    def __init__(self, triton: Triton) -> None:
        self._triton = triton

    async def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        def ports(described: dict[str, tuple[str, tuple[int, ...]]]) -> list[Any]:
            return [
                messages.ModelMetadataResponse.TensorMetadata(name=n, datatype=d, shape=s)
                for n, (d, s) in described.items()
            ]

        return messages.ModelMetadataResponse(
            name="m-1", inputs=ports(INPUTS), outputs=ports(OUTPUTS)
        )

    async def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        response = messages.ModelConfigResponse()
        response.config.max_batch_size = MAX_BATCH
        return response

    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        shape = tuple(request.inputs[0].shape)
        try:
            made = await self._triton.infer(request.raw_input_contents[0], shape)
        except Failure as failure:
            context.set_trailing_metadata((("grpc-retry-pushback-ms", "3000"),))
            await context.abort(failure.code, str(failure))
        if self._triton.nonsense:
            broken = messages.ModelInferResponse.InferOutputTensor(
                name="ANSWER", datatype="BYTES", shape=[1, 1]
            )
            return messages.ModelInferResponse(outputs=[broken], raw_output_contents=[b"\xff"])
        return messages.ModelInferResponse(
            model_name="m-1",
            outputs=[
                messages.ModelInferResponse.InferOutputTensor(
                    name=tensor.name, datatype=tensor.datatype, shape=tensor.shape
                )
                for tensor in made.values()
            ],
            raw_output_contents=[tensor.content for tensor in made.values()],
        )

    async def RepositoryModelLoad(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._triton.loaded.append("load")
        return messages.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._triton.loaded.append("unload")
        return messages.RepositoryModelUnloadResponse()


@asynccontextmanager
async def running_triton() -> AsyncIterator[Triton]:
    """Serve on free ports of the loopback interface."""
    triton = Triton()
    runner = web.AppRunner(
        _application(triton), handler_cancellation=True, access_log=None, shutdown_timeout=0.1
    )
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    triton.http_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    server = grpc.aio.server()
    add_GRPCInferenceServiceServicer_to_server(_Servicer(triton), server)
    triton.grpc_url = f"grpc://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield triton
    finally:
        await server.stop(None)
        await runner.cleanup()
