"""Publishes the recorded time of replicas to the stream of usage records, each record once.

While NATS is unreachable, up to MAX_WAITING records wait here. Beyond that the oldest is dropped,
and the loss is logged: records of time matter less than records of calls.
"""

import asyncio

import structlog

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable, PublishRefused
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities, id_of, sealed
from hocket.schemas.messages import WarmRecord

MAX_WAITING = 1_000
RETRY_S = 1.0

log = structlog.get_logger()


class WarmUsage:
    """Publishes records, retrying until each is acknowledged."""

    def __init__(self, bus: Bus, seals: Capabilities | None = None) -> None:
        self._bus = bus
        self._seals = seals
        self._waiting: dict[asyncio.Task[None], str] = {}

    def book(self, record: WarmRecord) -> None:
        """Queue a record for storing."""
        if len(self._waiting) >= MAX_WAITING:
            oldest = next(iter(self._waiting))
            log.error("warm_record_lost", record=self._waiting[oldest])
            oldest.cancel()
        task = asyncio.create_task(self._store(record))
        self._waiting[task] = record.call_id
        task.add_done_callback(lambda done: self._waiting.pop(done, None))

    async def flush(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for waiting records, then give up."""
        if self._waiting:
            await asyncio.wait(set(self._waiting), timeout=timeout_s)
        for task in self._waiting:
            task.cancel()

    async def _store(self, record: WarmRecord) -> None:
        payload = record.model_dump_json().encode()
        headers = sealed(self._seals, subjects.USAGE_SUBJECT, payload)
        msg_id = id_of(self._seals, record.call_id)
        while True:
            try:
                await self._bus.wait_for_capacity()
                await self._bus.publish_durable(
                    subjects.USAGE_SUBJECT, payload, msg_id=msg_id, headers=headers
                )
                return
            except (PublishRefused, BusUnavailable) as error:
                log.warning("warm_record_waits", record=record.call_id, reason=str(error))
                await asyncio.sleep(RETRY_S)
