"""This process' share of the partitions: leases that others see, and what the rule makes of them.

Every coordinator writes a sign of life (`member.<name>`) every BEAT_S and a lease (`partition.<n>`)
for what it owns into one bucket, watches all of them, and does what `core/scheduling/rebalance.py`
says of what it sees. Who has not been heard for LEASE_S is taken for dead. A name that comes back
with another incarnation has been started again: what its former life owned is free at once.

A partition here is being taken (the lease is ours; the log is not read yet), owned, or being left
(its log is not read any more; the lease is given back when all is written). Leases are for balance
and for a quick takeover; what keeps a coordinator that is wrong from writing is the epoch in
Postgres.

While the watch is behind, nothing is decided. After that, and after this process itself stood still,
others get time to be heard before they count as dead.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

import structlog

from hocket.coordinator.core.scheduling.lease_records import (
    MEMBER,
    Lease,
    Sign,
    encoded,
    lease_key,
    lease_of,
    member_in,
    named,
    partition_in,
    sign_of,
)
from hocket.coordinator.core.scheduling.rebalance import View, plan
from hocket.coordinator.intake.capacity import CapacityLimit
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.kv.entry import Entry, Leases, RevisionPassed, until_changed
from hocket.kit.process.lifecycle import Health
from hocket.schemas.errors import HocketError

BEAT_S = 0.5
FIRST_BEAT_S = 0.02
LEASE_S = 2.0
GRACE_S = 1.0
"""How long a coordinator that has just started, or that stood still, waits for those whose last sign of
life is old; and how long it takes nothing after the leases could not be watched."""
TICK_S = 0.25
STALL_S = LEASE_S / 2
"""This process stood still if it did not come to look for so long."""
RETRY_S = 0.25
PUT_TIMEOUT_MS = 2_000.0
FORGET_S = 60.0
"""After this the last sign of life of a dead coordinator is removed."""
_MAX_STALE = 100
"""Keys that are read and not there any more, before all are read again."""
_UNSURE = 1
"""The revision of a lease that may be another's by now: below that of any."""

log = structlog.get_logger(__name__)


class CoordinatorReplaced(HocketError):
    """Another coordinator with the name `{name}` was started, and this one ends. Give each coordinator
    a name of its own: HOCKET_INSTANCE."""

    code = "coordinator_replaced"


class _Phase(StrEnum):
    TAKING = "taking"
    OWNED = "owned"
    LEAVING = "leaving"


@dataclass(slots=True)
class _Holding:
    phase: _Phase
    revision: int
    """Of our lease."""
    leased_at_s: float = float("inf")
    """When the bucket had it (the loop's clock)."""
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class _Member:
    incarnation: str
    leaving: bool
    full: bool
    tenants: frozenset[str]
    """See `Sign.tenants`."""
    heard_at_s: float


@dataclass(slots=True)
class _Seen:
    """The members and leases of one look at the bucket."""

    members: dict[str, _Member] = field(default_factory=dict)
    owners: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Partition -> (name, incarnation) of the lease."""
    leased_at_s: dict[str, float] = field(default_factory=dict)


class Ownership:
    """See the module. `take` loads a partition and begins to read its log (with why it was free, and
    what to call when another coordinator has taken it), `leave` writes all and forgets it, `drop`
    forgets it at once."""

    def __init__(
        self,
        leases: Leases,
        health: Health,
        *,
        name: str,
        incarnation: str,
        partitions: int,
        take: Callable[[int, str, Callable[[], None]], Awaitable[None]],
        leave: Callable[[int], Awaitable[None]],
        drop: Callable[[int], None],
        capacity: CapacityLimit,
    ) -> None:
        self._leases = leases
        self._capacity = capacity
        self._health = health
        self._name = name
        self._incarnation = incarnation
        self._partitions = partitions
        self._take = take
        self._leave = leave
        self._drop = drop
        self._holdings: dict[int, _Holding] = {}
        self._returning: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._contents: dict[str, tuple[bytes | None, Sign | Lease | None]] = {}
        self._leaving = False
        self._beaten_at = 0
        """The revision of our first sign of life."""
        self._looked_at_s = float("-inf")
        self._trusted_since_s = float("-inf")
        self._no_takes_until_s = 0.0
        self._current_since_s = float("-inf")
        """When the watch that we last looked at began."""
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.settled = asyncio.Event()
        """Set once every partition has an owner that lives, and ours are read."""
        self.empty = asyncio.Event()
        """Set while we hold nothing."""
        self.empty.set()

    async def run(self) -> None:
        """Hold our share for ever; cancel to stop. Raises CoordinatorReplaced and what `take` raises."""
        beating = asyncio.create_task(self._beat_for_ever(), name="signs-of-life")
        try:
            while True:
                self._leases.changed.clear()
                self._reconcile()
                await until_changed(self._leases, TICK_S)
                if self._failed.done():
                    self._failed.result()
        finally:
            for task in (beating, *self._tasks):
                task.cancel()
            await asyncio.wait({beating, *self._tasks})

    async def hand_over(self) -> None:
        """Give everything back, partition by partition as each is written; `run` goes on meanwhile."""
        self._leaving = True
        self._leases.changed.set()
        await self._beat()
        await self.empty.wait()
        await self._put_quietly(MEMBER + self._name, None)

    def lost(self, number: int) -> None:
        """The fence in Postgres says that another coordinator owns a partition."""
        holding = self._holdings.pop(number, None)
        if holding is not None:
            self._give_up(number, holding)
            self._leases.changed.set()

    # ---- signs of life ----------------------------------------------------------------------

    async def _beat_for_ever(self) -> None:
        while True:
            if self._current_since_s > float("-inf"):  # else the bucket may not be there yet
                await self._beat()
                await asyncio.sleep(BEAT_S)
            else:
                await asyncio.sleep(FIRST_BEAT_S)

    async def _beat(self) -> None:
        state = "leaving" if self._leaving else "full" if self._capacity.here() else "serving"
        whose = named(self._capacity.look()) if state == "full" else {}
        sign = encoded(incarnation=self._incarnation, state=state, **whose)
        revision = await self._put_quietly(MEMBER + self._name, sign)
        if revision is not None and not self._beaten_at:
            self._beaten_at = revision

    async def _put_quietly(self, key: str, value: bytes | None) -> int | None:
        try:
            return await self._leases.put(key, value, revision=None, timeout_ms=PUT_TIMEOUT_MS)
        except BusUnavailable as error:  # others will hear from us when NATS is back
            log.debug("bucket_not_written", key=key, reason=str(error))
            return None

    # ---- looking ----------------------------------------------------------------------------

    def _reconcile(self) -> None:
        """Do what the rule says of what is known now."""
        now_s = asyncio.get_running_loop().time()
        stalled = now_s - self._looked_at_s > STALL_S and self._looked_at_s > 0
        self._looked_at_s = now_s
        current_since_s = self._leases.current_since_s
        if current_since_s == float("-inf"):
            self._health.report("ownership", False, "the leases cannot be watched")
            return
        if current_since_s != self._current_since_s:
            self._trust(now_s)
            self._current_since_s = current_since_s
        elif stalled:  # what others wrote meanwhile is about to be heard
            self._trusted_since_s = max(self._trusted_since_s, now_s + GRACE_S - LEASE_S)
        seen = self._seen()
        self._check_name(seen)
        self._drop_taken(seen)
        self._lease_again(seen)
        view = self._view(seen, now_s)
        wanted = plan(self._name, view)
        for number in wanted.release:
            holding = self._holdings[number]
            if holding.phase is _Phase.OWNED:
                self._start_leaving(number, holding)
        self._give_back_stale(seen, wanted.take, now_s)
        for number in wanted.take if now_s >= self._no_takes_until_s else ():
            self._start_taking(number, seen, now_s)
        self._report(view)
        self._forget_dead(seen, view, now_s)

    def _trust(self, now_s: float) -> None:
        """Give others time to be heard; where the server came back, to write their leases, too."""
        first = self._trusted_since_s == float("-inf")
        if first:
            self._trusted_since_s = now_s + GRACE_S - LEASE_S
        else:
            self._trusted_since_s = now_s
            self._no_takes_until_s = now_s + GRACE_S

    def _content(self, entry: Entry) -> Sign | Lease | None:
        known = self._contents.get(entry.key)
        if known is None or known[0] is not entry.value:
            read = lease_of if member_in(entry.key) is None else sign_of
            known = self._contents[entry.key] = (entry.value, read(entry.value))
        return known[1]

    def _seen(self) -> _Seen:
        seen = _Seen()
        for key, entry in self._leases.entries.items():
            name, number = member_in(key), partition_in(key, self._partitions)
            if name is None and number is None:
                continue
            content = self._content(entry)
            if name is not None and isinstance(content, Sign):
                seen.members[name] = _Member(
                    content.incarnation,
                    content.state == "leaving",
                    content.state == "full",
                    content.tenants,
                    entry.written_at_s,
                )
            elif number is not None and isinstance(content, Lease) and content.owner:
                seen.owners[number] = (content.owner, content.incarnation)
                seen.leased_at_s[content.owner] = entry.written_at_s
        if len(self._contents) > 2 * len(self._leases.entries) + _MAX_STALE:
            self._contents.clear()
        return seen

    def _check_name(self, seen: _Seen) -> None:
        entry = self._leases.entries.get(MEMBER + self._name)
        member = seen.members.get(self._name)
        if entry is None or member is None or not self._beaten_at:
            return
        if member.incarnation != self._incarnation and entry.revision > self._beaten_at:
            raise CoordinatorReplaced(name=self._name)

    def _drop_taken(self, seen: _Seen) -> None:
        """Forget what another coordinator has taken because it took us for dead. Where something foreign
        hides whose a lease is, it is still ours, and written anew: the others saw it before, and leave
        the partition to us."""
        for number, holding in list(self._holdings.items()):
            entry = self._leases.entries.get(lease_key(number))
            if entry is None or entry.revision <= holding.revision or not holding.revision:
                continue
            if seen.owners.get(number) == (self._name, self._incarnation):
                if holding.revision == _UNSURE or entry.overwritten:
                    holding.revision = entry.revision
            elif entry.value is not None or not entry.overwritten:
                owner = seen.owners.get(number, ("nobody", ""))[0]
                log.warning("partition_taken_away", partition=number, owner=owner)
                del self._holdings[number]
                self._give_up(number, holding)

    def _view(self, seen: _Seen, now_s: float) -> View:
        def is_heard(at_s: float) -> bool:
            return now_s - max(at_s, self._trusted_since_s) <= LEASE_S

        others = {name: m for name, m in seen.members.items() if name != self._name}
        live = {name for name, member in others.items() if is_heard(member.heard_at_s)}
        leaving = {name for name in live if others[name].leaving}
        # whose sign of life the bucket has lost gets the time to give it again, and no share before
        lost = {
            name
            for name, at_s in seen.leased_at_s.items()
            if name != self._name and name not in others and is_heard(at_s)
        }
        owners = {
            number: name
            for number, (name, incarnation) in seen.owners.items()
            if name in lost or (name in live and others[name].incarnation == incarnation)
        }
        owners |= dict.fromkeys(self._holdings, self._name)
        self._capacity.heard(tuple(others[name].tenants for name in live if others[name].full))
        if self._leaving:
            leaving.add(self._name)
        if self._leaving or self._beaten_at:
            live.add(self._name)
        return View(self._partitions, frozenset(live | lost), frozenset(leaving | lost), owners)

    def _report(self, view: View) -> None:
        owned = sum(1 for h in self._holdings.values() if h.phase is _Phase.OWNED)
        detail = f"{owned} of {self._partitions} partitions, {len(view.live)} coordinators"
        self._health.report("ownership", True, detail)
        if not self._holdings:
            self.empty.set()
        all_read = all(h.phase is _Phase.OWNED for h in self._holdings.values())
        if all_read and len(view.owners) == self._partitions and self._name in view.live:
            self.settled.set()

    def _forget_dead(self, seen: _Seen, view: View, now_s: float) -> None:
        if min(view.live, default="") != self._name:
            return
        for name, member in seen.members.items():
            entry = self._leases.entries.get(MEMBER + name)
            dead = name not in view.live and name != self._name
            if dead and entry is not None and now_s - member.heard_at_s > FORGET_S:
                self._leases.entries.pop(MEMBER + name)
                self._run(self._forget(name, entry.revision))

    async def _forget(self, name: str, revision: int) -> None:
        try:
            await self._leases.put(
                MEMBER + name, None, revision=revision, timeout_ms=PUT_TIMEOUT_MS
            )
        except (RevisionPassed, BusUnavailable):
            log.debug("member_not_forgotten", member=name)

    # ---- taking -----------------------------------------------------------------------------

    def _start_taking(self, number: int, seen: _Seen, now_s: float) -> None:
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
        holding.task = self._run(self._take_it(number, holding, revision, cause))

    async def _take_it(self, number: int, holding: _Holding, revision: int, cause: str) -> None:
        try:
            await self._lease(number, holding, revision)
        except (RevisionPassed, BusUnavailable) as error:
            log.info("partition_not_leased", partition=number, reason=str(error))
            self._holdings.pop(number, None)
        else:
            await self._take(number, cause, partial(self.lost, number))
            holding.phase = _Phase.OWNED
        self._leases.changed.set()

    async def _lease(self, number: int, holding: _Holding, revision: int) -> None:
        """Write our lease over that revision of it; raises RevisionPassed and BusUnavailable."""
        lease = encoded(owner=self._name, incarnation=self._incarnation)
        holding.revision = await self._leases.put(
            lease_key(number), lease, revision=revision, timeout_ms=PUT_TIMEOUT_MS
        )
        holding.leased_at_s = asyncio.get_running_loop().time()

    def _lease_again(self, seen: _Seen) -> None:
        """Write leases anew that the bucket does not have any more."""
        for number, holding in self._holdings.items():
            if holding.phase is not _Phase.OWNED or not self._has_lost(number, holding, seen):
                continue
            if holding.task is None or holding.task.done():
                holding.task = self._run(self._lease_anew(number, holding))

    def _has_lost(self, number: int, holding: _Holding, seen: _Seen) -> bool:
        """Tell whether the bucket has lost a lease: it is not there, or is again what it was before, of
        nobody or of somebody who is not there. Where it says another one's who lives, that one gives it
        back, or has taken the partition, and the fence tells us."""
        entry = self._leases.entries.get(lease_key(number))
        if entry is None or entry.overwritten:
            return True
        if entry.revision >= holding.revision or self._current_since_s <= holding.leased_at_s:
            return False
        name, incarnation = seen.owners.get(number, ("", ""))
        member = seen.members.get(name)
        return name == self._name or member is None or member.incarnation != incarnation

    async def _lease_anew(self, number: int, holding: _Holding) -> None:
        entry = self._leases.entries.get(lease_key(number))
        try:
            await self._lease(number, holding, 0 if entry is None else entry.revision)
        except RevisionPassed:
            holding.revision = _UNSURE  # whose it is stands in the bucket
        except BusUnavailable as error:
            log.info("partition_not_leased", partition=number, reason=str(error))

    # ---- leaving ----------------------------------------------------------------------------

    def _start_leaving(self, number: int, holding: _Holding) -> None:
        holding.phase = _Phase.LEAVING
        holding.task = self._run(self._leave_it(number, holding))

    async def _leave_it(self, number: int, holding: _Holding) -> None:
        await self._leave(number)
        while True:
            try:
                await self._leases.put(
                    lease_key(number),
                    _FREE,
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
        if not self._holdings:
            self.empty.set()
        self._leases.changed.set()

    def _give_back_stale(self, seen: _Seen, taking: tuple[int, ...], now_s: float) -> None:
        """Give leases back for which others wait: they say that we own what we do not, or something
        foreign has stood over them for LEASE_S. An owner that lives had written its lease again by then,
        and coordinators may each take another one for the owner: some saw the lease before."""
        for number in range(self._partitions):
            entry = self._leases.entries.get(lease_key(number))
            if entry is None or number in self._holdings or number in taking:
                continue
            stale = seen.owners.get(number) == (self._name, self._incarnation)
            hidden_at_s = entry.overwritten_at_s
            if hidden_at_s is not None:
                stale |= now_s - max(hidden_at_s, self._trusted_since_s) > LEASE_S
            if stale and number not in self._returning:
                self._returning.add(number)
                self._run(self._give_back(number, entry.revision))

    async def _give_back(self, number: int, revision: int) -> None:
        try:
            await self._leases.put(
                lease_key(number), _FREE, revision=revision, timeout_ms=PUT_TIMEOUT_MS
            )
        except (RevisionPassed, BusUnavailable) as error:
            log.info("lease_not_given_back", partition=number, reason=str(error))
            await asyncio.sleep(RETRY_S)
        finally:
            self._returning.discard(number)

    def _give_up(self, number: int, holding: _Holding) -> None:
        if holding.task is not None:
            holding.task.cancel()
        self._drop(number)

    def _run(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is None or self._failed.done():
            return
        error = task.exception()
        assert error is not None, "looked at just now"
        self._failed.set_exception(error)
        self._leases.changed.set()


_FREE = encoded(owner="", incarnation="")
"""The lease of a partition that was handed over."""
