"""Tells the server about the messages of steps: that a step is in progress, has ended, should be
redelivered, or should never be. Nothing is said about a message that may not be the step's (`acks.py`).

The steps of a bundle share one message. It is acknowledged when each of them has ended or was given
back: steps that do not end here are returned through the log (`AttemptReturned`) and come again on their
own.
"""

import structlog

from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import AttemptReturned, encoded
from hocket.workers.runtime.execution.attempt import Attempt
from hocket.workers.runtime.execution.background import Background
from hocket.workers.runtime.intake.undeliverable import TERM
from hocket.workers.runtime.transport.acks import PATIENCE_S, Acks
from hocket.workers.runtime.transport.step_message import StepMessage

IN_PROGRESS = b"+WPI"
AGAIN = b"-NAK"

log = structlog.get_logger()


class Settlement:
    """Settles the messages of one node type's attempts."""

    def __init__(self, bus: Bus, acks: Acks, background: Background) -> None:
        self._bus = bus
        self._acks = acks
        self._background = background

    def in_progress(self, message: StepMessage, now_s: float) -> None:
        """Tell the server that a message is in progress; `now_s` is the event loop's time."""
        if self._acks.known(message):
            message.touched_s = now_s
            self._say(message, IN_PROGRESS)

    def send_back(self, attempt: Attempt, after_s: float = 0.0) -> None:
        """Have an attempt delivered again, after a delay if given: through its message, or through the
        log if it came in a bundle."""
        if attempt.message.is_bundle:
            self._background.start(self._give_back(attempt))
            return
        delay = b' {"delay": %d}' % round(after_s * 1e9) if after_s else b""
        self._say(attempt.message, AGAIN + delay)

    def end(self, attempt: Attempt) -> None:
        """Remove an attempt's message from the stream; a bundle once its other steps are settled."""
        if attempt.message.is_bundle:
            self.settle(attempt.message)
        else:
            self._say(attempt.message, TERM)

    def acknowledge(self, attempt: Attempt) -> None:
        """Acknowledge an attempt's message soon, once it is certain which one that is."""
        attempt.message.results.append(attempt.posted)
        self.settle(attempt.message)

    def settle(self, message: StepMessage) -> None:
        """Count one of a message's attempts as settled; acknowledge the message after the last one."""
        message.open -= 1
        if message.open:
            return
        if self._acks.known(message):
            self._acks.add(message)
        else:
            self._background.start(self._acknowledge_recognised(message))

    def recognise(self, message: StepMessage) -> None:
        """Look a message up after the connection was lost."""
        self._background.start(_recognise(self._acks, message))

    async def _give_back(self, attempt: Attempt) -> None:
        step = attempt.step
        returned = AttemptReturned(
            run_id=step.run_id,
            step=step.step,
            attempt=step.attempt,
            dispatched_at_ms=step.dispatched_at_ms,
            capability=step.capability,
        )
        subject = subjects.log(step.partition, AttemptReturned.kind)
        try:
            await self._bus.publish(subject, encoded(returned))
        except HocketError as error:  # the whole bundle is redelivered
            log.warning("step_not_given_back", attempt_id=attempt.id, reason=str(error))
        else:
            self.settle(attempt.message)

    async def _acknowledge_recognised(self, message: StepMessage) -> None:
        if await self._acks.recognise(message, patience_s=PATIENCE_S):
            self._acks.add(message)

    def _say(self, message: StepMessage, what: bytes) -> None:
        if self._acks.known(message):
            self._bus.publish_nowait(message.ack_subject, what)


async def _recognise(acks: Acks, message: StepMessage) -> None:
    await acks.recognise(message)
