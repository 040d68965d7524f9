"""Which budgets hold for a tenant, and what is shown of them: as the gateways decide it."""

from decimal import Decimal
from typing import Any

import pytest

from hocket.admin.costs.budgets import allowances_of, uses_of
from hocket.gateway.core.budgets import budget_rules
from hocket.schemas.administration.budgets import BudgetUse
from hocket.schemas.messages import Attribution, BudgetRule, CallRequest

SECTION: dict[str, Any] = {
    "tenants": {"acme": {"usd": 100, "per": "day"}, "*": {"usd": 10}},
    "pipelines": {
        "*": {"usd": 1}, "report": {"usd": 20}, "acme/report": {"usd": 30, "per": "hour"},
        "rival/report": {"usd": 40}, "rival/*": {"usd": 7},
    },
    "labels": {
        "team=*": {"usd": 5, "per": "day"}, "team=search": {"usd": 50, "per": "day"},
        "acme/team=ads": {"usd": 60}, "rival/team=secret": {"usd": 70}, "plan=a/b": {"usd": 80},
    },
}  # fmt: skip


def used(of: str, *, of_all: bool = True, **spent: dict[str, str]) -> list[BudgetUse]:
    rules = budget_rules.read(SECTION, {}).told()
    every = {
        (level, per): {name: Decimal(usd) for name, usd in names.items()}
        for level, names in spent.items()
        for per in ("hour", "day", "month")
    }
    return uses_of(allowances_of(of, rules), every, of_all=of_all)


@pytest.mark.parametrize("tenant", ["acme", "rival", "other"])
@pytest.mark.parametrize("pipeline", ["report", "letters"])
@pytest.mark.parametrize("team", ["search", "ads", "secret", "new"])
def test_a_budget_is_that_which_the_gateway_holds_a_call_to(
    tenant: str, pipeline: str, team: str
) -> None:
    said = Attribution(tenant=tenant, pipeline=pipeline, labels={"team": team})
    request = CallRequest.model_construct(call_id="c", attribution=said)
    held = budget_rules.read(SECTION, {}).budgets_of(request, None)

    shown = used(
        tenant, pipeline={pipeline: "1"}, label={f"team={team}": "1"}, tenant={tenant: "1"}
    )

    spent = {(one.level, one.name): (one.usd, one.per) for one in shown if one.spent_usd}
    assert spent == {
        (one.level, one.name.removeprefix(f"{tenant}/")): (one.usd, one.per) for one in held
    }


def test_what_others_are_named_by_is_not_told_to_a_tenant() -> None:
    named = {one.name for one in used("rival", of_all=False)}
    of_all = {one.name for one in used("rival")}

    assert named == {"rival", "report", "*", "team=secret", "team=*"}
    assert of_all == named | {"team=search", "plan=a/b"}


def test_a_budget_of_each_stands_for_those_that_spent() -> None:
    shown = {one.name: one.spent_usd for one in used("other", pipeline={"letters": "0.5"})}

    assert (shown["letters"], "*" in shown) == (Decimal("0.5"), False)
    assert (shown["team=*"], shown["report"]) == (None, Decimal(0))


def test_a_rule_that_no_call_can_match_is_not_shown() -> None:
    """A gateway of an earlier state may tell of one."""
    rules = [
        BudgetRule(level=level, name=name, usd=Decimal(1), per="day")
        for level, name in (("pipeline", "*/report"), ("label", "*/team=search"))
    ]
    assert allowances_of("zeta", rules) == []


@pytest.mark.parametrize("name", ["my team/report", "acme/"])
def test_what_only_looks_like_a_tenant_is_part_of_a_pipelines_name(name: str) -> None:
    rule = BudgetRule(level="pipeline", name=name, usd=Decimal(1), per="day")
    for tenant in ("zeta", "acme"):
        assert [(one.name, one.is_own) for one in allowances_of(tenant, [rule])] == [(name, False)]
