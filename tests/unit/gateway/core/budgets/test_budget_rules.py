"""Budgets by labels, and what is told of budgets."""

from decimal import Decimal

import pytest

from hocket.gateway.core.budgets import budget_rules
from hocket.gateway.core.errors import RoutingInvalid
from hocket.schemas.messages import MAX_TOLD_BUDGETS, BudgetRule


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
