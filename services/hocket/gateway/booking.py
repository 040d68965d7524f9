"""Booking: the stream `USAGE` knows of a call before its backend is asked, and what it cost before
anybody is told."""

import asyncio

import structlog

from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.bus import Bus, PubAck, PublishRefused
from hocket.schemas import subjects
from hocket.schemas.messages import CallOpened, CallRefused, UsageRecord

REFUSED_PAUSE_MS = 1_000.0

log = structlog.get_logger()


class Booking:
    """Makes records durable: `USAGE` has them when `book` and `open` return."""

    def __init__(self, bus: Bus, metrics: GatewayMetrics) -> None:
        self._bus = bus
        self._metrics = metrics

    async def book(self, record: UsageRecord) -> None:
        """Publish what a call used and wait for its acknowledgement, through outages, for as long as we
        live."""
        self._metrics.observe(record)
        await self._published(record.model_dump_json().encode(), record.call_id)

    async def open(self, opened: CallOpened) -> bool:
        """Publish that a call is about to be made, and tell whether nobody has said so before, within
        what the stream remembers (two minutes)."""
        msg_id = f"{opened.call_id}:opened"
        ack = await self._published(opened.model_dump_json().encode(), msg_id)
        return not ack.duplicate

    def refuse(self, refused: CallRefused) -> None:
        """Tell that nobody was asked for a call. Nothing was spent, so nobody waits for it, and what is
        lost while NATS is away is lost; `hocket gateway explain` shows what came through."""
        if self._bus.connected:
            self._bus.tell(subjects.USAGE_SUBJECT, refused.model_dump_json().encode())

    async def _published(self, payload: bytes, msg_id: str) -> PubAck:
        self._metrics.unbooked.inc()
        try:
            while True:
                await self._bus.room()
                try:
                    return await self._bus.post(subjects.USAGE_SUBJECT, payload, msg_id=msg_id)
                except PublishRefused as error:
                    log.error("usage_refused", msg_id=msg_id, reason=str(error))
                    await asyncio.sleep(REFUSED_PAUSE_MS / 1000)
        finally:
            self._metrics.unbooked.dec()
