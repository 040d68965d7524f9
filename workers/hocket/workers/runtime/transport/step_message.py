"""A message of STEPS that a worker holds: that of one attempt, or a bundle of several.

It is acknowledged when all its attempts are settled: the result is in the log, or the attempt was given
back. An attempt that ends in any other way leaves it open, and the server redelivers it.
"""

from typing import NamedTuple

from hocket.kit.nats.protocol import header_of
from hocket.schemas import ids

_MSG_ID = b"Nats-Msg-Id"


class PostedResult(NamedTuple):
    """A result that the log has."""

    attempt_id: str
    dispatched_at_ms: float | None
    capability: str | None
    partition: int
    body: bytes
    took: int = 0
    """How many steps the worker took from its message, as the result reports it."""

    @property
    def msg_id(self) -> str:
        """The `Nats-Msg-Id` of the result."""
        msg_id = ids.result_id(self.attempt_id, self.dispatched_at_ms)
        msg_id = ids.capable(msg_id, self.capability)
        return ids.taken(msg_id) if self.took else msg_id


class StepMessage:
    """One message. `ack_subject` is that of its latest delivery; `touched_s` is when the server was last
    told that it is in progress (event loop time); `losses` is how often the bus connection had been lost
    when the delivery arrived or was recognised; `head` holds its headers."""

    __slots__ = (
        "ack_subject",
        "asked_again",
        "head",
        "losses",
        "open",
        "results",
        "steps",
        "touched_s",
    )

    def __init__(self, ack_subject: str, losses: int, touched_s: float, head: bytes) -> None:
        self.ack_subject = ack_subject
        self.losses = losses
        self.touched_s = touched_s
        self.head = head
        self.steps = 1
        """How many steps came in it."""
        self.open = 1
        """How many of its attempts are not settled."""
        self.results: list[PostedResult] = []
        self.asked_again = False
        """Whether another message was requested in its place because no slot was free."""

    @property
    def is_bundle(self) -> bool:
        """Whether several steps came in it."""
        return self.steps > 1

    @property
    def msg_id(self) -> str:
        """The id under which it was published."""
        return msg_id_of(self.head)

    def hold(self, steps: int) -> None:
        """Note that it is a bundle of this many steps."""
        self.steps = self.open = steps

    def delivered_again(self, latest: "StepMessage") -> None:
        """Note another delivery."""
        self.ack_subject, self.touched_s = latest.ack_subject, latest.touched_s
        self.losses = latest.losses


def msg_id_of(head: bytes) -> str:
    """Return the id under which a message with these headers was published."""
    return header_of(head, _MSG_ID)
