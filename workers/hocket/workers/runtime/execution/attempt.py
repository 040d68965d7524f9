"""One attempt in the hands of a worker, from its delivery to the acknowledged result.

States: ready (fetched, not started) -> running -> concluded (its result is posted) -> gone (the
result is acknowledged, and so is the step's message). A `stop` ends the handler: it concludes with
the stop's error, whatever the handler makes of being cancelled. An attempt that is `let go` gives no
result; its message goes back to the stream.
"""

import asyncio
from enum import Enum

from hocket.kit.nats.consumers.delivery import Delivery
from hocket.schemas import ids
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import StepCancelled
from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.runtime.journal.suspending import Suspension


class State(Enum):
    """Where an attempt is."""

    READY = "ready"
    RUNNING = "running"
    CONCLUDED = "concluded"


class Attempt:
    """A delivered step. `ack_subject` is that of its latest delivery, `touched_s` when the server last
    knew that it is in work (event loop time), `losses` how often the bus had been lost when the delivery
    came, or was recognised. `head` are the headers of its message."""

    __slots__ = (
        "__weakref__",
        "ack_subject",
        "alarm",
        "delivery",
        "has_references",
        "head",
        "held_bytes",
        "id",
        "input_digest",
        "key",
        "let_go",
        "losses",
        "place",
        "result",
        "started_at_ms",
        "state",
        "step",
        "stopped",
        "suspension",
        "task",
        "touched_s",
    )

    def __init__(
        self,
        step: RequestedStep,
        ack_subject: str,
        delivery: Delivery,
        head: bytes,
        touched_s: float,
        losses: int,
        *,
        has_references: bool = False,
    ) -> None:
        self.step = step
        self.ack_subject = ack_subject
        self.delivery = delivery
        self.head = head
        self.touched_s = touched_s
        self.losses = losses
        self.has_references = has_references
        self.id = ids.attempt_id(step.run_id, step.step, step.attempt)
        self.key = ids.capable(self.id, step.capability)
        """Its id and its capability: a forged step of the same attempt is another one."""
        self.state = State.READY
        self.task: asyncio.Task[None] | None = None
        self.stopped: HocketError | None = None
        self.suspension: Suspension | None = None
        """What its handler waits for, where it ends because of that."""
        self.let_go = False
        self.started_at_ms = 0.0
        self.input_digest = ""
        self.result = b""
        """The end that was posted, encoded; empty before."""
        self.held_bytes = 0
        """What its blobs hold of the worker's room."""
        self.place = -1
        """Where it is noted in `HeldSteps`, -1 where it is not."""
        self.alarm = 0
        """The number of its alarm (`Alarms`), 0 for none."""

    @property
    def result_id(self) -> str:
        """The `Nats-Msg-Id` of its result."""
        msg_id = ids.result_id(self.id, self.step.dispatched_at_ms)
        return ids.capable(msg_id, self.step.capability)

    @property
    def latest_end_ms(self) -> float:
        """Until when it may run at the latest (epoch ms)."""
        step = self.step
        return step.deadline_at_ms if step.run_deadline_at_ms is None else step.run_deadline_at_ms

    @property
    def is_cut_off(self) -> bool:
        """Whether its handler was ended before it gave a result of its own."""
        return self.stopped is not None or self.suspension is not None or self.let_go

    @property
    def is_suspended(self) -> bool:
        """Whether it ends because its handler waits, and for nothing else."""
        return self.suspension is not None and self.stopped is None

    def delivered_again(self, delivered: "Attempt") -> None:
        """Take note of another delivery of the same step: its calls have the first delivery's count in
        their ids."""
        self.ack_subject, self.touched_s = delivered.ack_subject, delivered.touched_s
        self.losses = delivered.losses

    def is_concerned(self, cancelled: StepCancelled) -> bool:
        """Tell whether a cancellation means this attempt."""
        step = self.step
        return (
            cancelled.run_id == step.run_id
            and step.capability in (None, cancelled.capability)
            and cancelled.step in (None, step.step)
            and cancelled.attempt in (None, step.attempt)
        )

    def stop(self, error: HocketError) -> bool:
        """End the attempt with an error; tell whether it was still to conclude."""
        if self.state is State.CONCLUDED or self.stopped is not None:
            return False
        self.stopped = error
        self._cancel()
        return True

    def suspend(self, suspension: Suspension) -> bool:
        """End the attempt because its handler waits; tell whether it was still to conclude."""
        if self.state is State.CONCLUDED or self.is_cut_off:
            return False
        self.suspension = suspension
        self._cancel()
        return True

    def give_back(self) -> bool:
        """Stop without a result; tell whether the attempt was still to conclude."""
        if self.state is State.CONCLUDED or self.let_go:
            return False
        self.let_go = True
        self._cancel()
        return True

    def conclude(self) -> bool:
        """Pass to concluded; tell whether it was not already."""
        if self.state is State.CONCLUDED:
            return False
        self.state = State.CONCLUDED
        return True

    def _cancel(self) -> None:
        """Cancel the task, once it has begun: one that has not finds out itself, and one that is
        cancelled before its first turn would do nothing at all."""
        if self.state is State.RUNNING and self.task is not None and self.started_at_ms:
            self.task.cancel()
