"""Budgets as a tree: each call spends from the budgets of its run, pipeline, labels and tenant at
once.

Before a call, its expected cost is reserved in each of them; afterwards its actual cost is settled,
or the reservation is released. A request for a reservation has three possible answers:

- *granted*: the call fits by itself, or together with the calls in flight, counted at a total
  that they are very unlikely to exceed;
- *wait*: it does not fit now, but may once calls in flight turn out cheaper than reserved;
- *refused*: it does not fit beside what is already spent, so waiting would not help.

If several gateways spend from one account (`shared_account.py`), what the others have spent counts
as spent, and what they claim beyond that as in flight. Each gateway spends only within its own
claim.

What was spent besides the gateways (what tools charged, what sub-runs spent) is known in two ways: the
ledger says it, and callers say what was spent in all. From the latter follows how much others had spent
at least, gateways or not, when that was said: it is all that this gateway has not spent itself.

Parallel calls therefore overrun a budget by little more than the estimation error of one call, and
a reservation never blocks others for good: near the end of a budget, calls run one at a time. The
assumed cost of calls in flight is looked up again each time, so a wrong guess is corrected as soon
as the first of them end. A call whose kind has no history is assumed to cost its worst case.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal

from hocket.gateway.core.budgets.estimate import Estimate, Estimator
from hocket.gateway.core.budgets.run_accounts import MAX_RUN_ACCOUNTS, RunAccounts
from hocket.gateway.core.budgets.shared_account import Line, SharedAccount
from hocket.gateway.core.budgets.under_way import UnderWay
from hocket.gateway.core.errors import BudgetsFull

MAX_PERIOD_ACCOUNTS = 50_000
"""The most accounts of tenants, pipelines and labels kept in memory. One may be forgotten once its
period is over, or if nothing was spent from it; if every account still matters, a new one is
refused."""
MAX_PIPELINE_ACCOUNTS = 1_000
"""How many of them may belong to one tenant's pipelines and labels, so that no tenant can use up
the room of others by inventing names."""
MAX_LOOKED_AT = 64
"""How many accounts are examined to make room for a new one."""

Level = Literal["tenant", "label", "pipeline", "run"]
Period = Literal["hour", "day", "month"]
_Key = tuple[Level, str, float]
_EPSILON_USD = 1e-12
_NOTHING = Decimal(0)
_NO_LINE = Line(_NOTHING, _NOTHING)


class Answer(StrEnum):
    """The answer to a request for a reservation."""

    GRANTED = "granted"
    WAIT = "wait"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Budget:
    """A spending limit: for a run as a whole, for other levels per hour, day or month (UTC)."""

    level: Level
    name: str
    usd: Decimal
    per: Period | None = None
    tenant: str = ""
    is_shared: bool = True
    """Whether calls at other gateways may spend from it, too."""


@dataclass(frozen=True, slots=True)
class Published:
    """An account as stored in the gateways' bucket, and this gateway's line in it."""

    revision: int
    shared: SharedAccount
    line: Line | None = None


@dataclass(slots=True)
class Account:
    """What was spent from a budget in one period, and what is in flight by kind of call.

    Covers this gateway and, if the account is shared, the others.
    """

    budget: Budget
    """With the largest limit of the calls that use it: those of one run may have different ones."""
    until_ms: float | None = None
    since_ms: float = 0.0
    spent_usd: Decimal = _NOTHING
    beside_usd: Decimal = _NOTHING
    """What callers know to be spent besides this gateway's own spending: by others at least, whoever
    they are."""
    booked_usd: Decimal = _NOTHING
    """How much of `beside_usd` is known to the other gateways, too."""
    under_way: UnderWay = field(default_factory=UnderWay)
    claim_usd: Decimal | None = None
    """What this gateway may spend in total; None if the account is not shared."""
    alone_until_ms: float = 0.0
    """No attempt to share the account is made until then, because the bucket is full."""
    published: Published | None = None
    others: Line = _NO_LINE
    metered_usd: Decimal | None = None
    """What the ledger had recorded at `metered_at_ms`, if it was asked."""
    metered_at_ms: float | None = None
    is_unknown: bool = False
    """Whether the account began here without anybody knowing what had been spent before."""
    tools_usd: Decimal = _NOTHING
    """What tools had charged at `tools_at_ms`, according to the ledger."""
    tools_at_ms: float | None = None
    metering_ms: float = 0.0
    """How long the ledger took then."""
    is_told: bool = False
    """Whether the ledger has ever told what was spent from it."""

    def counts(self, now_ms: float) -> bool:
        """Whether forgetting the account would allow money to be spent twice."""
        over = self.until_ms is not None and self.until_ms <= now_ms
        return bool(self.under_way) or (self.spent_in_all_usd > 0 and not over)

    @property
    def spent_in_all_usd(self) -> Decimal:
        """What all gateways and tools have spent."""
        return self.spent_usd + max(self.others.spent_usd, self.beside_usd)

    def left_usd(self, limit_usd: Decimal) -> Decimal:
        """What is not yet spent of a limit, ignoring reservations."""
        return max(limit_usd - self.spent_in_all_usd, _NOTHING)

    def unclaimed_usd(self, limit_usd: Decimal) -> Decimal:
        """What is left of a limit besides the claims of the other gateways."""
        return limit_usd - self.spent_usd - max(self.others.claim_usd, self.beside_usd)

    def know(self, spent_usd: Decimal) -> None:
        """Take note of a total that a caller knows to be spent. What this gateway has spent by now was
        perhaps not all in it."""
        self.beside_usd = max(self.beside_usd, spent_usd - self.spent_usd)


Held = tuple[Account, Budget]
"""An account, and the limit that one call has of it."""


@dataclass(frozen=True, slots=True)
class BudgetDecision:
    """The answer and, if it is not *granted*, the account that prevents it, and the call's own limit of
    it."""

    answer: Answer
    account: Account | None = None
    budget: Budget | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a call in flight has reserved, and in which accounts."""

    accounts: tuple[Account, ...]
    estimate: Estimate


class Budgets:
    """The accounts of one gateway."""

    def __init__(
        self,
        estimator: Estimator,
        *,
        max_run_accounts: int = MAX_RUN_ACCOUNTS,
        max_period_accounts: int = MAX_PERIOD_ACCOUNTS,
        max_pipeline_accounts: int = MAX_PIPELINE_ACCOUNTS,
    ) -> None:
        self.strict = False
        """Whether calls in flight are counted at their worst case. No budget is then overrun by
        more than the error of one estimate, but few calls run in parallel."""
        self._estimator = estimator
        self._runs: RunAccounts[Account] = RunAccounts(max_run_accounts)
        self._periods: OrderedDict[_Key, Account] = OrderedDict()
        self._max_period_accounts = max_period_accounts
        self._pipelines: dict[str, OrderedDict[_Key, None]] = {}
        """The accounts of pipelines and labels, by tenant."""
        self._max_pipeline_accounts = max_pipeline_accounts

    def __len__(self) -> int:
        return len(self._periods) + len(self._runs)

    def account(
        self, budget: Budget, now_ms: float, known_spent_usd: Decimal = _NOTHING
    ) -> Account:
        """Return the account of a budget for the current period.

        `known_spent_usd` is what the caller knows to be spent from it. Raises BudgetsFull.
        """
        since_ms, until_ms = _period(budget.per, now_ms)
        if budget.level == "run":
            account = self._runs.of(budget.tenant, budget.name, lambda: Account(budget))
        else:
            account = self._of_period(budget, since_ms, until_ms, now_ms)
        if budget.level != "run" or budget.usd > account.budget.usd or not account.under_way:
            account.budget = budget
        account.know(known_spent_usd)
        return account

    def ask(self, held: Sequence[Held], estimate: Estimate) -> BudgetDecision:
        """Answer a request for a reservation in accounts, each within the call's own limit, without
        reserving anything."""
        waits: Held | None = None
        for account, budget in held:
            spent_in_all_usd = account.spent_in_all_usd
            if not _fits(estimate.usd, budget.usd - spent_in_all_usd):
                return BudgetDecision(Answer.REFUSED, account, budget)
            if waits is None and not self._fits_beside(account, estimate, budget.usd):
                waits = account, budget
        return BudgetDecision(Answer.WAIT, *waits) if waits else BudgetDecision(Answer.GRANTED)

    def covers(self, account: Account, estimate: Estimate) -> bool:
        """Tell whether this gateway's claim on an account suffices for one more call."""
        if account.claim_usd is None or not estimate.usd:
            return True
        needed_usd = self._together_usd(account.under_way, estimate)
        return _fits(needed_usd, account.claim_usd - account.spent_usd)

    def claimable_usd(self, account: Account, wishes: Iterable[Estimate]) -> Decimal:
        """Return how much of an account this gateway should claim.

        That is what it has spent, what is in flight, and what the `wishes` need, in order, as far
        as they fit beside the claims of others.
        """
        loads = account.under_way.copy()
        free_usd = account.unclaimed_usd(account.budget.usd)
        usd = self._sum_usd(loads)
        for wish in wishes:
            more_usd = self._together_usd(loads, wish)
            if not _fits(more_usd, free_usd):
                break
            loads.add(wish, self._estimator)
            usd = max(usd, more_usd)
        return account.spent_usd + (Decimal(f"{usd + _EPSILON_USD:.13f}") if usd else _NOTHING)

    def reserve(self, accounts: Sequence[Account], estimate: Estimate) -> Reservation:
        """Reserve the estimate of a granted call."""
        for account in accounts:
            account.under_way.add(estimate, self._estimator)
        return Reservation(tuple(accounts), estimate)

    def settle(self, reservation: Reservation, cost_usd: Decimal) -> None:
        """End a reservation with the actual cost of the call, 0 if it was not made."""
        for account in reservation.accounts:
            account.under_way.remove(reservation.estimate, self._estimator)
            account.spent_usd += cost_usd
            account.under_way.spent_usd = float(account.spent_usd)

    def _fits_beside(self, account: Account, estimate: Estimate, limit_usd: Decimal) -> bool:
        return not estimate.usd or _fits(
            self._together_usd(account.under_way, estimate), account.unclaimed_usd(limit_usd)
        )

    def _together_usd(self, loads: UnderWay, estimate: Estimate) -> float:
        """Return the assumed cost of a call together with those in flight; if there are none,
        its expected cost."""
        if not loads:
            return estimate.usd
        if self.strict:
            return loads.worst_usd + estimate.usd
        return loads.together_usd(self._estimator, estimate)

    def _sum_usd(self, loads: UnderWay) -> float:
        """Return the assumed total cost of calls; for a single one, its expected cost."""
        if loads.calls == 1:
            ((kind, load),) = loads.kinds.items()
            return self._estimator.now(kind, load.seen_usd, load.worst_usd).usd
        return loads.worst_usd if self.strict else loads.together_usd(self._estimator)

    def _of_period(
        self, budget: Budget, since_ms: float, until_ms: float | None, now_ms: float
    ) -> Account:
        key = (budget.level, budget.name, since_ms)
        named = budget.level in ("pipeline", "label")
        account = self._periods.get(key)
        if account is None:
            pipelines = self._pipelines.get(budget.tenant, OrderedDict())
            if named and len(pipelines) >= self._max_pipeline_accounts:
                self._forget(pipelines, now_ms, self._max_pipeline_accounts)
            if len(self._periods) >= self._max_period_accounts:
                self._forget(self._periods, now_ms, self._max_period_accounts)
            account = self._periods[key] = Account(budget, until_ms, since_ms)
            if named:
                self._pipelines.setdefault(budget.tenant, OrderedDict())[key] = None
        self._periods.move_to_end(key)
        if named:
            self._pipelines[budget.tenant].move_to_end(key)
        return account

    def _forget(self, among: OrderedDict[_Key, Any], now_ms: float, limit: int) -> None:
        """Forget the least recently used account that no longer matters; raise BudgetsFull if none
        is found.

        Accounts that still matter are moved to the end, to be examined again much later.
        """
        for _ in range(min(MAX_LOOKED_AT, len(among))):
            key = next(iter(among))
            account = self._periods[key]
            if not account.counts(now_ms):
                del self._periods[key]
                pipelines = self._pipelines.get(account.budget.tenant, OrderedDict())
                pipelines.pop(key, None)
                if not pipelines:
                    self._pipelines.pop(account.budget.tenant, None)
                return
            among.move_to_end(key)
        raise BudgetsFull(limit=limit, component="gateway")


def _fits(usd: float, free_usd: Decimal) -> bool:
    return not usd or usd <= float(free_usd) + _EPSILON_USD


def _period(per: Period | None, now_ms: float) -> tuple[float, float | None]:
    """Return the start and end (ms) of the calendar period (UTC) that `now_ms` falls into."""
    if per is None:
        return 0.0, None
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    start = now.replace(minute=0, second=0, microsecond=0)
    if per == "hour":
        end = start + timedelta(hours=1)
    elif per == "day":
        start = start.replace(hour=0)
        end = start + timedelta(days=1)
    else:
        start = start.replace(hour=0, day=1)
        end = (start + timedelta(days=32)).replace(day=1)
    return start.timestamp() * 1000, end.timestamp() * 1000
