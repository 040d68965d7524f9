"""The level that one replica should be at: its leases, from its rule, its forecast and its calls."""

from collections.abc import Callable, Iterator
from math import inf

from hocket.gateway.core.warming.forecast import Forecast
from hocket.gateway.core.warming.warm_leases import Lease, Level, Want, wanted
from hocket.gateway.core.warming.warm_rule import WarmRule
from hocket.gateway.warming.replica_state import ReplicaState

REMOTE_IDLE_MS = 3_000.0
"""How old other gateways' reports of their calls can be."""
MAX_LEASES = 256
"""The most leases kept; beyond that, the one that begins last is dropped."""
MAX_RETAINED_MS = 30 * 60_000.0
"""How long a replica is kept ready at most while it waits for the models of the run's other nodes."""
LATER = " (later)"


class WarmPolicy:
    """Decides which level a replica should be at.

    Times are epoch milliseconds. `last_used_ms` returns when this gateway last had a call at the
    replica, and `shared` whether other gateways may have some; `changed` is called when a lease is
    added.
    """

    def __init__(
        self,
        rule: WarmRule,
        state: ReplicaState,
        *,
        last_used_ms: Callable[[], float],
        shared: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        self._rule = rule
        self._state = state
        self._last_used_ms = last_used_ms
        self._shared = shared
        self._changed = changed
        self._leases: dict[str, Lease] = {}
        # a run that waits for a cold model first uses it once that has started
        quiet_ms = rule.idle_ms + rule.startup.between(Level.COLD, Level.READY)
        self._forecast = Forecast(quiet_ms) if rule.forecast else None
        self._remote_used_ms = -inf
        self._kept_until_ms = -inf

    def keep(self, until_ms: float) -> None:
        """Keep the replica ready until `until_ms`, because an operator ordered it;
        a later order replaces it."""
        if until_ms != self._kept_until_ms:
            self._kept_until_ms = until_ms
            self._changed()

    def need(self, reason: str, at_ms: float, until_ms: float, now_ms: float) -> None:
        """Have the replica ready from `at_ms` until `until_ms` (limited to MAX_RETAINED_MS) plus
        the idle retention time.

        A need that begins well after the known lease for the same reason has ended is kept apart,
        so that the replica is not held in between; only the soonest of these counts. A need feeds
        the forecast only once it is near.
        """
        until_ms = min(until_ms, max(at_ms, now_ms) + MAX_RETAINED_MS) + self._rule.idle_ms
        startup_ms = self._state.startup.between(Level.COLD, Level.READY)
        known = self._leases.get(reason)
        held_ms = now_ms if known is None else max(known.until_ms, now_ms)
        if at_ms - held_ms > startup_ms + self._rule.idle_ms:
            reason += LATER
            later = self._leases.get(reason)
            if later is not None and now_ms < later.until_ms < at_ms:
                return
            self._leases.pop(reason, None)
        self.hold(reason, at_ms, until_ms, now_ms)
        if at_ms - now_ms <= MAX_RETAINED_MS:
            self.record_arrival(at_ms)

    def hold(self, reason: str, from_ms: float, until_ms: float, now_ms: float) -> None:
        """Have the replica ready from `from_ms` until `until_ms`;
        a lease for the same reason is extended."""
        known = self._leases.get(reason)
        if known is not None and known.until_ms > now_ms:
            from_ms, until_ms = min(known.from_ms, from_ms), max(known.until_ms, until_ms)
        self._leases[reason] = Lease(reason, Level.READY, from_ms, until_ms)
        if len(self._leases) > MAX_LEASES:
            del self._leases[max(self._leases.values(), key=lambda one: one.from_ms).reason]
        self._changed()

    def record_arrival(self, at_ms: float) -> None:
        """Record for the forecast that the replica is needed at a time."""
        if self._forecast is not None:
            self._forecast.record_arrival(at_ms)

    def used_remotely(self, now_ms: float) -> None:
        """Record that another gateway has calls at the replica."""
        self._remote_used_ms = now_ms
        self.record_arrival(now_ms)

    def wanted(self, now_ms: float) -> Want:
        """Return the wanted level, and when that may change without a new lease."""
        return wanted(self._current(now_ms), self._state.level, self._state.startup, now_ms)

    def _current(self, now_ms: float) -> Iterator[Lease]:
        for reason in [r for r, lease in self._leases.items() if lease.until_ms <= now_ms]:
            del self._leases[reason]
        yield from self._leases.values()
        yield Lease("tier", self._rule.tier, -inf, inf)
        yield Lease("operator", Level.READY, -inf, self._kept_until_ms)
        for schedule in self._rule.schedules:
            yield from schedule.leases(now_ms)
        window = self._forecast.window() if self._forecast is not None else None
        if window is not None:
            yield Lease("forecast", Level.READY, window.from_ms, window.until_ms)
        used_ms = max(self._last_used_ms(), self._remote_used_ms)
        if used_ms > -inf:
            idle_ms = self._rule.idle_ms
            if self._shared():
                idle_ms = max(idle_ms, REMOTE_IDLE_MS)
            yield Lease("calls", Level.READY, -inf, used_ms + idle_ms)
