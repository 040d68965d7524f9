"""One attempt in a worker, from its delivery to its acknowledged result.

States: ready (fetched, not started) -> running -> concluded (its result is posted) -> gone (the
result is acknowledged, and so is the step's message). `stop` ends the handler: the attempt concludes
with the stop's error, however the handler reacts to being cancelled. An attempt that is `let_go` gives
no result; its message goes back to the stream.
"""

import asyncio
from enum import Enum
from typing import TYPE_CHECKING

from hocket.kit.nats.consumers.delivery import Delivery
from hocket.schemas import ids
from hocket.schemas.capabilities import hashed
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import StepCancelled
from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.runtime.journal.suspending import Suspension
from hocket.workers.runtime.transport.step_message import PostedResult, StepMessage

if TYPE_CHECKING:
    from hocket.workers.runtime.execution.context import Context


class State(Enum):
    """The state of an attempt."""

    READY = "ready"
    RUNNING = "running"
    CONCLUDED = "concluded"


READY, RUNNING, CONCLUDED = State
"""The members under names of their own, for each step: to look one up in its class takes as long as
a call of a function."""


class Attempt:
    """A delivered step. `message` is the message that it came in, alone or with others; `head` holds the
    headers that a message of its own would have."""

    __slots__ = (
        "__weakref__",
        "alarm",
        "context",
        "delivery",
        "has_references",
        "head",
        "held_bytes",
        "id",
        "input_digest",
        "is_over",
        "key",
        "latest_end_ms",
        "let_go",
        "message",
        "place",
        "result",
        "sent_at_ms",
        "started_at_ms",
        "state",
        "step",
        "stopped",
        "suspension",
        "task",
        "took",
    )

    def __init__(
        self,
        step: RequestedStep,
        message: StepMessage,
        delivery: Delivery,
        head: bytes,
        *,
        has_references: bool = False,
    ) -> None:
        self.step = step
        self.message = message
        self.delivery = delivery
        self.head = head
        self.has_references = has_references
        self.id = ids.attempt_id(step.run_id, step.step, step.attempt)
        self.key = ids.capable(self.id, step.capability)
        """Its id with its capability, so that a forged step of the same attempt has another key."""
        self.state: State = READY
        self.task: asyncio.Task[None] | None = None
        self.context: Context | None = None
        """Its handler's context, as long as its task runs: it knows what the attempt has spent."""
        self.stopped: HocketError | None = None
        self.suspension: Suspension | None = None
        """What its handler waits for, if it ends because of that."""
        self.let_go = False
        self.sent_at_ms = delivery.stored_at_ms
        """When the stream stored its message (epoch ms)."""
        self.latest_end_ms = (
            step.deadline_at_ms if step.run_deadline_at_ms is None else step.run_deadline_at_ms
        )
        """The latest time until which it may run (epoch ms)."""
        self.started_at_ms = 0.0
        self.input_digest = ""
        self.result = b""
        """The posted result, encoded; empty until then."""
        self.took = 0
        """How many steps came in its bundle, according to that result."""
        self.held_bytes = 0
        """The bytes that its blobs take of the worker's room."""
        self.is_over = False
        """Whether it may take no more of that room, because nobody would give it back."""
        self.place = -1
        """Its place in `HeldSteps`; -1 if it has none."""
        self.alarm = 0
        """The number of its alarm (`Alarms`), 0 for none."""

    @property
    def ack_subject(self) -> str:
        """The ack subject of its message's latest delivery."""
        return self.message.ack_subject

    def released_bytes(self) -> int:
        """Return how much room for blobs it holds; from now on it holds none."""
        self.is_over = True
        held_bytes, self.held_bytes = self.held_bytes, 0
        return held_bytes

    @property
    def posted(self) -> PostedResult:
        """Its result, as it was posted."""
        step = self.step
        return PostedResult(
            self.id,
            step.dispatched_at_ms,
            step.capability,
            step.partition,
            self.result,
            self.took,
        )

    @property
    def is_cut_off(self) -> bool:
        """Whether its handler was ended before it gave a result of its own."""
        return self.stopped is not None or self.suspension is not None or self.let_go

    @property
    def is_suspended(self) -> bool:
        """Whether it ends because its handler waits, and for no other reason."""
        return self.suspension is not None and self.stopped is None

    @property
    def goes_on_elsewhere(self) -> bool:
        """Whether another attempt or delivery continues from its journal, so that its handler must do
        no more."""
        return self.suspension is not None or self.let_go

    @property
    def is_left_behind(self) -> bool:
        """Whether its handler has given a result, so that only tasks that it left running act for it."""
        return self.state is CONCLUDED and not self.is_cut_off

    @property
    def may_be_tried_again(self) -> bool:
        """Whether it was stopped by its time: unlike a cancelled step, its step may be tried again."""
        return self.stopped is not None and self.stopped.error_class is not ErrorClass.CANCELLED

    def is_concerned(self, cancelled: StepCancelled) -> bool:
        """Tell whether a cancellation applies to this attempt."""
        step = self.step
        return (
            cancelled.run_id == step.run_id
            and cancelled.step in (None, step.step)
            and cancelled.attempt in (None, step.attempt)
            and hashed(step.capability) in (None, cancelled.capability_sha256)
        )

    def stop(self, error: HocketError) -> bool:
        """End the attempt with an error; return False if it has already concluded, been stopped or been
        let go: then another delivery answers."""
        if self.state is CONCLUDED or self.stopped is not None or self.let_go:
            return False
        self.stopped = error
        self._cancel()
        return True

    def suspend(self, suspension: Suspension) -> bool:
        """End the attempt because its handler waits; return False if it has already been ended."""
        if self.state is CONCLUDED or self.is_cut_off:
            return False
        self.suspension = suspension
        self._cancel()
        return True

    def give_back(self) -> bool:
        """Stop without a result; return False if the attempt has already concluded or been let go."""
        if self.state is CONCLUDED or self.let_go:
            return False
        self.let_go = True
        self._cancel()
        return True

    def conclude(self) -> bool:
        """Mark the attempt as concluded; return False if it already was."""
        if self.state is CONCLUDED:
            return False
        self.state = CONCLUDED
        return True

    def _cancel(self) -> None:
        """Cancel the task if it has started. One that has not started notices the stop itself; cancelled
        before its first turn, it would do nothing at all."""
        if self.state is RUNNING and self.task is not None and self.started_at_ms:
            self.task.cancel()
