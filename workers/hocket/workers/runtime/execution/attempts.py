"""The attempts that a worker holds of one node type."""

import asyncio
from collections.abc import Iterator

from hocket.workers.runtime.execution.attempt import Attempt, State
from hocket.workers.runtime.transport.held_steps import HeldSteps
from hocket.workers.runtime.transport.probation_records import kind_of
from hocket.workers.runtime.transport.settlement import Settlement
from hocket.workers.runtime.transport.step_message import StepMessage


class Attempts:
    """Attempts by their keys, from their delivery until their result is acknowledged."""

    def __init__(self, settlement: Settlement, held: HeldSteps) -> None:
        self._settlement = settlement
        self._held = held
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
        """Take note of another delivery of an attempt that is held: its calls have the first delivery's
        count in their ids. Where one of the two is of a bundle, the message of its own is the one that
        counts."""
        if delivered.message.is_bundle:
            self._settlement.settle(delivered.message)
            return
        if held.message.is_bundle:
            self._settlement.settle(held.message)
            held.message = delivered.message
        else:
            held.message.delivered_again(delivered.message)
        self._held.moved(held.place, held.ack_subject)

    def moved(self, message: StepMessage) -> None:
        """Take note of another delivery of a bundle."""
        for attempt in self:
            if attempt.message is message:
                self._held.moved(attempt.place, message.ack_subject)

    def drop(self, attempt: Attempt) -> None:
        """Hold an attempt no longer; nothing is said about its message."""
        self._by_key.pop(attempt.key, None)
        self._held.remove(attempt.place)
        attempt.place = -1

    def give_back(self, attempt: Attempt) -> None:
        """Leave an attempt that has not begun to another worker, at once."""
        attempt.let_go = True
        self.drop(attempt)
        self._settlement.send_back(attempt)

    def give_ready_back(self) -> None:
        """Leave all that have not begun to other workers."""
        for attempt in self:
            if attempt.state is State.READY:
                self.give_back(attempt)

    def stop_all(self) -> int:
        """Stop every attempt without a result, and leave it to another worker; return how many."""
        stopped = [attempt for attempt in self if attempt.give_back()]
        for attempt in stopped:
            self._settlement.send_back(attempt)
        return len(stopped)

    def keep_alive(self, older_than_s: float) -> None:
        """Tell the server about attempts that it has not heard of for so long."""
        now_s = self._loop.time()
        for attempt in self:
            if now_s - attempt.message.touched_s >= older_than_s:
                self._settlement.in_progress(attempt.message, now_s)

    def recognise_all(self) -> None:
        """Look all messages up, after the connection was lost."""
        for message in dict.fromkeys(attempt.message for attempt in self):
            self._settlement.recognise(message)
