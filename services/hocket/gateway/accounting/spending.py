"""Spending: which budgets apply to a call, and what it is expected to cost.

The expected cost is reserved before the call and settled afterwards (`reservations.py`). A call
over HTTP that names a Hocket run spends from that run's budget.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from decimal import Decimal

from hocket.gateway.accounting.cost_history import CostHistory
from hocket.gateway.accounting.reservations import NOT_SPENT, Reservations
from hocket.gateway.accounting.run_budgets import RunBudgets, run_budget_unknown
from hocket.gateway.accounting.shared_budgets import SharedBudgets
from hocket.gateway.accounting.spent_before import is_of_ours
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.budgets import decode_speed, named_run
from hocket.gateway.core.budgets.budget import Account, Budget, Budgets, Held, Reservation
from hocket.gateway.core.budgets.budget_rules import BudgetRules
from hocket.gateway.core.budgets.decode_speed import DecodeSpeeds
from hocket.gateway.core.budgets.estimate import Estimator, cost_kind
from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.errors import BudgetsFull, ModelUnpriced
from hocket.gateway.core.routing.history import Kind
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas.messages import BudgetRule, CallRequest


class Spending:
    """Reserves and settles the cost of calls by the current rules.

    `replaced` is called with the tenant and the id of a run that was found to be another than before.
    """

    def __init__(
        self,
        rules: BudgetRules,
        now_ms: Callable[[], float],
        shared: SharedBudgets | None = None,
        replaced: Callable[[str, str], None] = lambda tenant, run_id: None,
    ) -> None:
        self._now_ms = now_ms
        self._is_shared = shared is not None
        self._estimator = Estimator()
        self._budgets = Budgets(self._estimator)
        self.runs = RunBudgets(None if shared is None else shared.ledger, now_ms, replaced)
        self._reservations = Reservations(self._budgets, self._estimator, now_ms, shared)
        self.speeds = DecodeSpeeds()
        self._history: CostHistory | None = None
        self._speed_history: CostHistory | None = None
        self._recalling: set[asyncio.Task[None]] = set()
        if shared is not None:
            self._history = CostHistory(shared.store, self._estimator)
            self._speed_history = CostHistory(shared.store, self.speeds, "speeds")
        self.use(rules)

    def use(self, rules: BudgetRules) -> None:
        """Use other rules from now on; amounts already spent remain."""
        self.rules = rules
        self.is_strict = self._budgets.strict = rules.reserve == "worst"

    def told(self) -> tuple[BudgetRule, ...]:
        """Return the configured budgets, for display."""
        return self.rules.told()

    @property
    def waiting(self) -> int:
        """The number of calls waiting for budget."""
        return self._reservations.waiting

    async def reserve(
        self,
        request: CallRequest,
        kind: Kind,
        prices: Iterable[Prices],
        cancellation: Cancellation,
    ) -> Reservation | None:
        """Reserve the expected cost of a call at the highest of some prices; None if no budget
        applies.

        Raises BudgetExceeded, ModelUnpriced, RunBudgetUnknown and CallStopped.
        """
        run_usd = await self.runs.of(request, cancellation)
        budgets = self._budgets_of(request, run_usd)
        if not budgets:
            return None
        prices = tuple(prices)
        if self.rules.unpriced == "refuse" and not all(one.priced for one in prices):
            raise ModelUnpriced(model=request.model, component="gateway")
        held = self._held(request, budgets)
        for account, _ in held:
            await self._adopt(account, request, cancellation)
        if self._history is not None:
            await self._history.known(cost_kind(request, kind))
        estimate = self._estimator.estimate(request, kind, prices)
        return await self._reservations.reserve(
            held, estimate, request.deadline_at_ms, cancellation
        )

    async def _adopt(
        self, account: Account, request: CallRequest, cancellation: Cancellation
    ) -> None:
        """Share an account with the other gateways. Raises RunBudgetUnknown if nobody says what a run of
        ours has spent that a call over HTTP names, and CallStopped."""
        metered = account.budget.level == "run" and request.openai is not None
        adopting = self._reservations.adopt(account, metered=metered)
        if not (metered and self._is_shared and is_of_ours(account)) or account.is_told:
            await adopting
            return
        left_s = max(request.deadline_at_ms - self._now_ms(), 0.0) / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await cancellation.run(adopting)
        if not account.is_told:
            run_id = account.budget.name.partition("/")[2]
            raise run_budget_unknown(run_id, self._now_ms())

    async def of_run(self, request: CallRequest, cancellation: Cancellation) -> CallRequest:
        """Return a call over HTTP with the pipeline of the run of ours that it names, if the ledger has
        it. Raises RunBudgetUnknown and CallStopped."""
        if not named_run.names_run(request):
            return request
        await self.runs.of(request, cancellation)
        return named_run.with_pipeline(request, self.runs.pipeline_of(request))

    def learn(self, request: CallRequest, kind: Kind, prices: Prices, cost_usd: Decimal) -> None:
        """Learn from the cost of a successful call."""
        self._estimator.learn(request, kind, prices, cost_usd)
        if self._history is not None:
            self._history.learned(cost_kind(request, kind))

    def recall_speed(self, backend: str) -> None:
        """Restore in the background the kept speed of a backend, if none is known here; no call
        waits for it."""
        history, kind = self._speed_history, decode_speed.kind_of(backend)
        if history is not None and not self.speeds.count(kind):
            task = asyncio.create_task(history.known(kind), name="decode speed")
            self._recalling.add(task)
            task.add_done_callback(self._recalling.discard)

    def learn_speed(self, backend: str, tokens: float, latency_ms: float) -> None:
        """Learn how long a backend took to write a complete answer of `tokens` tokens."""
        self.speeds.learn(backend, tokens, latency_ms)
        if self._speed_history is not None:
            self._speed_history.learned(decode_speed.kind_of(backend))

    def settle(self, reservation: Reservation | None, cost_usd: Decimal) -> None:
        """End a reservation with the actual cost of its call, and look at the waiting calls."""
        if reservation is not None:
            self._reservations.settle(reservation, cost_usd)

    async def close(self, timeout_s: float) -> None:
        """Release to the other gateways what this one no longer needs, within `timeout_s`."""
        await self.runs.close()
        await stop_tasks(self._recalling)
        for history in (self._history, self._speed_history):
            if history is not None:
                await history.close(timeout_s)
        await self._reservations.close(timeout_s)

    def left_usd(self, request: CallRequest) -> Decimal | None:
        """Return what is left of the tightest budget of a call; None if no budget applies."""
        now_ms = self._now_ms()
        try:
            left_usd = [
                self._budgets.account(budget, now_ms).left_usd(budget.usd)
                for budget in self._budgets_of(request, self.runs.known(request))
            ]
        except BudgetsFull:
            return None
        return min(left_usd, default=None)

    def _held(self, request: CallRequest, budgets: Iterable[Budget]) -> tuple[Held, ...]:
        """Return the accounts of budgets, with what the caller knows to be spent from the run's."""
        now_ms = self._now_ms()
        return tuple(
            (self._budgets.account(budget, now_ms, _known_spent_usd(request, budget)), budget)
            for budget in budgets
        )

    def _budgets_of(self, request: CallRequest, run_usd: Decimal | None) -> tuple[Budget, ...]:
        """Return the budgets of a call whose run has a budget of `run_usd`."""
        labels, root = self.runs.labels_of(request), self.runs.root_of(request)
        pipeline = self.runs.pipeline_of(request)
        return self.rules.budgets_of(request, run_usd, labels, root, pipeline)


def _known_spent_usd(request: CallRequest, budget: Budget) -> Decimal:
    """Return what the caller knows to be spent from a budget.

    It knows this for the budget of its run, and for the one at the top of the run's tree: what had
    been spent there before the run began, and what the run has spent itself. If it does not know
    what had been spent before, it got all that was left there, so that no more can be left there than
    of its own budget.
    """
    left_usd = request.budget_left_usd
    if budget.level != "run" or request.budget_usd is None or left_usd is None:
        return NOT_SPENT
    root = request.root_budget
    if root is None or budget.name != f"{budget.tenant}/{root.run_id}":
        return max(request.budget_usd - left_usd, NOT_SPENT)
    if root.spent_usd is None:
        return max(budget.usd - left_usd, NOT_SPENT)
    return root.spent_usd + max(request.budget_usd - left_usd, NOT_SPENT)
