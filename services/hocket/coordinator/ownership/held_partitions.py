"""The partitions that this coordinator has leases for: taking, renewing and giving back leases.

A partition here is being taken (the lease is ours; the log is not read yet), owned, or being left
(its log is not read any more; the lease is given back when everything is written).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import structlog

from hocket.coordinator.core.scheduling.lease_records import encoded, lease_key
from hocket.coordinator.ownership.background import Background
from hocket.coordinator.ownership.sightings import Member, Sighting
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.kv.entry import Entry, Leases, RevisionPassed

RETRY_S = 0.25
PUT_TIMEOUT_MS = 2_000.0
_UNSURE = 1
"""The revision of a lease that may belong to another coordinator by now: lower than any real one."""
FREE = encoded(owner="", incarnation="")
"""The lease of a partition that was handed over."""

log = structlog.get_logger(__name__)


class _Phase(StrEnum):
    TAKING = "taking"
    OWNED = "owned"
    LEAVING = "leaving"


@dataclass(slots=True)
class _Holding:
    phase: _Phase
    revision: int
    """The revision of our lease."""
    leased_at_s: float = float("inf")
    """When the bucket stored it (the loop's clock)."""
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class Duties:
    """What to do with a partition: `take` loads it and begins to read its log (its arguments: the
    number, why it was free, and what to call when another coordinator has taken it), `leave` writes
    everything and forgets it, `drop` forgets it at once."""

    take: Callable[[int, str, Callable[[], None]], Awaitable[None]]
    leave: Callable[[int], Awaitable[None]]
    drop: Callable[[int], None]


class Holdings:
    """The partitions that one coordinator holds."""

    def __init__(
        self,
        leases: Leases,
        background: Background,
        duties: Duties,
        *,
        name: str,
        incarnation: str,
    ) -> None:
        self._leases = leases
        self._background = background
        self._duties = duties
        self._name = name
        self._incarnation = incarnation
        self._holdings: dict[int, _Holding] = {}
        self.empty = asyncio.Event()
        """Set while we hold nothing."""
        self.empty.set()

    @property
    def numbers(self) -> Iterable[int]:
        """The partitions that are owned, being taken, or being left."""
        return self._holdings.keys()

    @property
    def owned(self) -> int:
        """How many of them are owned."""
        return sum(1 for held in self._holdings.values() if held.phase is _Phase.OWNED)

    def note_empty(self) -> None:
        """Set `empty` if nothing is held."""
        if not self._holdings:
            self.empty.set()

    def lost(self, number: int) -> None:
        """Drop a partition that, according to the fence in Postgres, another coordinator owns."""
        holding = self._holdings.pop(number, None)
        if holding is not None:
            self._give_up(number, holding)
            self._leases.changed.set()

    def drop_taken(self, seen: Sighting) -> None:
        """Drop what another coordinator has taken because it took us for dead. If something foreign
        hides whose a lease is, it is still ours and is written again: the others saw it before, and
        leave the partition to us."""
        for number, holding in list(self._holdings.items()):
            entry = self._leases.entries.get(lease_key(number))
            if entry is None or not holding.revision:
                continue
            owner = seen.owners.get(number, ("nobody", ""))
            if not _is_later(entry, holding, seen.members.get(owner[0]), owner):
                continue
            if owner == (self._name, self._incarnation):
                if holding.revision == _UNSURE or entry.overwritten:
                    holding.revision = entry.revision
            elif entry.value is not None or not entry.overwritten:
                log.warning("partition_taken_away", partition=number, owner=owner[0])
                del self._holdings[number]
                self._give_up(number, holding)

    def take(self, number: int, seen: Sighting, now_s: float) -> None:
        """Begin to take a partition."""
        entry = self._leases.entries.get(lease_key(number))
        owner, incarnation = seen.owners.get(number, ("", ""))
        member = seen.members.get(owner)
        if entry is None:
            cause = "start"
        elif not owner:
            cause = "handover"
        elif member is None or member.incarnation != incarnation:
            cause = "restart"
        else:
            cause = "death"
        silent_ms = None if member is None else round(1_000 * (now_s - member.heard_at_s))
        log.info("partition_free", partition=number, cause=cause, former=owner, silent_ms=silent_ms)
        holding = self._holdings[number] = _Holding(_Phase.TAKING, 0)
        self.empty.clear()
        revision = entry.revision if entry is not None else 0
        holding.task = self._background.run(self._take_it(number, holding, revision, cause))

    async def _take_it(self, number: int, holding: _Holding, revision: int, cause: str) -> None:
        try:
            await self._lease(number, holding, revision)
        except (RevisionPassed, BusUnavailable) as error:
            log.info("partition_not_leased", partition=number, reason=str(error))
            self._holdings.pop(number, None)
        else:
            await self._duties.take(number, cause, partial(self.lost, number))
            holding.phase = _Phase.OWNED
        self._leases.changed.set()

    async def _lease(self, number: int, holding: _Holding, revision: int) -> None:
        """Write our lease over this revision of it; raises RevisionPassed and BusUnavailable."""
        lease = encoded(owner=self._name, incarnation=self._incarnation)
        holding.revision = await self._leases.put(
            lease_key(number), lease, revision=revision, timeout_ms=PUT_TIMEOUT_MS
        )
        holding.leased_at_s = asyncio.get_running_loop().time()

    def lease_again(self, seen: Sighting, current_since_s: float) -> None:
        """Write again the leases that the bucket has lost; `current_since_s`: since when the watch
        is up to date."""
        for number, holding in self._holdings.items():
            if holding.phase is not _Phase.OWNED or not self._has_lost(
                number, holding, seen, current_since_s
            ):
                continue
            if holding.task is None or holding.task.done():
                holding.task = self._background.run(self._lease_anew(number, holding))

    def _has_lost(
        self, number: int, holding: _Holding, seen: Sighting, current_since_s: float
    ) -> bool:
        """Tell whether the bucket has lost a lease: it is missing, or has gone back to an earlier
        value that names nobody, or somebody who is not there. If it names another live coordinator,
        that one gives it back, or has taken the partition, and the fence tells us."""
        entry = self._leases.entries.get(lease_key(number))
        if entry is None or entry.overwritten:
            return True
        if entry.revision >= holding.revision or current_since_s <= holding.leased_at_s:
            return False
        name, incarnation = seen.owners.get(number, ("", ""))
        member = seen.members.get(name)
        return name == self._name or member is None or member.incarnation != incarnation

    async def _lease_anew(self, number: int, holding: _Holding) -> None:
        entry = self._leases.entries.get(lease_key(number))
        try:
            await self._lease(number, holding, 0 if entry is None else entry.revision)
        except RevisionPassed:
            holding.revision = _UNSURE  # the bucket shows whose it is
        except BusUnavailable as error:
            log.info("partition_not_leased", partition=number, reason=str(error))

    def release(self, number: int) -> None:
        """Begin to leave a partition, if it is owned."""
        holding = self._holdings[number]
        if holding.phase is not _Phase.OWNED:
            return
        holding.phase = _Phase.LEAVING
        holding.task = self._background.run(self._leave_it(number, holding))

    async def _leave_it(self, number: int, holding: _Holding) -> None:
        await self._duties.leave(number)
        while True:
            try:
                await self._leases.put(
                    lease_key(number),
                    FREE,
                    revision=holding.revision,
                    timeout_ms=PUT_TIMEOUT_MS,
                )
                break
            except RevisionPassed:  # somebody took us for dead
                break
            except BusUnavailable as error:
                log.info("lease_not_given_back", partition=number, reason=str(error))
                await asyncio.sleep(RETRY_S)
        self._holdings.pop(number, None)
        self.note_empty()
        self._leases.changed.set()

    def _give_up(self, number: int, holding: _Holding) -> None:
        if holding.task is not None:
            holding.task.cancel()
        self._duties.drop(number)


def _is_later(
    entry: Entry, holding: _Holding, member: Member | None, owner: tuple[str, str]
) -> bool:
    """Tell whether an entry was written after our lease. A bucket that lost its end gives the same
    revisions again: there the time tells, if the entry's owner is another coordinator that is there."""
    if entry.revision > holding.revision or entry.overwritten or member is None:
        return entry.revision > holding.revision
    return member.incarnation == owner[1] and entry.written_at_s > holding.leased_at_s
