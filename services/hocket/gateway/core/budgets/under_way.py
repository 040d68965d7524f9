"""The calls in flight of an account, and a total that they are unlikely to exceed together.

What a kind has cost so far is no promise: its caller names the kind and decides how much is written. So
the total also depends on the worst cases of the calls in flight, whatever their history: together with
what was spent, they exceed the budget by at most MOST_OVERRUN of it, besides the call that came last.
Nor is it more than these worst cases together, or calls with a small limit would have to wait because
others of their kind had long answers.

The mean, the variance and the most of their cost are running sums, because in a burst of calls of very
many kinds (each names a node of its own) every call asks for the total of all. A kind whose history has
changed is added up anew when the total is next asked for.
"""

from math import sqrt
from typing import Self

from hocket.gateway.core.budgets.estimate import CostSums, Estimate, Estimator, Part
from hocket.gateway.core.routing.history import Kind

DEVIATIONS = 3.0
"""How many standard deviations above the mean are reserved for parallel calls."""
MOST_OVERRUN = 0.1
"""The share of a budget by which worst cases of calls in flight may exceed what is left of it."""
LEAST_UPDATES = 64
"""After this many changes (or one for each kind, if there are more), all is added up anew, so that
rounding errors do not accumulate."""
_NO_LOAD = CostSums()
_NO_PART = Part()


class UnderWay:
    """Calls in flight by kind, in US dollars."""

    __slots__ = (
        "_mean_usd",
        "_most_usd",
        "_parts",
        "_seen",
        "_updates",
        "_variance",
        "calls",
        "kinds",
        "spent_usd",
        "worst_usd",
    )

    def __init__(self) -> None:
        self.kinds: dict[Kind, CostSums] = {}
        self.calls = 0
        self.worst_usd = 0.0
        """The sum of their worst cases."""
        self.spent_usd = 0.0
        """What the account has spent here when a call last ended."""
        self._parts: dict[Kind, Part] = {}
        """The part of each kind, as it stands in the sums."""
        self._mean_usd = self._variance = self._most_usd = 0.0
        self._seen = self._updates = 0

    def __len__(self) -> int:
        return self.calls

    def copy(self) -> Self:
        """Return the same calls, to which others can be added."""
        other = type(self)()
        other.kinds, other._parts = dict(self.kinds), dict(self._parts)
        other.calls, other.worst_usd = self.calls, self.worst_usd
        other.spent_usd = self.spent_usd
        other._mean_usd, other._variance = self._mean_usd, self._variance
        other._most_usd = self._most_usd
        other._seen, other._updates = self._seen, self._updates
        return other

    def add(self, estimate: Estimate, estimator: Estimator) -> None:
        """Add a call."""
        self._change(estimate, estimator, 1)

    def remove(self, estimate: Estimate, estimator: Estimator) -> None:
        """Remove a call that was added."""
        self._change(estimate, estimator, -1)

    def together_usd(self, estimator: Estimator, one_more: Estimate | None = None) -> float:
        """Return a total that the calls, and perhaps one more, are unlikely to exceed."""
        certain_usd = self._certain_usd(0.0 if one_more is None else one_more.usd)
        return max(self._likely_usd(estimator, one_more), certain_usd)

    def _likely_usd(self, estimator: Estimator, one_more: Estimate | None) -> float:
        """Return what the calls, and perhaps one more, hardly exceed, judging by the history."""
        self._refresh(estimator)
        mean_usd, variance, most_usd = self._mean_usd, self._variance, self._most_usd
        if one_more is not None:
            kind = one_more.kind
            before = self._parts.get(kind, _NO_PART)
            part = estimator.part(kind, self.kinds.get(kind, _NO_LOAD).plus(one_more))
            mean_usd += part.mean_usd - before.mean_usd
            variance += part.variance - before.variance
            most_usd += part.most_usd - before.most_usd
        return min(mean_usd + DEVIATIONS * sqrt(max(variance, 0.0)), most_usd)

    def _certain_usd(self, one_more_usd: float) -> float:
        """Return the least total that keeps to MOST_OVERRUN whatever the calls cost.

        If it fits into what is left of a budget (or of this gateway's claim), then what was spent and
        the worst cases are together at most (1 + MOST_OVERRUN) times that budget. This adds up over
        gateways, because their claims do not exceed the budget.
        """
        worst_usd = self.worst_usd + one_more_usd
        return (worst_usd - MOST_OVERRUN * self.spent_usd) / (1 + MOST_OVERRUN)

    def _change(self, estimate: Estimate, estimator: Estimator, sign: int) -> None:
        self._refresh(estimator)
        kind = estimate.kind
        load = self.kinds.get(kind, _NO_LOAD).plus(estimate, sign)
        self.calls += sign
        self.worst_usd += sign * estimate.worst_usd
        if load.count:
            self.kinds[kind] = load
            self._set(kind, estimator.part(kind, load))
        else:
            self._set(kind, _NO_PART)
            del self.kinds[kind], self._parts[kind]
        if not self.kinds:
            self.worst_usd = self._mean_usd = self._variance = self._most_usd = 0.0

    def _set(self, kind: Kind, part: Part) -> None:
        before = self._parts.get(kind, _NO_PART)
        self._mean_usd += part.mean_usd - before.mean_usd
        self._variance += part.variance - before.variance
        self._most_usd += part.most_usd - before.most_usd
        self._parts[kind] = part
        self._updates += 1

    def _refresh(self, estimator: Estimator) -> None:
        """Add up anew the kinds whose history has changed."""
        changed = estimator.changed_since(self._seen, len(self.kinds))
        self._seen = estimator.changes
        if changed is None or self._updates > max(len(self.kinds), LEAST_UPDATES):
            self._add_up(estimator)
            return
        for kind in changed:
            if kind in self.kinds:
                self._set(kind, estimator.part(kind, self.kinds[kind]))

    def _add_up(self, estimator: Estimator) -> None:
        self._parts = {kind: estimator.part(kind, load) for kind, load in self.kinds.items()}
        self._mean_usd = sum(part.mean_usd for part in self._parts.values())
        self._variance = sum(part.variance for part in self._parts.values())
        self._most_usd = sum(part.most_usd for part in self._parts.values())
        self.worst_usd = sum(load.worst_usd for load in self.kinds.values())
        self._updates = 0
