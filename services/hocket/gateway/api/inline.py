"""Model calls from within the gateway's own process: no message between the caller and the gateway.

What a worker's way over NATS does against loss (asking again, joining a call that another gateway holds)
has no counterpart here: whoever asks ends with the gateway.
"""

import asyncio

from hocket.gateway.calls.registry import Ongoing
from hocket.gateway.core.errors import GatewayFull
from hocket.schemas.messages import CallReply, CallRequest


class InlineCalls:
    """Makes calls at the gateway of this process."""

    def __init__(self, ongoing: Ongoing) -> None:
        self._ongoing = ongoing

    async def make(self, request: CallRequest, headers: dict[str, str] | None = None) -> CallReply:
        """Return the gateway's reply, which may hold a typed error; who is cancelled stops its call."""
        try:
            reply = self._ongoing.begin(request, headers)
        except GatewayFull as error:
            self._ongoing.refused(error.code)
            return CallReply(call_id=request.call_id, model=request.model, error=error.info())
        try:
            return await asyncio.shield(reply)
        except asyncio.CancelledError:
            who = request.attribution
            self._ongoing.cancel(who.tenant, request.call_id, "its caller does not wait any more")
            raise
