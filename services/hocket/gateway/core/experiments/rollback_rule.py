"""Whether one arm of an experiment does worse than its control: pure, and careful with few calls.

Every call and every ended run yields yes-or-no results: failed or not, slow or not, succeeded or
not. The rates over the latest of each arm are compared. An arm is bad if the lower end of its
interval is above the upper end of the control's by more than the tolerance. The interval is
Wilson's score interval (E. B. Wilson, 1927), made so wide (3 standard deviations on both sides)
that checking after every call raises no false alarms. A rate above `most` is bad whatever the
control does, so an arm can be judged even while its control has no calls.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt

from hocket.gateway.core.routing.history import Samples

DEVIATIONS = 3.0
CONTROL_WINDOWS = 4
"""How many times longer the control's windows are: it has more calls, and its rate should be stable."""
ENOUGH_LATENCIES = 20
"""Calls of the control needed before its median decides what is slow."""
_TYPICAL = 0.5


@dataclass(frozen=True, slots=True)
class RollbackRule:
    """What is tolerated of an arm: rates of errors, of slow calls and of unsuccessful runs, each
    given as an excess over the control's.

    A call is slow at `slow_factor` times the control's median. The last `window` calls count; no
    verdict is given before `min_calls`.
    """

    min_calls: int = 10
    window: int = 100
    errors: float = 0.02
    slow: float = 0.10
    slow_factor: float = 1.5
    outcomes: float = 0.05
    most: float = 0.5


@dataclass(frozen=True, slots=True)
class Rate:
    """A count of bad results out of a total."""

    bad: int = 0
    of: int = 0

    def __add__(self, other: "Rate") -> "Rate":
        return Rate(self.bad + other.bad, self.of + other.of)

    def interval(self, deviations: float = DEVIATIONS) -> tuple[float, float]:
        """Return the interval that very likely contains the true rate."""
        if not self.of:
            return 0.0, 1.0
        rate, spread = self.bad / self.of, deviations * deviations / self.of
        middle = (rate + spread / 2) / (1 + spread)
        half = deviations * sqrt(rate * (1 - rate) / self.of + spread / (4 * self.of))
        half /= 1 + spread
        return max(middle - half, 0.0), min(middle + half, 1.0)


@dataclass(frozen=True, slots=True)
class Seen:
    """The observed rates of an arm: failed calls, slow calls, unsuccessful runs."""

    errors: Rate = field(default_factory=Rate)
    slow: Rate = field(default_factory=Rate)
    outcomes: Rate = field(default_factory=Rate)

    def __add__(self, other: "Seen") -> "Seen":
        return Seen(
            self.errors + other.errors, self.slow + other.slow, self.outcomes + other.outcomes
        )


@dataclass(frozen=True, slots=True)
class Cause:
    """A kind of fault: its name, which of the rates show it, and in what words."""

    name: str
    rate: Callable[[Seen], Rate]
    tolerated: Callable[[RollbackRule], float]
    words: str

    def fault(self, rule: RollbackRule, found: Rate, usual: Rate) -> str | None:
        """Return a description if one rate is worse than the control's by more than is tolerated."""
        if found.of < rule.min_calls:
            return None
        tolerated = self.tolerated(rule)
        bound = usual.interval()[1] + tolerated
        if self is not SLOW:  # without a control nothing is slow
            bound = min(bound, max(rule.most, tolerated))
        if found.interval()[0] <= bound:
            return None
        return f"{found.bad} of {found.of} {self.words}, of the control's {usual.bad} of {usual.of}"


SLOW = Cause("latency", lambda seen: seen.slow, lambda rule: rule.slow, "calls were slow")
CAUSES = (
    Cause("errors", lambda seen: seen.errors, lambda rule: rule.errors, "calls failed"),
    SLOW,
    Cause(
        "outcome", lambda seen: seen.outcomes, lambda rule: rule.outcomes, "runs did not succeed"
    ),
)


def fault_of(rule: RollbackRule, arm: Seen, control: Seen) -> tuple[str, str] | None:
    """Return what is wrong with an arm (`errors`, `latency` or `outcome`) and a description,
    or None."""
    for cause in CAUSES:
        said = cause.fault(rule, cause.rate(arm), cause.rate(control))
        if said is not None:
            return cause.name, said
    return None


class Window:
    """The latest yes-or-no results, up to a fixed number."""

    __slots__ = ("_bad", "_recent", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._recent: deque[bool] = deque()
        self._bad = 0

    @property
    def rate(self) -> Rate:
        """How many of them are bad."""
        return Rate(self._bad, len(self._recent))

    def resize(self, size: int) -> None:
        """Hold up to another number from now on, and drop the oldest beyond it."""
        self._size = size
        while len(self._recent) > size:
            self._bad -= self._recent.popleft()

    def add(self, bad: bool) -> None:
        """Add one, and drop the oldest if full."""
        if len(self._recent) == self._size:
            self._bad -= self._recent.popleft()
        self._recent.append(bad)
        self._bad += bad


class Tally:
    """What this gateway observed of the calls of one tenant with one arm."""

    def __init__(self, rule: RollbackRule, *, control: bool) -> None:
        size = _window(rule, control)
        self.calls = 0
        self._errors, self._slow, self._outcomes = Window(size), Window(size), Window(size)
        self._latencies = Samples()

    def use(self, rule: RollbackRule, *, control: bool) -> None:
        """Use another rule from now on; the latest results stay."""
        size = _window(rule, control)
        for window in (self._errors, self._slow, self._outcomes):
            window.resize(size)

    @property
    def seen(self) -> Seen:
        """The rates over the latest calls and runs."""
        return Seen(self._errors.rate, self._slow.rate, self._outcomes.rate)

    @property
    def median_ms(self) -> float | None:
        """The median latency of its calls; None if too few are known."""
        known = len(self._latencies) >= ENOUGH_LATENCIES
        return self._latencies.quantile(_TYPICAL) if known else None

    def called(self, *, failed: bool, latency_ms: float, slow_ms: float | None) -> None:
        """Count a call; it is slow from `slow_ms` on (None: unknown)."""
        self.calls += 1
        self._errors.add(failed)
        if failed:
            return
        self._latencies.add(latency_ms)
        if slow_ms is not None:
            self._slow.add(latency_ms >= slow_ms)

    def ended(self, *, succeeded: bool) -> None:
        """Count the end of a run that used the arm."""
        self._outcomes.add(not succeeded)


def _window(rule: RollbackRule, control: bool) -> int:
    """Return how many of the latest results of an arm count."""
    return rule.window * (CONTROL_WINDOWS if control else 1)
