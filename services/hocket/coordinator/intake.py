"""Intake: tasks from TASKS, checked and admitted, into the log of their run's partition.

The TASKS message is not acknowledged here: its ack subject travels with the acceptance, and the
coordinator acks after the commit that holds the run. A task whose key its publisher chose, or that is
delivered again, is first looked up (in batches): a run that exists is not begun twice. A task that is
wrong is answered, told as a public fact, kept as a dead letter, and acknowledged; it is never in the
way of others. One that is right may have to wait or be refused for want of workers (`overload.py`). The
consumer's `max_ack_pending` bounds what is admitted and not yet committed, with what waits.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig

from hocket.coordinator.admission import Task, admit, read_task, reply_to
from hocket.coordinator.catalog import Catalog
from hocket.coordinator.committer import AWAY
from hocket.coordinator.core.ending import finished_of, rejected_of
from hocket.coordinator.core.state import Run, RunStatus
from hocket.coordinator.durations import Durations
from hocket.coordinator.load import Load
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.origins import Origins
from hocket.coordinator.overload import Candidate, Overload
from hocket.coordinator.store import MAX_KEYS, Store
from hocket.kit import dead_letters, events
from hocket.kit.bus import Bus
from hocket.kit.clock import now_ms
from hocket.kit.events import event_headers
from hocket.kit.lifecycle import Health
from hocket.schemas import ids, subjects
from hocket.schemas.errors import ErrorInfo, HocketError, InvalidInput
from hocket.schemas.messages import RunAccepted, TaskRejected
from hocket.schemas.repeats import check_repeat

DURABLE = "intake"
ACK_WAIT_S = 30
MAX_ACK_PENDING = 10_000
QUEUE_SIZE = 2 * MAX_ACK_PENDING
PAUSE_S = 0.2
_ACK_TOKENS = 9

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Arrival:
    message: Msg
    delivered: int
    task: Task


class Intake:
    """See the module."""

    def __init__(
        self,
        bus: Bus,
        store: Store,
        catalog: Catalog,
        health: Health,
        metrics: CoordinatorMetrics,
        durations: Durations,
        load: Load,
        *,
        partitions: int,
        max_task_bytes: int,
    ) -> None:
        self._bus = bus
        self._store = store
        self._catalog = catalog
        self._origins = Origins(store, catalog)
        self._health = health
        self._metrics = metrics
        self._partitions = partitions
        self._max_task_bytes = max_task_bytes
        self._arrivals: asyncio.Queue[_Arrival] = asyncio.Queue(QUEUE_SIZE)
        self._overload = Overload(bus, durations, load, metrics, post=self._post)

    async def run(self) -> None:
        """Take tasks in for ever; cancel to stop."""
        subscription = await self._bus.js.subscribe(
            subjects.TASK_FILTER,
            queue=DURABLE,
            durable=DURABLE,
            stream=subjects.TASKS,
            cb=self._arrived,
            manual_ack=True,
            config=ConsumerConfig(
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=ACK_WAIT_S,
                max_ack_pending=MAX_ACK_PENDING,
                max_deliver=-1,
            ),
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._overload.run(), name="overload")
                while True:
                    await self._admit_batch(await self._batch())
        finally:
            await subscription.unsubscribe()

    async def _batch(self) -> list[_Arrival]:
        batch = [await self._arrivals.get()]
        while len(batch) < MAX_KEYS and not self._arrivals.empty():
            batch.append(self._arrivals.get_nowait())
        return batch

    async def _arrived(self, message: Msg) -> None:
        tokens = message.reply.split(".")
        offset = 4 if len(tokens) == _ACK_TOKENS else 6
        delivered, seq, time_ns = (
            int(tokens[offset]),
            int(tokens[offset + 1]),
            int(tokens[offset + 3]),
        )
        try:
            task = read_task(
                message.subject,
                message.data,
                message.headers,
                stream_seq=seq,
                stream_time_ns=time_ns,
                max_bytes=self._max_task_bytes,
            )
        except HocketError as error:
            await self._reject(message, error.info(), run_id=None)
            return
        await self._arrivals.put(_Arrival(message, delivered, task))

    async def _admit_batch(self, batch: list[_Arrival]) -> None:
        doubtful = [a.task.run_id for a in batch if a.task.key is not None or a.delivered > 1]
        while True:
            try:
                known = await self._store.known(doubtful) if doubtful else {}
                for arrival in batch:
                    await self._admit(arrival, known)
                self._health.report("intake", True)
                return
            except AWAY as error:
                reason = str(error) or type(error).__name__
                self._health.report("intake", False, reason)
                log.warning("intake_waits", reason=reason, tasks=len(batch))
                await asyncio.sleep(PAUSE_S)

    async def _admit(self, arrival: _Arrival, known: Mapping[str, Run]) -> None:
        message, task = arrival.message, arrival.task
        run = known.get(task.run_id)
        if run is not None and run.status is RunStatus.REJECTED and arrival.delivered == 1:
            run = None  # its key comes with a new task
        if run is not None:
            self._metrics.task("known")
            self._answer_known(run, task)
            self._bus.ack(message.reply)
            return
        try:
            accepted = await self._accepted(task, message.reply)
        except HocketError as error:
            await self._reject(message, error.info(), run_id=task.run_id)
            return
        entry = self._catalog.ready(accepted.tenant, accepted.pipeline, accepted.version)
        assert entry is not None, "it was admitted by it"
        await self._bus.room()
        # the delivery is part of the id: a redelivered task brings a new ack subject, which the
        # coordinator must see even while the stream remembers the first one
        place = f"{arrival.delivered}:{message.reply.rsplit('.', 4)[-3]}"
        candidate = Candidate(
            accepted,
            partition=ids.partition_of(task.run_id, self._partitions),
            plan=entry.plan,
            msg_id=f"{task.run_id}:accepted:{place}",
        )
        self._overload.take(candidate)

    def _post(self, candidate: Candidate, refused: ErrorInfo | None) -> None:
        event = candidate.accepted
        if refused is not None:
            event = event.model_copy(update={"rejected": refused})
        self._bus.post(
            subjects.log(candidate.partition, RunAccepted.kind),
            event.model_dump_json().encode(),
            msg_id=candidate.msg_id,
        )

    async def _accepted(self, task: Task, task_ack: str) -> RunAccepted:
        if task.origin is None:
            entry = await self._catalog.entry(task.tenant, task.pipeline, task.version)
            return admit(task, entry.plan, entry.version, now_ms=now_ms(), task_ack=task_ack)
        origin = await self._origins.run(task.tenant, task.origin)
        if origin.pipeline != task.pipeline:
            raise InvalidInput(
                field=events.ORIGIN_RUN,
                reason=f"run `{origin.run_id}` is of pipeline `{origin.pipeline}`",
                cure=f"Publish on {subjects.task(task.tenant, origin.pipeline)}.",
            )
        version = task.version or origin.version
        entry = await self._catalog.entry(task.tenant, task.pipeline, version)
        place = await self._origins.place(task.origin)
        check_repeat(
            task.origin, status=origin.status, from_step=place, plan=entry.plan, version=version
        )
        return admit(task, entry.plan, version, now_ms=now_ms(), task_ack=task_ack, origin=origin)

    def _answer_known(self, run: Run, task: Task) -> None:
        """Tell the publisher of a repeated task how its run ended; one still running will tell."""
        inbox = reply_to(task.headers)
        if inbox is None or run.finished_at_ms is None:
            return
        end = rejected_of(run) if run.status is RunStatus.REJECTED else finished_of(run)
        self._bus.tell(inbox, end.model_dump_json().encode())

    async def _reject(self, message: Msg, error: ErrorInfo, *, run_id: str | None) -> None:
        self._metrics.task("rejected")
        tenant, pipeline = message.subject.split(".")[2:4]
        log.warning("task_rejected", subject=message.subject, code=error.code, reason=error.message)
        rejected = TaskRejected(tenant=tenant, pipeline=pipeline, error=error, task_id=run_id)
        payload = rejected.model_dump_json().encode()
        await dead_letters.bury(
            self._bus,
            "task",
            subject=message.subject,
            payload=message.data,
            headers=message.headers,
            error=error,
        )
        try:
            inbox = reply_to(message.headers or {})
        except HocketError:
            inbox = None
        if inbox is not None:
            self._bus.tell(inbox, payload)
        identity = message.reply.rsplit(".", 4)[-4]
        self._bus.post(
            subjects.event(tenant, pipeline, TaskRejected.kind),
            payload,
            headers=event_headers("hocket.task.rejected", "hocket/intake", identity),
        )
        self._bus.ack(message.reply)
