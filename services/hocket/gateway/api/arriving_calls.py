"""Turns messages into calls. Large ones are read in a thread, one at a time, because that takes up to a
second, in which no other call would go on. What stops such a call meanwhile is remembered for it.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine, Mapping
from functools import partial

from hocket.gateway.api.attribution import check_attribution
from hocket.gateway.api.call_requests import checked, has_reserved_labels, without_reserved_labels
from hocket.gateway.api.http.body_reading import MANY_VALUES, look_through
from hocket.gateway.backends.large_work import beside
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.calls.sought_calls import SoughtCalls
from hocket.gateway.core.errors import GatewayFull
from hocket.gateway.core.protocols.json_size import takes_long
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.process import clock
from hocket.schemas import subjects
from hocket.schemas.access.nats_table import GUESTS_CALL
from hocket.schemas.capabilities import SEAL, Capabilities
from hocket.schemas.messages import CallCancelled, CallRequest, StepCancelled

MAX_ARRIVING_BYTES, MAX_GUEST_BYTES = 64 * 1024 * 1024, 16 * 1024 * 1024
"""The most bytes of large calls that wait to be read: those of workers, and those of guests."""
REPEATED_SHARE = 0.25
"""How much more there may be with a repeat. One that is beyond that, too, is dropped, not refused: its
caller asks again."""
BUSY_RETRY_MS = 1_000.0


class ArrivingFull(GatewayFull):
    """The gateway has yet to read {limit_bytes} bytes of such calls. Try again later, send less at once,
    or start another gateway."""


class ArrivingCalls:
    """Reads calls, and checks that their callers may make them."""

    def __init__(self, capabilities: Capabilities | None) -> None:
        self._capabilities = capabilities
        self._bytes: Counter[str] = Counter()
        """Those of large calls that are yet to be read, by the subject they came on."""
        self._unread: set[_Unread] = set()

    def is_large(self, message: RawMessage) -> bool:
        """Tell whether a call is to be read with `read_beside`."""
        return takes_long(message.data, MANY_VALUES)

    def read(self, message: RawMessage) -> CallRequest:
        """Return a call; raise CallMalformed or CallNotAttributable."""
        return self._allowed(message, checked(message.data))

    def read_beside(
        self, message: RawMessage
    ) -> Coroutine[None, None, tuple[CallRequest, Cancellation]]:
        """Return what gives a large call and whether it was stopped since now, or raises CallMalformed,
        CallNotAttributable or ArrivingFull. What stops it may be the next message."""
        unread = _Unread(message.data)
        self._unread.add(unread)
        return self._read_beside(message, unread)

    async def _read_beside(
        self, message: RawMessage, unread: "_Unread"
    ) -> tuple[CallRequest, Cancellation]:
        size = len(message.data)
        self._bytes[message.subject] += size
        try:
            self._check_room(message)
            read = await beside(partial(_looked_through, message.data))
        finally:
            self._bytes[message.subject] -= size
            self._unread.remove(unread)
            unread.ended.set()
        request = self._allowed(message, read)
        return request, unread.stop_of(request)

    def _check_room(self, message: RawMessage) -> None:
        most = MAX_GUEST_BYTES if message.subject == GUESTS_CALL else MAX_ARRIVING_BYTES
        more = REPEATED_SHARE if is_repeat(message) else 0.0
        if self._bytes[message.subject] > most * (1 + more):
            raise ArrivingFull(
                limit_bytes=most,
                component="gateway",
                retry_at_ms=clock.now_ms() + BUSY_RETRY_MS,
            )

    async def until_read(self, call_id: str) -> None:
        """Wait for the large calls that are being read now and may have this id."""
        for unread in [one for one in self._unread if one.may_have(call_id)]:
            await unread.ended.wait()

    def cancel_from_outside(self, cancelled: CallCancelled) -> None:
        """Remember for the calls being read that somebody stops a call."""
        for unread in self._unread:
            unread.stops.append(cancelled)

    def cancel_attempt(self, cancelled: StepCancelled) -> None:
        """Remember for the calls being read that an attempt is cancelled."""
        for unread in self._unread:
            unread.stops.append(cancelled)

    def _allowed(self, message: RawMessage, request: CallRequest) -> CallRequest:
        """Return a call as its caller may make it; raise CallNotAttributable."""
        check_attribution(self._capabilities, request, of_guest=message.subject == GUESTS_CALL)
        if has_reserved_labels(request) and not self._is_ours(message.data, message.headers or {}):
            return without_reserved_labels(request)
        return request

    def _is_ours(self, payload: bytes, headers: Mapping[str, str]) -> bool:
        """Tell whether a call is sealed, as the REST process does when it sets the labels of a key."""
        seals, seal = self._capabilities, headers.get(SEAL, "")
        return seals is not None and seals.is_sealed(seal, subjects.GATEWAY_CALL, payload)


class _Unread:
    """A call that is being read, and the cancellations that came meanwhile; of which calls, is known
    later."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self.stops: list[CallCancelled | StepCancelled] = []
        self.ended = asyncio.Event()
        """Whether it has been read, or never will be."""

    def may_have(self, call_id: str) -> bool:
        """Tell whether the call may have this id, which may be given anywhere; an id that can be written
        in several ways may be that of any."""
        written = json.dumps(call_id)
        return written != f'"{call_id}"' or written.encode() in self._payload

    def stop_of(self, request: CallRequest) -> Cancellation:
        """Return whether a cancellation stops the call that was read."""
        sought = SoughtCalls()
        stop = sought.add(request)
        for cancelled in self.stops:
            if isinstance(cancelled, CallCancelled):
                sought.cancel_from_outside(cancelled)
            else:
                sought.cancel_attempt(cancelled)
        return stop


def is_repeat(message: RawMessage) -> bool:
    """Tell whether the caller of a call has asked before."""
    return subjects.ASKED_AGAIN in (message.headers or {})


def _looked_through(payload: bytes) -> CallRequest:
    """Return a call with what takes long to find out about it."""
    request = checked(payload)
    look_through(request)
    return request
