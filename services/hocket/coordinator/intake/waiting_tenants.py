"""Whether intake takes tasks while coordinators are full because of a few tenants (`capacity.py`).

Alone, those lose nothing: their tasks wait in TASKS until their runs have ended. But TASKS is one line,
and the tasks of others stand in it behind them. So it is asked, while coordinators are full for that
reason alone, whose tasks it holds: where there are others', intake goes on, takes theirs in and refuses
those tenants'. States: room, pausing (nobody else waits, or it is not known, or the coordinators
are full beyond it), choosing.
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
"""A long answer is asked for more rarely: looking takes a twentieth of the time at most."""
API_TIMEOUT_MS = 2_000.0

log = structlog.get_logger(__name__)


class WaitingTenants:
    """Whose tasks intake takes while a few tenants keep the coordinators full."""

    def __init__(self, bus: Bus, capacity: CapacityLimit) -> None:
        self._bus = bus
        self._capacity = capacity
        self._others_wait = False

    async def run(self, changed: Callable[[], None]) -> None:
        """Look for ever; cancel to stop. `changed` is called when intake may take tasks that it would
        not take before."""
        loop = asyncio.get_running_loop()
        rest_s = LOOK_EVERY_S
        while True:
            await asyncio.sleep(rest_s)
            began_s = loop.time()
            if await self.look():
                changed()
            rest_s = max(LOOK_EVERY_S, LOOKING_FACTOR * (loop.time() - began_s))

    async def look(self) -> bool:
        """Find out whether tasks of others wait, where it matters; tell whether that has changed."""
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
        """Return why a tenant's task is refused now, None where it is not."""
        if not self._others_wait or not is_among(tenant, self._capacity.over_share()):
            return None
        return self._capacity.refusal(tenant)

    async def _others_in_tasks(self, over: frozenset[str]) -> bool:
        """Tell whether tasks of tenants stand in their streams that are none of `over`."""
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
    # of too many subjects only the first come: the rest is taken for others'
    return int(answer.get("total") or 0) > len(found) > 0
