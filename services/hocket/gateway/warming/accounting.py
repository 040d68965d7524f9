"""The time that a replica is held and its cost: counted continuously, recorded in pieces."""

from collections.abc import Callable

from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.warming.warm_leases import Level
from hocket.gateway.core.warming.warm_rule import WarmRule
from hocket.gateway.core.warming.warm_time import WarmTime, price
from hocket.gateway.metrics import GatewayMetrics
from hocket.gateway.warming.replica_state import ReplicaState
from hocket.gateway.warming.replica_usage import ReplicaUsage
from hocket.schemas.messages import WarmRecord

RECORD_MS = 15_000.0
"""How much time of a warm replica goes into one record."""

Book = Callable[[WarmRecord], None]


class WarmAccounting:
    """Counts the time of one replica.

    Times are epoch milliseconds. `busy` is called with the time at which calls were seen.
    """

    def __init__(
        self,
        spec: BackendSpec,
        rule: WarmRule,
        model: str,
        state: ReplicaState,
        usage: ReplicaUsage,
        *,
        now_ms: float,
        book: Book,
        busy: Callable[[float], None],
        metrics: GatewayMetrics,
    ) -> None:
        self._spec = spec
        self._rule = rule
        self._model = model
        self._state = state
        self._usage = usage
        self._book = book
        self._busy = busy
        self._metrics = metrics
        self._time = WarmTime()
        self._recorded_ms = self._counted_ms = now_ms
        self._remote_busy_ms = 0.0
        self._reason = ""

    @property
    def recorded_ms(self) -> float:
        """The time up to which usage has been recorded."""
        return self._recorded_ms

    def resume(self, at_ms: float) -> None:
        """Count from `at_ms` on."""
        self._recorded_ms = self._counted_ms = at_ms

    def because(self, reason: str) -> None:
        """Set the reason why the replica is held; an empty reason keeps the previous one."""
        self._reason = reason or self._reason

    def add_remote_busy(self, busy_ms: float) -> None:
        """Add the time for which other gateways had calls at the replica."""
        self._remote_busy_ms += busy_ms

    def count(self, now_ms: float) -> None:
        """Attribute the time since the last count to the current state;
        call it before the state changes."""
        passed_ms = max(now_ms - self._counted_ms, 0.0)
        self._counted_ms = max(now_ms, self._counted_ms)
        busy_ms = self._usage.take(self._spec.key, now_ms) + self._remote_busy_ms
        self._remote_busy_ms = 0.0
        if busy_ms:
            self._busy(self._counted_ms)
        state = self._state
        if not state.is_held:
            self._recorded_ms = self._counted_ms
            return
        starting = state.ready_at_ms is not None
        level = max(state.level, Level.PROVISIONED)  # cold, it is held until it has been stopped
        self._time = self._time.passed(level, starting=starting, ms=passed_ms, busy_ms=busy_ms)

    def record_if_due(self, now_ms: float) -> None:
        """Record the counted time if it is enough for a record."""
        if now_ms - self._recorded_ms >= RECORD_MS:
            self.record()

    def record(self) -> None:
        """Record the counted time."""
        time, self._time = self._time, WarmTime()
        from_ms, self._recorded_ms = self._recorded_ms, self._counted_ms
        if time.held_ms <= 0:
            return
        usd = self._rule.usd_per_hour
        record = WarmRecord(
            call_id=f"warm:{self._spec.key}:{from_ms:.0f}",
            backend=self._spec.name,
            replica=self._spec.replica,
            model=self._model,
            reason=self._reason,
            from_at_ms=from_ms,
            to_at_ms=max(self._counted_ms, from_ms),
            starting_ms=time.starting_ms,
            busy_ms=time.busy_ms,
            idle_ms=time.idle_ms,
            provisioned_ms=time.provisioned_ms,
            usd_per_hour=usd,
            cost_usd=price(time.held_ms, usd),
            wasted_usd=price(time.wasted_ms, usd),
        )
        self._metrics.held(self._spec.key, record)
        self._book(record)
