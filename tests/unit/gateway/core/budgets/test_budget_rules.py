"""Budgets by labels, and what is told of budgets."""

from decimal import Decimal

import pytest

from hocket.gateway.core.budgets import budget_rules
from hocket.gateway.core.errors import RoutingInvalid
from hocket.schemas.messages import MAX_TOLD_BUDGETS, Attribution, BudgetRule, CallRequest


def test_a_budget_may_be_a_keys() -> None:
    section = {"labels": {"hocket.key=0123456789ab": {"usd": 5, "per": "day"}}}
    assert budget_rules.read(section, {}) != budget_rules.read(None, {})


def test_budgets_are_told_with_their_level_and_their_period() -> None:
    section = {"tenants": {"acme": {"usd": 5, "per": "day"}}, "labels": {"team=*": {"usd": "0.5"}}}
    assert budget_rules.read(section, {}).told() == (
        BudgetRule(level="tenant", name="acme", usd=Decimal(5), per="day"),
        BudgetRule(level="label", name="team=*", usd=Decimal("0.5"), per="month"),
    )
    many = {"tenants": {f"t{i}": {"usd": 1} for i in range(MAX_TOLD_BUDGETS + 1)}}
    assert len(budget_rules.read(many, {}).told()) == MAX_TOLD_BUDGETS


def test_the_faults_of_all_budgets_are_told_at_once() -> None:
    section = {
        "reserve": "none",
        "tenants": {"acme": {"usd": -5, "per": "week", "by": 1}, "b": {"usd": 1}},
        "labels": {"team": {"usd": 5}},
    }
    with pytest.raises(RoutingInvalid) as caught:
        budget_rules.read(section, {})
    fields = caught.value.fields
    assert [fields["field"], *(one["field"] for one in fields["others"])] == [
        "budgets.reserve", "budgets.tenants.acme.by", "budgets.tenants.acme.usd",
        "budgets.tenants.acme.per", "budgets.labels.team",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("tenants", "acme/report"),
        ("tenants", "acm*"),
        ("tenants", ""),
        ("pipelines", "*/report"),
        ("pipelines", "*/*"),
        ("pipelines", "rep*"),
        ("pipelines", "acme/rep*"),
        ("pipelines", "acm*/report"),
        ("pipelines", "my team/*"),
        ("pipelines", ""),
        ("pipelines", "a\nb"),
        ("labels", "*"),
        ("labels", "acme/*"),
        ("labels", "*/team=search"),
        ("labels", "team=sea*"),
        ("labels", "acme/team"),
        ("labels", "hocket.keys=3f2a9c51b07e"),
    ],
)
def test_a_name_that_no_call_can_match_is_refused(section: str, name: str) -> None:
    with pytest.raises(RoutingInvalid) as caught:
        budget_rules.read({section: {name: {"usd": 1}}}, {})
    fields = caught.value.fields
    assert fields["field"] == f"budgets.{section}.{name}"
    assert "others" not in fields
    assert fields["cure"]


@pytest.mark.parametrize("name", ["rep*", "acme/rep*", "acm*/report"])
def test_the_refusal_says_where_a_star_may_stand(name: str) -> None:
    with pytest.raises(RoutingInvalid) as caught:
        budget_rules.read({"pipelines": {name: {"usd": 1}}}, {})
    said = str(caught.value.fields["reason"]) + str(caught.value.fields["cure"])
    assert "`*` may only stand alone" in said
    assert "`acme/*`" in said


@pytest.mark.parametrize("name", ["my team/report", "acme/", "re port"])
def test_a_call_over_http_may_name_its_pipeline_by_any_text(name: str) -> None:
    rules = budget_rules.read({"pipelines": {name: {"usd": 1}}}, {})
    said = Attribution(tenant="zeta", pipeline=name)
    request = CallRequest(call_id="c", model="writer", deadline_at_ms=1.0, attribution=said)
    (budget,) = rules.budgets_of(request, None)
    assert budget.name == f"zeta/{name}"


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ("tenants", ["acme", "*", "2024"]),
        ("pipelines", ["report", "acme/report", "*", "acme/*", "my report", "acme/my team/report"]),
        ("pipelines", ["my team/report", "acme/", " report"]),
        ("labels", ["team=search", "team=*", "acme/team=*", "plan=a/b", "acme/plan=a/b"]),
        ("labels", ["hocket.key=*", "acme/hocket.key=3f2a9c51b07e"]),
    ],
)
def test_a_name_that_a_call_can_match_is_taken(section: str, names: list[str]) -> None:
    read = budget_rules.read({section: {name: {"usd": 1} for name in names}}, {})
    assert [rule.name for rule in read.told()] == names


@pytest.mark.parametrize(
    ("tenant", "pipeline", "usd"),
    [
        ("acme", "report", 1),
        ("acme", "letters", 2),
        ("acme", "notes", 3),
        ("other", "letters", 2),
        ("other", "notes", 4),
        ("other", "acme/report", 4),  # that is the name of another one's budget
    ],
)
def test_each_pipeline_of_a_tenant_may_have_a_budget_of_its_own(
    tenant: str, pipeline: str, usd: int
) -> None:
    section = {"acme/report": 1, "letters": 2, "acme/*": 3, "*": 4}
    rules = budget_rules.read({"pipelines": {k: {"usd": v} for k, v in section.items()}}, {})
    said = Attribution(tenant=tenant, pipeline=pipeline)
    request = CallRequest(call_id="c", model="writer", deadline_at_ms=1.0, attribution=said)
    (budget,) = rules.budgets_of(request, None)
    assert (budget.name, budget.usd) == (f"{tenant}/{pipeline}", Decimal(usd))
