"""One partition in the hands of this coordinator, from its takeover until it is left or lost.

States: taken (its runs in flight are loaded and handed out again), reading (an event of its log in,
`apply`, the commands out, the change to the committer), leaving (nothing is read any more, what was
decided is written and told), over: another coordinator owns it, or nobody. Each tenure is an object of
its own; nothing of one is left in the next.
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from hocket.coordinator.core.run.state.run import Owner, Run
from hocket.coordinator.dispatch.demand_publisher import DemandPublisher
from hocket.coordinator.partition.command_executor import CommandExecutor
from hocket.coordinator.partition.decision_recorder import DecisionRecorder
from hocket.coordinator.partition.events.event_handler import EventHandler
from hocket.coordinator.partition.events.event_reader import EventReader
from hocket.coordinator.partition.events.log_posts import LogPosts
from hocket.coordinator.partition.events.log_reader import LogPosition, LogReader
from hocket.coordinator.partition.measurements import Measurements
from hocket.coordinator.partition.runs.failed_runs import FailedRuns
from hocket.coordinator.partition.runs.run_acceptance import RunAcceptance
from hocket.coordinator.partition.runs.run_cache import Held, Runs
from hocket.coordinator.partition.runs.run_loader import RunLoader
from hocket.coordinator.partition.runs.run_notifier import RunNotifier
from hocket.coordinator.partition.runs.task_acknowledgement import TaskAcknowledgement
from hocket.coordinator.partition.shared_services import SharedServices
from hocket.coordinator.partition.wake_ups import WakeUps
from hocket.coordinator.storage.pending_changes import Ended
from hocket.coordinator.storage.source_runs import Origins
from hocket.coordinator.storage.store import Offset
from hocket.kit.logs.run_lines import of_run
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process.clock import monotonic_ms

log = structlog.get_logger(__name__)


class Partition:
    """A partition that this coordinator owns; made by `acquire`. `offset` is what its former owner
    left in Postgres; `lost` is called when another coordinator takes the partition from us."""

    def __init__(
        self,
        number: int,
        services: SharedServices,
        *,
        offset: Offset,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.number = number
        self._services = services
        posts = LogPosts(
            services.bus,
            services.capabilities,
            partitions=services.partitions,
            asks=services.asks_for_seals,
        )
        origins, demand = Origins(services.store, services.catalog), DemandPublisher(services.bus)
        owner = Owner(number, offset.epoch, services.capabilities)
        tenure = services.committer.open(number, offset, lost=lost, refused=self._refused)
        runs = Runs()
        measurements = Measurements(number, durations=services.durations, posts=posts)
        notifier = RunNotifier(
            number,
            bus=services.bus,
            store=services.store,
            told=offset.told,
            keep=tenure.write_watermark,
            capabilities=services.capabilities,
        )
        wake_ups = WakeUps(
            store=services.store,
            tenure=tenure,
            runs=runs,
            posts=posts,
            load=services.load,
            metrics=services.metrics,
        )
        position = LogPosition(offset.applied_seq, offset.applied_msg_id)
        executor = CommandExecutor(
            services,
            tenure=tenure,
            position=position,
            wake_ups=wake_ups,
            notifier=notifier,
            demand=demand,
            posts=posts,
        )
        recorder = DecisionRecorder(
            services, tenure=tenure, runs=runs, notifier=notifier, executor=executor
        )
        failed = FailedRuns(
            services,
            runs=runs,
            notifier=notifier,
            executor=executor,
            recorder=recorder,
        )
        loader = RunLoader(
            services,
            owner=owner,
            tenure=tenure,
            runs=runs,
            measurements=measurements,
            origins=origins,
            recorder=recorder,
            failed=failed,
        )
        acknowledgement = TaskAcknowledgement(services.bus, tenure)
        acceptance = RunAcceptance(
            services,
            owner=owner,
            tenure=tenure,
            position=position,
            runs=runs,
            notifier=notifier,
            measurements=measurements,
            origins=origins,
            demand=demand,
            recorder=recorder,
            acknowledgement=acknowledgement,
        )
        self._events = EventHandler(
            services,
            tenure=tenure,
            runs=runs,
            reader=EventReader(
                number, partitions=services.partitions, bus=services.bus, posts=posts
            ),
            acceptance=acceptance,
            loader=loader,
            measurements=measurements,
            recorder=recorder,
            failed=failed,
            acknowledgement=acknowledgement,
        )
        self._log = LogReader(
            services.bus,
            number,
            handle=self._events.handle,
            rewound=self._rewound,
            position=position,
        )
        self._tenure = tenure
        self._position = position
        self._runs = runs
        self._measurements = measurements
        self._notifier = notifier
        self._wake_ups = wake_ups
        self._failed = failed
        self._loader = loader

    @classmethod
    async def acquire(
        cls,
        number: int,
        services: SharedServices,
        owner: str,
        *,
        cause: str = "start",
        lost: Callable[[], None] = lambda: None,
    ) -> "Partition":
        """Take a partition over: fence its former owner, load what is in flight, go on with it."""
        begun_ms = monotonic_ms()
        offset = await services.store.acquire(number, owner)
        fenced_ms = monotonic_ms()
        partition = cls(number, services, offset=offset, lost=lost)
        try:
            await partition._go_on(offset.told.told_ms)
        except BaseException:
            partition.end()
            raise
        took_ms = monotonic_ms() - begun_ms
        services.metrics.taken(cause, took_ms)
        log.info(
            "partition_owned",
            partition=number,
            cause=cause,
            epoch=offset.epoch,
            applied_seq=offset.applied_seq,
            runs=partition.in_flight,
            fence_ms=round(fenced_ms - begun_ms, 1),
            latency_ms=round(took_ms, 1),
        )
        return partition

    @property
    def in_flight(self) -> int:
        """Runs in memory."""
        return len(self._runs.in_flight)

    @property
    def in_flight_bytes(self) -> int:
        """How much they count."""
        return self._runs.in_flight_bytes

    @property
    def held_by_tenant(self) -> Mapping[str, Held]:
        """What the runs in memory count, by tenant."""
        return self._runs.by_tenant

    async def read(self) -> None:
        """Apply the log for ever; cancel to stop."""
        try:
            await self._log.run()
        finally:
            self._wake_ups.clear()

    async def leave(self) -> None:
        """Write what was decided and wait until it is told, so that the next owner finds all in
        Postgres. The log is not read any more when this is called."""
        await self._tenure.flush()
        await self._notifier.all_told()
        self._keep_watermark()
        await self._tenure.flush()

    def end(self) -> None:
        """Drop everything: what is not written is decided again by the next owner."""
        self._tenure.end()
        self._services.dispatcher.lost(self.number)
        self._notifier.stop()
        self._wake_ups.clear()
        self._runs.clear()

    def came_back(self) -> None:
        """The server came back, and may have lost steps and facts of the last seconds: hand out and
        tell again what it may have lost."""
        self._loader.redispatch()
        self._notifier.retell()

    def upkeep(self) -> None:
        """Post what was measured, keep what is known to be told, let runs that rest leave the memory;
        call it about twice a second."""
        self._measurements.post_news()
        self._keep_watermark()
        self._wake_ups.park()

    async def wake_parked(self) -> None:
        """Ask for the timers of parked runs whose time comes soon; call it every WAKE_EVERY_S."""
        await self._wake_ups.wake_parked()

    async def _go_on(self, told_ms: float) -> None:
        """Go on with what the former owner began, and tell what it may not have told: the ends of
        runs since then."""
        store = self._services.store
        kept, in_flight, ended = await asyncio.gather(
            store.outlook(self.number),
            store.in_flight(self.number),
            store.ended_since(self.number, told_ms),
        )
        self._measurements.load(kept)
        self._services.dispatcher.took(self.number)
        for stored in in_flight:
            await self._loader.load(stored)
        for run in ended:
            self._runs.remember(run)
            self._tell_again(run)

    def _tell_again(self, run: Run) -> None:
        try:
            self._notifier.tell(run)
        except BusUnavailable:
            raise
        except Exception:
            log.exception("end_not_told", **of_run(run.run_id, run.traceparent))

    def _keep_watermark(self) -> None:
        """Keep up to when the ends of runs are known to be told, where that is news."""
        watermark = self._notifier.news(self._position.applied_ms)
        if watermark is not None:
            self._tenure.keep_watermark(watermark)

    async def _rewound(self) -> None:
        """The log lost its tail: hand out again what is in flight."""
        self._services.metrics.taken("rewind", 0.0)
        self._loader.redispatch()
        await self._loader.read_back()

    def _refused(self, run: Run, error: Exception, late: bool) -> Ended | None:
        return self._failed.refused(run, error, late)
