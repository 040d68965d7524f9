"""Steps on their way to the workers: through the gate, and out to the stream STEPS.

Owns the process's gate (`core/scheduling/gate.py`) for all of its partitions, and updates the
metrics. Announcements of workers are received in `worker_announcements.py`, steps are published in
`step_publisher.py`. What the gate holds is in no stream: if this process dies, the partition's next
owner offers it again. It fails only with the bus; while that is away, the gate's accounts stand
still.
"""

import asyncio
from hmac import compare_digest

import structlog

from hocket.coordinator.core.run.commands import CancelAttempt
from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.coordinator.core.scheduling.gate import Gate
from hocket.coordinator.core.scheduling.priority_queue import Ready
from hocket.coordinator.dispatch.bundle_sizes import BundleSizes
from hocket.coordinator.dispatch.step_publisher import StepPublisher
from hocket.coordinator.dispatch.worker_announcements import WorkerAnnouncements
from hocket.coordinator.dispatch.workload import Load
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process.clock import monotonic_ms, now_ms
from hocket.schemas import ids
from hocket.schemas.errors import HeldTooLong
from hocket.schemas.messages import AttemptFinished

TICK_S = 0.25

log = structlog.get_logger(__name__)


class Dispatcher:
    """Hands out steps through the gate, by `publisher`. `partitions`: how many the installation
    has, some of which this process `took`. `gated`: whether workers are listened to, so that steps
    wait for their slots."""

    def __init__(
        self,
        bus: Bus,
        metrics: CoordinatorMetrics,
        gate: Gate,
        load: Load,
        publisher: StepPublisher,
        sizes: BundleSizes,
        *,
        partitions: int,
        gated: bool = True,
    ) -> None:
        self._bus = bus
        self._metrics = metrics
        self._partitions = partitions
        self._gated = gated
        self._gate = gate
        self._load = load
        self._publisher = publisher
        self._bundles = publisher.bundles
        self._sizes = sizes
        self._announcements = WorkerAnnouncements(bus, gate, sizes, self.release)
        self._owned: set[int] = set()

    # ---- partitions -------------------------------------------------------------------------

    def took(self, partition: int) -> None:
        """Dispatch for a partition from now on."""
        self._owned.add(partition)
        self._gate.types.shares(len(self._owned) / self._partitions)

    def lost(self, partition: int) -> None:
        """Forget what a partition dispatched: it has another owner."""
        self._owned.discard(partition)
        self._gate.forget(partition)
        self._load.lost(partition)
        self._bundles.lost(partition)
        self._gate.types.shares(len(self._owned) / self._partitions)
        self.release()

    # ---- steps ------------------------------------------------------------------------------

    def dispatch(self, command: Dispatch) -> None:
        """Publish a step, now or when it is its turn; end it if its tenant has no grant for what it
        uses."""
        if self._publisher.refused(command):
            return
        run = command.run
        ready = Ready(
            command.attempt_id,
            command.pool,
            run.run_id,
            run.tenant,
            run.priority,
            run.owner.partition,
            command.latest_start_at_ms,
            command.latest_feasible_start_at_ms,
            command.expected_ms,
            command.join_left,
            (command, monotonic_ms()),
            command.again,
        )
        self._load.dispatched(command)
        if self._gate.offer(ready):
            self._publisher.publish(command, command.slack_ms, 0.0)

    def cancel(self, command: CancelAttempt) -> None:
        """Give up an attempt: drop it if it is held here, otherwise tell its worker."""
        attempt_id = ids.attempt_id(command.run_id, command.step, command.attempt)
        if self._gate.cancel(attempt_id, monotonic_ms()):
            self._publisher.cancel(command)

    def has_sent(self, event: AttemptFinished, attempt_id: str) -> bool:
        """Tell whether a result carries the capability of a dispatch that went out here and has not
        ended. Other results are not known here, and may be valid all the same (`may_tell`)."""
        ready, told = self._gate.out(attempt_id), event.capability
        if ready is None or told is None:
            return False
        command: Dispatch = ready.item[0]
        return (
            command.capability is not None
            and command.dispatched_at_ms == event.dispatched_at_ms
            and told.isascii()
            and compare_digest(told, command.capability)
        )

    def finished(self, event: AttemptFinished, attempt_id: str) -> None:
        """Note that an attempt has ended, whatever its run makes of it."""
        self._bundles.ended(attempt_id, event.took)
        ready = self._gate.finished(attempt_id)
        if ready is not None:
            self._load.finished(ready, event)

    def release(self) -> None:
        """Publish the steps whose turn it is."""
        if not self._gate.may_release:
            return
        at_ms, now = monotonic_ms(), now_ms()
        for ready in self._gate.release(now):
            try:
                self._release(ready, at_ms, now)
            except BusUnavailable:
                raise
            except Exception:  # its run's deadline ends it; the other steps go out
                log.exception("step_not_released", attempt=ready.attempt_id)

    def _release(self, ready: Ready, at_ms: float, now: float) -> None:
        command, held_at_ms = ready.item
        held_ms = at_ms - held_at_ms
        self._metrics.released(ready.type, ready.priority, held_ms)
        start_by_at_ms = command.start_by_at_ms
        if start_by_at_ms is not None and start_by_at_ms < now:
            self._publisher.end(command, HeldTooLong().info(), f"{ready.attempt_id}:h:{at_ms}")
            return
        if not self._publisher.refused(command):  # its tenant's grants may have changed meanwhile
            self._publisher.publish(command, ready.latest_start_at_ms - now, held_ms)

    # ---- capacity ---------------------------------------------------------------------------

    async def open(self) -> None:
        """Begin to listen to workers, and ask those that are there to announce themselves."""
        if self._gated:
            await self._announcements.open()

    async def run(self) -> None:
        """Keep the gate's accounts up to date; cancel to stop."""
        stopped: BaseException | None = None
        try:
            while True:
                await asyncio.sleep(TICK_S)
                self._tick()
        except BaseException as error:
            stopped = error
        await self._announcements.close()
        if stopped is not None:
            raise stopped

    def _tick(self) -> None:
        if self._bus.connected:  # otherwise nobody can be heard, and nothing goes out
            self._gate.tick(monotonic_ms())
            self._sizes.tick(monotonic_ms())
            self._bundles.tick()
            self.release()
        self._load.tick()
        loads = self._gate.types.loads()
        self._metrics.dispatching(loads, self._load.slots_wanted(loads))
