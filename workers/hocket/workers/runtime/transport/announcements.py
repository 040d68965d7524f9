"""What this worker can do, told to coordinators: every few seconds, when it starts, stops or is asked.

Core NATS, fire and forget; who misses one hears the next. A worker that dies falls silent.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.messages import WorkerAnnounced

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

EVERY_S = 2.0


class Announcements:
    """Tells of the slots of a worker, by node type, from `start` to `stop`."""

    def __init__(self, bus: Bus, worker: str, slots: Callable[[], Mapping[str, int]]) -> None:
        self._bus = bus
        self._worker = worker
        self._slots = slots
        self._announcing = False
        self._subscription: Subscription | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Announce the slots from now on."""
        self._subscription = await self._bus.subscribe(subjects.WORKER_ASKED, self._asked)
        self._announcing = True
        self._announce()

    def changed(self) -> None:
        """Announce what changed at once."""
        if self._announcing:
            self._tell(self._slots())

    async def stop(self) -> None:
        """Announce that no more steps are taken."""
        self._announcing = False
        if self._timer is not None:
            self._timer.cancel()
        if self._subscription is not None:
            await self._subscription.unsubscribe()
        self._tell({})

    async def _asked(self, _message: "Msg") -> None:
        self._tell(self._slots())

    def _announce(self) -> None:
        self._tell(self._slots())
        self._timer = asyncio.get_running_loop().call_later(EVERY_S, self._announce)

    def _tell(self, slots: Mapping[str, int]) -> None:
        announced = WorkerAnnounced(worker=self._worker, slots=dict(slots))
        self._bus.publish_nowait(subjects.WORKER_ANNOUNCED, announced.model_dump_json().encode())
