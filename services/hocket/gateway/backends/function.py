"""A backend that calls an async function in this process: `module:function`, from CallRequest to
Completion.

An async generator works too: it yields the text in pieces, as `str`, and finally its Completion
(without text, because the pieces are the text).

The function is named in the configuration and imported when the backend is built, never by an
import statement: the gateway must not depend on the code it serves (the built-in extractive model
belongs to the workers), and users name their own functions. A function that cannot be imported is a
configuration error. It runs on the gateway's event loop, so it must not block. If it exits
(`sys.exit()`), its call fails, and the gateway runs on.
"""

import asyncio
import importlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, cast

from hocket.gateway.backends.large_requests import converted
from hocket.gateway.backends.large_work import beside
from hocket.gateway.backends.protocol import (
    ONE_PROMPT,
    BackendReplyMalformed,
    BackendTimedOut,
    BackendUnreachable,
    CallUnsuited,
    Chunk,
    Chunks,
    FunctionFailed,
)
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.errors import USER_CODE_ERRORS, USER_IMPORT_ERRORS, RoutingInvalid
from hocket.gateway.core.protocols.openai_api import has_several_prompts, plain
from hocket.gateway.core.protocols.vectors import NO_VECTOR, are_vectors
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import CallRequest, Completion

MANY_NUMBERS = 100_000
"""The numbers of embeddings from which they are checked in a thread."""
ModelFunction = Callable[[CallRequest], Awaitable[Completion] | AsyncIterator[str | Completion]]


class FunctionBackend:
    """Calls the function `spec.target`; raises RoutingInvalid if it does not exist."""

    def __init__(self, spec: BackendSpec) -> None:
        self._spec = spec
        self._function = imported(spec.target)

    async def call(
        self, request: CallRequest, *, timeout_ms: float, chunks: Chunks | None = None
    ) -> Completion:
        """Await the function; a HocketError that it raises is passed on unchanged."""
        if await converted(request, has_several_prompts):
            raise CallUnsuited(component=self._spec.name, reason=ONE_PROMPT)
        clock = asyncio.timeout(timeout_ms / 1000)
        try:
            request = await converted(request, plain)
            async with clock:
                completion = await self._made(request, chunks or _nowhere)
        except HocketError:
            raise
        except TimeoutError as error:
            if clock.expired():
                raise BackendTimedOut(
                    component=self._spec.name, timeout_ms=round(timeout_ms)
                ) from error
            raise BackendUnreachable(component=self._spec.name, reason=str(error)) from error
        except OSError as error:
            raise BackendUnreachable(component=self._spec.name, reason=str(error)) from error
        except USER_CODE_ERRORS as error:
            raise FunctionFailed(
                component=self._spec.name, exception=type(error).__name__, reason=str(error)
            ) from error
        if not isinstance(completion, Completion):
            raise BackendReplyMalformed(
                component=self._spec.name,
                reason=f"the function returned {type(completion).__name__}, not Completion",
            )
        if request.embed and len(completion.embeddings) != len(request.embed):
            reason = f"{len(completion.embeddings)} embeddings for {len(request.embed)} texts"
            raise BackendReplyMalformed(component=self._spec.name, reason=reason, spent=completion)
        if not await _has_vectors(completion):
            raise BackendReplyMalformed(
                component=self._spec.name, reason=NO_VECTOR, spent=completion
            )
        return completion

    async def close(self) -> None:
        """Nothing is held."""

    async def _made(self, request: CallRequest, chunks: Chunks) -> Any:
        made = self._function(request)
        if isinstance(made, AsyncIterator):
            return await _collected(made, chunks)
        completion = await made
        if isinstance(completion, Completion):
            await chunks(Chunk(completion.text, output_tokens=completion.output_tokens))
        return completion


async def _has_vectors(completion: Completion) -> bool:
    """Return whether all embeddings of a completion hold finite numbers; many are looked at in a
    thread."""
    look = partial(are_vectors, completion.embeddings)
    is_large = sum(map(len, completion.embeddings)) >= MANY_NUMBERS
    return await beside(look) if is_large else look()


async def _collected(pieces: AsyncIterator[str | Completion], chunks: Chunks) -> Any:
    """Return a generator's last value, together with the text yielded before."""
    texts: list[str] = []
    end: Any = Completion(finish_reason="stop")
    async for piece in pieces:
        if isinstance(piece, str):
            texts.append(piece)
            await chunks(Chunk(piece, output_tokens=len(texts)))
        else:
            end = piece
    return end.model_copy(update={"text": "".join(texts)}) if isinstance(end, Completion) else end


async def _nowhere(_chunk: Chunk) -> None:
    """Discard a chunk, because the caller does not stream."""


def imported(target: str) -> ModelFunction:
    """Return the async function `module:function`, or raise RoutingInvalid with what is wrong."""
    module_name, _, name = target.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except USER_IMPORT_ERRORS as error:
        raise RoutingInvalid(
            field=target,
            reason=f"it cannot be imported ({type(error).__name__}: {error})",
            cure="Install its package where the gateway runs, or correct the name.",
        ) from error
    if not (inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found)):
        raise RoutingInvalid(
            field=target,
            reason="it is not an async function",
            cure="Write `async def function(request: CallRequest) -> Completion`.",
        )
    return cast(ModelFunction, found)
