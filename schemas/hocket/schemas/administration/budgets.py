"""Configured budgets, and what has been spent of them."""

from typing import Literal

from hocket.schemas.rest import Reply, Usd


class BudgetUse(Reply):
    """A budget, and how much of it is spent in its current period (UTC). `name` is that of a pipeline
    or a tenant, or a label (`customer=acme`). A name that ends in `*` applies to each that is not
    listed; before any of those has spent anything, its `spent_usd` is null."""

    level: Literal["tenant", "pipeline", "label"]
    name: str
    usd: Usd
    per: Literal["hour", "day", "month"]
    spent_usd: Usd | None


class BudgetUses(Reply):
    """The budgets that apply to a tenant's calls, those spent most first; `truncated` if there are
    more."""

    budgets: tuple[BudgetUse, ...]
    truncated: bool = False
