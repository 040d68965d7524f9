"""Spending: a call's expected cost is reserved in its budgets before it is made, and settled afterwards.

A call that does not fit waits until a call under way has settled (the least time left goes first), and
gets a typed error where waiting is in vain. Every reservation is ended by its call, whatever becomes of
it, so that those who wait are always looked at again. States of a waiting call: waiting, granted,
refused, out of time. What was spent is remembered by this gateway; of a run it also learns what the
coordinator knew to be spent.
"""

import asyncio
import bisect
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal

from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.budgets.budget import Account, Answer, BudgetDecision, Budgets, Reservation
from hocket.gateway.core.budgets.budget_rules import BudgetRules
from hocket.gateway.core.budgets.estimate import Estimate, Estimator
from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.errors import BudgetExceeded, BudgetsFull, ModelUnpriced
from hocket.gateway.core.routing.history import Kind
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import CallRequest

NOT_SPENT = Decimal(0)


@dataclass(eq=False, slots=True)
class _Waiter:
    deadline_at_ms: float
    order: int
    accounts: tuple[Account, ...]
    estimate: Estimate
    granted: "asyncio.Future[Reservation]"

    def __lt__(self, other: "_Waiter") -> bool:
        return (self.deadline_at_ms, self.order) < (other.deadline_at_ms, other.order)


class Spending:
    """Reserves and settles, by the rules of the moment."""

    def __init__(self, rules: BudgetRules, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._estimator = Estimator()
        self._budgets = Budgets(self._estimator)
        self._waiting: list[_Waiter] = []
        self._arrivals = itertools.count()
        self.use(rules)

    def use(self, rules: BudgetRules) -> None:
        """Go by other rules from now on; what was spent stays spent."""
        self.rules = rules
        self._budgets.strict = rules.reserve == "worst"

    @property
    def waiting(self) -> int:
        """Calls that wait for money."""
        return len(self._waiting)

    async def reserve(
        self,
        request: CallRequest,
        kind: Kind,
        prices: Iterable[Prices],
        cancellation: Cancellation,
    ) -> Reservation | None:
        """Reserve what a call is expected to cost at the dearest of some prices; None where no budget
        holds. Raises BudgetExceeded, ModelUnpriced and CallStopped."""
        budgets = self.rules.budgets_of(request)
        if not budgets:
            return None
        prices = tuple(prices)
        if self.rules.unpriced == "refuse" and not all(one.priced for one in prices):
            raise ModelUnpriced(model=request.model, component="gateway")
        now_ms = self._now_ms()
        accounts = tuple(
            self._budgets.account(
                budget, now_ms, _known_spent_usd(request) if budget.level == "run" else NOT_SPENT
            )
            for budget in budgets
        )
        estimate = self._estimator.estimate(request, kind, prices)
        verdict = self._budgets.ask(accounts, estimate)
        if verdict.answer is Answer.GRANTED:
            return self._budgets.reserve(accounts, estimate)
        if verdict.answer is Answer.REFUSED:
            raise _exceeded(verdict, estimate)
        return await self._wait(request, accounts, estimate, cancellation)

    def learn(self, request: CallRequest, kind: Kind, prices: Prices, cost_usd: Decimal) -> None:
        """Take in what a successful call cost."""
        self._estimator.learn(request, kind, prices, cost_usd)

    def settle(self, reservation: Reservation | None, cost_usd: Decimal) -> None:
        """End a reservation with what the call cost, and look at those who wait."""
        if reservation is None:
            return
        self._budgets.settle(reservation, cost_usd)
        if self._waiting:
            self._look_again(set(map(id, reservation.accounts)))

    def left_usd(self, request: CallRequest) -> Decimal | None:
        """Return what is left of the tightest budget of a call, None where none holds."""
        now_ms = self._now_ms()
        try:
            accounts = [
                self._budgets.account(budget, now_ms) for budget in self.rules.budgets_of(request)
            ]
        except BudgetsFull:
            return None
        return min((account.left_usd for account in accounts), default=None)

    async def _wait(
        self,
        request: CallRequest,
        accounts: tuple[Account, ...],
        estimate: Estimate,
        cancellation: Cancellation,
    ) -> Reservation:
        loop = asyncio.get_running_loop()
        waiter = _Waiter(
            request.deadline_at_ms,
            next(self._arrivals),
            accounts,
            estimate,
            loop.create_future(),
        )
        bisect.insort(self._waiting, waiter)
        left_ms = request.deadline_at_ms - self._now_ms()
        timer = loop.call_later(max(left_ms, 0.0) / 1000, self._late, waiter)
        try:
            reservation = await cancellation.guard(waiter.granted)
            cancellation.check()
        except BaseException:
            granted = waiter.granted
            if granted.done() and not granted.cancelled() and not granted.exception():
                self.settle(granted.result(), NOT_SPENT)
            raise
        finally:
            timer.cancel()
            if waiter in self._waiting:
                self._waiting.remove(waiter)
        return reservation

    def _late(self, waiter: _Waiter) -> None:
        verdict = self._budgets.ask(waiter.accounts, waiter.estimate)
        self._end(waiter, _exceeded(verdict, waiter.estimate))

    def _look_again(self, touched: set[int]) -> None:
        """Ask again for those who wait for accounts that a call has settled in, until the next in line
        of each still has to wait."""
        blocked: set[int] = set()
        for waiter in tuple(self._waiting):
            accounts = set(map(id, waiter.accounts))
            if not touched & accounts or blocked & accounts or waiter.granted.done():
                continue
            before = waiter.estimate
            waiter.estimate = self._estimator.now(before.kind, before.seen_usd, before.worst_usd)
            verdict = self._budgets.ask(waiter.accounts, waiter.estimate)
            if verdict.answer is Answer.GRANTED:
                self._waiting.remove(waiter)
                waiter.granted.set_result(self._budgets.reserve(waiter.accounts, waiter.estimate))
            elif verdict.answer is Answer.REFUSED:
                self._end(waiter, _exceeded(verdict, waiter.estimate))
            else:
                blocked.add(id(verdict.account))
                if touched <= blocked:
                    return

    def _end(self, waiter: _Waiter, error: HocketError) -> None:
        self._waiting.remove(waiter)
        if not waiter.granted.done():
            waiter.granted.set_exception(error)


def _known_spent_usd(request: CallRequest) -> Decimal:
    """Return what the caller knows to be spent of its run's budget."""
    if request.budget_usd is None or request.budget_left_usd is None:
        return NOT_SPENT
    return max(request.budget_usd - request.budget_left_usd, NOT_SPENT)


def _exceeded(verdict: BudgetDecision, estimate: Estimate) -> BudgetExceeded:
    account = verdict.account
    assert account is not None
    budget = account.budget
    return BudgetExceeded(
        level=budget.level,
        name=budget.name,
        limit_usd=str(budget.usd),
        expected_usd=f"{estimate.usd:.6g}",
        budget_left_usd=str(account.left_usd),
        component="gateway",
        state="reserved" if verdict.answer is Answer.WAIT else "spent",
        retry_at_ms=account.until_ms,
    )
