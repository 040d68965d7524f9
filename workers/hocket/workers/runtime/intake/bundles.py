"""The steps of a message that has several: each is taken in as if it had come alone.

A bundle that is delivered again to a worker which holds a step of it is its own message still. To any
other worker it has come because the one before ended, or fell silent: nobody there knows which of its
steps have ended, so all go back to the log, and those that are open come again alone.
"""

from collections.abc import Iterable

from pydantic import ValidationError

from hocket.kit.nats.consumers.delivery import Delivery
from hocket.kit.nats.protocol import RawMessage
from hocket.schemas.structs.steps import RequestedStep, read_step
from hocket.workers.runtime.execution.attempt import Attempt
from hocket.workers.runtime.execution.attempts import Attempts
from hocket.workers.runtime.transport.step_message import StepMessage

Member = tuple[RawMessage, RequestedStep | ValidationError]
"""A step as a message of its own, or why it is none."""


def members_of(msg: RawMessage, first: RequestedStep) -> list[Member]:
    """Return all steps of a message whose first one is read."""
    more, first.more = first.more, ()
    return [(msg, first), *(_member(msg, bytes(one)) for one in more)]


def held_bundle(
    attempts: Attempts, message: StepMessage, arrived: Iterable[Attempt]
) -> StepMessage | None:
    """Return the message as which a bundle is held here that is delivered again; None, where it is
    not."""
    for attempt in arrived:
        held = attempts.find(attempt.key)
        if held is not None and held.message.is_bundle and held.message.msg_id == message.msg_id:
            return held.message
    return None


def goes_back(message: StepMessage, delivery: Delivery) -> bool:
    """Tell whether the steps of a message are not run here, but come again alone."""
    return message.is_bundle and delivery.deliveries > 1


def _member(msg: RawMessage, body: bytes) -> Member:
    try:
        step = read_step(body)
    except ValidationError as error:
        return RawMessage(msg.subject, msg.reply, body, b""), error
    step.more = ()
    return RawMessage(msg.subject, msg.reply, body, _head_of(step)), step


def _head_of(step: RequestedStep) -> bytes:
    """Return the headers that a step would have in a message of its own."""
    if not step.traceparent or not step.traceparent.isprintable():
        return b""
    return b"NATS/1.0\r\ntraceparent: %b\r\n\r\n" % step.traceparent.encode()
