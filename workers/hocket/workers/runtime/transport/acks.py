"""Acknowledgements of steps, delayed a little so that they are sent together with something else.

A write to the socket costs more than the rest of a small step, and nobody waits for an acknowledgement.
So they are sent with the next result, or after ACK_DELAY_S at the latest. If the worker is killed in
between, its steps are redelivered, as they would have been a moment earlier.

An acknowledgement names a message by its stream sequence. A server that lost power may come back without
that message and give its sequence to another step, which must not be acknowledged unseen. So after a
connection is lost, nothing is said about its deliveries until their messages have been looked up.

Acknowledgements sent just before a connection was lost may never have arrived. Their steps would be
redelivered after `ack_wait_s` and run again, model calls included. So messages acknowledged in the last
RECENT_S are looked up too. If they are still there, their results are posted once more (a server that
crashed may have lost results that it had; the log drops those it still has), and they are acknowledged
again.
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
"""The most bytes of results that are kept for this; older ones are dropped."""
LOOKS_AT_ONCE = 16
PATIENCE_S = 10.0
"""How long to keep asking a server that is starting, or a cluster without a leader; after that the
message is redelivered in any case."""
LOOK_PAUSE_S = 0.25

log = structlog.get_logger()


class Ack(NamedTuple):
    """The acknowledgement of one message, with the headers that tell it from another message at the same
    sequence. `steps` counts the steps that came in it, and `results` are those that the log has."""

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
        self._sent: deque[tuple[float, list[Ack], int]] = deque()
        """Recently sent acknowledgements, with the event loop's time of sending, and their bytes."""
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
        """Send the waiting acknowledgements now; those that a lost connection made doubtful are looked
        up first."""
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
        """After a reconnect, acknowledge again what may not have arrived."""
        losses = self._bus.losses
        for _, sent, _ in self._sent:
            self._doubtful.extend(ack for ack in sent if ack.losses != losses)
        self._sent.clear()
        self._sent_bytes = 0
        if self._bus.identity.is_guest:  # it may not read the stream
            self._doubtful.clear()
        if self._doubtful and (self._repeating is None or self._repeating.done()):
            self._repeating = asyncio.create_task(self._repeat(), name="acknowledgements again")

    async def close(self) -> None:
        """Stop looking messages up."""
        if self._repeating is not None:
            await stop_tasks((self._repeating,))

    def known(self, message: StepMessage) -> bool:
        """Tell whether a message is certain to be the one that its ack subject names."""
        return message.losses == self._bus.losses

    async def recognise(self, message: StepMessage, *, patience_s: float = 0.0) -> bool:
        """Look a message up after a lost connection, and tell whether it is known now.

        A message that is gone, or cannot be looked up, stays unknown; if it still exists, it is
        redelivered. A server that does not answer is asked again for `patience_s`."""
        losses, ack = self._bus.losses, _ack_of(message)
        if not await self._is_there(ack, patience_s):
            return False
        if message.ack_subject == ack.ack_subject:  # otherwise it was redelivered meanwhile
            message.losses = losses
        return self.known(message)

    def _keep(self, sent: list[Ack]) -> None:
        now_s, size_bytes = asyncio.get_running_loop().time(), _size(sent)
        self._sent.append((now_s, sent, size_bytes))
        self._sent_bytes += size_bytes
        while self._sent and (
            self._sent[0][0] < now_s - RECENT_S or self._sent_bytes > MAX_RECENT_BYTES
        ):
            self._sent_bytes -= self._sent.popleft()[2]

    async def _repeat(self) -> None:
        while self._doubtful:
            losses = self._bus.losses
            some = [
                self._doubtful.popleft() for _ in range(min(LOOKS_AT_ONCE, len(self._doubtful)))
            ]
            there = await asyncio.gather(*(self._may_end(ack) for ack in some))
            if losses != self._bus.losses:  # the connection was lost again
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
        """Post a message's results again, and tell whether it may be acknowledged: it is still there,
        and the log has its results."""
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
        """Tell whether the stream has the message at the sequence of its latest delivery; that of its
        first delivery may belong to another step by now."""
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
            else:
                msg_id = msg_id_of(ack.head)
                return bool(msg_id) and (stored.headers or {}).get("Nats-Msg-Id") == msg_id
            await asyncio.sleep(LOOK_PAUSE_S)


def _ack_of(message: StepMessage) -> Ack:
    return Ack(
        message.ack_subject, message.losses, message.head, message.steps, tuple(message.results)
    )


def _size(acks: list[Ack]) -> int:
    size_bytes = 0
    for ack in acks:
        for result in ack.results:
            size_bytes += len(result.body)
    return size_bytes
