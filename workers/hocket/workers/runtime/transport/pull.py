"""Pulls one lane of a node type with a few long-lived requests, which are topped up as steps arrive.

Steps arrive as soon as they are published; nothing polls. After a reconnect, or when the server has been
silent for too long, the inbox of the requests is replaced.
"""

import asyncio
from collections.abc import Callable

import structlog

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.pull_consumer import PullConsumer
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas import subjects
from hocket.workers.runtime.transport.consumers import consumer_name, ensure_consumers
from hocket.workers.runtime.transport.lanes import Demand, standing

STANDING_EXPIRES_S = 55
"""How long a quiet lane's request stays open; an idle worker sends one per lane in this time."""
EXTRA_EXPIRES_S = 2
"""How long requests beyond that stay open before their slots may go to other lanes."""
HEARTBEAT_S = 2.0
SILENCE_S = 2.25 * HEARTBEAT_S
"""How long the server may be silent before the requests count as lost."""
REOPEN_PAUSE_S = 1.0
"""The pause between two tries after the server refused a request or lost a consumer."""

log = structlog.get_logger()


class LanePull:
    """The requests of one lane. `deliver` receives each step; `changed` is called whenever more steps
    may have to be requested."""

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
        self._pull = PullConsumer(
            bus,
            subjects.STEPS,
            consumer_name(node_type, lane),
            deliver=self._delivered,
            ended=self._ended,
            refused=self._refused,
        )
        self.losses = 0
        """How often the bus connection had been lost when this inbox was opened."""
        self._reopening: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether steps can be requested."""
        return self._pull.is_open and self._reopening is None

    async def open(self) -> None:
        """Listen on a fresh inbox; nothing is requested yet."""
        self.losses = self._bus.losses
        await self._pull.open(confirmed=True, losses=self.losses)
        self.demand.asked = 0

    def ask(self, count: int) -> None:
        """Request `count` more steps."""
        if not self.demand.asked:  # the server had nothing to answer until now
            self._pull.count_silence_from_now()
        stands = self.demand.asked + count <= self._standing
        self.demand.asked += count
        self.demand.batch = count
        if stands:
            self._pull.ask(count, expires_s=STANDING_EXPIRES_S, heartbeat_s=HEARTBEAT_S)
        else:
            self._pull.ask(count, expires_s=EXTRA_EXPIRES_S)

    def reopen(self, *, pause_s: float = 0.0) -> None:
        """Withdraw the requests and start over, after a pause; does nothing if that is in progress."""
        if self._reopening is None:
            self._reopening = asyncio.create_task(self._reopen(pause_s))

    def check(self) -> None:
        """Start over if requests are open but the server has been silent for too long."""
        silent_s = self._pull.silent_s
        if self.demand.asked and silent_s > SILENCE_S and self._bus.connected:
            log.warning("lane_silent", type=self._node_type, lane=self._lane, silent_s=silent_s)
            self.reopen()

    async def close(self) -> None:
        """Withdraw the requests; steps already sent are still delivered before this returns."""
        if self._reopening is not None:
            await stop_tasks([self._reopening])
        await self._pull.drain()

    def _delivered(self, msg: RawMessage) -> None:
        demand = self.demand
        if demand.asked:
            demand.asked -= 1
        demand.active = True
        self._deliver(msg, self)
        self._changed()

    def _ended(self, missing: int) -> None:
        demand = self.demand
        demand.asked = max(demand.asked - missing, 0)
        demand.active, demand.pending = False, 0
        self._changed()

    def _refused(self, status: str | None, reason: str | None) -> None:
        log.warning(
            "lane_refused", type=self._node_type, lane=self._lane, status=status, reason=reason
        )
        self.reopen(pause_s=REOPEN_PAUSE_S)

    async def _reopen(self, pause_s: float) -> None:
        self._pull.ignore()
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
        await self._pull.unsubscribe()
        await ensure_consumers(self._bus, self._node_type, self._ack_wait_s)
        await self.open()
