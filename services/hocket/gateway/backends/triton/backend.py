"""A model on Triton: text, embeddings and plain tensors; it can also be loaded, unloaded and
inspected.

The model's interface is queried once and cached. It is queried again after a load, and after an answer
or (only now and then, because callers may send what they like) a request that it does not suit, because
another version of the model may be loaded by then.
Cancelling a call cancels it on the server.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from hocket.gateway.backends.large_requests import converted
from hocket.gateway.backends.large_work import beside
from hocket.gateway.backends.protocol import (
    ONE_PROMPT,
    BackendError,
    BackendMisconfigured,
    BackendRefused,
    BackendReplyMalformed,
    BackendTimedOut,
    CallUnsuited,
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
    counted,
    requests,
    text_of,
    text_output,
)
from hocket.kit.process import clock
from hocket.schemas.messages import CallRequest, Completion

LARGE_BYTES = 1024 * 1024
"""Answers of at least so many bytes are read in a thread."""
FORGET_MS = 5_000.0
"""How often requests may cause the interface to be asked for again."""
NOT_SENT, UNSUITED = "not sent", "interface"
MAX_PARALLEL = 8
"""The most parallel requests of one call whose texts do not fit into one request."""


class TritonBackend:
    """Calls the model `spec.target`."""

    def __init__(self, spec: BackendSpec, transport: Transport) -> None:
        self._spec = spec
        self._transport = transport
        self._known = _KnownInterface(transport)

    async def call(
        self, request: CallRequest, *, timeout_ms: float, chunks: Chunks | None = None
    ) -> Completion:
        """Make one call; the protocol lists the errors."""
        if await converted(request, has_several_prompts):
            raise CallUnsuited(component=self._spec.name, reason=ONE_PROMPT)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                as_texts = await converted(request, plain)
                interface, answers = await self._answered(as_texts, timeout_ms, chunks)
        except TimeoutError as error:
            raise BackendTimedOut(
                component=self._spec.name, timeout_ms=round(timeout_ms)
            ) from error
        return await self._made(as_texts, interface, answers, chunks)

    async def load(self, *, timeout_ms: float) -> None:
        """Load the model, or reload it from its repository."""
        self._known.forget()
        await self._transport.load(timeout_ms=timeout_ms)

    async def unload(self, *, timeout_ms: float) -> None:
        """Unload the model; calls fail until it is loaded again."""
        self._known.forget()
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

    async def _answered(
        self, request: CallRequest, timeout_ms: float, chunks: Chunks | None
    ) -> tuple[Interface, list[Answer]]:
        interface = await self._known.get(timeout_ms)
        with self._suited(BackendRefused, status=NOT_SENT):
            asked = requests(request, interface, self._spec.triton)
        with self._suited(BackendReplyMalformed):
            return interface, await self._answers(interface, asked, timeout_ms, chunks)

    async def _made(
        self,
        request: CallRequest,
        interface: Interface,
        answers: Sequence[Answer],
        chunks: Chunks | None,
    ) -> Completion:
        """Return the completion in the answers, which are paid: they are read however long the thread
        for large ones is busy."""
        read = partial(self._read, request, interface, answers)
        made = await beside(read) if _bytes(answers) >= LARGE_BYTES else read()
        if chunks is not None and not interface.decoupled:
            await chunks(Chunk(made.text, output_tokens=made.output_tokens))
        return made

    @contextmanager
    def _suited(self, kind: Callable[..., BackendError], **fields: str) -> Iterator[None]:
        """Raise a BackendError, for a tensor of this kind, if the known interface does not suit."""
        name = self._spec.name
        try:
            yield
        except BackendRefused:
            self._known.forget_now_and_then()
            raise
        except TensorInvalid as error:
            self._known.forget_now_and_then()
            raise kind(component=name, reason=str(error), **fields) from error
        except InterfaceUnsuited as error:
            self._known.forget_now_and_then()
            status = fields.get("status", UNSUITED)
            raise BackendMisconfigured(component=name, status=status, reason=str(error)) from error

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
        """Return the completion in the answers; what they count is spent even if they do not suit."""
        name, names = self._spec.name, self._spec.triton
        spent: Completion | None = None
        try:
            spent = Completion(**counted(names, answers))
            made = completion(request, interface, names, answers)
        except TensorInvalid as error:
            self._known.forget()
            raise BackendReplyMalformed(component=name, reason=str(error), spent=spent) from error
        except InterfaceUnsuited as error:
            self._known.forget()
            raise BackendMisconfigured(
                component=name, status=UNSUITED, reason=str(error), spent=spent
            ) from error
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


class _KnownInterface:
    """The interface of a model, asked for when it is first needed."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: Interface | None = None
        self._forgot_at_ms = -FORGET_MS

    async def get(self, timeout_ms: float) -> Interface:
        """Return the interface."""
        if self._known is None:
            self._known = await self._transport.interface(timeout_ms=timeout_ms)
        return self._known

    def forget(self) -> None:
        """Ask for it again when it is next needed."""
        self._known = None

    def forget_now_and_then(self) -> None:
        """Do so unless that was done lately."""
        now_ms = clock.monotonic_ms()
        if now_ms - self._forgot_at_ms >= FORGET_MS:
            self._forgot_at_ms = now_ms
            self.forget()


def _bytes(answers: Sequence[Answer]) -> int:
    return sum(len(tensor.content) for answer in answers for tensor in answer.values())


def _tokens(pieces: int, size: int) -> int:
    return max(pieces, size // BYTES_PER_TOKEN)
