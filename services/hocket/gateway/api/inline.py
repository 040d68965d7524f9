"""Model calls from within the gateway's own process: no message between the caller and the gateway.

What a worker's way over NATS does against loss (asking again, joining a call that another gateway holds)
has no counterpart here: whoever asks ends with the gateway.
"""

import asyncio

from hocket.gateway.api.attribution import check_attribution
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.errors import CallNotAttributable, GatewayFull, ModelNotGranted
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import CallReply, CallRequest


class InlineCalls:
    """Makes calls at the gateway of this process."""

    def __init__(self, registry: CallRegistry, capabilities: Capabilities | None = None) -> None:
        self._registry = registry
        self._capabilities = capabilities

    async def make(self, request: CallRequest, headers: dict[str, str] | None = None) -> CallReply:
        """Return the gateway's reply, which may hold a typed error; who is cancelled stops its call."""
        try:
            check_attribution(self._capabilities, request)
            reply = self._registry.begin(request, headers)
        except (CallNotAttributable, GatewayFull, ModelNotGranted) as error:
            self._registry.refused(error.code)
            return CallReply(call_id=request.call_id, model=request.model, error=error.info())
        try:
            return await asyncio.shield(reply)
        except asyncio.CancelledError:
            who = request.attribution
            self._registry.cancel(who.tenant, request.call_id, "its caller does not wait any more")
            raise
