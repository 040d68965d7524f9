"""What runs may spend in all, where a call does not say: one run has one budget, whatever the door, and
the same labels.

Calls of workers bring the budget of their run. A call of the HTTP door that names a run of Hocket's has
that run's, which the ledger is asked for once; a smaller one that it brings itself holds for it, too. Of
other runs holds what the last call that brought a budget said.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from hocket.gateway.accounting.spent_before import SpentBefore
from hocket.schemas import ids
from hocket.schemas.messages import CallRequest, SpentAsked

MAX_RUNS = 50_000
"""Runs whose budgets are remembered."""
UNKNOWN_MS = 1_000.0
"""How long a run that the ledger does not know yet is taken for one without a budget."""


@dataclass(slots=True)
class _Run:
    budget_usd: Decimal | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    ask_at_ms: float | None = None
    """When the ledger is asked; None where the budget is known."""


class RunBudgets:
    """Remembers the budgets of runs."""

    def __init__(self, ledger: SpentBefore | None, now_ms: Callable[[], float]) -> None:
        self._ledger = ledger
        self._now_ms = now_ms
        self._runs: OrderedDict[tuple[str, str], _Run] = OrderedDict()

    def known(self, request: CallRequest) -> Decimal | None:
        """Return the budget of a call's run, as far as it is known."""
        who = request.attribution
        run = None if who.run_id is None else self._runs.get((who.tenant, who.run_id))
        return _smaller(request.budget_usd, None if run is None else run.budget_usd)

    def labels_of(self, request: CallRequest) -> Mapping[str, str]:
        """Return what is known of the labels of a call's run; calls of workers bring them."""
        who = request.attribution
        run = None if who.run_id is None else self._runs.get((who.tenant, who.run_id))
        return {} if run is None else run.labels

    async def of(self, request: CallRequest) -> Decimal | None:
        """Return the budget of a call's run; None where it has none."""
        who = request.attribution
        if who.run_id is None:
            return request.budget_usd
        if request.openai is None:
            if request.budget_usd is not None:
                self._run(who.tenant, who.run_id).budget_usd = request.budget_usd
            return request.budget_usd
        if not ids.is_run_id(who.run_id):
            if request.budget_usd is not None:
                self._run(who.tenant, who.run_id).budget_usd = request.budget_usd
            return self.known(request)
        key = (who.tenant, who.run_id)
        run = self._runs.get(key)
        if run is None or (run.ask_at_ms is not None and run.ask_at_ms <= self._now_ms()):
            await self._ask(*key)
        return self.known(request)

    async def _ask(self, tenant: str, run_id: str) -> None:
        run = self._run(tenant, run_id)
        run.ask_at_ms = self._now_ms() + UNKNOWN_MS
        if self._ledger is None:
            return
        told = await self._ledger.ask(SpentAsked(tenant=tenant, run_id=run_id))
        if told is not None and told.run_known:
            run.budget_usd, run.ask_at_ms = told.budget_usd, None
            run.labels = told.labels or {}

    def _run(self, tenant: str, run_id: str) -> _Run:
        run = self._runs.setdefault((tenant, run_id), _Run())
        self._runs.move_to_end((tenant, run_id))
        if len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
        return run


def _smaller(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    return min((usd for usd in (one, other) if usd is not None), default=None)
