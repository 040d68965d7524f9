"""Intake: takes tasks from TASKS, checks and admits them, and posts them to the log of their run's
partition.

A task whose key was chosen by its publisher, or that is delivered again, is first looked up (in
batches), so that an existing run is not begun twice. What then becomes of each task is decided in
`task_admission.py`. A task that triggers a bug of ours is rejected (`task_rejection.py`), so that
it never blocks others. A valid task may have to wait or be refused for lack of workers
(`admission_queue.py`). The partition acknowledges it with the commit of its run:
`partition/runs/task_acknowledgement.py`.

States: taking tasks, waiting (Postgres or NATS is away; the tasks in hand are reported as in
progress, and no more are requested), pausing (a coordinator has no room for more runs, or a disk is
nearly full: `capacity.py`), choosing (a few tenants' runs leave no room: their tasks are refused,
those of others taken, `waiting_tenants.py`). At most MAX_IN_HAND tasks are in hand
(`tasks_in_hand.py`); the consumer's `max_ack_pending` bounds what all coordinators have admitted
and not yet committed.
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from hocket.coordinator.core.run.faults import reason_of
from hocket.coordinator.core.run.state.run import Run
from hocket.coordinator.intake.admission_queue import Overload
from hocket.coordinator.intake.arrival import Arrival, TaskNotTaken
from hocket.coordinator.intake.task_admission import TaskAdmission
from hocket.coordinator.intake.task_message import Task
from hocket.coordinator.intake.task_rejection import TaskRejection
from hocket.coordinator.intake.tasks_in_hand import TasksInHand
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.storage.store import Store
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.postgres.errors import AWAY
from hocket.kit.process.clock import now_ms
from hocket.kit.process.lifecycle import Health
from hocket.kit.process.limits.memory import end_if_short

PAUSE_S = 0.2

log = structlog.get_logger(__name__)


class Intake:
    """Takes tasks from NATS, and has them admitted in order. `is_full`: whether there is no room
    for more runs, `full_because`: why."""

    def __init__(
        self,
        store: Store,
        health: Health,
        metrics: CoordinatorMetrics,
        *,
        tasks: TasksInHand,
        admission: TaskAdmission,
        rejection: TaskRejection,
        overload: Overload,
        is_full: Callable[[], bool],
        full_because: Callable[[], str],
    ) -> None:
        self._store = store
        self._health = health
        self._metrics = metrics
        self._tasks = tasks
        self._admission = admission
        self._rejection = rejection
        self._overload = overload
        self._is_full = is_full
        self._full_because = full_because

    async def run(self) -> None:
        """Take tasks in; never returns, cancel to stop, which gives back those in hand."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._overload.run(), name="overload")
                self._tasks.start(group)
                while True:
                    await self._tasks.fill_batch()
                    await self._admit_some()
        finally:
            self._tasks.give_back()

    def more(self) -> None:
        """Report that tasks may be taken in again."""
        self._tasks.more()

    async def _admit_some(self) -> None:
        while self._tasks.batch:
            try:
                await self._admit_batch()
                self._health.report("intake", True)
            except Exception as error:  # due to Postgres or NATS, not to a task
                reason = reason_of(error)
                self._health.report("intake", False, reason)
                away = isinstance(error, (*AWAY, BusUnavailable))
                (log.warning if away else log.error)(
                    "intake_waits", reason=reason, tasks=len(self._tasks.batch)
                )
                await asyncio.sleep(PAUSE_S)
        self._tasks.more()

    async def _admit_batch(self) -> None:
        batch = self._tasks.batch
        doubtful = [
            arrival.task.run_id
            for arrival in batch
            if isinstance(arrival.task, Task) and arrival.is_doubtful
        ]
        looked_up_at_ms = now_ms()
        known = await self._store.known(doubtful) if doubtful else {}
        while batch:
            if self._is_full():
                await self._until_room()
            await self._admit_surely(batch[0], known, looked_up_at_ms)
            self._tasks.decided()

    async def _until_room(self) -> None:
        """Wait while there is no room for more runs; the tasks in hand are kept alive."""
        reason = self._full_because()
        tasks = len(self._tasks)
        log.warning("intake_pauses", tasks=tasks, reason=reason)
        self._health.report("intake", True, f"pausing: {reason}", degraded=True)
        self._metrics.intake_pauses(True)
        while self._is_full():  # noqa: ASYNC110 - others' memory is part of it
            await asyncio.sleep(PAUSE_S)
        self._metrics.intake_pauses(False)
        log.info("intake_goes_on")

    async def _admit_surely(
        self, arrival: Arrival, known: Mapping[str, Run], looked_up_at_ms: float
    ) -> None:
        """Admit a task; reject one that triggers a bug of ours, so that it does not block others."""
        try:
            await self._admission.admit(arrival, known, looked_up_at_ms)
        except (*AWAY, BusUnavailable):
            raise
        except Exception as error:
            end_if_short(error)
            log.exception("task_not_taken", subject=arrival.message.subject)
            reason = f"{type(error).__name__}: {error}"
            await self._rejection.reject(
                arrival.message, TaskNotTaken(reason=reason).info(), run_id=None
            )
