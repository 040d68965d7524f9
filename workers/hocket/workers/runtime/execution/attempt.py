"""One attempt in the hands of a worker, from its delivery to the acknowledged result.

States: ready (fetched, not started) -> running -> concluded (its result is posted) -> gone (the
result is acknowledged, and so is the step's message). A `stop` ends the handler: it concludes with
the stop's error, whatever the handler makes of being cancelled. An attempt that is `let go` gives no
result; its message goes back to the stream.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hocket.kit.nats.delivery import Delivery
from hocket.schemas import ids
from hocket.schemas.errors import HocketError
from hocket.schemas.structs.steps import RequestedStep


class State(StrEnum):
    """Where an attempt is."""

    READY = "ready"
    RUNNING = "running"
    CONCLUDED = "concluded"


@dataclass(slots=True, eq=False)
class Attempt:
    """A delivered step; `ack_subject` is that of its latest delivery, `touched_s` when the server
    last knew that it is in work (event loop time)."""

    step: RequestedStep
    ack_subject: str
    delivery: Delivery
    headers: Mapping[str, str]
    touched_s: float
    losses: int
    """How often the bus had been lost when the delivery came, or was recognised."""
    has_references: bool = False
    id: str = field(init=False)
    key: str = field(init=False)
    """Its id and its capability: a forged step of the same attempt is another one."""
    state: State = State.READY
    task: asyncio.Task[None] | None = None
    stopped: HocketError | None = None
    let_go: bool = False
    started_at_ms: float = 0.0
    input_digest: str = ""
    held_bytes: int = 0
    """What its blobs hold of the worker's room."""
    timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        step = self.step
        self.id = ids.attempt_id(step.run_id, step.step, step.attempt)
        self.key = ids.capable(self.id, step.capability)

    def stop(self, error: HocketError) -> bool:
        """End the attempt with an error; tell whether it was still to conclude."""
        if self.state is State.CONCLUDED or self.stopped is not None:
            return False
        self.stopped = error
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
        self.disarm()
        return True

    def disarm(self) -> None:
        """Stop the clock of the attempt."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _cancel(self) -> None:
        """Cancel the task, once it has begun: one that has not finds out itself, and one that is
        cancelled before its first turn would do nothing at all."""
        if self.state is State.RUNNING and self.task is not None and self.started_at_ms:
            self.task.cancel()
