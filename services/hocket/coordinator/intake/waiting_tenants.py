"""Whether intake takes tasks while coordinators are full because of a few tenants (`capacity.py`).

If they were alone, those tenants would lose nothing: their tasks would wait in TASKS until their
runs have ended. But TASKS is a single queue, and the tasks of others wait behind theirs. So while
coordinators are full for that reason alone, the streams are asked whose tasks they hold: if there
are other tenants' tasks, intake goes on, takes those in and refuses those of the few. States: room,
pausing (nobody else waits, or this is unknown, or the coordinators are full for another reason),
choosing.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from hocket.coordinator.core.scheduling.lease_records import is_among
from hocket.coordinator.intake.capacity import CapacityLimit
from hocket.coordinator.intake.consumer import PUBLISHED
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas.errors import HocketError

LOOK_EVERY_S = 1.0
LOOKING_FACTOR = 20
"""A slow answer is requested less often: looking takes at most a twentieth of the time."""
API_TIMEOUT_MS = 2_000.0

log = structlog.get_logger(__name__)


class WaitingTenants:
    """Decides whose tasks intake takes while a few tenants keep the coordinators full."""

    def __init__(self, bus: Bus, capacity: CapacityLimit) -> None:
        self._bus = bus
        self._capacity = capacity
        self._others_wait = False

    async def run(self, changed: Callable[[], None]) -> None:
        """Check regularly; never returns, cancel to stop. `changed` is called when intake may take
        tasks that it would not have taken before."""
        loop = asyncio.get_running_loop()
        rest_s = LOOK_EVERY_S
        while True:
            await asyncio.sleep(rest_s)
            began_s = loop.time()
            if await self.look():
                changed()
            rest_s = max(LOOK_EVERY_S, LOOKING_FACTOR * (loop.time() - began_s))

    async def look(self) -> bool:
        """Check whether tasks of other tenants wait, if that matters; tell whether the answer has
        changed."""
        over = self._capacity.over_share()
        others_wait = bool(over) and await self._others_in_tasks(over)
        if others_wait == self._others_wait:
            return False
        self._others_wait = others_wait
        log.info("tenants_over_share", tenants=sorted(over), others_wait=others_wait)
        return True

    def pauses(self) -> bool:
        """Tell whether no task is taken in now."""
        if not self._capacity.anywhere():
            return False
        return not (self._others_wait and self._capacity.over_share())

    def refusal(self, tenant: str) -> HocketError | None:
        """Return why a tenant's task is refused now; None if it is not."""
        if not self._others_wait or not is_among(tenant, self._capacity.over_share()):
            return None
        return self._capacity.refusal(tenant)

    async def _others_in_tasks(self, over: frozenset[str]) -> bool:
        """Tell whether the streams hold tasks of tenants outside `over`."""
        try:
            for stream, published in PUBLISHED.items():
                request = {"subjects_filter": published}
                answer = await self._bus.api(
                    f"STREAM.INFO.{stream}", request, timeout_ms=API_TIMEOUT_MS
                )
                if _of_others(answer, over):
                    return True
        except BusUnavailable as error:
            log.debug("tasks_not_looked_at", reason=str(error))
        except Exception:
            log.exception("tasks_not_looked_at")
        return False


def _of_others(answer: dict[str, Any], over: frozenset[str]) -> bool:
    found = (answer.get("state") or {}).get("subjects") or {}
    if any(not is_among(subject.split(".")[2], over) for subject in found):
        return True
    # if there are too many subjects, only the first are listed: the rest count as others'
    return int(answer.get("total") or 0) > len(found) > 0
