"""Keeps records that cannot be booked as received as dead letters, and counts them."""

import structlog

from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.protocol import RawMessage
from hocket.ledger.metrics import LedgerMetrics
from hocket.schemas.errors import HocketError

log = structlog.get_logger()


class DeadRecords:
    """The dead letters of a stream of records."""

    def __init__(self, bus: Bus, metrics: LedgerMetrics) -> None:
        self._bus = bus
        self._metrics = metrics

    async def bury(self, message: RawMessage, line: bytes, error: HocketError) -> None:
        """Keep an encoded record of a message as a dead letter, with what is wrong with it."""
        await dead_letters.bury(
            self._bus,
            "usage",
            subject=message.subject,
            payload=line,
            headers=dict(message.headers or {}),
            error=error.info(),
        )
        self._metrics.buried.inc()
        log.error("usage_buried", code=error.code, reason=str(error))
