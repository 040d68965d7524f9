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
from hocket.schemas import subjects
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import AttemptFinished
from hocket.workers.runtime.transport.step_message import PostedResult, StepMessage, msg_id_of

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
    """The acknowledgement of one message, and what tells that message from others in its place: its
    headers. `steps` came in it, and of so many the log has the `results`."""

    ack_subject: str
    losses: int
    head: bytes
    steps: int
    results: tuple[PostedResult, ...]


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

    def add(self, message: StepMessage) -> None:
        """Acknowledge a message soon; it must be `known`."""
        self._waiting.append(_ack_of(message))
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

    def known(self, message: StepMessage) -> bool:
        """Tell whether a message is surely the one that its ack subject names."""
        return message.losses == self._bus.losses

    async def recognise(self, message: StepMessage, *, patience_s: float = 0.0) -> bool:
        """Look a message up after a lost connection; tell whether it is known now. One that is gone, or
        cannot be looked up, stays unknown: if it is there, it is delivered again. A server that does not
        answer is asked again until `patience_s` are over."""
        losses, ack = self._bus.losses, _ack_of(message)
        if not await self._is_there(ack, patience_s):
            return False
        if message.ack_subject == ack.ack_subject:  # else it was delivered anew meanwhile
            message.losses = losses
        return self.known(message)

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
        """Tell whether a message is there and the log has its results, which are posted for that."""
        if len(ack.results) < ack.steps or not await self._is_there(ack, PATIENCE_S):
            return False
        to = self._bus.identity.result_subject
        for result in ack.results:
            try:
                subject = to(result.partition, AttemptFinished.kind)
                await self._bus.publish_durable(subject, result.body, msg_id=result.msg_id)
            except HocketError as error:
                log.info("result_not_posted_again", attempt_id=result.attempt_id, reason=str(error))
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
                    log.info("step_not_looked_up", stream_seq=seq, reason=reason)
                    return False
                await asyncio.sleep(LOOK_PAUSE_S)
            else:
                msg_id = msg_id_of(ack.head)
                return bool(msg_id) and (stored.headers or {}).get("Nats-Msg-Id") == msg_id


def _ack_of(message: StepMessage) -> Ack:
    return Ack(
        message.ack_subject, message.losses, message.head, message.steps, tuple(message.results)
    )


def _size(acks: list[Ack]) -> int:
    return sum(len(result.body) for ack in acks for result in ack.results)
