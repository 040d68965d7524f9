"""A model on Triton: text, embeddings and plain tensors; it can also be loaded, unloaded and
inspected.

The model's interface is queried once and cached; it is queried again after a load, and when the
server refuses a request. Cancelling a call cancels it on the server.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from hocket.gateway.backends.large_requests import converted
from hocket.gateway.backends.protocol import (
    ONE_PROMPT,
    BackendError,
    BackendMisconfigured,
    BackendRefused,
    BackendReplyMalformed,
    BackendTimedOut,
    BackendUnsuited,
    Chunk,
    Chunks,
)
from hocket.gateway.backends.triton.transport_protocol import Answer, Transport
from hocket.gateway.core.budgets.price import MAX_TOKENS
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.protocols.openai_api import (
    BYTES_PER_TOKEN,
    has_several_prompts,
    plain,
)
from hocket.gateway.core.protocols.tensors import Tensor, TensorInvalid
from hocket.gateway.core.protocols.triton import (
    Interface,
    InterfaceUnsuited,
    completion,
    requests,
    text_of,
    text_output,
)
from hocket.schemas.messages import CallRequest, Completion

MAX_PARALLEL = 8
"""The most parallel requests of one call whose texts do not fit into one request."""


class TritonBackend:
    """Calls the model `spec.target`."""

    def __init__(self, spec: BackendSpec, transport: Transport) -> None:
        self._spec = spec
        self._transport = transport
        self._known: Interface | None = None

    async def call(
        self, request: CallRequest, *, timeout_ms: float, chunks: Chunks | None = None
    ) -> Completion:
        """Make one call; the protocol lists the errors."""
        if await converted(request, has_several_prompts):
            raise BackendUnsuited(
                component=self._spec.name, status="request", reason=ONE_PROMPT, unsent=True
            )
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                as_texts = await converted(request, plain)
                return await self._call(as_texts, timeout_ms, chunks)
        except TimeoutError as error:
            raise BackendTimedOut(
                component=self._spec.name, timeout_ms=round(timeout_ms)
            ) from error

    async def load(self, *, timeout_ms: float) -> None:
        """Load the model, or reload it from its repository."""
        self._known = None
        await self._transport.load(timeout_ms=timeout_ms)

    async def unload(self, *, timeout_ms: float) -> None:
        """Unload the model; calls fail until it is loaded again."""
        self._known = None
        await self._transport.unload(timeout_ms=timeout_ms)

    async def ready(self, *, timeout_ms: float) -> bool:
        """Return whether the model can be asked."""
        return await self._transport.ready(timeout_ms=timeout_ms)

    async def statistics(self, *, timeout_ms: float) -> dict[str, Any]:
        """Return the server's statistics for the model."""
        return await self._transport.statistics(timeout_ms=timeout_ms)

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def _call(
        self, request: CallRequest, timeout_ms: float, chunks: Chunks | None
    ) -> Completion:
        interface = await self._interface(timeout_ms)
        try:
            asked = requests(request, interface, self._spec.triton)
        except TensorInvalid as error:
            raise self._failed(BackendRefused, error) from error
        except InterfaceUnsuited as error:
            raise self._failed(BackendMisconfigured, error) from error
        try:
            answers = await self._answers(interface, asked, timeout_ms, chunks)
        except BackendRefused:
            self._known = None  # a version with other inputs may be loaded now
            raise
        except TensorInvalid as error:
            raise BackendReplyMalformed(component=self._spec.name, reason=str(error)) from error
        except InterfaceUnsuited as error:
            raise self._failed(BackendMisconfigured, error) from error
        made = self._read(request, interface, answers)
        if chunks is not None and not interface.decoupled:
            await chunks(Chunk(made.text, output_tokens=made.output_tokens))
        return made

    async def _interface(self, timeout_ms: float) -> Interface:
        if self._known is None:
            self._known = await self._transport.interface(timeout_ms=timeout_ms)
        return self._known

    async def _answers(
        self,
        interface: Interface,
        asked: Sequence[Sequence[Tensor]],
        timeout_ms: float,
        chunks: Chunks | None,
    ) -> list[Answer]:
        if interface.decoupled:
            return [
                answer
                for inputs in asked
                async for answer in self._streamed(interface, inputs, timeout_ms, chunks)
            ]
        if len(asked) == 1:
            return [await self._transport.infer(asked[0], timeout_ms=timeout_ms)]
        return await self._in_parallel(asked, timeout_ms)

    async def _streamed(
        self,
        interface: Interface,
        inputs: Sequence[Tensor],
        timeout_ms: float,
        chunks: Chunks | None,
    ) -> AsyncIterator[Answer]:
        """Yield the answers to a request, sending the text in each as a chunk.

        A stream that breaks off has spent what arrived: a token for each answer, or for 4 bytes.
        """
        output = "" if chunks is None else text_output(interface, self._spec.triton)
        pieces = size = 0
        try:
            async for answer in self._transport.stream(inputs, timeout_ms=timeout_ms):
                pieces += 1
                if chunks is not None:
                    text = text_of(answer, output)
                    size += len(text.encode("utf-8", "replace"))
                    await chunks(Chunk(text, output_tokens=_tokens(pieces, size)))
                yield answer
        except BackendError as error:
            if pieces:
                error.spent = Completion(output_tokens=_tokens(pieces, size), estimated=True)
            raise

    async def _in_parallel(
        self, asked: Sequence[Sequence[Tensor]], timeout_ms: float
    ) -> list[Answer]:
        places = asyncio.Semaphore(MAX_PARALLEL)

        async def infer(inputs: Sequence[Tensor]) -> Answer:
            async with places:
                return await self._transport.infer(inputs, timeout_ms=timeout_ms)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(infer(inputs)) for inputs in asked]
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    def _read(
        self, request: CallRequest, interface: Interface, answers: Sequence[Answer]
    ) -> Completion:
        try:
            made = completion(request, interface, self._spec.triton, answers)
        except TensorInvalid as error:
            raise BackendReplyMalformed(component=self._spec.name, reason=str(error)) from error
        except InterfaceUnsuited as error:
            raise self._failed(BackendMisconfigured, error) from error
        if max(made.input_tokens, made.output_tokens, made.cached_tokens) > MAX_TOKENS:
            raise BackendReplyMalformed(component=self._spec.name, reason="too many tokens")
        if request.embed and len(made.embeddings) != len(request.embed):
            reason = f"{len(made.embeddings)} embeddings for {len(request.embed)} texts"
            raise BackendReplyMalformed(component=self._spec.name, reason=reason, spent=made)
        return made if self._counts(request) else made.model_copy(update={"estimated": True})

    def _counts(self, request: CallRequest) -> bool:
        """Whether the model's outputs tell all counts that its prices need."""
        prices, names = self._spec.prices, self._spec.triton
        needs_input = prices.input_usd_per_mtok and not names.input_tokens
        needs_output = prices.output_usd_per_mtok and not names.output_tokens
        return not needs_input and (not needs_output or bool(request.embed))

    def _failed(
        self, kind: type[BackendError], error: TensorInvalid | InterfaceUnsuited
    ) -> BackendError:
        return kind(component=self._spec.name, status="not sent", reason=str(error))


def _tokens(pieces: int, size: int) -> int:
    return max(pieces, size // BYTES_PER_TOKEN)
