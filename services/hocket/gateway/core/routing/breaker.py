"""A circuit breaker: pure, on by default. Each replica has one for all tenants and one for each of them
(`tenant_breakers.py`).

States: *closed* (calls go through), *open* (none does, until a time), *half open* (one call at a time
goes through and decides). It opens on failures in a row, on the rate of failures or on the rate of slow
calls within a window; a call that is under way for longer than what is slow counts as slow already, so
that a hanging server is noticed before its calls time out. A trial that fails opens it again, for twice
as long up to a bound; one that succeeds closes it. Times open are jittered by a hash of the replica
and the number of openings, so that replicas and gateways do not come back all at once.

A server that is away for a while is asked again at least every `max_open_ms` and a quarter, so an
operator waits no longer for it to come back into use.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

BUCKETS = 10
"""Parts of a window, which is forgotten part by part."""


class BreakerState(StrEnum):
    """Whether calls go through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Outcome(StrEnum):
    """What a call says about its server: a call that its caller cut short says nothing."""

    OK = "ok"
    FAILED = "failed"
    SLOW = "slow"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """When a breaker opens, and for how long. `slow_ms` None means: as history tells."""

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
"""What holds where nobody says otherwise."""
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
    """Calls of a window."""

    calls: int = 0
    failed: int = 0
    slow: int = 0

    def less(self, other: "Sums") -> "Sums":
        """Return what is left without some of them."""
        return Sums(self.calls - other.calls, self.failed - other.failed, self.slow - other.slow)

    def more(self, calls: int, slow: int) -> "Sums":
        """Return the sums with calls under way."""
        return Sums(self.calls + calls, self.failed, self.slow + slow)


class Breaker:
    """One breaker; `dice` gives a number in [0, 1) for the n-th opening."""

    def __init__(self, rule: BreakerRule, dice: Callable[[int], float]) -> None:
        self.rule = rule
        self.state = BreakerState.CLOSED
        self.retry_at_ms = 0.0
        """When the next trial may be made, while it is open."""
        self.openings = 0
        self._dice = dice
        self._buckets: deque[_Bucket] = deque(maxlen=BUCKETS)
        self.in_a_row = 0
        """Calls that failed since the last one that did not."""
        self._bad = 0
        """Calls of the window that failed or were slow, when it was last looked at, and since."""
        self._failed_trials = 0
        self._trials = 0
        self._trial_since_ms = 0.0

    def admits(self, now_ms: float) -> bool:
        """Tell whether a call may go through now."""
        if self.state is BreakerState.CLOSED:
            return True
        if self.state is BreakerState.OPEN:
            return now_ms >= self.retry_at_ms
        return self._trials == 0 or now_ms >= self.retry_at_ms

    def began(self, now_ms: float) -> None:
        """Note that a call goes through; it must be admitted."""
        if self.state is BreakerState.CLOSED:
            return
        self.state = BreakerState.HALF_OPEN
        self._trials += 1
        self._trial_since_ms = now_ms
        self.retry_at_ms = now_ms + self._pause_ms()

    def ended(self, outcome: Outcome, now_ms: float, *, began_ms: float) -> None:
        """Note how a call ended that began at `began_ms`."""
        if self.state is BreakerState.CLOSED:
            self.count(outcome, now_ms)
            if outcome is not Outcome.NOTHING and (self.fails_in_a_row() or self.fails(now_ms)):
                self.open(now_ms)
        elif self.state is BreakerState.HALF_OPEN and began_ms >= self._trial_since_ms:
            self._trials = 0
            if outcome is Outcome.OK:
                self._close()
            elif outcome is not Outcome.NOTHING:
                self._failed_trials += 1
                self.open(now_ms)

    def overdue(self, calls: int, in_flight: int, now_ms: float) -> None:
        """Note that `calls` of those `in_flight` take longer than what is slow."""
        if self.state is not BreakerState.CLOSED or not calls:
            return
        if self.is_slow(self.sums(now_ms).more(in_flight, calls)):
            self.open(now_ms)

    def count(self, outcome: Outcome, now_ms: float) -> None:
        """Note how a call ended, without drawing a conclusion."""
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
        """Return whether so many calls in a row failed that it should open."""
        return self.in_a_row >= self.rule.failures_in_a_row

    def fails(self, now_ms: float) -> bool:
        """Return whether so large a part of the calls failed or was slow that it should open."""
        if not self._bad:
            return False
        sums = self.sums(now_ms)
        return sums.calls >= self.rule.min_calls and self.is_bad(sums)

    def is_bad(self, sums: Sums) -> bool:
        """Return whether too large a part of some calls failed or was slow."""
        return bool(sums.calls) and (
            sums.failed / sums.calls >= self.rule.failure_rate
            or sums.slow / sums.calls >= self.rule.slow_rate
        )

    def is_slow(self, sums: Sums) -> bool:
        """Return whether too large a part of enough calls was slow."""
        enough = sums.calls >= self.rule.min_calls
        return enough and sums.slow / sums.calls >= self.rule.slow_rate

    def _bucket(self, now_ms: float) -> _Bucket:
        width_ms = self.rule.window_ms / BUCKETS
        if not self._buckets or now_ms - self._buckets[-1].since_ms >= width_ms:
            self._buckets.append(_Bucket(now_ms))
        return self._buckets[-1]

    def sums(self, now_ms: float) -> Sums:
        """Return the calls of the window."""
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
        """Let no call through for a while."""
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
