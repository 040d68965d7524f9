"""The breakers of one replica: one for all tenants, and one for each recently seen tenant. Pure.

If only one tenant's calls fail, that says as much about its calls as about the server, so only that
tenant is held back. All tenants are held back if calls of two tenants fail, or if the failure is no
tenant's fault (no connection was established). The breaker for all therefore opens by the usual
rule (`breaker.py`), with two more conditions: consecutive failures must not all be of one tenant,
and the rates must also be exceeded without the tenant that has the most failures. If a trial fails
for one tenant, another tenant may try at once; only if that fails too are all held back. With a
single tenant, everything works like one breaker.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hocket.gateway.core.routing.breaker import Breaker, BreakerRule, BreakerState, Outcome, Sums

MAX_TENANTS = 64
"""The most tenants remembered per replica; beyond that,
the one whose last failure is oldest is dropped."""
NOBODY = None
"""Stands for the tenant when no connection was established, which is no tenant's fault."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A breaker's change of state: a tenant's, or (if `tenant` is None) the one for all."""

    state: BreakerState
    tenant: str | None
    retry_at_ms: float


class TenantBreakers:
    """The breakers of recently seen tenants at one replica."""

    def __init__(self, rule: BreakerRule, dice: Callable[[int], float]) -> None:
        self._rule = rule
        self._dice = dice
        self._own: OrderedDict[str, Breaker] = OrderedDict()
        """Breakers by tenant, the most recent failure last."""
        self.held: dict[str, Breaker] = {}
        """The breakers that are not closed."""

    def __len__(self) -> int:
        return len(self._own)

    def clear(self) -> None:
        """Forget all of them."""
        self._own.clear()
        self.held.clear()

    def ended(
        self, tenant: str, outcome: Outcome, now_ms: float, *, began_ms: float, unconnected: bool
    ) -> Turn | None:
        """Record the outcome of a tenant's call; return the breaker's change of state, if any."""
        if unconnected or outcome is Outcome.NOTHING:
            own = self.held.get(tenant)
        else:
            own = self._remembered(tenant, outcome)
        if own is None:
            return None
        before = own.state
        own.ended(outcome, now_ms, began_ms=began_ms)
        return self._turned(tenant, own, before)

    def overdue(self, tenant: str, calls: int, in_flight: int, now_ms: float) -> Turn | None:
        """Record that `calls` of a tenant's `in_flight` calls already exceed the slow threshold."""
        own = self._remembered(tenant, Outcome.SLOW)
        if own is None:
            return None
        before = own.state
        own.overdue(calls, in_flight, now_ms)
        return self._turned(tenant, own, before)

    def worst(self, now_ms: float) -> Sums:
        """Return the counts of the tenant with the most failed and slow calls."""
        return max((own.sums(now_ms) for own in self._own.values()), key=_bad, default=Sums())

    def worst_with(
        self, calls: Mapping[str, int], in_flight: Mapping[str, int], now_ms: float
    ) -> Sums:
        """Return the same as `worst`, including calls in flight."""
        by_tenant = [
            self._sums(one, now_ms).more(in_flight.get(one, 0), calls.get(one, 0))
            for one in {*self._own, *calls}
        ]
        return max(by_tenant, key=_bad, default=Sums())

    def _sums(self, tenant: str, now_ms: float) -> Sums:
        own = self._own.get(tenant)
        return Sums() if own is None else own.sums(now_ms)

    def _remembered(self, tenant: str, outcome: Outcome) -> Breaker | None:
        """Return a tenant's own breaker; None if there is no room,
        and its call does not justify dropping another's."""
        own = self._own.get(tenant)
        is_bad = outcome is not Outcome.OK
        is_new = own is None
        if own is None:
            if len(self._own) >= MAX_TENANTS:
                if not is_bad:
                    return None
                gone, _ = self._own.popitem(last=False)
                self.held.pop(gone, None)
            own = self._own[tenant] = Breaker(self._rule, self._dice)
        if is_bad or is_new:
            self._own.move_to_end(tenant, last=is_bad)
        return own

    def _turned(self, tenant: str, own: Breaker, before: BreakerState) -> Turn | None:
        if own.state is before:
            return None
        if own.state is BreakerState.CLOSED:
            self.held.pop(tenant, None)
        else:
            self.held[tenant] = own
        return Turn(own.state, tenant, own.retry_at_ms)


class ReplicaBreaker:
    """One replica's breakers; `dice` gives a number in [0, 1) for the n-th opening."""

    def __init__(self, rule: BreakerRule, dice: Callable[[int], float]) -> None:
        self.rule = rule
        self.openings = 0
        """How often it opened, for all or for one tenant."""
        self._all = Breaker(rule, dice)
        self._tenants = TenantBreakers(rule, dice)
        self._in_a_row: set[str | None] = set()
        """The tenants behind the current run of consecutive failures."""
        self._blamed: str | None = None
        """The tenant whose trial failed, while others may still try at once."""

    @property
    def state(self) -> BreakerState:
        """The most restrictive state over all tenants."""
        if self._all.state is not BreakerState.CLOSED or not self._tenants.held:
            return self._all.state
        states = {held.state for held in self._tenants.held.values()}
        return BreakerState.OPEN if BreakerState.OPEN in states else BreakerState.HALF_OPEN

    @property
    def tenants(self) -> int:
        """The number of tenants remembered."""
        return len(self._tenants)

    def state_for(self, tenant: str) -> BreakerState:
        """Return the state of the breaker that applies to a tenant."""
        return self._of(tenant).state

    def retry_at_ms(self, tenant: str) -> float:
        """Return when a tenant may make its next trial, while its calls are held back."""
        return self._of(tenant).retry_at_ms

    def admits(self, tenant: str, now_ms: float) -> bool:
        """Tell whether a tenant's call may pass now."""
        if self._all.state is BreakerState.CLOSED:
            return not self._tenants.held or self._of(tenant).admits(now_ms)
        if self._all.state is BreakerState.OPEN and self._blamed not in (None, tenant):
            return True
        return self._all.admits(now_ms)

    def began(self, tenant: str, now_ms: float) -> None:
        """Record that an admitted call of a tenant begins."""
        self._of(tenant).began(now_ms)

    def ended(
        self,
        tenant: str,
        outcome: Outcome,
        now_ms: float,
        *,
        began_ms: float,
        unconnected: bool = False,
    ) -> Turn | None:
        """Record the outcome of a tenant's call that began at `began_ms`; return the change of
        state, if any.

        If it was `unconnected`, the failure is not attributed to the tenant.
        """
        if not self.rule.enabled:
            return None
        whose = NOBODY if unconnected else tenant
        if self._all.state is not BreakerState.CLOSED:
            return self._tried(whose, outcome, now_ms, began_ms)
        if outcome is Outcome.NOTHING and not self._tenants.held:
            return None
        self._all.count(outcome, now_ms)
        self._note_in_a_row(whose, outcome)
        turn = self._counted(
            self._tenants.ended(tenant, outcome, now_ms, began_ms=began_ms, unconnected=unconnected)
        )
        if outcome is not Outcome.NOTHING and self._fails(now_ms):
            return self._open(now_ms)
        return turn

    def overdue(
        self, tenant: str, calls: Mapping[str, int], in_flight: Mapping[str, int], now_ms: float
    ) -> Turn | None:
        """Record that one more call of a tenant exceeds the slow threshold; return the change of
        state, if any.

        `calls` are all calls that exceed it now and `in_flight` all calls in flight, both by
        tenant.
        """
        if self._all.state is not BreakerState.CLOSED or not self.rule.enabled:
            return None
        turn = self._counted(
            self._tenants.overdue(tenant, calls.get(tenant, 0), in_flight.get(tenant, 0), now_ms)
        )
        sums = self._all.sums(now_ms).more(sum(in_flight.values()), sum(calls.values()))
        if self._all.is_slow(sums):
            worst = self._tenants.worst_with(calls, in_flight, now_ms)
            if self._all.is_bad(sums.less(worst)):
                return self._open(now_ms)
        return turn

    def _note_in_a_row(self, whose: str | None, outcome: Outcome) -> None:
        if outcome is Outcome.FAILED:
            if len(self._in_a_row) < MAX_TENANTS:
                self._in_a_row.add(whose)
        elif outcome is not Outcome.NOTHING and self._in_a_row:
            self._in_a_row.clear()

    def _counted(self, turn: Turn | None) -> Turn | None:
        if turn is not None and turn.state is not BreakerState.CLOSED:
            self.openings += 1
        return turn

    def _of(self, tenant: str) -> Breaker:
        """Return the breaker that decides about a tenant's calls."""
        if self._all.state is not BreakerState.CLOSED:
            return self._all
        return self._tenants.held.get(tenant, self._all)

    def _tried(
        self, whose: str | None, outcome: Outcome, now_ms: float, began_ms: float
    ) -> Turn | None:
        before = self._all.state
        self._all.ended(outcome, now_ms, began_ms=began_ms)
        if self._all.state is before:
            return None
        if self._all.state is BreakerState.OPEN:
            self.openings += 1
            alone = self._blamed in (None, whose)
            self._blamed = whose if alone else None
        else:
            self._blamed = None
            self._in_a_row.clear()
        return Turn(self._all.state, None, self._all.retry_at_ms)

    def _fails(self, now_ms: float) -> bool:
        """Return whether the failures warrant holding back every tenant."""
        if self._all.fails_in_a_row() and (len(self._in_a_row) > 1 or NOBODY in self._in_a_row):
            return True
        if not self._all.fails(now_ms):
            return False
        return self._all.is_bad(self._all.sums(now_ms).less(self._tenants.worst(now_ms)))

    def _open(self, now_ms: float) -> Turn:
        """Hold back every tenant; what is known of single tenants is discarded."""
        self._tenants.clear()
        self._in_a_row.clear()
        self._blamed = None
        self._all.open(now_ms)
        self.openings += 1
        return Turn(self._all.state, None, self._all.retry_at_ms)


def _bad(sums: Sums) -> int:
    return sums.failed + sums.slow
