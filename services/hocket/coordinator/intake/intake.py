"""Intake: tasks from TASKS, checked and admitted, into the log of their run's partition.

The TASKS message is not acknowledged here: its ack subject travels with the acceptance, and the
coordinator acks after the commit that holds the run. A task whose key its publisher chose, or that is
delivered again, is first looked up (in batches): a run that exists is not begun twice. A task that is
wrong is answered, told as a public fact, kept as a dead letter, and acknowledged; it is never in the
way of others. One that is right may have to wait or be refused for want of workers
(`admission_queue.py`).

States: taking tasks, waiting (Postgres or NATS is away; the tasks in hand are told to be in work, none
is asked for), pausing (a coordinator has no room for more runs, or a disk is nearly full:
`capacity.py`), choosing (a few tenants' runs leave no room: theirs are refused, those of others taken,
`waiting_tenants.py`). At most MAX_IN_HAND tasks are in hand; the consumer's `max_ack_pending` bounds
what all coordinators have admitted and not yet committed.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from hocket.coordinator.core.run.faults import reason_of
from hocket.coordinator.core.run.state.messages import end_message, rejection_of
from hocket.coordinator.core.run.state.run import RUN_REJECTED, Run
from hocket.coordinator.dispatch.workload import Load
from hocket.coordinator.intake.admission_queue import Candidate, Overload
from hocket.coordinator.intake.consumer import ACK_WAIT_S, TaskPull
from hocket.coordinator.intake.task_message import Task, admit, read_task, reply_to
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.partition.events.log_posts import LogPosts
from hocket.coordinator.storage.duration_stats import Durations
from hocket.coordinator.storage.pipeline_catalog import Catalog
from hocket.coordinator.storage.source_runs import Origins
from hocket.coordinator.storage.store import MAX_KEYS, Store
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats import cloudevents, dead_letters
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.cloudevents import event_headers
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.letter_budget import LetterBudget
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.postgres.errors import AWAY
from hocket.kit.process.clock import now_ms
from hocket.kit.process.lifecycle import Health
from hocket.kit.process.limits.memory import end_if_short
from hocket.schemas import ids, subjects
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.checks.bounded import MAX_NAME_CHARS, stored_text
from hocket.schemas.errors import ErrorInfo, HocketError, InvalidInput
from hocket.schemas.messages import RunAccepted, TaskRejected, encoded
from hocket.schemas.repeats import check_repeat

MAX_REJECTIONS_LOGGED = 100
"""In 10 seconds, with how many there were."""
MAX_IN_HAND = 1_000
KEEP_ALIVE_S = ACK_WAIT_S / 4
PAUSE_S = 0.2
_ACK_TOKENS = 9

log = structlog.get_logger(__name__)


class TaskNotTaken(HocketError):
    """Intake met a fault of its own with this task: {reason}. It is kept as a dead letter: redrive it
    after an update, `hocket dlq redrive`."""

    code = "task_not_taken"


@dataclass(frozen=True, slots=True)
class _Arrival:
    message: RawMessage
    delivered: int
    task: Task | HocketError
    """Or what is wrong with it."""

    @property
    def is_doubtful(self) -> bool:
        """Whether its run may exist: another task may be the same run."""
        return self.delivered > 1 or (isinstance(self.task, Task) and self.task.key is not None)


class Intake:
    """Takes tasks from NATS, and accepts or refuses each."""

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
        is_full: Callable[[], bool] = lambda: False,
        full_because: Callable[[], str] = lambda: "",
        over_share: Callable[[str], HocketError | None] = lambda tenant: None,
        capabilities: Capabilities | None = None,
    ) -> None:
        self._posting = LogPosts(bus, capabilities, partitions=partitions)
        self._bus = bus
        self._is_full = is_full
        self._full_because = full_because
        self._over_share = over_share
        self._store = store
        self._catalog = catalog
        self._origins = Origins(store, catalog)
        self._health = health
        self._metrics = metrics
        self._partitions = partitions
        self._max_task_bytes = max_task_bytes
        self._letters = LetterBudget()
        self._reporting = Reporting(at_once=MAX_REJECTIONS_LOGGED)
        self._arrivals: deque[_Arrival] = deque()
        self._batch: deque[_Arrival] = deque()
        self._checked_at_ms = 0.0
        self._arrived = asyncio.Event()
        self._pull = TaskPull(bus, deliver=self._deliver, room=self._room)
        self._overload = Overload(bus, durations, load, metrics, post=self._post)

    async def run(self) -> None:
        """Take tasks in for ever; cancel to stop, which gives back those in hand."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._overload.run(), name="overload")
                group.create_task(self._pull.run(), name="tasks")
                group.create_task(self._keep_alive(), name="tasks-in-hand")
                while True:
                    await self._arrived.wait()
                    await self._admit_some()
        finally:
            self._tell_in_hand(b"-NAK")

    def more(self) -> None:
        """Say that tasks may be taken in again."""
        self._pull.more()

    def _room(self) -> int:
        return 0 if self._is_full() else MAX_IN_HAND - len(self._arrivals) - len(self._batch)

    async def _admit_some(self) -> None:
        while self._arrivals and len(self._batch) < MAX_KEYS:
            self._batch.append(self._arrivals.popleft())
        if not self._arrivals:
            self._arrived.clear()
        while self._batch:
            try:
                await self._admit_batch()
                self._health.report("intake", True)
            except Exception as error:  # of Postgres or NATS: what a task brings is its own
                reason = reason_of(error)
                self._health.report("intake", False, reason)
                away = isinstance(error, (*AWAY, BusUnavailable))
                (log.warning if away else log.error)(
                    "intake_waits", reason=reason, tasks=len(self._batch)
                )
                await asyncio.sleep(PAUSE_S)
        self._pull.more()

    async def _admit_batch(self) -> None:
        doubtful = [
            arrival.task.run_id
            for arrival in self._batch
            if isinstance(arrival.task, Task) and arrival.is_doubtful
        ]
        self._checked_at_ms = now_ms()
        known = await self._store.known(doubtful) if doubtful else {}
        while self._batch:
            if self._is_full():
                await self._until_room()
            await self._admit_surely(self._batch[0], known)
            self._batch.popleft()

    async def _until_room(self) -> None:
        """Let tasks wait while there is no room for their runs; what is in hand is kept alive."""
        reason = self._full_because()
        tasks = len(self._batch) + len(self._arrivals)
        log.warning("intake_pauses", tasks=tasks, reason=reason)
        self._health.report("intake", True, f"pausing: {reason}", degraded=True)
        self._metrics.intake_pauses(True)
        while self._is_full():  # noqa: ASYNC110 - others' memory is part of it
            await asyncio.sleep(PAUSE_S)
        self._metrics.intake_pauses(False)
        log.info("intake_goes_on")

    async def _admit_surely(self, arrival: _Arrival, known: Mapping[str, Run]) -> None:
        """Admit a task; bury one that meets a bug of ours, so that it is not in the way of others."""
        try:
            await self._admit(arrival, known)
        except (*AWAY, BusUnavailable):
            raise
        except Exception as error:
            end_if_short(error)
            log.exception("task_not_taken", subject=arrival.message.subject)
            reason = f"{type(error).__name__}: {error}"
            await self._reject(arrival.message, TaskNotTaken(reason=reason).info(), run_id=None)

    async def _keep_alive(self) -> None:
        """Tell the stream again and again that what is in hand for long is in work."""
        in_hand: set[str] = set()
        while True:
            await asyncio.sleep(KEEP_ALIVE_S)
            before, in_hand = in_hand, {a.message.reply for a in (*self._batch, *self._arrivals)}
            for reply in before & in_hand:
                self._bus.publish_nowait(reply, b"+WPI")

    def _tell_in_hand(self, word: bytes) -> None:
        for arrival in (*self._batch, *self._arrivals):
            self._bus.publish_nowait(arrival.message.reply, word)

    def _deliver(self, message: RawMessage) -> None:
        tokens = message.reply.split(".")
        offset = 4 if len(tokens) == _ACK_TOKENS else 6
        delivered, seq, time_ns = (
            int(tokens[offset]),
            int(tokens[offset + 1]),
            int(tokens[offset + 3]),
        )
        task: Task | HocketError
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
            task = error
        except Exception as error:
            end_if_short(error)
            log.exception("task_unreadable", subject=message.subject)
            task = TaskNotTaken(reason=f"{type(error).__name__}: {error}")
        self._arrivals.append(_Arrival(message, delivered, task))
        self._arrived.set()

    async def _admit(self, arrival: _Arrival, known: Mapping[str, Run]) -> None:
        message, task = arrival.message, arrival.task
        if isinstance(task, HocketError):
            await self._reject(message, task.info(), run_id=None)
            return
        run = known.get(task.run_id)
        if run is not None and run.status == RUN_REJECTED and arrival.delivered == 1:
            run = None  # its key comes with a new task
        if run is not None:
            self._metrics.task("known")
            self._answer_known(run, task)
            self._bus.ack(message.reply)
            return
        try:
            checked_at_ms = self._checked_at_ms if arrival.is_doubtful else None
            accepted = await self._accepted(task, message.reply, checked_at_ms)
        except HocketError as error:
            await self._reject(message, error.info(), run_id=task.run_id)
            return
        entry = self._catalog.ready(accepted.tenant, accepted.pipeline, accepted.version)
        assert entry is not None, "it was admitted by it"
        await self._bus.wait_for_capacity()
        # the delivery is part of the id: a redelivered task brings a new ack subject, which the
        # coordinator must see even while the stream remembers the first one
        place = f"{arrival.delivered}:{message.reply.rsplit('.', 4)[-3]}"
        candidate = Candidate(
            accepted,
            partition=ids.partition_of(task.run_id, self._partitions),
            plan=entry.plan,
            msg_id=f"{task.run_id}:accepted:{place}",
        )
        refused = self._over_share(task.tenant)
        if refused is not None and not self._overload.waits(task.run_id):
            self._metrics.task("over_share")
            self._post(candidate, refused.info())
        else:
            self._overload.take(candidate)

    def _post(self, candidate: Candidate, refused: ErrorInfo | None) -> None:
        event = candidate.accepted
        if refused is not None:
            event = event.model_copy(update={"rejected": refused})
        self._posting.post(
            candidate.partition,
            RunAccepted.kind,
            event.model_dump_json().encode(),
            msg_id=candidate.msg_id,
        )

    async def _accepted(
        self, task: Task, task_ack: str, checked_at_ms: float | None
    ) -> RunAccepted:
        make = partial(admit, task, task_ack=task_ack, checked_at_ms=checked_at_ms)
        if task.origin is None:
            entry = await self._catalog.entry(task.tenant, task.pipeline, task.version)
            return make(entry.plan, entry.version, now_ms=now_ms())
        origin = await self._origins.run(task.tenant, task.origin)
        if origin.pipeline != task.pipeline:
            raise InvalidInput(
                field=cloudevents.ORIGIN_RUN,
                reason=f"run `{origin.run_id}` is of pipeline `{origin.pipeline}`",
                cure=f"Publish on {subjects.task(task.tenant, origin.pipeline)}.",
            )
        version = task.version or origin.version
        entry = await self._catalog.entry(task.tenant, task.pipeline, version)
        place = await self._origins.place(task.origin)
        check_repeat(
            task.origin, status=origin.status, from_step=place, plan=entry.plan, version=version
        )
        return make(entry.plan, version, now_ms=now_ms(), origin=origin)

    def _answer_known(self, run: Run, task: Task) -> None:
        """Tell the publisher of a repeated task how its run ended; one still running will tell."""
        inbox = reply_to(task.headers)
        if inbox is None or run.finished_at_ms is None:
            return
        rejected = run.status == RUN_REJECTED
        end = encoded(rejection_of(run)) if rejected else end_message(run)
        self._bus.publish_nowait(inbox, end)

    async def _reject(self, message: RawMessage, error: ErrorInfo, *, run_id: str | None) -> None:
        """Keep a task that is not taken as a dead letter, and tell its caller and EVENTS. What of this
        cannot be done for what the message says is left out: the task is in nobody's way."""
        self._metrics.task("rejected")
        tenant, pipeline = message.subject.split(".")[2:4]
        kept = self._letters.takes(len(message.data) + len(message.head))
        if count := self._reporting.due("rejected" if kept else "not kept"):
            log.warning(
                "task_rejected",
                subject=message.subject,
                code=error.code,
                reason=error.message,
                kept=kept,
                count=count,
            )
        if kept:
            await self._bury(message, error)
        else:
            self._metrics.letters_not_kept.inc()
        try:
            self._tell_rejection(message, tenant, pipeline, error, run_id)
        except BusUnavailable:
            raise
        except Exception:
            log.exception("rejection_not_told", subject=message.subject)
        self._bus.ack(message.reply)

    async def _bury(self, message: RawMessage, error: ErrorInfo) -> None:
        try:
            await dead_letters.bury(
                self._bus,
                "task",
                subject=message.subject,
                payload=message.data,
                headers=message.headers,
                error=error,
            )
        except (*AWAY, BusUnavailable):
            raise
        except Exception:
            log.exception("dead_letter_not_kept", subject=message.subject)

    def _tell_rejection(
        self, message: RawMessage, tenant: str, pipeline: str, error: ErrorInfo, run_id: str | None
    ) -> None:
        rejected = TaskRejected(
            tenant=str(stored_text(tenant, limit=MAX_NAME_CHARS)),
            pipeline=str(stored_text(pipeline, limit=MAX_NAME_CHARS)),
            error=error,
            task_id=run_id,
        )
        payload = rejected.model_dump_json().encode()
        try:
            inbox = reply_to(message.headers or {})
        except HocketError:
            inbox = None
        if inbox is not None:
            self._bus.publish_nowait(inbox, payload)
        identity = message.reply.rsplit(".", 4)[-4]
        self._bus.publish_durable(
            subjects.event(tenant, pipeline, TaskRejected.kind),
            payload,
            headers=event_headers("hocket.task.rejected", "hocket/intake", identity),
        )
