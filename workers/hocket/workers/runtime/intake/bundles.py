"""Unpacks a message of STEPS, which holds one step or several; each is handled as if it had come alone.

A bundle that is redelivered to a worker that holds one of its steps is still the same message. Any other
worker gets it because the previous one died or fell silent. It cannot know which of the steps have
ended, so all go back to the log, and those still open come again on their own.
"""

from typing import NamedTuple

from pydantic import ValidationError

from hocket.kit.nats.consumers.delivery import Delivery
from hocket.kit.nats.protocol import RawMessage
from hocket.schemas.structs.steps import RequestedStep, read_step
from hocket.workers.runtime.execution.attempt import Attempt
from hocket.workers.runtime.execution.attempts import Attempts
from hocket.workers.runtime.transport.step_message import StepMessage

REFERENCE_MARK = b'"$blob"'
"""Inputs that do not contain this are not searched for references."""
_DOLLAR = ord("$")
"""A single byte is found much faster than several, and most messages do not have this one."""


class Unpacked(NamedTuple):
    """The steps of a bundle, each with a message as if it had come alone, and the unreadable
    parts."""

    message: StepMessage
    arrived: list[tuple[RawMessage, Attempt]]
    unreadable: list[tuple[RawMessage, ValidationError]]


def message_of(msg: RawMessage, losses: int, now_s: float) -> StepMessage:
    """Return what is noted of a message that arrived after this many losses of the connection."""
    return StepMessage(msg.reply, losses, now_s, msg.head)


def unpacked(
    msg: RawMessage, first: RequestedStep, message: StepMessage, delivery: Delivery
) -> Unpacked:
    """Unpack a bundle whose first step has been read."""
    more = first.more
    message.hold(1 + len(more))
    contents = Unpacked(message, [(msg, attempt_of(msg, first, message, delivery))], [])
    for body in more:
        member, step = _member(msg, bytes(body))
        if isinstance(step, ValidationError):
            contents.unreadable.append((member, step))
        else:
            contents.arrived.append((member, attempt_of(member, step, message, delivery)))
    return contents


def held_bundle(attempts: Attempts, bundle: Unpacked) -> StepMessage | None:
    """Return the message that is held here for a redelivered bundle, or None if it is not held."""
    for _, attempt in bundle.arrived:
        held = attempts.find(attempt.key)
        if (
            held is not None
            and held.message.is_bundle
            and held.message.msg_id == bundle.message.msg_id
        ):
            return held.message
    return None


def goes_back(message: StepMessage, delivery: Delivery) -> bool:
    """Tell whether the steps of a message go back to the log, to come again on their own."""
    return delivery.deliveries > 1 and message.is_bundle


def attempt_of(
    msg: RawMessage, step: RequestedStep, message: StepMessage, delivery: Delivery
) -> Attempt:
    """Return the attempt of a step that came in a message; what came beside it is dropped."""
    step.more = ()
    has_references = _DOLLAR in msg.data and REFERENCE_MARK in msg.data
    return Attempt(step, message, delivery, msg.head, has_references=has_references)


def _member(msg: RawMessage, body: bytes) -> tuple[RawMessage, RequestedStep | ValidationError]:
    """Return a further step of a bundle as a message of its own, or the error if it cannot be read."""
    try:
        step = read_step(body)
    except ValidationError as error:
        return RawMessage(msg.subject, msg.reply, body, b""), error
    return RawMessage(msg.subject, msg.reply, body, _head_of(step)), step


def _head_of(step: RequestedStep) -> bytes:
    """Return the headers that a step would have in a message of its own."""
    if not step.traceparent or not step.traceparent.isprintable():
        return b""
    return b"NATS/1.0\r\ntraceparent: %b\r\n\r\n" % step.traceparent.encode()
