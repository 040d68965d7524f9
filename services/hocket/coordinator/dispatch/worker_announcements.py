"""Receives what workers announce about their slots, and passes it on to the gate."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from pydantic import ValidationError

from hocket.coordinator.core.scheduling.gate import Gate
from hocket.coordinator.dispatch.bundle_sizes import BundleSizes
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.process.clock import monotonic_ms
from hocket.schemas import subjects
from hocket.schemas.messages import WorkerAnnounced
from hocket.schemas.worker_slots import is_worker, of_subject, pool_of_subject

FIRST_ANSWER_S = 0.2
"""How long to wait for the first announcement, so that a takeover hands its steps out in order."""

log = structlog.get_logger(__name__)


class WorkerAnnouncements:
    """Tells the gate which slots there are, and `sizes` which workers accept bundles; `changed` is
    called after each announcement."""

    def __init__(
        self, bus: Bus, gate: Gate, sizes: BundleSizes, changed: Callable[[], None]
    ) -> None:
        self._bus = bus
        self._gate = gate
        self._sizes = sizes
        self._changed = changed
        self._reporting = Reporting()
        self._answered = asyncio.Event()
        self._subscriptions: list[Subscription] = []

    async def open(self) -> None:
        """Begin to listen to workers, and ask those that are there to announce themselves."""
        self._subscriptions = [
            await self._bus.subscribe(subject, self._announced)
            for subject in (subjects.WORKER_ANNOUNCED, f"{subjects.WORKER_ANNOUNCED}.*")
        ]
        self._bus.on_reconnect.append(self._came_back)
        self._bus.publish_nowait(subjects.WORKER_ASKED, b"")
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_ANSWER_S):
                await self._answered.wait()

    async def close(self) -> None:
        """Stop listening."""
        for subscription in self._subscriptions:
            await subscription.unsubscribe()

    def _came_back(self) -> None:
        self._gate.types.hears_again(monotonic_ms())
        self._sizes.hears_again(monotonic_ms())
        self._bus.publish_nowait(subjects.WORKER_ASKED, b"")

    async def _announced(self, message: Msg) -> None:
        try:
            announced = WorkerAnnounced.model_validate_json(message.data)
        except ValidationError as error:
            if count := self._reporting.due("malformed"):
                log.warning("announcement_malformed", faults=error.error_count(), count=count)
            return
        if not is_worker(announced):
            if count := self._reporting.due("unlikely"):
                log.warning("announcement_not_believed", worker=announced.worker[:80], count=count)
            return
        announced = of_subject(announced, message.subject)
        self._answered.set()
        pool = pool_of_subject(message.subject)
        self._gate.types.announced(announced.worker, announced.slots, monotonic_ms(), pool)
        self._sizes.announced(announced, message.subject, monotonic_ms())
        self._changed()
