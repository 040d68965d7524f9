"""A circuit breaker; on by default. Pure.

Each replica has one for all tenants and one for each tenant (`tenant_breakers.py`).

States: *closed* (calls pass), *open* (no call passes until a set time), *half open* (one trial call
passes, and another whenever no trial has ended within the open time; the first to end decides). It
opens on consecutive failures, or on the rate of failures or of slow calls within a window. A call in
flight counts as slow as soon as it exceeds the threshold, so a hanging server is noticed before its
calls time out. A failed trial reopens it for twice as long, up to a bound; a successful one closes
it. Open times are jittered by a hash of the replica and the number of openings, so that replicas and
gateways do not all come back at once.

A server that is down is tried again at least every 1.25 times `max_open_ms`, so no operator has to
wait longer for it to return to service.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

BUCKETS = 10
"""The number of parts in a window; old calls are dropped one part at a time."""


class BreakerState(StrEnum):
    """Whether calls pass."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Outcome(StrEnum):
    """What a call says about its server; a call cut short by its caller says nothing."""

    OK = "ok"
    FAILED = "failed"
    SLOW = "slow"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """When a breaker opens, and for how long. If `slow_ms` is None, it is derived from history."""

    enabled: bool = True
    window_ms: float = 10_000.0
    min_calls: int = 10
    failures_in_a_row: int = 3
    failure_rate: float = 0.5
    slow_rate: float = 0.8
    slow_ms: float | None = None
    open_ms: float = 400.0
    max_open_ms: float = 1_200.0


USUAL = BreakerRule()
"""The default rule."""
NEVER = BreakerRule(enabled=False)
"""A breaker that stays closed."""


@dataclass(slots=True)
class _Bucket:
    since_ms: float
    calls: int = 0
    failed: int = 0
    slow: int = 0


@dataclass(frozen=True, slots=True)
class Sums:
    """Counts of the calls in a window."""

    calls: int = 0
    failed: int = 0
    slow: int = 0

    def less(self, other: "Sums") -> "Sums":
        """Return the counts minus others."""
        return Sums(self.calls - other.calls, self.failed - other.failed, self.slow - other.slow)

    def more(self, calls: int, slow: int) -> "Sums":
        """Return the counts plus calls in flight, some of them slow."""
        return Sums(self.calls + calls, self.failed, self.slow + slow)


class Breaker:
    """One breaker; `dice` gives a number in [0, 1) for the n-th opening."""

    def __init__(self, rule: BreakerRule, dice: Callable[[int], float]) -> None:
        self.rule = rule
        self.state = BreakerState.CLOSED
        self.retry_at_ms = 0.0
        """While open: when the next trial may be made."""
        self.openings = 0
        self._dice = dice
        self._buckets: deque[_Bucket] = deque(maxlen=BUCKETS)
        self.in_a_row = 0
        """The number of consecutive failures."""
        self._bad = 0
        """Failed and slow calls of the window as of the last sum, plus those since."""
        self._failed_trials = 0
        self._trials = 0
        self._trying_since_ms = 0.0
        """When the first trial since it last opened began."""

    def admits(self, now_ms: float) -> bool:
        """Tell whether a call may pass now."""
        if self.state is BreakerState.CLOSED:
            return True
        if self.state is BreakerState.OPEN:
            return now_ms >= self.retry_at_ms
        return self._trials == 0 or now_ms >= self.retry_at_ms

    def began(self, now_ms: float) -> None:
        """Record that an admitted call begins."""
        if self.state is BreakerState.CLOSED:
            return
        if self.state is BreakerState.OPEN:
            self._trying_since_ms = now_ms
        self.state = BreakerState.HALF_OPEN
        self._trials += 1
        self.retry_at_ms = now_ms + self._pause_ms()

    def ended(self, outcome: Outcome, now_ms: float, *, began_ms: float) -> None:
        """Record the outcome of a call that began at `began_ms`."""
        if self.state is BreakerState.CLOSED:
            self.count(outcome, now_ms)
            if outcome is not Outcome.NOTHING and (self.fails_in_a_row() or self.fails(now_ms)):
                self.open(now_ms)
        elif self.state is BreakerState.HALF_OPEN and began_ms >= self._trying_since_ms:
            self._trials = 0
            if outcome is Outcome.OK:
                self._close()
            elif outcome is not Outcome.NOTHING:
                self._failed_trials += 1
                self.open(now_ms)

    def overdue(self, calls: int, in_flight: int, now_ms: float) -> None:
        """Record that `calls` of the `in_flight` calls already exceed the slow threshold."""
        if self.state is not BreakerState.CLOSED or not calls:
            return
        if self.is_slow(self.sums(now_ms).more(in_flight, calls)):
            self.open(now_ms)

    def count(self, outcome: Outcome, now_ms: float) -> None:
        """Count an outcome without changing state."""
        if outcome is Outcome.NOTHING or not self.rule.enabled:
            return
        bucket = self._bucket(now_ms)
        bucket.calls += 1
        if outcome is Outcome.OK:
            self.in_a_row = 0
            return
        failed = outcome is Outcome.FAILED
        bucket.failed += failed
        bucket.slow += not failed
        self.in_a_row = self.in_a_row + 1 if failed else 0
        self._bad += 1

    def fails_in_a_row(self) -> bool:
        """Return whether enough calls in a row failed to open it."""
        return self.in_a_row >= self.rule.failures_in_a_row

    def fails(self, now_ms: float) -> bool:
        """Return whether the rate of failed or slow calls is high enough to open it."""
        if not self._bad:
            return False
        sums = self.sums(now_ms)
        return sums.calls >= self.rule.min_calls and self.is_bad(sums)

    def is_bad(self, sums: Sums) -> bool:
        """Return whether the rate of failed or slow calls is too high."""
        return bool(sums.calls) and (
            sums.failed / sums.calls >= self.rule.failure_rate
            or sums.slow / sums.calls >= self.rule.slow_rate
        )

    def is_slow(self, sums: Sums) -> bool:
        """Return whether there are enough calls and too many of them were slow."""
        enough = sums.calls >= self.rule.min_calls
        return enough and sums.slow / sums.calls >= self.rule.slow_rate

    def _bucket(self, now_ms: float) -> _Bucket:
        width_ms = self.rule.window_ms / BUCKETS
        if not self._buckets or now_ms - self._buckets[-1].since_ms >= width_ms:
            self._buckets.append(_Bucket(now_ms))
        return self._buckets[-1]

    def sums(self, now_ms: float) -> Sums:
        """Return the counts of the current window."""
        buckets = self._buckets
        while buckets and now_ms - buckets[0].since_ms > self.rule.window_ms:
            buckets.popleft()
        calls = failed = slow = 0
        for bucket in buckets:
            calls += bucket.calls
            failed += bucket.failed
            slow += bucket.slow
        self._bad = failed + slow
        return Sums(calls, failed, slow)

    def open(self, now_ms: float) -> None:
        """Stop all calls for a while."""
        if not self.rule.enabled:
            return
        self.state = BreakerState.OPEN
        self.openings += 1
        self._trials = 0
        self.retry_at_ms = now_ms + self._pause_ms()

    def _pause_ms(self) -> float:
        longest_ms = min(
            self.rule.open_ms * 2.0 ** min(self._failed_trials, 30), self.rule.max_open_ms
        )
        return longest_ms * (0.75 + 0.5 * self._dice(self.openings))

    def _close(self) -> None:
        self.state = BreakerState.CLOSED
        self._buckets.clear()
        self._bad = 0
        self.in_a_row = 0
        self._failed_trials = 0
        self._trials = 0
