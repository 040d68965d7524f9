"""Pulling one lane of a node type: a few long-lived requests at the server, topped up as steps come.

Steps arrive as soon as they are published; nothing polls. Every ask goes to one inbox, so the server
tells about all of them there: steps, requests that ended unfilled (408), heartbeats (100). After a
reconnect, or when the server has been silent too long, the inbox is replaced, which also withdraws
what was asked before; steps sent to the old inbox come again after their ack wait.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog
from pydantic_core import to_json

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.protocol import RawMessage
from hocket.schemas import subjects
from hocket.workers.runtime.transport.consumers import consumer_name, ensure_consumers
from hocket.workers.runtime.transport.delivery import EXPIRED, HEARTBEAT, status_of, unfilled
from hocket.workers.runtime.transport.lanes import Demand, standing

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

STANDING_EXPIRES_S = 120
"""How long a quiet lane's request stands; an idle worker sends one per lane in this time."""
EXTRA_EXPIRES_S = 2
"""How long what was asked beyond that stands, before its slots may go to other lanes."""
HEARTBEAT_S = 20
SILENCE_S = 3 * HEARTBEAT_S
"""After so much silence the requests are taken for lost."""
REOPEN_PAUSE_S = 1.0
"""Between two tries to ask again after the server refused or lost a consumer."""

_NS = 1_000_000_000

log = structlog.get_logger()


class LanePull:
    """The requests of one lane. `deliver` gets each step; `changed` is called whenever
    more may have to be asked."""

    def __init__(
        self,
        bus: Bus,
        node_type: str,
        lane: str,
        slots: int,
        *,
        ack_wait_s: float,
        deliver: Callable[[RawMessage, "LanePull"], None],
        changed: Callable[[], None],
    ) -> None:
        self.demand = Demand()
        self._bus = bus
        self._node_type = node_type
        self._lane = lane
        self._ack_wait_s = ack_wait_s
        self._standing = standing(slots)
        self._deliver = deliver
        self._changed = changed
        self._subject = (
            f"$JS.API.CONSUMER.MSG.NEXT.{subjects.STEPS}.{consumer_name(node_type, lane)}"
        )
        self._inbox = ""
        self.losses = 0
        """How often the bus had been lost when this inbox was opened."""
        self._subscription: Subscription | None = None
        self._heard_at_s = 0.0
        self._reopening: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether steps can be asked for."""
        return self._subscription is not None and self._reopening is None

    async def open(self) -> None:
        """Listen on a fresh inbox; nothing is asked yet."""
        inbox = self._inbox = self._bus.nc.new_inbox()
        losses = self.losses = self._bus.losses

        def receive(msg: RawMessage) -> None:
            if inbox == self._inbox and losses == self._bus.losses:
                self._receive(msg)

        self._subscription = await self._bus.subscribe_raw(inbox, receive)
        self.demand.asked = 0
        self._heard_at_s = asyncio.get_running_loop().time()

    def ask(self, count: int) -> None:
        """Request `count` more steps."""
        stands = self.demand.asked + count <= self._standing
        self.demand.asked += count
        self.demand.batch = count
        request: dict[str, int] = {"batch": count}
        if stands:
            request["expires"] = STANDING_EXPIRES_S * _NS
            request["idle_heartbeat"] = HEARTBEAT_S * _NS
        else:
            request["expires"] = EXTRA_EXPIRES_S * _NS
        self._bus.publish_nowait(self._subject, to_json(request), reply=self._inbox)

    def reopen(self, *, pause_s: float = 0.0) -> None:
        """Withdraw what was asked and begin anew, after a pause; does nothing while that goes on."""
        if self._reopening is None:
            self._reopening = asyncio.create_task(self._reopen(pause_s))

    def check(self) -> None:
        """Begin anew where requests stand but the server has been silent for too long."""
        silent_s = asyncio.get_running_loop().time() - self._heard_at_s
        if self.demand.asked and silent_s > SILENCE_S and self._bus.connected:
            log.warning("lane_silent", type=self._node_type, lane=self._lane, silent_s=silent_s)
            self.reopen()

    async def close(self) -> None:
        """Withdraw what was asked; steps already sent are still delivered before this returns."""
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.wait({self._reopening})
        if self._subscription is not None:
            subscription, self._subscription = self._subscription, None
            await subscription.drain()  # type: ignore[no-untyped-call]

    def _receive(self, msg: RawMessage) -> None:
        demand = self.demand
        self._heard_at_s = asyncio.get_running_loop().time()
        if msg.reply:
            demand.asked = max(demand.asked - 1, 0)
            demand.active = True
            self._deliver(msg, self)
            self._changed()
            return
        status = status_of(msg.headers)
        if status == HEARTBEAT:
            return
        headers = msg.headers or {}
        missing = unfilled(headers)
        if status in EXPIRED or missing is not None:
            demand.asked = max(demand.asked - (missing or 0), 0)
            demand.active, demand.pending = False, 0
            self._changed()
            return
        log.warning(
            "lane_refused",
            type=self._node_type,
            lane=self._lane,
            status=status,
            reason=headers.get("Description"),
        )
        self.reopen(pause_s=REOPEN_PAUSE_S)

    async def _reopen(self, pause_s: float) -> None:
        self._inbox = ""
        self.demand.asked = 0
        try:
            while True:
                await asyncio.sleep(pause_s)
                try:
                    await self._replace_inbox()
                    break
                except Exception as error:
                    log.warning(
                        "lane_reopen_failed",
                        type=self._node_type,
                        lane=self._lane,
                        error=repr(error),
                    )
                    pause_s = REOPEN_PAUSE_S
        finally:
            self._reopening = None
        self._changed()

    async def _replace_inbox(self) -> None:
        if self._subscription is not None:
            subscription, self._subscription = self._subscription, None
            await subscription.unsubscribe()
        await ensure_consumers(self._bus, self._node_type, self._ack_wait_s)
        await self.open()
