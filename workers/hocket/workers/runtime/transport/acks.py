"""Acknowledgements of steps, sent a little later together with something else.

A write to the socket costs more than all the rest of a small step; nobody waits for these. They go
out with the next result, and after ACK_DELAY_S at the latest; a worker killed in between has its
steps delivered again, as it would a moment earlier.

An acknowledgement names a message by its place in the stream. A server that lost its power may come
back without that message and give its place to another step, which must not be acknowledged unseen.
So nothing is said about a delivery of a connection that was lost, until the message was looked up.

What was acknowledged just before a connection was lost may never have arrived. Such a step would be
delivered again after `ack_wait_s`, and run again, model calls included. So those of the last RECENT_S
are looked up too, and where they are still there, their results are posted once more (a server that
crashed may have lost them after it had them: the log drops what it still has) and then they are
acknowledged.
"""

import asyncio
from collections import deque
from typing import NamedTuple

import structlog
from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError
from nats.js.errors import NotFoundError

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.delivery import parse_ack_subject
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas import ids, subjects
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import AttemptFinished
from hocket.workers.runtime.execution.attempt import Attempt

ACK_DELAY_S = 0.005
MAX_WAITING = 256
RECENT_S = 2.0
MAX_RECENT_BYTES = 16 * 1024 * 1024
"""Results that are kept for it; older ones go."""
LOOKS_AT_ONCE = 16
PATIENCE_S = 10.0
"""So long a server that comes up, or a cluster without a leader, is asked again; after that the message
is delivered again in any case."""
LOOK_PAUSE_S = 0.25

log = structlog.get_logger()


class Ack(NamedTuple):
    """The acknowledgement of one message, and what tells that message from others in its place."""

    ack_subject: str
    losses: int
    attempt_id: str
    dispatched_at_ms: float | None
    capability: str | None
    partition: int
    result: bytes

    @property
    def result_id(self) -> str:
        """The `Nats-Msg-Id` of the result."""
        result_id = ids.result_id(self.attempt_id, self.dispatched_at_ms)
        return ids.capable(result_id, self.capability)

    @property
    def msg_id(self) -> str:
        """The `Nats-Msg-Id` of the message."""
        return ids.capable(ids.dispatch_id(self.attempt_id, self.dispatched_at_ms), self.capability)


class Acks:
    """Acknowledgements that wait to be sent over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waiting: list[Ack] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sent: deque[tuple[float, list[Ack]]] = deque()
        """When they were sent, by the event loop's time."""
        self._sent_bytes = 0
        self._doubtful: deque[Ack] = deque()
        self._repeating: asyncio.Task[None] | None = None

    def add(self, attempt: Attempt) -> None:
        """Acknowledge an attempt's message soon; it must be `known`."""
        self._waiting.append(_ack_of(attempt))
        if len(self._waiting) >= MAX_WAITING:
            self.send()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(ACK_DELAY_S, self.send)

    def send(self) -> None:
        """Send what waits, now; what a lost connection has made doubtful is looked up first."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        losses = self._bus.losses
        sure = [ack.ack_subject for ack in waiting if ack.losses == losses]
        self._bus.ack(*sure)
        self._keep(waiting)
        if len(sure) < len(waiting):
            self.repeat()

    def repeat(self) -> None:
        """Acknowledge once more what may not have arrived: the connection was lost, and is back."""
        losses = self._bus.losses
        for _, sent in self._sent:
            self._doubtful.extend(ack for ack in sent if ack.losses != losses)
        self._sent.clear()
        self._sent_bytes = 0
        if self._bus.identity.is_guest:  # it may not read the stream
            self._doubtful.clear()
        if self._doubtful and (self._repeating is None or self._repeating.done()):
            self._repeating = asyncio.create_task(self._repeat(), name="acknowledgements again")

    async def close(self) -> None:
        """Look nothing up any more."""
        if self._repeating is not None:
            await stop_tasks((self._repeating,))

    def known(self, attempt: Attempt) -> bool:
        """Tell whether the attempt's message is surely the one that its ack subject names."""
        return attempt.losses == self._bus.losses

    async def recognise(self, attempt: Attempt, *, patience_s: float = 0.0) -> bool:
        """Look an attempt's message up after a lost connection; tell whether it is known now. One that
        is gone, or cannot be looked up, stays unknown: if it is there, it is delivered again. A server
        that does not answer is asked again until `patience_s` are over."""
        losses, ack = self._bus.losses, _ack_of(attempt)
        if not await self._is_there(ack, patience_s):
            return False
        if attempt.ack_subject == ack.ack_subject:  # else it was delivered anew meanwhile
            attempt.losses = losses
        return self.known(attempt)

    def _keep(self, sent: list[Ack]) -> None:
        now_s = asyncio.get_running_loop().time()
        self._sent.append((now_s, sent))
        self._sent_bytes += _size(sent)
        while self._sent and (
            self._sent[0][0] < now_s - RECENT_S or self._sent_bytes > MAX_RECENT_BYTES
        ):
            self._sent_bytes -= _size(self._sent.popleft()[1])

    async def _repeat(self) -> None:
        while self._doubtful:
            losses = self._bus.losses
            some = [
                self._doubtful.popleft() for _ in range(min(LOOKS_AT_ONCE, len(self._doubtful)))
            ]
            there = await asyncio.gather(*(self._may_end(ack) for ack in some))
            if losses != self._bus.losses:  # lost once more
                self._keep(some)
                self.repeat()
                continue
            again = [
                ack._replace(losses=losses)
                for ack, is_there in zip(some, there, strict=True)
                if is_there
            ]
            self._bus.ack(*(ack.ack_subject for ack in again))
            self._keep(again)
            log.debug("steps_acknowledged_again", count=len(again), looked_up=len(some))

    async def _may_end(self, ack: Ack) -> bool:
        """Tell whether a message is there and the log has its result, which is posted for that."""
        if not ack.result or not await self._is_there(ack, PATIENCE_S):
            return False
        subject = self._bus.identity.result_subject(ack.partition, AttemptFinished.kind)
        try:
            await self._bus.publish_durable(subject, ack.result, msg_id=ack.result_id)
        except HocketError as error:
            log.info("result_not_posted_again", attempt_id=ack.attempt_id, reason=str(error))
            return False
        return True

    async def _is_there(self, ack: Ack, patience_s: float) -> bool:
        """Tell whether the stream has the message where its latest delivery came from: where the first
        one came from may be another step by now."""
        if self._bus.identity.is_guest:
            return False  # it may not read the stream
        losses, seq = self._bus.losses, parse_ack_subject(ack.ack_subject).stream_seq
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + patience_s
        while True:
            try:
                stored = await self._bus.js.get_msg(subjects.STEPS, seq)
            except NotFoundError:
                return False
            except (NatsError, JetStreamError, TimeoutError, OSError) as error:
                if now_s() + LOOK_PAUSE_S > until_s or losses != self._bus.losses:
                    reason = repr(error)
                    log.info("step_not_looked_up", attempt_id=ack.attempt_id, reason=reason)
                    return False
                await asyncio.sleep(LOOK_PAUSE_S)
            else:
                return (stored.headers or {}).get("Nats-Msg-Id") == ack.msg_id


def _ack_of(attempt: Attempt) -> Ack:
    step = attempt.step
    return Ack(
        attempt.ack_subject,
        attempt.losses,
        attempt.id,
        step.dispatched_at_ms,
        step.capability,
        step.partition,
        attempt.result,
    )


def _size(acks: list[Ack]) -> int:
    return sum(len(ack.result) for ack in acks)
