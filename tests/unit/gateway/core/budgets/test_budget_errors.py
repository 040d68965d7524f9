"""What a refused call is told: which budget to raise, and only cures that help."""

from decimal import Decimal
from typing import Any

import pytest

from hocket.gateway.core.budgets.budget_rules import Allowance, BudgetRules
from hocket.gateway.core.errors import BudgetExceeded
from hocket.schemas.messages import Attribution
from hocket.schemas.openai.failures import failure
from support.gateway.routing_rig import NOW_MS, Rig, backend, says

USUAL = {"budget_left_usd": "0.5", "limit_usd": "1", "expected_usd": "0.7"}


RUN = "Raise `budget_usd` of the run (over HTTP also `X-Hocket-Budget-Usd`)"
IN_CONFIGURATION = "Raise `{field}` in the configuration"
PERIOD, LATER = "wait for its next period", "try again when those calls have ended"
LENGTH, CHEAPER = "set a smaller `max_tokens`", "or use a cheaper model."


@pytest.mark.parametrize(
    ("fields", "field", "cures"),
    [
        ({"level": "run", "name": "acme/r1"}, "budget_usd", (RUN, LENGTH)),
        (
            {"level": "tenant", "name": "acme"},
            "budgets.tenants.acme",
            (IN_CONFIGURATION, PERIOD, LENGTH),
        ),
        (
            {"level": "pipeline", "name": "acme/report", "by_length": False},
            "budgets.pipelines.acme/report",
            (IN_CONFIGURATION, PERIOD),
        ),
        (
            {"level": "label", "name": "acme/team=search", "state": "reserved"},
            "budgets.labels.acme/team=search",
            (IN_CONFIGURATION, LATER, LENGTH),
        ),
    ],
)
def test_the_field_to_raise_is_named_and_only_cures_that_help(
    fields: dict[str, Any], field: str, cures: tuple[str, ...]
) -> None:
    error = BudgetExceeded(**fields, **USUAL).info()
    cure = ", ".join((*cures, CHEAPER)).format(field=field)
    held = ", and calls in progress may cost the rest" if "state" in fields else ""
    of = f"The {fields['level']} budget of `{fields['name']}` has 0.5 of 1 USD left"
    assert error.message == f"{of}; the call is expected to cost 0.7 USD{held}. {cure}"
    assert (error.field, error.state) == (field, fields.get("state", "spent"))


@pytest.mark.parametrize(
    ("prices", "helps"), [({"request_usd": "2"}, False), ({"output_usd_per_mtok": "200"}, True)]
)
async def test_a_smaller_limit_is_advised_only_if_it_makes_the_call_cheaper(
    prices: dict[str, str], helps: bool
) -> None:
    rig = Rig({"writer": {"backends": [backend("a", prices=prices)]}}, a=says("tidal"))
    error = (await rig.make(budget_usd="1")).error
    assert error is not None
    assert error.code == "budget_exceeded"
    assert ("max_tokens" in error.message) is helps
    assert "period" not in error.message, "a run's budget has none"


async def test_a_tenants_budget_is_named_by_its_place_in_the_configuration() -> None:
    rig = Rig({"writer": {"backends": [backend("a")]}}, a=says("tidal"))
    rules = BudgetRules(tenants={"*": Allowance(Decimal("0.000001"), "day")})
    rig.calls.spending.use(rules)
    error = (await rig.make(attribution=Attribution(tenant="acme"))).error
    assert error is not None
    assert failure(error, NOW_MS).body["error"]["param"] == "budgets.tenants.acme"
    assert error.retry_at_ms is not None


@pytest.mark.parametrize(
    ("state", "again", "kind"),
    [("reserved", "true", "rate_limit_error"), ("spent", "false", "insufficient_quota")],
)
def test_a_client_is_told_to_try_again_only_where_calls_in_progress_hold_the_rest(
    state: str, again: str, kind: str
) -> None:
    error = BudgetExceeded(level="tenant", name="acme", state=state, **USUAL).info()
    told = failure(error, NOW_MS)
    assert (told.status, told.headers["x-should-retry"]) == (429, again)
    assert told.body["error"]["type"] == kind
    assert not error.retryable, "steps are retried only where `retry.on` says so"
