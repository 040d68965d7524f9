"""Budgets by labels."""

from hocket.gateway.core.budgets import budget_rules


def test_a_budget_may_be_a_keys() -> None:
    section = {"labels": {"hocket.key=0123456789ab": {"usd": 5, "per": "day"}}}
    assert budget_rules.read(section, {}) != budget_rules.read(None, {})
