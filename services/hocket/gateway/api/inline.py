"""Model calls from within the gateway's own process, without messages between caller and gateway.

The precautions against loss that workers take over NATS (asking again, joining a call that another
gateway holds) are not needed here: caller and gateway die together.
"""

import asyncio
from functools import partial

from hocket.gateway.api.attribution import check_attribution
from hocket.gateway.api.call_requests import with_checked_body
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.errors import (
    CallIdReused,
    CallMalformed,
    CallNotAttributable,
    GatewayFull,
    ModelNotGranted,
)
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import CallReply, CallRequest


class InlineCalls:
    """Makes calls at this process's gateway."""

    def __init__(self, registry: CallRegistry, capabilities: Capabilities | None = None) -> None:
        self._registry = registry
        self._capabilities = capabilities

    async def make(self, request: CallRequest, headers: dict[str, str] | None = None) -> CallReply:
        """Return the gateway's reply, which may hold a typed error;
        cancelling the caller stops the call."""
        try:
            request = with_checked_body(request)
            check_attribution(self._capabilities, request)
            reply = self._registry.begin(request, headers)
        except (
            CallIdReused,
            CallMalformed,
            CallNotAttributable,
            GatewayFull,
            ModelNotGranted,
        ) as error:
            self._registry.refused(error.code)
            return CallReply(call_id=request.call_id, model=request.model, error=error.info())
        told: asyncio.Future[CallReply] = asyncio.get_running_loop().create_future()
        reply.add_done_callback(partial(_tell, told))
        try:
            return await told
        except asyncio.CancelledError:
            self._registry.leave(request, "its caller is no longer waiting")
            raise


def _tell(told: "asyncio.Future[CallReply]", reply: "asyncio.Future[CallReply]") -> None:
    """Give a caller that still waits the reply, or the end of the call that had none."""
    if told.done():
        return
    if reply.cancelled():
        told.cancel()
    else:
        told.set_result(reply.result())
