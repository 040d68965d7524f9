"""Keeps records that cannot be booked as received as dead letters, and counts them.

A letter also says when its record was first sent: a record whose own time cannot be read is booked
at that time, and is the same call when the letter is redriven.
"""

from contextlib import suppress

import structlog

from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.delivery import parse_ack_subject
from hocket.kit.nats.errors import BusUnavailable, PublishRefused
from hocket.kit.nats.protocol import RawMessage
from hocket.ledger.metrics import LedgerMetrics
from hocket.schemas.checks.bounded import MAX_MOMENT_MS
from hocket.schemas.errors import HocketError

SENT = "Hocket-Sent-Ms"
"""Header of a letter, and of the record that is redriven from it."""
LETTER_ERRORS = (BusUnavailable, PublishRefused)
"""Raised when a letter cannot be kept now: its message must be delivered again."""

log = structlog.get_logger()


class DeadRecords:
    """The dead letters of a stream of records."""

    def __init__(self, bus: Bus, metrics: LedgerMetrics) -> None:
        self._bus = bus
        self._metrics = metrics

    async def bury(self, message: RawMessage, line: bytes, error: HocketError) -> None:
        """Keep an encoded record of a message as a dead letter, with what is wrong with it.
        Raises one of LETTER_ERRORS."""
        await dead_letters.bury(
            self._bus,
            "usage",
            subject=message.subject,
            payload=line,
            headers={**(message.headers or {}), SENT: repr(sent_ms(message))},
            error=error.info(),
        )
        self._metrics.buried.inc()
        log.error("usage_buried", code=error.code, reason=str(error))


def sent_ms(message: RawMessage) -> float:
    """Return when a message was first sent: the same however often it is delivered or redriven."""
    with suppress(KeyError, ValueError):
        told_ms = float((message.headers or {})[SENT])
        if 0 < told_ms <= MAX_MOMENT_MS:
            return told_ms
    return parse_ack_subject(message.reply).stored_at_ms
