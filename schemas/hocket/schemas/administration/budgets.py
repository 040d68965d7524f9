"""Budgets of the configuration, and what is spent of them."""

from typing import Literal

from hocket.schemas.rest import Reply, Usd


class BudgetUse(Reply):
    """A budget, and what is spent of it in its present period (UTC). `name` is that of a pipeline, of a
    tenant, or a label (`customer=acme`); one that ends in `*` is for each that is not named, of which
    none has spent anything yet: its `spent_usd` is null."""

    level: Literal["tenant", "pipeline", "label"]
    name: str
    usd: Usd
    per: Literal["hour", "day", "month"]
    spent_usd: Usd | None


class BudgetUses(Reply):
    """The budgets that hold for a tenant's calls, those that are spent most first; `truncated` says that
    there are more."""

    budgets: tuple[BudgetUse, ...]
    truncated: bool = False
