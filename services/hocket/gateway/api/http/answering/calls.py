"""Handles calls over HTTP: reads their bodies, makes them, and answers whole or as a stream.

A caller that disconnects cancels its call within the same turn of the event loop. A stream starts
with the first chunk, so a failure before it is a plain error answer; a later failure ends the
stream with an error event. `[DONE]` follows once the call is booked.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from aiohttp import web

from hocket.gateway.api.http import bodies, identity
from hocket.gateway.api.http.answering.event_stream import EventStream
from hocket.gateway.api.http.answering.replies import (
    Failures,
    answered_whole,
    headers_of,
    ids_of,
)
from hocket.gateway.api.http.answers import Answers
from hocket.gateway.api.http.body_reading import BodyReading, look_through
from hocket.gateway.api.http.call_request import called
from hocket.gateway.api.http.intake import Bodies, Body, Release
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.config.access import Key
from hocket.gateway.core.errors import (
    CallIdReused,
    GatewayFull,
    GatewayStalled,
    JoinTimedOut,
    ModelNotGranted,
    StreamNotShared,
)
from hocket.gateway.core.protocols.openai_api import EMBEDDINGS
from hocket.kit.process import clock
from hocket.kit.request_turns import Turn, give_way
from hocket.schemas.messages import CallReply, CallRequest

BOOKING_GRACE_MS = 30_000.0
"""How long after its deadline a call may take to be booked before its caller is released."""
AGAIN_MS = 1_000.0
"""After this time a call may be sent again that would have joined a stream which is not shared."""

_UNANSWERED = (CallIdReused, GatewayFull, GatewayStalled, JoinTimedOut, ModelNotGranted)
"""Errors that a caller gets in place of a reply."""


class HttpCalls:
    """Handles calls that were let in."""

    def __init__(self, registry: CallRegistry, failures: Failures) -> None:
        self._registry = registry
        self._failures = failures
        self._bodies = Bodies()
        self._reading = BodyReading()
        self._streams: WeakKeyDictionary[asyncio.Future[CallReply], EventStream] = (
            WeakKeyDictionary()
        )
        """The streams for which calls in progress were begun, by the reply that others get, too."""

    async def answer(
        self, path: str, request: web.BaseRequest, key: Key | None, turn: Turn
    ) -> web.StreamResponse:
        """Read a call, make it, and answer; the `turn` is given back while the body arrives."""
        turn.give_back()
        held = await self._bodies.read(request, identity.holder(request.headers, key))
        try:
            await turn.take()
        except BaseException:
            held.release()
            raise
        try:
            return await self._asked(path, request, key, held)
        except asyncio.CancelledError:
            raise  # the call continues and releases its body when it ends
        except BaseException:
            held.release()
            raise

    async def _asked(
        self, path: str, request: web.BaseRequest, key: Key | None, held: Body
    ) -> web.StreamResponse:
        """Answer a call whose body has arrived; the call releases the body when it ends."""
        read = partial(_read, path, request.headers, key)
        call, answers, stream = await self._reading.read(
            held, read, lambda made: look_through(made[0])
        )
        try:
            if stream:
                return await self._streamed(request, call, answers, held.release)
            making = self._made(request, call, None, held.release)
            return await answered_whole(request, making, answers, self._failures)
        except _UNANSWERED as error:
            if not isinstance(error, GatewayStalled):  # that call goes on, with its body
                held.release()
            return self._failures.answer(error.info(), ids_of(call.call_id))

    async def _streamed(
        self, request: web.BaseRequest, call: CallRequest, answers: Answers, release: Release
    ) -> web.StreamResponse:
        sending = EventStream(request, answers, call.call_id)
        try:
            reply = await self._made(request, call, sending, release)
        except asyncio.CancelledError:
            if sending.begun and request.transport is not None:
                request.transport.abort()  # if the key is revoked, the stream ends unfinished
            raise
        except GatewayStalled as error:  # the call goes on
            if not sending.close():
                raise
            return await sending.failed(self._failures.body(error.info()))
        if reply.error is not None and not sending.begun:
            return self._failures.answer(reply.error, headers_of(reply))
        if reply.error is not None:
            return await sending.failed(self._failures.body(reply.error))
        return await sending.end(reply)

    async def _made(
        self,
        request: web.BaseRequest,
        call: CallRequest,
        sending: EventStream | None,
        release: Release,
    ) -> CallReply:
        """Make a call; if the caller disconnects, which cancels this coroutine, the call is
        cancelled too, unless others have joined it. One that joined a call which outlasts it leaves when
        its own time is up, which stops the call if nobody else waits for it; an answer that has been
        made by then is booked, and reaches the caller. One that joined a stream gets its reply only if
        that says all that the stream did, and waits for it no longer than that may be."""
        chunks, keeps = None if sending is None else sending.chunk, partial(_keeps, sending)
        making = self._registry.begin(call, request.headers, chunks, ended=release, keeps=keeps)
        joined = self._streams.get(making)
        if sending is not None and joined is None:
            self._streams[making] = sending
        give_way()
        left_ms = call.deadline_at_ms - clock.now_ms()
        is_outlasted = self._registry.outlasts(call)
        until_ms = left_ms + (0.0 if is_outlasted else BOOKING_GRACE_MS)
        try:
            is_made = await _is_made(making, until_ms, joined)
        except asyncio.CancelledError:
            self._registry.leave(call, "its caller disconnected")
            raise
        if not is_made and joined is not None and joined.told_more.is_set():
            self._registry.leave(call, "its answer is not shared")
            raise _not_shared(call)
        if not is_made and is_outlasted:
            if self._registry.leave(call, "the time of its last caller was up"):
                raise JoinTimedOut(call_id=call.call_id)
            is_made = await _is_made(making, BOOKING_GRACE_MS)
        if not is_made:
            raise GatewayStalled(component="gateway")
        reply = making.result()
        if joined is not None and reply.error is None and not _says_all(joined, reply):
            raise _not_shared(call)
        return reply


async def _is_made(
    making: "asyncio.Future[CallReply]", timeout_ms: float, joined: EventStream | None = None
) -> bool:
    """Wait for a reply, and tell whether it is there; that of a joined stream is waited for no longer
    once the stream has told more."""
    telling = None if joined is None else asyncio.ensure_future(joined.told_more.wait())
    waited: set[asyncio.Future[Any]] = {making} if telling is None else {making, telling}
    try:
        await asyncio.wait(waited, timeout=timeout_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if telling is not None:
            telling.cancel()
    return making.done()


def _not_shared(call: CallRequest) -> StreamNotShared:
    return StreamNotShared(
        call_id=call.call_id,
        field="call_id",
        component="gateway",
        retry_at_ms=clock.now_ms() + AGAIN_MS,
    )


def _read(
    path: str, headers: Mapping[str, str], key: Key | None, content: bytes
) -> tuple[CallRequest, Answers, bool]:
    """Return the call for a body, the renderer of its answer, and whether that is a stream."""
    body = bodies.read(path, content)
    if key is not None:
        key.check(body["model"])
    stream = body.get("stream") is True and path != EMBEDDINGS
    return *called(path, body, headers, key, stream=stream), stream


def _keeps(sending: EventStream | None, reply: CallReply) -> bool:
    """Return whether a caller who repeats a call's id gets its reply again.

    Nobody repeats a call that failed to be told so a second time, and clients of OpenAI's API repeat
    no call that was answered.
    """
    is_kept = reply.error is None and reply.openai is None
    return is_kept and (sending is None or _says_all(sending, reply))


def _says_all(sending: EventStream, reply: CallReply) -> bool:
    """Return whether a reply says all that the stream of its call did."""
    return reply.openai is not None or not sending.told_more.is_set()
