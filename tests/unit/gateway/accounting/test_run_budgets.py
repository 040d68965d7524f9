"""What is known of a run applies to calls that only name it."""

from decimal import Decimal
from typing import Any

import pytest

from hocket.gateway.accounting import run_budgets
from hocket.gateway.accounting.run_budgets import RunBudgets
from hocket.gateway.accounting.spending import Spending
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.budgets.budget_rules import read
from hocket.gateway.core.budgets.price import Prices
from hocket.schemas.messages import Attribution, CallRequest, OpenAIBody, SpentAsked, SpentTold
from support.gateway.routing_rig import NOW_MS, request

RUN = "r" + 24 * "a"
RULES = read({"pipelines": {"report": {"usd": 1}}}, {})
KIND = ("writer", "", "")


class Ledger:
    """Knows one run."""

    async def ask(self, asked: SpentAsked) -> SpentTold:
        is_known = (asked.tenant, asked.run_id) == ("acme", RUN)
        return SpentTold(
            spent_usd=Decimal(0), run_known=is_known, pipeline="report" if is_known else None
        )


def named(**who: Any) -> CallRequest:
    body = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 10}
    attribution = Attribution(tenant="acme", run_id=RUN, **who)
    openai = OpenAIBody(path="chat/completions", body=body)
    return request("http:1", attribution=attribution, messages=(), openai=openai)


async def test_a_call_that_names_a_run_spends_from_the_budget_of_the_runs_pipeline() -> None:
    spending = Spending(RULES, lambda: NOW_MS)
    spending._runs._ledger = Ledger()  # type: ignore[assignment]
    prices = [Prices(output_usd_per_mtok=Decimal(1))]
    for call, names in ((named(), ["acme/report"]), (named(pipeline="other"), [])):
        reserved = await spending.reserve(call, KIND, prices, Cancellation())
        accounts = () if reserved is None else reserved.accounts
        assert [account.budget.name for account in accounts] == names
    await spending.close(1)


async def test_no_number_of_runs_of_one_tenant_lifts_the_budget_of_anothers_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call with a budget of nothing is refused, and costs nothing."""
    monkeypatch.setattr(run_budgets, "MAX_RUNS", 100)
    budgets = RunBudgets(None, lambda: NOW_MS)

    async def named_budget(tenant: str, run_id: str, usd: str | None) -> Decimal | None:
        who = Attribution(tenant=tenant, run_id=run_id)
        openai = OpenAIBody(path="chat/completions", body={})
        usd_left = None if usd is None else Decimal(usd)
        call = request("http:1", attribution=who, openai=openai, budget_usd=usd_left)
        return await budgets.of(call)

    assert await named_budget("acme", "session", "0.10") == Decimal("0.10")
    for number in range(500):
        await named_budget("globex", f"session-{number}", "0")
    assert await named_budget("acme", "session", None) == Decimal("0.10")
