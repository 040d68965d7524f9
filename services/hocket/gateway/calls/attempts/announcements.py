"""Announces each request before its backend is asked,
so that a killed gateway's open requests are known."""

from decimal import Decimal

from hocket.gateway.calls.attempts.hedged_request import UpstreamRequest
from hocket.gateway.calls.call import Call
from hocket.gateway.calls.dependencies import CallDependencies
from hocket.gateway.capacity.slot import Slot
from hocket.gateway.core.budgets.budget import Reservation
from hocket.schemas.messages import CallOpened

MAX_EXPECTED_USD = 1e11
"""The upper bound of an announced cost."""
MAX_TURNS = 8
"""How many gateways may start the same call in turn because the previous one was killed."""


class Announcements:
    """Announces requests to backends."""

    def __init__(self, on: CallDependencies) -> None:
        self._on = on

    async def announce(
        self, call: Call, lane: UpstreamRequest, slot: Slot, reservation: Reservation | None
    ) -> None:
        """Announce a request whose backend would charge for it even if this gateway were killed.

        If the announcement fails, the slot is released.
        """
        if slot.spec.kind == "function":
            return
        expected_usd = reservation.estimate.usd if reservation is not None else 0.0
        try:
            opened = self._opened(call, lane, slot, expected_usd)
            lane.announced = await self._on.recorder.open(opened)
        except BaseException:
            slot.release(unused=True)
            raise

    async def stored(self, call: Call, *lanes: UpstreamRequest | None) -> None:
        """Wait until the announcements of the lanes are stored.

        If another gateway had already announced a request, it is announced again under a new id.
        """
        for lane in lanes:
            if lane is None or lane.announced is None or lane.slot is None:
                continue
            while not await lane.announced.first() and call.turn < MAX_TURNS:
                call.turn += 1
                lane.turn = call.turn
                opened = self._opened(call, lane, lane.slot, 0.0)
                lane.announced = await self._on.recorder.open(opened)

    def _opened(
        self, call: Call, lane: UpstreamRequest, slot: Slot, expected_usd: float
    ) -> CallOpened:
        return CallOpened(
            call_id=call.request.call_id + lane.suffix,
            attribution=call.request.attribution,
            model=call.request.model,
            backend=slot.spec.name,
            replica=slot.spec.replica,
            gateway=self._on.gateway,
            expected_usd=Decimal(f"{min(expected_usd, MAX_EXPECTED_USD):.9f}"),
            started_at_ms=self._on.now_ms(),
            deadline_at_ms=call.request.deadline_at_ms,
        )
