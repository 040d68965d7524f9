"""Acknowledgements of steps, sent a little later together with something else.

A write to the socket costs more than all the rest of a small step; nobody waits for these. They go
out with the next result, and after ACK_DELAY_S at the latest; a worker killed in between has its
steps delivered again, as it would a moment earlier.

An acknowledgement names a message by its place in the stream. A server that lost its power may come
back without that message and give its place to another step, which must not be acknowledged unseen.
So nothing is said about a delivery of a connection that was lost, until the message was looked up.
"""

import asyncio

import structlog
from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.delivery import parse_ack_subject
from hocket.schemas import ids, subjects
from hocket.workers.runtime.execution.attempt import Attempt

ACK_DELAY_S = 0.005
MAX_WAITING = 256

log = structlog.get_logger()


class Acks:
    """Acknowledgements that wait to be sent over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waiting: list[tuple[str, int]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, attempt: Attempt) -> None:
        """Acknowledge an attempt's message soon; it must be `known`."""
        self._waiting.append((attempt.ack_subject, attempt.losses))
        if len(self._waiting) >= MAX_WAITING:
            self.send()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(ACK_DELAY_S, self.send)

    def send(self) -> None:
        """Send what waits, now; what a lost connection has made doubtful is delivered again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        losses = self._bus.losses
        self._bus.ack(*[ack_subject for ack_subject, known in waiting if known == losses])

    def known(self, attempt: Attempt) -> bool:
        """Tell whether the attempt's message is surely the one that its ack subject names."""
        return attempt.losses == self._bus.losses

    async def recognise(self, attempt: Attempt) -> bool:
        """Look an attempt's message up after a lost connection; tell whether it is known now. One that
        is gone, or cannot be looked up, stays unknown: if it is there, it is delivered again."""
        losses, ack_subject = self._bus.losses, attempt.ack_subject
        seq = parse_ack_subject(
            ack_subject
        ).stream_seq  # the first delivery's may be another step's
        if self._bus.identity.is_guest:
            return False  # it may not read the stream
        try:
            stored = await self._bus.js.get_msg(subjects.STEPS, seq)
        except NotFoundError:
            return False
        except (NatsError, TimeoutError, OSError) as error:
            log.info("step_not_looked_up", attempt_id=attempt.id, reason=repr(error))
            return False
        step = attempt.step
        dispatched = ids.dispatch_id(attempt.id, step.dispatched_at_ms)
        if (stored.headers or {}).get("Nats-Msg-Id") != ids.capable(dispatched, step.capability):
            return False
        if attempt.ack_subject == ack_subject:  # else it was delivered anew meanwhile
            attempt.losses = losses
        return self.known(attempt)
