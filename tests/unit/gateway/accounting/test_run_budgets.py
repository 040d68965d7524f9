"""What is known of a run applies to calls that only name it."""

from decimal import Decimal
from typing import Any

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
