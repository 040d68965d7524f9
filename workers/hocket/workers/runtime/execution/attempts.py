"""The attempts that a worker holds of one node type, and what the server is told of their messages."""

import asyncio
from collections.abc import Iterator

from hocket.kit.nats.bus import Bus
from hocket.workers.runtime.execution.attempt import Attempt, State
from hocket.workers.runtime.execution.background import Background
from hocket.workers.runtime.intake.undeliverable import TERM
from hocket.workers.runtime.transport.acks import Acks
from hocket.workers.runtime.transport.held_steps import HeldSteps
from hocket.workers.runtime.transport.probation_records import kind_of

IN_PROGRESS = b"+WPI"
AGAIN = b"-NAK"


class Attempts:
    """Attempts by their keys, from their delivery until their result is acknowledged."""

    def __init__(self, bus: Bus, acks: Acks, background: Background, held: HeldSteps) -> None:
        self._bus = bus
        self._acks = acks
        self._held = held
        self._background = background
        self._by_key: dict[str, Attempt] = {}
        self._loop = asyncio.get_running_loop()

    def __iter__(self) -> Iterator[Attempt]:
        return iter(list(self._by_key.values()))

    def find(self, key: str) -> Attempt | None:
        """Return the attempt with this key, if it is held."""
        return self._by_key.get(key)

    def add(self, attempt: Attempt) -> None:
        """Hold an attempt."""
        self._by_key[attempt.key] = attempt
        attempt.place = self._held.add(attempt.ack_subject, kind_of(attempt.step))

    def came_again(self, held: Attempt, delivered: Attempt) -> None:
        """Take note of another delivery of an attempt that is held."""
        held.delivered_again(delivered)
        self._held.moved(held.place, held.ack_subject)

    def drop(self, attempt: Attempt) -> None:
        """Hold an attempt no longer; nothing is said about its message."""
        self._by_key.pop(attempt.key, None)
        self._held.remove(attempt.place)
        attempt.place = -1

    def give_back(self, attempt: Attempt) -> None:
        """Leave an attempt that has not begun to another worker, at once."""
        attempt.let_go = True
        self.drop(attempt)
        self.send_back(attempt)

    def give_ready_back(self) -> None:
        """Leave all that have not begun to other workers."""
        for attempt in self:
            if attempt.state is State.READY:
                self.give_back(attempt)

    def stop_all(self) -> int:
        """Stop every attempt without a result, and leave it to another worker; return how many."""
        stopped = [attempt for attempt in self if attempt.give_back()]
        for attempt in stopped:
            self.send_back(attempt)
        return len(stopped)

    def send_back(self, attempt: Attempt, after_s: float = 0.0) -> None:
        """Let the server deliver an attempt's message anew, later if need be."""
        delay = b' {"delay": %d}' % round(after_s * 1e9) if after_s else b""
        self._say(attempt, AGAIN + delay)

    def end(self, attempt: Attempt) -> None:
        """Take an attempt's message out of the stream."""
        self._say(attempt, TERM)

    def keep_alive(self, older_than_s: float) -> None:
        """Tell the server about attempts that it has not heard of for so long."""
        now_s = self._loop.time()
        for attempt in self:
            if now_s - attempt.touched_s >= older_than_s and self._acks.known(attempt):
                attempt.touched_s = now_s
                self._say(attempt, IN_PROGRESS)

    def acknowledge(self, attempt: Attempt) -> None:
        """Acknowledge an attempt's message soon, once it is sure which one that is."""
        if self._acks.known(attempt):
            self._acks.add(attempt)
        else:
            self._background.start(self._acknowledge_recognised(attempt))

    def recognise_all(self) -> None:
        """Look all messages up, after the connection was lost."""
        for attempt in self:
            self._background.start(_recognise(self._acks, attempt))

    async def _acknowledge_recognised(self, attempt: Attempt) -> None:
        if await self._acks.recognise(attempt):
            self._acks.add(attempt)

    def _say(self, attempt: Attempt, what: bytes) -> None:
        if self._acks.known(attempt):
            self._bus.publish_nowait(attempt.ack_subject, what)


async def _recognise(acks: Acks, attempt: Attempt) -> None:
    await acks.recognise(attempt)
