"""Admits one task: it becomes a run that begins or waits, is answered if its run already exists, or
is rejected, as is one whose key names a run of another pipeline.

An admitted task is not acknowledged here. Its ack subject travels with its acceptance, and the
partition acknowledges it with the commit that holds its run
(`partition/runs/task_acknowledgement.py`).
"""

from collections.abc import Callable, Mapping

from hocket.coordinator.core.run.state.messages import end_message, rejection_of
from hocket.coordinator.core.run.state.run import RUN_REJECTED, Run
from hocket.coordinator.intake.acceptance_posts import AcceptancePosts
from hocket.coordinator.intake.admission_queue import Candidate, Overload
from hocket.coordinator.intake.arrival import Arrival
from hocket.coordinator.intake.task_acceptance import TaskAcceptance
from hocket.coordinator.intake.task_message import Task, reply_to
from hocket.coordinator.intake.task_rejection import TaskRejection
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.partition.runs.caller_replies import CallerReplies
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.cloudevents import key_header
from hocket.schemas import ids
from hocket.schemas.errors import HocketError, IdempotencyKeyReused
from hocket.schemas.messages import encoded


class TaskAdmission:
    """Admits tasks. `over_share` returns why no more tasks of a tenant are taken, or None if they
    are."""

    def __init__(
        self,
        bus: Bus,
        metrics: CoordinatorMetrics,
        *,
        replies: CallerReplies,
        acceptance: TaskAcceptance,
        rejection: TaskRejection,
        overload: Overload,
        posts: AcceptancePosts,
        over_share: Callable[[str], HocketError | None],
        done: Callable[[str], None],
        partitions: int,
    ) -> None:
        self._bus = bus
        self._metrics = metrics
        self._replies = replies
        self._acceptance = acceptance
        self._rejection = rejection
        self._overload = overload
        self._posts = posts
        self._over_share = over_share
        self._done = done
        self._partitions = partitions

    async def admit(
        self, arrival: Arrival, known: Mapping[str, Run], looked_up_at_ms: float
    ) -> None:
        """Admit a task, reject it, or answer it if its run is among those `known`, or waits for workers
        here; raise only errors of Postgres and NATS, and our own bugs."""
        message, task = arrival.message, arrival.task
        if isinstance(task, HocketError):
            await self._rejection.reject(message, task.info(), run_id=None)
            return
        run = _run_of(arrival, known.get(task.run_id))
        waiting = self._overload.waiting(task.run_id)
        first = run or waiting
        if first is not None and (run is not None or arrival.is_other_than(waiting)):
            await self._repeated(arrival, task, run, first.pipeline)
            return
        fault: HocketError | None = None
        try:
            checked_at_ms = looked_up_at_ms if arrival.is_doubtful else None
            accepted, plan = await self._acceptance.accepted(task, message.reply, checked_at_ms)
            self._posts.check(accepted)
        except HocketError as error:
            fault = error
        if fault is not None:
            await self._rejection.reject(message, fault.info(), run_id=task.run_id)
            return
        await self._bus.wait_for_capacity()
        # the delivery is part of the id: a redelivered task brings a new ack subject, which the
        # coordinator must see even while the stream remembers the first one
        place = f"{arrival.delivered}:{message.reply.rsplit('.', 4)[-3]}"
        candidate = Candidate(
            accepted,
            partition=ids.partition_of(task.run_id, self._partitions),
            plan=plan,
            msg_id=f"{task.run_id}:accepted:{place}",
        )
        refused = self._over_share(task.tenant)
        if refused is not None and waiting is None:
            self._metrics.task("over_share")
            self._posts.post(candidate, refused.info())
        else:
            self._overload.take(candidate)

    async def _repeated(self, arrival: Arrival, task: Task, run: Run | None, pipeline: str) -> None:
        """Answer a task whose key names a `run` of a pipeline, or a task that waits to be one."""
        if pipeline != task.pipeline:
            reused = IdempotencyKeyReused(
                field=key_header(task.headers), run_id=task.run_id, pipeline=pipeline
            )
            await self._rejection.reject(arrival.message, reused.info(), run_id=None)
            return
        self._metrics.task("known")
        if run is not None:
            self._answer_known(run, task)
        self._done(arrival.message.reply)

    def _answer_known(self, run: Run, task: Task) -> None:
        """Answer a repeated task with the end of its run, unless it is still running: then the end
        will be announced."""
        inbox = reply_to(task.headers)
        if inbox is None or run.finished_at_ms is None:
            return
        if run.status == RUN_REJECTED:
            self._bus.publish_nowait(inbox, encoded(rejection_of(run)))
        else:
            self._replies.send(inbox, run, end_message(run))


def _run_of(arrival: Arrival, found: Run | None) -> Run | None:
    """Return the run of a task; None if it was rejected, and this is a new task with the same key, one
    that was stored after that."""
    if found is None or found.status != RUN_REJECTED:
        return found
    is_new = found.finished_at_ms is None or arrival.stored_at_ms > found.finished_at_ms
    return None if is_new else found
