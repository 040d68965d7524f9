"""Announces this worker's slots to coordinators every few seconds, and when it starts, stops or is
asked. Custom node types are described to the registry, less often.

Announcements use core NATS, fire and forget; a receiver that misses one gets the next. A worker that
dies falls silent.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from nats.errors import Error as NatsError

from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.messages import TypeDescribed, WorkerAnnounced, encoded

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

EVERY_S = 2.0
DESCRIBED_EVERY = 15
"""Types are described with every 15th announcement: every 30 s."""


class Announcements:
    """Announces the slots of a worker, by node type, from `start` to `stop`."""

    def __init__(
        self,
        bus: Bus,
        worker: str,
        slots: Callable[[], Mapping[str, int]],
        types: Sequence[TypeDescribed] = (),
    ) -> None:
        self._bus = bus
        self._worker = worker
        self._slots = slots
        self._types = tuple(types)
        self._pools: set[str] = set()
        """The pools that a guest has announced."""
        self._number = 0
        self._announcing = False
        self._subscription: Subscription | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Announce the slots from now on."""
        self._subscription = await self._bus.subscribe(subjects.WORKER_ASKED, self._asked)
        self._announcing = True
        self._announce()

    def changed(self) -> None:
        """Announce changed slots at once."""
        if self._announcing:
            self._tell(self._slots())

    async def stop(self) -> None:
        """Announce that no more steps are taken."""
        self._announcing = False
        if self._timer is not None:
            self._timer.cancel()
        if self._subscription is not None:
            with suppress(NatsError):  # the connection was closed
                await self._subscription.unsubscribe()
        self._tell({})

    async def _asked(self, _message: "Msg") -> None:
        self._tell(self._slots())
        self._describe()

    def _announce(self) -> None:
        self._tell(self._slots())
        if self._number % DESCRIBED_EVERY == 0:
            self._describe()
        self._number += 1
        self._timer = asyncio.get_running_loop().call_later(EVERY_S, self._announce)

    def _describe(self) -> None:
        for described in self._types:
            subject = subjects.WORKER_DESCRIBED
            if self._bus.identity.is_guest:
                subject = f"{subject}.{subjects.pool_token(described.type)}"
            self._bus.publish_nowait(subject, encoded(described))

    def _tell(self, slots: Mapping[str, int]) -> None:
        if not self._bus.identity.is_guest:
            self._announce_on(subjects.WORKER_ANNOUNCED, slots)
            return
        self._pools |= slots.keys()
        for pool in self._pools:  # a guest may publish on the subjects of its own pools only
            subject = f"{subjects.WORKER_ANNOUNCED}.{subjects.pool_token(pool)}"
            self._announce_on(subject, {pool: slots[pool]} if pool in slots else {})

    def _announce_on(self, subject: str, slots: Mapping[str, int]) -> None:
        announced = WorkerAnnounced(
            worker=self._worker, slots=dict(slots), bundles=self._bus.identity.takes_bundles
        )
        self._bus.publish_nowait(subject, announced.model_dump_json().encode())
