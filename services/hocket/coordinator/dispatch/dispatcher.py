"""Steps on their way to the workers: through the gate, and out to the stream STEPS.

Owns the process's gate (`core/scheduling/gate.py`) for all of its partitions, hears what workers
announce, and tells the metrics. What the gate holds is in nobody's stream: should this process die,
the next owner of the partition offers it again. It fails with the bus only; while that is away,
accounts stand still.
"""

import asyncio
from contextlib import suppress
from math import inf

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from pydantic import ValidationError

from hocket.coordinator.core.run.commands import CancelAttempt
from hocket.coordinator.core.run.faults import unsendable
from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.coordinator.core.scheduling.gate import Gate
from hocket.coordinator.core.scheduling.priority_queue import Ready, new_ready
from hocket.coordinator.core.time.deadlines import lane_of
from hocket.coordinator.dispatch.workload import Load
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.kit.access.grant_book import GrantBook
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process.clock import monotonic_ms, now_ms
from hocket.schemas import ids, subjects
from hocket.schemas.access.grants import missing_at_step
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.errors import ErrorInfo, HeldTooLong, HocketError
from hocket.schemas.messages import (
    AttemptFinished,
    StepCancelled,
    WorkerAnnounced,
    encoded,
)
from hocket.schemas.worker_slots import is_worker, of_subject, pool_of_subject

TICK_S = 0.25
FIRST_ANSWER_S = 0.2
"""How long the first announcement is waited for, so that a takeover hands its steps out in order."""

log = structlog.get_logger(__name__)


class Dispatcher:
    """Hands out steps through the gate, and hears what workers can do. `partitions`: of the
    installation, of which this process `took` some. `by_slack`: whether short slack puts a step
    into the urgent lane."""

    def __init__(
        self,
        bus: Bus,
        metrics: CoordinatorMetrics,
        gate: Gate,
        load: Load,
        *,
        partitions: int,
        gated: bool = True,
        by_slack: bool = True,
        capabilities: Capabilities | None = None,
        grants: GrantBook | None = None,
    ) -> None:
        self._capabilities = capabilities
        self._grants = grants or GrantBook()
        self._reporting = Reporting()
        self._bus = bus
        self._metrics = metrics
        self._partitions = partitions
        self._gated = gated
        self._by_slack = by_slack
        self._gate = gate
        self._load = load
        self._owned: set[int] = set()
        self._answered = asyncio.Event()
        self._subscriptions: list[Subscription] = []

    # ---- partitions -------------------------------------------------------------------------

    def took(self, partition: int) -> None:
        """Dispatch for a partition from now on."""
        self._owned.add(partition)
        self._gate.shares(len(self._owned) / self._partitions)

    def lost(self, partition: int) -> None:
        """Forget what a partition dispatched: it has another owner."""
        self._owned.discard(partition)
        self._gate.forget(partition)
        self._load.lost(partition)
        self._gate.shares(len(self._owned) / self._partitions)
        self.release()

    # ---- steps ------------------------------------------------------------------------------

    def dispatch(self, command: Dispatch) -> None:
        """Publish a step, now or when it is its turn; one that its tenant has no grant for ends."""
        if (refused := _refusal(self._grants, command)) is not None:
            self._end(command, refused, _result_id(command))
            return
        run = command.run
        ready = new_ready(
            attempt_id=command.attempt_id,
            type=command.pool,
            run_id=run.run_id,
            tenant=run.tenant,
            priority=run.priority,
            partition=run.owner.partition,
            latest_start_at_ms=command.latest_start_at_ms,
            latest_feasible_start_at_ms=command.latest_feasible_start_at_ms,
            expected_ms=command.expected_ms,
            join_left=command.join_left,
            item=(command, monotonic_ms()),
            again=command.again,
        )
        self._load.dispatched(command)
        if self._gate.offer(ready):
            self._publish(command, command.slack_ms, 0.0)

    def cancel(self, command: CancelAttempt) -> None:
        """Give an attempt up: one that waits here vanishes, else its worker is told."""
        attempt_id = ids.attempt_id(command.run_id, command.step, command.attempt)
        if self._gate.cancel(attempt_id, monotonic_ms()):
            cancelled = StepCancelled(
                run_id=command.run_id,
                step=command.step,
                attempt=command.attempt,
                reason=command.reason,
                capability=self._capability(command),
            )
            self._bus.publish_nowait(subjects.CANCEL_FILTER, encoded(cancelled))

    def _capability(self, command: CancelAttempt) -> str | None:
        if self._capabilities is None or command.dispatched is None:
            return None
        tenant, at_ms = command.dispatched
        return self._capabilities.of_attempt(
            tenant, command.run_id, command.step, command.attempt, at_ms
        )

    def finished(self, event: AttemptFinished) -> None:
        """Note that an attempt has ended, whatever its run makes of it."""
        ready = self._gate.finished(ids.attempt_id(event.run_id, event.step, event.attempt))
        if ready is not None:
            self._load.finished(ready, event)

    def release(self) -> None:
        """Publish the steps whose turn it is."""
        released = self._gate.release(now_ms())
        if not released:
            return
        at_ms = monotonic_ms()
        for ready in released:
            try:
                self._release(ready, at_ms)
            except BusUnavailable:
                raise
            except Exception:  # its run's deadline ends it; the others' steps go out
                log.exception("step_not_released", attempt=ready.attempt_id)

    def _release(self, ready: Ready, at_ms: float) -> None:
        command, held_at_ms = ready.item
        held_ms = at_ms - held_at_ms
        self._metrics.released(ready.type, ready.priority, held_ms)
        start_by_at_ms = command.start_by_at_ms
        if start_by_at_ms is not None and start_by_at_ms < now_ms():
            self._end(command, HeldTooLong().info(), f"{ready.attempt_id}:h:{at_ms}")
            return
        self._publish(command, ready.latest_start_at_ms - now_ms(), held_ms)

    # ---- capacity ---------------------------------------------------------------------------

    async def open(self) -> None:
        """Begin to hear of workers, and let those that are there announce themselves."""
        if not self._gated:
            return
        self._subscriptions = [
            await self._bus.subscribe(subject, self._announced)
            for subject in (subjects.WORKER_ANNOUNCED, f"{subjects.WORKER_ANNOUNCED}.*")
        ]
        self._bus.on_reconnect.append(self._came_back)
        self._bus.publish_nowait(subjects.WORKER_ASKED, b"")
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_ANSWER_S):
                await self._answered.wait()

    async def run(self) -> None:
        """Keep the gate's accounts; cancel to stop."""
        try:
            while True:
                await asyncio.sleep(TICK_S)
                if self._bus.connected:  # else nobody can be heard, and nothing goes out
                    self._gate.tick(monotonic_ms())
                    self.release()
                self._load.tick()
                self._metrics.dispatching(self._gate.loads())
        finally:
            for subscription in self._subscriptions:
                await subscription.unsubscribe()

    def _came_back(self) -> None:
        self._gate.hears_again(monotonic_ms())
        self._bus.publish_nowait(subjects.WORKER_ASKED, b"")

    async def _announced(self, message: Msg) -> None:
        try:
            announced = WorkerAnnounced.model_validate_json(message.data)
        except ValidationError as error:
            if count := self._reporting.due("malformed"):
                log.warning("announcement_malformed", faults=error.error_count(), count=count)
            return
        if not is_worker(announced):
            if count := self._reporting.due("unlikely"):
                log.warning("announcement_not_believed", worker=announced.worker[:80], count=count)
            return
        announced = of_subject(announced, message.subject)
        self._answered.set()
        pool = pool_of_subject(message.subject)
        self._gate.announced(announced.worker, announced.slots, monotonic_ms(), pool)
        self.release()

    # ---- out --------------------------------------------------------------------------------

    def _publish(self, command: Dispatch, slack_ms: float, held_ms: float) -> None:
        run = command.run
        if (refused := _refusal(self._grants, command)) is not None:
            self._end(command, refused, _result_id(command))
            return
        lane = lane_of(run.priority, slack_ms if self._by_slack else inf)
        subject = subjects.step(command.pool, lane)
        headers = {"traceparent": run.traceparent} if run.traceparent else None
        try:
            payload = command.body(slack_ms, held_ms)
            self._bus.publish_durable(subject, payload, msg_id=command.msg_id, headers=headers)
        except BusUnavailable:
            raise
        except (HocketError, ValueError) as error:  # it fails, like one that its worker refuses
            self._end(command, unsendable(error), _result_id(command))

    def _end(self, command: Dispatch, error: ErrorInfo, msg_id: str) -> None:
        """Post the end of an attempt that does not go out."""
        result = AttemptFinished(
            run_id=command.run.run_id,
            step=command.step,
            attempt=command.attempt,
            error=error,
            worker="coordinator",
            dispatched_at_ms=command.dispatched_at_ms,
            capability=command.capability,
        )
        self._bus.publish_durable(
            subjects.log(command.run.owner.partition, AttemptFinished.kind),
            encoded(result),
            msg_id=msg_id,
        )


def _refusal(grants: GrantBook, command: Dispatch) -> ErrorInfo | None:
    """Return the error of a step that uses what its tenant has no grant for."""
    tenant = command.run.tenant
    missing = missing_at_step(command.node, command.step, grants.of(tenant), tenant)
    return None if missing is None else missing.info()


def _result_id(command: Dispatch) -> str:
    """Return the id under which the end of an attempt is posted that does not go out."""
    msg_id = ids.result_id(command.attempt_id, command.dispatched_at_ms)
    return ids.capable(msg_id, command.capability)
