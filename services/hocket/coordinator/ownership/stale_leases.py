"""Gives back leases that nobody maintains and that others wait for."""

import asyncio
from collections.abc import Iterable

import structlog

from hocket.coordinator.core.scheduling.lease_records import lease_key
from hocket.coordinator.ownership.background import Background
from hocket.coordinator.ownership.held_partitions import FREE, PUT_TIMEOUT_MS, RETRY_S
from hocket.coordinator.ownership.sightings import Sighting
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.kv.entry import Leases, RevisionPassed
from hocket.kit.nats.membership import Liveness

log = structlog.get_logger(__name__)


class StaleLeases:
    """Gives stale leases back, each at most once at a time."""

    def __init__(
        self,
        leases: Leases,
        liveness: Liveness,
        background: Background,
        *,
        name: str,
        incarnation: str,
        partitions: int,
    ) -> None:
        self._leases = leases
        self._liveness = liveness
        self._background = background
        self._name = name
        self._incarnation = incarnation
        self._partitions = partitions
        self._returning: set[int] = set()

    def give_back(
        self,
        seen: Sighting,
        *,
        held: Iterable[int],
        taking: tuple[int, ...],
        now_s: float,
    ) -> None:
        """Give back leases that others wait for: those that name us as the owner of what we do not
        own, and those hidden by something foreign for LEASE_S. By then a live owner would have
        written its lease again, and coordinators may disagree about the owner, because only some
        saw the lease before."""
        for number in range(self._partitions):
            entry = self._leases.entries.get(lease_key(number))
            if entry is None or number in held or number in taking:
                continue
            stale = seen.owners.get(number) == (self._name, self._incarnation)
            hidden_at_s = entry.overwritten_at_s
            if hidden_at_s is not None:
                stale |= not self._liveness.is_heard(hidden_at_s, now_s)
            if stale and number not in self._returning:
                self._returning.add(number)
                self._background.run(self._give_back(number, entry.revision))

    async def _give_back(self, number: int, revision: int) -> None:
        try:
            await self._leases.put(
                lease_key(number), FREE, revision=revision, timeout_ms=PUT_TIMEOUT_MS
            )
        except (RevisionPassed, BusUnavailable) as error:
            log.info("lease_not_given_back", partition=number, reason=str(error))
            await asyncio.sleep(RETRY_S)
        finally:
            self._returning.discard(number)
