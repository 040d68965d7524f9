"""The expected cost of a call, estimated before it is made.

Without history it is the worst case: the call's size in tokens (4 characters each) plus all the
output it allows (`n` times `max_tokens`), at the replica's prices, so that an untried model cannot
slip past a budget. History corrects this. For each kind of call (tenant, model, pipeline, node), the
ratio of actual cost to a base cost known beforehand (the size, and a modest length of answer) is
kept; a single call is expected to cost its 90th percentile. The total of many calls follows from the
mean and variance of that ratio, after adding one imaginary call at the worst case (`max_tokens`),
whose weight falls the more calls were seen to stay far below it. So reservations are cautious for
the first calls of a kind, and later calls are not kept out by a bound that none of them reaches.
A caller can train this with cheap calls; what that gains is bounded in `under_way.py`.

Whatever the history says, calls are not expected to cost more than their worst cases: a long answer of
the same kind says nothing about calls that allow only a short one. But a worst case is only as right as
the size that was reckoned, and a server may ignore a limit. So where calls of the kind have cost more
than their worst cases, it counts so many times as much as the one that exceeded its own the most.
How many times that is, is kept with the ratios. A gateway of a former release kept the ratios alone:
they do not say how large the worst cases were, so that until enough calls were compared with theirs,
calls side by side may each be as dear as the dearest.

Of a kind without history, a single call is expected to cost what other calls of its model do,
whichever tenant made them, and at most its worst case; several at once count with their worst cases.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import NamedTuple

from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.calls import request_content
from hocket.gateway.core.calls.request_content import WORST_OUTPUT_TOKENS
from hocket.gateway.core.routing.history import History, Kind
from hocket.schemas.messages import CallRequest

USUAL_OUTPUT_TOKENS = 256
"""The length of answer that the base cost assumes."""
EXPECTED_QUANTILE = 0.9
UNSEEN_FACTOR = 2.0
UNSEEN_DOUBT = 64.0
"""The worst case is capped at (2 + 64 / calls seen) times the dearest call seen."""
ENOUGH_COMPARED = 20
"""So many calls tell how those of a kind keep to their worst cases, if more are known of it."""
MAX_CHANGES = 1_024
"""How many of the latest changes of the history are known one by one."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected cost of a call, in US dollars.

    `kind` is that of `cost_kind`, `seen_usd` the base cost that ratios refer to, `worst_usd` the
    worst case, and `usd` the expected cost, which is the worst case if nothing is known of the kind or
    the model.
    """

    kind: Kind
    seen_usd: float
    worst_usd: float
    usd: float


FREE = Estimate(("", "", ""), 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class CostSums:
    """Parallel calls of one kind: their number, and the sums of their base costs, of the squares of
    those, and of their worst cases."""

    count: int = 0
    seen_usd: float = 0.0
    seen_squared: float = 0.0
    worst_usd: float = 0.0

    def plus(self, estimate: Estimate, sign: int = 1) -> "CostSums":
        """Return the sums with one call added (or removed, if `sign` is -1)."""
        return CostSums(
            self.count + sign,
            self.seen_usd + sign * estimate.seen_usd,
            self.seen_squared + sign * estimate.seen_usd**2,
            self.worst_usd + sign * estimate.worst_usd,
        )


class Part(NamedTuple):
    """What parallel calls of a kind cost: the mean, the variance, and the most, in US dollars."""

    mean_usd: float = 0.0
    variance: float = 0.0
    most_usd: float = 0.0


def cost_kind(request: CallRequest, kind: Kind) -> Kind:
    """Return the kind under which the costs of calls are kept: with `tenant/pipeline` as its pipeline,
    so that no tenant's history is another's. Kinds of a whole model name no tenant."""
    model, pipeline, node = kind
    return (model, f"{request.attribution.tenant}/{pipeline}", node)


class Estimator:
    """Ratios of actual cost to base cost, by `cost_kind`.

    `estimate` and `learn` take the kind of a call (model, pipeline, node) and add its tenant.
    """

    def __init__(self) -> None:
        self._ratios: History[Kind] = History()
        self._excess: History[Kind] = History()
        """How many times their worst case calls of a kind have cost, at least 1."""
        self._changed: deque[Kind] = deque(maxlen=MAX_CHANGES)
        self.changes = 0
        """How often the history of a kind has changed."""

    def estimate(self, request: CallRequest, kind: Kind, prices: Iterable[Prices]) -> Estimate:
        """Return the estimate of a call at the highest of the given prices; a long answer may be
        dearest at others than a short one."""
        input_tokens = request_content.tokens(request)
        among = tuple(prices)
        seen_usd = max((_seen_usd(request, input_tokens, one) for one in among), default=0.0)
        if not seen_usd:
            return FREE
        worst_usd = max(_worst_usd(request, input_tokens, one) for one in among)
        return self.now(cost_kind(request, kind), seen_usd, worst_usd)

    def now(self, kind: Kind, seen_usd: float, worst_usd: float) -> Estimate:
        """Return the estimate for a base cost and a worst case, using the history known now. It exceeds
        the worst case only as far as calls of the kind have exceeded theirs, whatever others have cost,
        perhaps of other tenants: a call that is refused for that would never be learned from."""
        ratio = self._ratios.quantile(kind, EXPECTED_QUANTILE)
        if ratio is None:
            ratio = self._ratios.quantile(_model_of(kind), EXPECTED_QUANTILE)
        most_usd = worst_usd * (self._excess.quantile(kind, 1.0) or 1.0)
        usd = most_usd if ratio is None else min(seen_usd * ratio, most_usd)
        return Estimate(kind, seen_usd, worst_usd, usd)

    def part(self, kind: Kind, load: CostSums) -> Part:
        """Return what parallel calls of a kind cost."""
        if load.seen_usd <= 0:
            return Part()
        mean, squares = self._ratio(kind, load.worst_usd / load.seen_usd)
        of_one = max(squares - mean * mean, 0.0)
        of_mean = of_one / max(self._ratios.count(kind), 1)
        variance = of_one * load.seen_squared + of_mean * load.seen_usd**2
        most_usd = self._most_usd(kind, load.seen_usd, load.worst_usd)
        return Part(mean * load.seen_usd, variance, most_usd)

    def changed_since(self, changes: int, most: int) -> Iterable[Kind] | None:
        """Return the kinds whose history changed after the first `changes` changes; None if these are
        more than `most`, or too long ago."""
        new = self.changes - changes
        if new > min(most, len(self._changed)):
            return None
        return islice(reversed(self._changed), new)

    def learn(self, request: CallRequest, kind: Kind, prices: Prices, cost_usd: Decimal) -> None:
        """Learn from the cost of a successful call at the prices it used."""
        input_tokens = request_content.tokens(request)
        seen_usd = _seen_usd(request, input_tokens, prices)
        if seen_usd:
            ratio = float(cost_usd) / seen_usd
            excess = float(cost_usd) / _worst_usd(request, input_tokens, prices)
            self._ratios.add(cost_kind(request, kind), ratio)
            self._ratios.add(_model_of(kind), ratio)
            self._excess.add(cost_kind(request, kind), max(excess, 1.0))
            self._note(cost_kind(request, kind))

    def count(self, kind: Kind) -> int:
        """Return how many calls of a kind were learned from."""
        return self._ratios.count(kind)

    def kept(self, kind: Kind) -> dict[str, list[float]]:
        """Return the history of a kind, for `restore`."""
        return {"ratios": self._ratios.values(kind), "excess": self._excess.values(kind)}

    def restore(self, kind: Kind, kept: Mapping[str, Sequence[float]]) -> None:
        """Add the history that `kept` returned for a kind."""
        for ratio in kept["ratios"]:
            self._ratios.add(kind, ratio)
        for excess in kept.get("excess", ()):
            self._excess.add(kind, max(excess, 1.0))
        self._note(kind)

    def _note(self, kind: Kind) -> None:
        self._changed.append(kind)
        self.changes += 1

    def _most_usd(self, kind: Kind, seen_usd: float, worst_usd: float) -> float:
        """Return the most that parallel calls of a kind cost, judging by how such calls have kept to
        their worst cases. While too few of those known were compared with theirs, each may be as dear as
        the dearest; a single call gets its turn nevertheless, and is learned from."""
        most_usd = worst_usd * (self._excess.quantile(kind, 1.0) or 1.0)
        if self._excess.count(kind) >= min(ENOUGH_COMPARED, self._ratios.count(kind)):
            return most_usd
        dearest = self._ratios.quantile(kind, 1.0) or 0.0
        return max(most_usd, seen_usd * dearest)

    def _ratio(self, kind: Kind, worst: float) -> tuple[float, float]:
        """Return the mean and mean square of the ratio, counting one call at the worst case among
        those seen of the kind; calls of its model do not count, because they may be other tenants'."""
        seen, dearest = self._ratios.spread(kind), self._ratios.quantile(kind, 1.0)
        if seen is None or dearest is None:
            return worst, worst * worst
        count = self._ratios.count(kind)
        worst = min(worst, dearest * (UNSEEN_FACTOR + UNSEEN_DOUBT / count))
        share = 1 / (count + 1)
        mean, squares = seen
        return (1 - share) * mean + share * worst, (1 - share) * squares + share * worst * worst


def _seen_usd(request: CallRequest, input_tokens: int, prices: Prices) -> float:
    if request_content.embeds(request):
        return _usd(prices, input_tokens, 0)
    usual = request_content.usual_tokens(request, USUAL_OUTPUT_TOKENS)
    return _usd(prices, input_tokens, request_content.choices(request) * usual)


def _worst_usd(request: CallRequest, input_tokens: int, prices: Prices) -> float:
    most = request_content.answer_tokens(request, WORST_OUTPUT_TOKENS)
    worst = request_content.choices(request) * most
    more = max((prices.cache_write_usd_per_mtok or 0) - (prices.input_usd_per_mtok or 0), 0)
    written_usd = input_tokens * float(more) / 1e6
    return _usd(prices, input_tokens, 0 if request_content.embeds(request) else worst) + written_usd


def _usd(prices: Prices, input_tokens: int, output_tokens: int) -> float:
    """Return the approximate cost of tokens; floats, because an estimate need not be exact and
    decimals are slow."""
    million = input_tokens * float(prices.input_usd_per_mtok or 0)
    million += output_tokens * float(prices.output_usd_per_mtok or 0)
    return million / 1e6 + float(prices.request_usd or 0)


def _model_of(kind: Kind) -> Kind:
    return (kind[0], "", "")
