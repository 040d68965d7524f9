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
        attempt.place = self._held.add(attempt.message.ack_subject, kind_of(attempt.step))

    def came_again(self, held: Attempt, delivered: Attempt) -> None:
        """Note another delivery of an attempt that is held; the ids of its calls keep the first
        delivery's count. If one of the two came in a bundle, the message of its own is used. A bundle
        stays open if a connection was lost since: the message of its own may be gone."""
        if delivered.message.is_bundle:
            if held.message.losses == delivered.message.losses:
                self._settlement.settle(delivered.message)
            return
        if held.message.is_bundle:
            self._settlement.settle(held.message)
            held.message = delivered.message
        else:
            held.message.delivered_again(delivered.message)
        self._held.moved(held.place, held.ack_subject)

    def moved(self, message: StepMessage) -> None:
        """Note another delivery of a bundle."""
        for attempt in self:
            if attempt.message is message:
                self._held.moved(attempt.place, message.ack_subject)

    def drop(self, attempt: Attempt) -> None:
        """Stop holding an attempt, without saying anything about its message."""
        self._by_key.pop(attempt.key, None)
        self._held.remove(attempt.place)
        attempt.place = -1

    def give_back(self, attempt: Attempt) -> None:
        """Return an attempt that has not started, so that another worker gets it at once."""
        attempt.let_go = True
        self.drop(attempt)
        self._settlement.send_back(attempt)

    def give_ready_back(self) -> None:
        """Return all attempts that have not started to other workers."""
        for attempt in self:
            if attempt.state is State.READY:
                self.give_back(attempt)

    def stop_all(self) -> int:
        """Stop every attempt that has no result yet, and return it to the stream for another worker;
        return how many there were."""
        stopped = [attempt for attempt in self if attempt.give_back()]
        for attempt in stopped:
            self._settlement.send_back(attempt)
        return len(stopped)

    def keep_alive(self, older_than_s: float) -> None:
        """Report attempts as in progress if the server was last told longer ago than this."""
        now_s = self._loop.time()
        for attempt in self:
            if now_s - attempt.message.touched_s >= older_than_s:
                self._settlement.in_progress(attempt.message, now_s)

    def recognise_all(self) -> None:
        """Look up all messages after the connection was lost."""
        for message in dict.fromkeys(attempt.message for attempt in self):
            self._settlement.recognise(message)
