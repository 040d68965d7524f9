"""One partition owned by this coordinator, from its takeover until it is left or lost.

States: taken (its runs in flight are loaded and handed out again), reading (an event of its log in,
`apply`, the commands out, the change to the committer), leaving (nothing more is read, what was
decided is written and announced), over: another coordinator owns it, or nobody. Each tenure has
objects of its own; nothing of one is left in the next.
"""

import asyncio
from collections.abc import Mapping

import structlog

from hocket.coordinator.partition.events.event_handler import EventHandler
from hocket.coordinator.partition.events.log_reader import LogReader
from hocket.coordinator.partition.runs.run_cache import Held
from hocket.coordinator.partition.runs.run_loader import RunLoader
from hocket.coordinator.partition.tenure_context import TenureContext
from hocket.coordinator.partition.wake_ups import WakeUps

log = structlog.get_logger(__name__)


class Partition:
    """A partition that this coordinator owns; created by `takeover.py`."""

    def __init__(
        self,
        context: TenureContext,
        events: EventHandler,
        loader: RunLoader,
        wake_ups: WakeUps,
    ) -> None:
        self.number = context.number
        self._services = services = context.services
        self._tenure = context.tenure
        self._position = context.position
        self._runs = context.runs
        self._measurements = context.measurements
        self._notifier = context.notifier
        self._wake_ups = wake_ups
        self._loader = loader
        self._events = events
        self._redispatching: asyncio.Task[None] | None = None
        self._log = LogReader(
            services.bus,
            self.number,
            handle=self._events.handle,
            rewound=self._rewound,
            resumes=self._loader.read_back,
            position=context.position,
        )

    @property
    def in_flight(self) -> int:
        """The number of runs in memory."""
        return len(self._runs.in_flight)

    @property
    def in_flight_bytes(self) -> int:
        """How many bytes the runs in memory count."""
        return self._runs.in_flight_bytes

    @property
    def held_by_tenant(self) -> Mapping[str, Held]:
        """What the runs in memory count, by tenant."""
        return self._runs.by_tenant

    async def go_on(self, told_ms: float) -> None:
        """Continue what the former owner began, and announce what it may not have announced: the
        ends of runs that finished since `told_ms`."""
        store = self._services.store
        kept, in_flight, ended = await asyncio.gather(
            store.outlook(self.number),
            store.in_flight(self.number),
            store.ended_since(self.number, told_ms),
        )
        self._measurements.load(kept)
        self._services.dispatcher.took(self.number)
        turns = self._services.turns
        for stored in in_flight:
            await turns.take()
            await self._loader.load(stored)
        for run in ended:
            await turns.take()
            begun_ms = turns.begin()
            self._runs.remember(run)
            self._notifier.tell_again(run)
            turns.worked(begun_ms)

    async def read(self) -> None:
        """Apply the log; never returns, cancel to stop."""
        try:
            await self._log.run()
        finally:
            self._wake_ups.clear()

    async def leave(self) -> None:
        """Write what was decided and wait until it is announced, so that the next owner finds
        everything in Postgres. The log must no longer be read when this is called."""
        await self._tenure.flush()
        await self._notifier.all_told()
        self._keep_watermark()
        await self._tenure.flush()

    def end(self) -> None:
        """Drop everything: what is not written will be decided again by the next owner."""
        self._tenure.end()
        self._stop_redispatching()
        self._services.dispatcher.lost(self.number)
        self._notifier.stop()
        self._wake_ups.clear()
        self._runs.clear()

    def came_back(self) -> None:
        """Hand out and announce again what the server, which is back, may have lost: steps and
        facts of the last seconds."""
        self._stop_redispatching()
        self._redispatching = asyncio.create_task(self._redispatch(), name="redispatch")
        self._redispatching.add_done_callback(_log_failure)
        self._notifier.retell()

    def upkeep(self) -> None:
        """Post what was measured, store up to when ends are known to be announced, and park idle
        runs; to be called about twice a second."""
        self._measurements.post_news()
        self._keep_watermark()
        self._wake_ups.park()

    async def wake_parked(self) -> None:
        """Ask for the timers of parked runs whose time comes soon; to be called every WAKE_EVERY_S."""
        await self._wake_ups.wake_parked()

    def _keep_watermark(self) -> None:
        """Store up to when the ends of runs are known to be announced, if that has changed."""
        watermark = self._notifier.news(self._position.applied_ms)
        if watermark is not None:
            self._tenure.keep_watermark(watermark)

    async def _rewound(self) -> None:
        """Hand out again what is in flight, because the log lost its tail."""
        self._services.metrics.taken("rewind", 0.0)
        await self._redispatch()

    async def _redispatch(self) -> None:
        for _ in self._loader.redispatch():
            await self._services.turns.take()
            await self._services.bus.wait_for_capacity()

    def _stop_redispatching(self) -> None:
        if self._redispatching is not None:
            self._redispatching.cancel()


def _log_failure(redispatching: asyncio.Task[None]) -> None:
    if not redispatching.cancelled() and (error := redispatching.exception()) is not None:
        log.error("not_redispatched", exc_info=error)
