"""The calls that have not begun, because the other gateways are asked first whether they hold them.

They are stopped like calls in progress: whoever stops one will not wait for it, so that making it
afterwards would be paid for in vain.
"""

import asyncio
from collections.abc import Coroutine

from hocket.gateway.calls.call_owners import CallOwners
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.calls.call_key import CallKey
from hocket.schemas.messages import CallCancelled, CallRequest, StepCancelled


class SoughtCalls:
    """Remembers the calls being sought. Several callers may ask for one, and stopping it stops all."""

    def __init__(self) -> None:
        self._owners = CallOwners()
        self._stops: dict[CallKey, set[Cancellation]] = {}

    def add(self, request: CallRequest) -> Cancellation:
        """Record a call that is sought from now on, and return what stops it."""
        key, stop = CallKey.of(request), Cancellation()
        if key not in self._stops:
            self._owners.add(key, request.attribution, request.capability)
        self._stops.setdefault(key, set()).add(stop)
        return stop

    def seek(
        self, request: CallRequest, wanted: Coroutine[None, None, CallRequest | None]
    ) -> Coroutine[None, None, CallRequest | None]:
        """Return what gives the result of `wanted`, or raises CallStopped. The call can be stopped from
        now on: what stops it may be the next message."""
        return self._found(request, self.add(request), wanted)

    async def _found(
        self,
        request: CallRequest,
        stop: Cancellation,
        wanted: Coroutine[None, None, CallRequest | None],
    ) -> CallRequest | None:
        try:
            found = await stop.guard(asyncio.create_task(wanted))
            stop.check()  # it may have been stopped just before the guard, or just after the answer
            return found
        finally:
            self.remove(request, stop)

    def remove(self, request: CallRequest, stop: Cancellation) -> None:
        """Forget a call that is sought no more."""
        key = CallKey.of(request)
        stops = self._stops[key]
        stops.remove(stop)
        if not stops:
            del self._stops[key]
            self._owners.remove(key, request.attribution)

    def cancel_from_outside(self, cancelled: CallCancelled) -> None:
        """Stop the calls that somebody names, as far as their capability allows it."""
        wanted = cancelled.tenant, cancelled.call_id, cancelled.capability
        self._cancel(self._owners.calls_with(*wanted), "someone asked for it")

    def cancel_attempt(self, cancelled: StepCancelled) -> None:
        """Stop the calls of a cancelled attempt."""
        reason = cancelled.reason or "its step was cancelled"
        self._cancel(self._owners.calls_of(cancelled), reason)

    def _cancel(self, keys: list[CallKey], reason: str) -> None:
        for stop in [stop for key in keys for stop in self._stops[key]]:
            stop.cancel(reason)
