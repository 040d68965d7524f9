"""Makes room in LOG: applied events are dropped, oldest first, once the stream is half full.

LOG refuses what it has no room for, so that nothing unread is ever dropped; whoever posts waits.
What every partition has applied and committed is kept as history while there is room for it. The
owner of partition 0 does the work; while Postgres is away nothing is known to be applied, and
nothing is dropped.

States: room, and crowded (above CROWDED_SHARE, because its events are not applied yet): then intake
takes no task, and the remaining room is for results, signals and what coordinators post themselves.
"""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

import structlog

from hocket.coordinator.partition.events.log_reader import NOT_FOUND, identity_at
from hocket.coordinator.storage.store import Store
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.postgres.errors import AWAY
from hocket.schemas import subjects

LOOK_EVERY_S = 2.0
TRIM_SHARE = 0.5
"""Above this share of the stream's bound, applied events are dropped ..."""
KEEP_SHARE = 0.4
"""... until about this share is left."""
CROWDED_SHARE = 0.75
API_TIMEOUT_MS = 10_000.0

log = structlog.get_logger(__name__)


class LogTrimmer:
    """Removes from the log what every partition has applied. `is_mine` tells whether this
    coordinator is the one to do it."""

    def __init__(
        self, bus: Bus, store: Store, *, partitions: int, is_mine: Callable[[], bool]
    ) -> None:
        self._bus = bus
        self._store = store
        self._partitions = partitions
        self._is_mine = is_mine
        self._crowded = False

    @property
    def reason(self) -> str:
        """Why no task should be taken in; "" if there is room."""
        return "the stream LOG is full of events that are not applied" if self._crowded else ""

    async def run(self) -> None:
        """Check regularly; never returns, cancel to stop."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if not self._is_mine():
                self._crowded = False
                continue
            try:
                await self.look()
            except (*AWAY, BusUnavailable) as error:
                log.warning("log_not_trimmed", reason=str(error))
            except Exception:  # until it works again, the stream refuses what it has no room for
                log.exception("log_not_trimmed")

    async def look(self) -> None:
        """Drop applied events if the stream is half full."""
        info = await self._api(f"STREAM.INFO.{subjects.LOG}", {})
        max_bytes, state = info["config"]["max_bytes"], info["state"]
        held, first, last = state["bytes"], state["first_seq"], state["last_seq"]
        self._crowded = max_bytes > 0 and held >= CROWDED_SHARE * max_bytes
        if max_bytes <= 0 or held < TRIM_SHARE * max_bytes:
            await self._let_refuse(info["config"])
            return
        surplus = 1 - KEEP_SHARE * max_bytes / held
        wanted = first + round(surplus * (last - first + 1))
        upto = min(wanted, await self._unapplied_from(first, last))
        if upto <= first:
            return
        answer = await self._api(f"STREAM.PURGE.{subjects.LOG}", {"seq": upto})
        log.info("log_trimmed", events=answer.get("purged"), from_seq=first, upto_seq=upto)

    async def _let_refuse(self, config: dict[str, Any]) -> None:
        """Make a stream that an older release created refuse what it has no room for."""
        if config.get("discard") == "old":
            await self._api(f"STREAM.UPDATE.{subjects.LOG}", {**config, "discard": "new"})

    async def _unapplied_from(self, first: int, last: int) -> int:
        """Return the sequence of the first event that its partition may not have applied."""
        applied = await self._store.applied()
        found: float = last + 1
        for number in range(self._partitions):
            seq, msg_id = applied.get(number, (0, ""))
            known = seq < first or (seq <= last and await identity_at(self._bus, seq) == msg_id)
            if not known:  # the log was rewound, and will be read from its beginning
                return first
            found = min(found, await self._next(number, max(seq + 1, first)))
        return int(found)

    async def _next(self, number: int, seq: int) -> float:
        request = {"seq": seq, "next_by_subj": subjects.log_of(number)}
        answer = await self._bus.api(
            f"STREAM.MSG.GET.{subjects.LOG}", request, timeout_ms=API_TIMEOUT_MS
        )
        if answer.get("error", {}).get("code") == NOT_FOUND:
            return inf
        if "error" in answer:
            raise BusUnavailable(reason=answer["error"].get("description", "no message"))
        return float(answer["message"]["seq"])

    async def _api(self, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = await self._bus.api(verb, request, timeout_ms=API_TIMEOUT_MS)
        if "error" in answer:
            raise BusUnavailable(reason=answer["error"].get("description", "no log"))
        return answer
