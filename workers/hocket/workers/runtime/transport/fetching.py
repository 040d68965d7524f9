"""Fetches the steps of one node type, across its lanes."""

import asyncio
from collections.abc import Callable

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.protocol import RawMessage
from hocket.schemas import subjects
from hocket.workers.runtime.transport.consumers import ensure_consumers
from hocket.workers.runtime.transport.lanes import allot
from hocket.workers.runtime.transport.pull import LanePull


class Fetching:
    """The requests of all lanes. `deliver` receives each step with its lane; `changed` is called
    whenever more steps may have to be requested."""

    def __init__(
        self,
        bus: Bus,
        node_type: str,
        slots: int,
        *,
        ack_wait_s: float,
        deliver: Callable[[RawMessage, LanePull], None],
        changed: Callable[[], None],
    ) -> None:
        self._bus = bus
        self._node_type = node_type
        self._slots = slots
        self._ack_wait_s = ack_wait_s
        self._lanes = {
            lane: LanePull(
                bus,
                node_type,
                lane,
                slots,
                ack_wait_s=ack_wait_s,
                deliver=deliver,
                changed=changed,
            )
            for lane in subjects.LANES
        }
        self._demands = {name: lane.demand for name, lane in self._lanes.items()}

    @property
    def has_pending(self) -> bool:
        """Whether steps are known to wait in the stream."""
        return any(demand.pending for demand in self._demands.values())

    async def open(self) -> None:
        """Create the consumers and start listening; nothing is requested yet."""
        await ensure_consumers(self._bus, self._node_type, self._ack_wait_s)
        for lane in self._lanes.values():
            await lane.open()

    async def close(self) -> None:
        """Withdraw the requests; steps already sent are still delivered before this returns."""
        await asyncio.gather(*(lane.close() for lane in self._lanes.values()))

    def ask(self, busy: int) -> None:
        """Request as many steps as the slots can take; `busy` slots are taken or soon will be."""
        if not self._bus.connected:
            return
        for name, count in allot(self._slots, busy, self._demands).items():
            if count and self._lanes[name].is_open:
                self._lanes[name].ask(count)

    def reopen(self) -> None:
        """Request steps again after a reconnect; earlier requests are void."""
        for lane in self._lanes.values():
            lane.reopen()

    def check(self) -> None:
        """Start over if the server has been silent for too long."""
        for lane in self._lanes.values():
            lane.check()
