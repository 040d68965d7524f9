"""Booking: a usage record is in the stream `USAGE` before anybody is told what its call cost."""

import asyncio

import structlog

from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.bus import Bus, PublishRefused
from hocket.schemas import subjects
from hocket.schemas.messages import UsageRecord

REFUSED_PAUSE_MS = 1_000.0

log = structlog.get_logger()


class Booking:
    """Makes usage records durable: `USAGE` has them when `book` returns."""

    def __init__(self, bus: Bus, metrics: GatewayMetrics) -> None:
        self._bus = bus
        self._metrics = metrics

    async def book(self, record: UsageRecord) -> None:
        """Publish a record and wait for its acknowledgement, through outages, for as long as we live."""
        self._metrics.observe(record)
        self._metrics.unbooked.inc()
        payload = record.model_dump_json().encode()
        try:
            while True:
                await self._bus.room()
                try:
                    await self._bus.post(subjects.USAGE_SUBJECT, payload, msg_id=record.call_id)
                    return
                except PublishRefused as error:
                    log.error("usage_refused", call_id=record.call_id, reason=str(error))
                    await asyncio.sleep(REFUSED_PAUSE_MS / 1000)
        finally:
            self._metrics.unbooked.dec()
