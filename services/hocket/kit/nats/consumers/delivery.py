"""What JetStream says about a delivery in the subject on which it is acknowledged. Pure.

Source: NATS ADR-15.
"""

from typing import NamedTuple

ACK_PREFIX = "$JS.ACK."
_TOKENS_WITHOUT_DOMAIN = 9
_FIRST, _FIRST_WITH_DOMAIN = 4, 6
_NUMBERS = 5
_STORED = 3
"""The place of the time among the numbers."""


class Delivery(NamedTuple):
    """One delivery of a message: how often the message was delivered, its sequences in the stream and in
    its consumer, when the stream stored it (the server's clock), and how many messages are left."""

    deliveries: int
    stream_seq: int
    consumer_seq: int
    stored_ns: int
    pending: int

    @property
    def stored_at_ms(self) -> float:
        """When the stream stored the message: epoch ms, to the microsecond."""
        return self.stored_ns // 1_000 / 1_000


def parse_ack_subject(subject: str) -> Delivery:
    """Return what the ack subject of a message says; raise ValueError if it is not an ack subject."""
    tokens = subject.split(".")
    first = _FIRST if len(tokens) == _TOKENS_WITHOUT_DOMAIN else _FIRST_WITH_DOMAIN
    numbers = tokens[first : first + _NUMBERS]
    if len(numbers) < _NUMBERS or not subject.startswith(ACK_PREFIX):
        raise ValueError(f"`{subject}` is not an ack subject")
    return Delivery(*map(int, numbers))


def stored_at_ms_of(subject: str) -> float:
    """Return when the message was stored that an ack subject names, like `parse_ack_subject`."""
    tokens = subject.split(".")
    if len(tokens) == _TOKENS_WITHOUT_DOMAIN and subject.startswith(ACK_PREFIX):
        return int(tokens[_FIRST + _STORED]) // 1_000 / 1_000
    return parse_ack_subject(subject).stored_at_ms


def is_ack_of(subject: str, stream: str) -> bool:
    """Tell whether messages of a stream are acknowledged on a subject."""
    try:
        parse_ack_subject(subject)
    except ValueError:
        return False
    tokens = subject.split(".")
    first = _FIRST if len(tokens) == _TOKENS_WITHOUT_DOMAIN else _FIRST_WITH_DOMAIN
    return tokens[first - 2] == stream and subject.isascii() and not set(subject) & set(" \t\r\n*>")
