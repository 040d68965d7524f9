"""Reservations: a call's expected cost is reserved in its accounts before it is made, and settled
afterwards.

A call that does not fit waits until a call in flight has settled (the earliest deadline is served
first), and gets a typed error if waiting is useless. Every reservation is ended by its call,
whatever the outcome, so waiting calls are always looked at again. States of a waiting call:
waiting, granted, refused, out of time. Because accounts are shared with the other gateways
(`account_sync.py`), a call also waits until this gateway's claim covers it.
"""

import asyncio
import bisect
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal

from hocket.gateway.accounting.account_sync import POLL_S, AccountSync
from hocket.gateway.accounting.shared_budgets import SharedBudgets
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.budgets.budget import (
    Account,
    Answer,
    BudgetDecision,
    Budgets,
    Held,
    Reservation,
)
from hocket.gateway.core.budgets.estimate import Estimate, Estimator
from hocket.gateway.core.errors import BudgetExceeded, DeadlinePassed
from hocket.schemas.errors import HocketError

NOT_SPENT = Decimal(0)
AGAIN_MS = 1_000.0
"""After this time a call may be sent again that waited in vain for calls in progress."""


@dataclass(eq=False, slots=True)
class _Waiter:
    deadline_at_ms: float
    order: int
    held: tuple[Held, ...]
    estimate: Estimate
    granted: "asyncio.Future[Reservation]"

    @property
    def accounts(self) -> tuple[Account, ...]:
        return _accounts_of(self.held)

    def __lt__(self, other: "_Waiter") -> bool:
        return (self.deadline_at_ms, self.order) < (other.deadline_at_ms, other.order)


class Reservations:
    """The reservations of a gateway, and the calls waiting for one."""

    def __init__(
        self,
        budgets: Budgets,
        estimator: Estimator,
        now_ms: Callable[[], float],
        shared: SharedBudgets | None,
    ) -> None:
        self._budgets = budgets
        self._estimator = estimator
        self._now_ms = now_ms
        self._sync: AccountSync | None = None
        if shared is not None:
            self._sync = AccountSync(shared, budgets, now_ms, self._wishes, self._changed)
        self._waiting: list[_Waiter] = []
        self._arrivals = itertools.count()

    @property
    def waiting(self) -> int:
        """The number of calls waiting for budget."""
        return len(self._waiting)

    async def adopt(self, account: Account, *, metered: bool) -> None:
        """Share an account with the other gateways, if accounts are shared and this one can be."""
        if self._sync is not None and account.budget.is_shared:
            await self._sync.adopt(account, metered=metered)

    async def reserve(
        self,
        held: tuple[Held, ...],
        estimate: Estimate,
        deadline_at_ms: float,
        cancellation: Cancellation,
    ) -> Reservation:
        """Reserve the expected cost of a call in accounts, within its limits of them. Raises
        BudgetExceeded and CallStopped."""
        accounts = _accounts_of(held)
        verdict = self._budgets.ask(held, estimate)
        if verdict.answer is Answer.GRANTED and self._is_covered(accounts, estimate):
            return self._budgets.reserve(accounts, estimate)
        if verdict.answer is Answer.REFUSED:
            raise _exceeded(verdict, estimate, self._now_ms())
        return await self._wait(held, estimate, deadline_at_ms, cancellation)

    def settle(self, reservation: Reservation, cost_usd: Decimal) -> None:
        """End a reservation with the actual cost of its call, and look at the waiting calls."""
        self._budgets.settle(reservation, cost_usd)
        if self._waiting:
            self._look_again(set(map(id, reservation.accounts)))
        if self._sync is not None:
            for account in reservation.accounts:
                self._sync.later(account)

    async def close(self, timeout_s: float) -> None:
        """Release to the other gateways what this one no longer needs, within `timeout_s`."""
        if self._sync is not None:
            await self._sync.close(timeout_s)

    async def _wait(
        self,
        held: tuple[Held, ...],
        estimate: Estimate,
        deadline_at_ms: float,
        cancellation: Cancellation,
    ) -> Reservation:
        cancellation.check()
        loop = asyncio.get_running_loop()
        waiter = _Waiter(deadline_at_ms, next(self._arrivals), held, estimate, loop.create_future())
        bisect.insort(self._waiting, waiter)
        if self._sync is not None:
            self._ask_for_more(waiter)
        left_ms = deadline_at_ms - self._now_ms()
        timer = loop.call_later(max(left_ms, 0.0) / 1000, self._late, waiter)
        try:
            reservation = await cancellation.guard(waiter.granted)
            cancellation.check()
        except BaseException:
            granted = waiter.granted
            if granted.done() and not granted.cancelled() and not granted.exception():
                self.settle(granted.result(), NOT_SPENT)
            elif self._sync is not None:  # give back what was claimed for it
                for account in waiter.accounts:
                    self._sync.later(account)
            raise
        finally:
            timer.cancel()
            if waiter in self._waiting:
                self._waiting.remove(waiter)
        return reservation

    def _late(self, waiter: _Waiter) -> None:
        """End the waiting of a call whose time is up; its budgets may have room, but no claim yet."""
        if waiter.granted.done():
            return
        verdict = self._budgets.ask(waiter.held, waiter.estimate)
        if verdict.account is None:
            late_ms = max(round(self._now_ms() - waiter.deadline_at_ms), 0)
            self._end(waiter, DeadlinePassed(late_ms=late_ms, component="gateway"))
        else:
            self._end(waiter, _exceeded(verdict, waiter.estimate, self._now_ms()))

    def _look_again(self, touched: set[int]) -> None:
        """Ask again for calls waiting for the touched accounts, in order.

        It stops once the next call in line for each of these accounts still has to wait.
        """
        blocked: set[int] = set()
        for waiter in tuple(self._waiting):
            accounts = set(map(id, waiter.accounts))
            if not touched & accounts or blocked & accounts or waiter.granted.done():
                continue
            before = waiter.estimate
            waiter.estimate = self._estimator.now(before.kind, before.seen_usd, before.worst_usd)
            verdict = self._budgets.ask(waiter.held, waiter.estimate)
            if verdict.answer is Answer.REFUSED:
                self._end(waiter, _exceeded(verdict, waiter.estimate, self._now_ms()))
                continue
            short = [
                one for one in waiter.accounts if not self._budgets.covers(one, waiter.estimate)
            ]
            if verdict.answer is Answer.GRANTED and not short:
                self._waiting.remove(waiter)
                waiter.granted.set_result(self._budgets.reserve(waiter.accounts, waiter.estimate))
                continue
            blocked |= {id(one) for one in (verdict.account, *short) if one is not None}
            self._ask_for_more(waiter)
            if touched <= blocked:
                return

    def _is_covered(self, accounts: tuple[Account, ...], estimate: Estimate) -> bool:
        return all(self._budgets.covers(account, estimate) for account in accounts)

    def _ask_for_more(self, waiter: _Waiter) -> None:
        """Claim what a waiting call needs, or read what other gateways still claim."""
        if self._sync is None:
            return
        for account in waiter.accounts:
            if account.others.claim_usd > account.others.spent_usd:
                self._sync.later(account, POLL_S, read=True)
            if not self._budgets.covers(account, waiter.estimate):
                self._sync.need(account)

    def _wishes(self, account: Account) -> Iterable[Estimate]:
        """Return the estimates of the calls waiting for an account, in order."""
        return [
            waiter.estimate
            for waiter in self._waiting
            if any(one is account for one in waiter.accounts)
        ]

    def _changed(self, account: Account) -> None:
        """Look at the calls waiting for an account that was written or read."""
        self._look_again({id(account)})

    def _end(self, waiter: _Waiter, error: HocketError) -> None:
        self._waiting.remove(waiter)
        if not waiter.granted.done():
            waiter.granted.set_exception(error)


def _exceeded(verdict: BudgetDecision, estimate: Estimate, now_ms: float) -> BudgetExceeded:
    account, budget = verdict.account, verdict.budget
    assert account is not None
    assert budget is not None
    is_reserved = verdict.answer is Answer.WAIT
    return BudgetExceeded(
        level=budget.level,
        name=budget.name,
        limit_usd=str(budget.usd),
        expected_usd=f"{estimate.usd:.6g}",
        by_length=estimate.worst_usd > estimate.seen_usd,
        budget_left_usd=str(account.left_usd(budget.usd)),
        component="gateway",
        state="reserved" if is_reserved else "spent",
        retry_at_ms=now_ms + AGAIN_MS if is_reserved else account.until_ms,
    )


def _accounts_of(held: Iterable[Held]) -> tuple[Account, ...]:
    return tuple(account for account, _ in held)
