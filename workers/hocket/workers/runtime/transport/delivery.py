"""What JetStream says about a delivery: the ack subject and the status messages of a pull. Pure.

Source: NATS ADR-15 (ack subjects) and ADR-13 (pull requests).
"""

from collections.abc import Mapping
from dataclasses import dataclass

ACK_PREFIX = "$JS.ACK."
TOKENS_WITHOUT_DOMAIN = 9

HEARTBEAT = "100"
EXPIRED = frozenset({"404", "408"})
PENDING_MESSAGES = "Nats-Pending-Messages"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of a message: how often it came, its place, when it was stored, what is left."""

    count: int
    stream_seq: int
    sent_at_ms: float
    pending: int


def parse_ack_subject(subject: str) -> Delivery:
    """Return what the ack subject of a message says; raise ValueError where it is none."""
    tokens = subject.split(".")
    if not subject.startswith(ACK_PREFIX) or len(tokens) < TOKENS_WITHOUT_DOMAIN:
        raise ValueError(f"`{subject}` is not an ack subject")
    first = 4 if len(tokens) == TOKENS_WITHOUT_DOMAIN else 6
    count, stream_seq, _, stored_ns, pending = tokens[first : first + 5]
    return Delivery(int(count), int(stream_seq), int(stored_ns) / 1e6, int(pending))


def status_of(headers: Mapping[str, str] | None) -> str | None:
    """Return the code of a status message, None for a step."""
    return headers.get("Status") if headers else None


def unfilled(headers: Mapping[str, str]) -> int | None:
    """Return how many steps of an ended pull request did not come; None where it is not said."""
    count = headers.get(PENDING_MESSAGES)
    return int(count) if count is not None and count.isdigit() else None
