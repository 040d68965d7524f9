"""What the server is told of the messages of steps: that a step goes on, has ended, is to be delivered
anew, or never again. Nothing is said of a message that is not surely the step's (`acks.py`)."""

from hocket.kit.nats.bus import Bus
from hocket.workers.runtime.execution.attempt import Attempt
from hocket.workers.runtime.execution.background import Background
from hocket.workers.runtime.intake.undeliverable import TERM
from hocket.workers.runtime.transport.acks import PATIENCE_S, Acks

IN_PROGRESS = b"+WPI"
AGAIN = b"-NAK"


class Settlement:
    """Settles the messages of one node type's attempts."""

    def __init__(self, bus: Bus, acks: Acks, background: Background) -> None:
        self._bus = bus
        self._acks = acks
        self._background = background

    def in_progress(self, attempt: Attempt, now_s: float) -> None:
        """Tell the server that an attempt goes on, by the event loop's time."""
        if self._acks.known(attempt):
            attempt.touched_s = now_s
            self._say(attempt, IN_PROGRESS)

    def send_back(self, attempt: Attempt, after_s: float = 0.0) -> None:
        """Let the server deliver an attempt's message anew, later if need be."""
        delay = b' {"delay": %d}' % round(after_s * 1e9) if after_s else b""
        self._say(attempt, AGAIN + delay)

    def end(self, attempt: Attempt) -> None:
        """Take an attempt's message out of the stream."""
        self._say(attempt, TERM)

    def acknowledge(self, attempt: Attempt) -> None:
        """Acknowledge an attempt's message soon, once it is sure which one that is."""
        if self._acks.known(attempt):
            self._acks.add(attempt)
        else:
            self._background.start(self._acknowledge_recognised(attempt))

    def recognise(self, attempt: Attempt) -> None:
        """Look an attempt's message up, after the connection was lost."""
        self._background.start(_recognise(self._acks, attempt))

    async def _acknowledge_recognised(self, attempt: Attempt) -> None:
        if await self._acks.recognise(attempt, patience_s=PATIENCE_S):
            self._acks.add(attempt)

    def _say(self, attempt: Attempt, what: bytes) -> None:
        if self._acks.known(attempt):
            self._bus.publish_nowait(attempt.ack_subject, what)


async def _recognise(acks: Acks, attempt: Attempt) -> None:
    await acks.recognise(attempt)
