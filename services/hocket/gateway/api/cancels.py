"""Stops calls that are no longer wanted: those their caller gave up,
and those of cancelled attempts."""

import asyncio
from typing import Protocol

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from pydantic import ValidationError

from hocket.gateway.api.call_requests import malformed
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.messages import CallCancelled, StepCancelled

CLOSE_TIMEOUT_MS = 5_000.0

log = structlog.get_logger()
_reporting = Reporting()


class Stoppable(Protocol):
    """Calls that can be stopped."""

    def cancel_from_outside(self, cancelled: CallCancelled) -> None:
        """Stop the calls that somebody names."""
        ...

    def cancel_attempt(self, cancelled: StepCancelled) -> None:
        """Stop the calls of a cancelled attempt."""
        ...


class Cancels:
    """Receives cancellations of these calls between `open` and `close`."""

    def __init__(self, bus: Bus, *calls: Stoppable) -> None:
        self._bus = bus
        self._calls = calls
        self._subscriptions: list[Subscription] = []

    async def open(self) -> None:
        """Subscribe."""
        self._subscriptions = [
            await self._bus.subscribe(subjects.GATEWAY_CANCEL, self._on_cancel),
            await self._bus.subscribe(subjects.CANCEL_FILTER, self._on_step_cancelled),
        ]

    async def close(self) -> None:
        """Unsubscribe, after handling what was already delivered."""
        for subscription in self._subscriptions:
            await drained(subscription)

    async def _on_cancel(self, message: Msg) -> None:
        try:
            wanted = CallCancelled.model_validate_json(message.data)
        except ValidationError as error:
            if count := _reporting.due("cancel_malformed"):
                log.warning("cancel_malformed", reason=str(malformed(error)), count=count)
            return
        for calls in self._calls:
            calls.cancel_from_outside(wanted)

    async def _on_step_cancelled(self, message: Msg) -> None:
        try:
            cancelled = StepCancelled.model_validate_json(message.data)
        except ValidationError as error:
            if count := _reporting.due("cancel_malformed"):
                log.warning("cancel_malformed", reason=str(malformed(error)), count=count)
            return
        for calls in self._calls:
            calls.cancel_attempt(cancelled)


async def drained(subscription: Subscription) -> None:
    """End a subscription after handling what was already delivered; wait at most CLOSE_TIMEOUT_MS."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1000):
            await subscription.drain()  # type: ignore[no-untyped-call]
    except (NatsError, TimeoutError) as error:
        log.warning("drain_incomplete", subject=subscription.subject, reason=repr(error))
