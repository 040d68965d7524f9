"""This process' share of the partitions: leases that others see, and the rule applied to them.

Every coordinator writes a sign of life (`member.<name>`) every BEAT_S and a lease (`partition.<n>`)
for what it owns into one bucket, watches all of them, and applies `core/scheduling/rebalance.py` to
what it sees. A coordinator that has not been heard from for LEASE_S is taken for dead. A name that
comes back with another incarnation was restarted: what its former incarnation owned is free at
once.

Leases serve balance and quick takeover; what keeps a coordinator with a wrong view from writing is
the epoch in Postgres.

While the watch is behind, nothing is decided. After that, and after this process itself was
stalled, others get time to be heard before they count as dead.
"""

import asyncio
from collections.abc import Awaitable, Callable

from hocket.coordinator.core.scheduling.rebalance import View, plan
from hocket.coordinator.intake.capacity import CapacityLimit
from hocket.coordinator.ownership.background import Background
from hocket.coordinator.ownership.held_partitions import Duties, Holdings
from hocket.coordinator.ownership.sightings import Sighting, Sightings
from hocket.coordinator.ownership.signs_of_life import SignsOfLife
from hocket.coordinator.ownership.stale_leases import StaleLeases
from hocket.kit.nats.kv.entry import Leases, until_changed
from hocket.kit.nats.membership import NEVER, Liveness, beat_for_ever
from hocket.kit.process.lifecycle import Health

BEAT_S = 0.5
LEASE_S = 2.0
GRACE_S = 1.0
"""How long a coordinator that has just started, or was stalled, waits for those whose last sign of
life is old; and for how long it takes nothing after the leases could not be watched."""
TICK_S = 0.25


class Ownership:
    """Holds a coordinator's share of the partitions. `take`, `leave` and `drop` are described in
    `Duties`."""

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
        self._background = Background(leases.changed)
        duties = Duties(take, leave, drop)
        self._holdings = Holdings(
            leases, self._background, duties, name=name, incarnation=incarnation
        )
        self._signs = SignsOfLife(
            leases, capacity, self._background, name=name, incarnation=incarnation
        )
        self._sightings = Sightings(leases, partitions)
        self._liveness = Liveness(lease_s=LEASE_S, grace_s=GRACE_S)
        self._stale = StaleLeases(
            leases,
            self._liveness,
            self._background,
            name=name,
            incarnation=incarnation,
            partitions=partitions,
        )
        self._no_takes_until_s = 0.0
        self.settled = asyncio.Event()
        """Set once every partition has a live owner, and ours are being read."""

    async def run(self) -> None:
        """Hold our share; never returns, cancel to stop. Raises CoordinatorReplaced and what `take`
        raises."""
        beats = beat_for_ever(self._signs.beat, self._liveness, BEAT_S)
        beating = asyncio.create_task(beats, name="signs-of-life")
        try:
            while True:
                self._leases.changed.clear()
                self._reconcile()
                await until_changed(self._leases, TICK_S)
                self._background.raise_failure()
        finally:
            await self._background.cancel(beating)

    async def hand_over(self) -> None:
        """Give everything back, each partition as soon as it is written; `run` must go on meanwhile."""
        self._signs.leave()
        self._leases.changed.set()
        await self._signs.beat()
        await self._holdings.empty.wait()
        await self._signs.withdraw()

    def _reconcile(self) -> None:
        """Apply the rule to what is known now."""
        now_s = asyncio.get_running_loop().time()
        current_since_s = self._leases.current_since_s
        if self._liveness.look(now_s, current_since_s):  # others write their leases first
            self._no_takes_until_s = now_s + GRACE_S
        if current_since_s == NEVER:
            self._health.report("ownership", False, "the leases cannot be watched")
            return
        seen = self._sightings.look()
        self._signs.check_name(seen)
        self._holdings.drop_taken(seen)
        self._holdings.lease_again(seen, current_since_s)
        view = self._view(seen, now_s)
        wanted = plan(self._name, view)
        for number in wanted.release:
            self._holdings.release(number)
        self._stale.give_back(seen, held=self._holdings.numbers, taking=wanted.take, now_s=now_s)
        for number in wanted.take if now_s >= self._no_takes_until_s else ():
            self._holdings.take(number, seen, now_s)
        self._report(view)
        self._signs.forget_dead(seen, view.live, now_s)

    def _view(self, seen: Sighting, now_s: float) -> View:
        heard = self._liveness.is_heard
        others = {name: m for name, m in seen.members.items() if name != self._name}
        live = {name for name, member in others.items() if heard(member.heard_at_s, now_s)}
        leaving = {name for name in live if others[name].leaving}
        lost = self._lost(seen, now_s)
        owners = {
            number: name
            for number, (name, incarnation) in seen.owners.items()
            if name in lost or (name in live and others[name].incarnation == incarnation)
        }
        owners |= dict.fromkeys(self._holdings.numbers, self._name)
        self._capacity.heard(tuple(others[name].tenants for name in live if others[name].full))
        if self._signs.leaving:
            leaving.add(self._name)
        if self._signs.leaving or self._signs.given:
            live.add(self._name)
        return View(self._partitions, frozenset(live | lost), frozenset(leaving | lost), owners)

    def _lost(self, seen: Sighting, now_s: float) -> set[str]:
        """Return the coordinators whose sign of life the bucket has lost: they get time to give it
        again, and no share before that."""
        known = {self._name, *seen.members}
        heard = self._liveness.is_heard
        return {
            name
            for name, at_s in seen.leased_at_s.items()
            if name not in known and heard(at_s, now_s)
        }

    def _report(self, view: View) -> None:
        owned, held = self._holdings.owned, len(list(self._holdings.numbers))
        detail = f"{owned} of {self._partitions} partitions, {len(view.live)} coordinators"
        self._health.report("ownership", True, detail)
        self._holdings.note_empty()
        if owned == held and len(view.owners) == self._partitions and self._name in view.live:
            self.settled.set()
