"""Configured budgets, and what has been spent of them."""

from typing import Literal

from hocket.schemas.rest import Reply, Usd
from hocket.schemas.subjects import TOKEN

ANYBODY = "*"
"""In the name of a configured budget: each that is not named."""


def named_by(name: str) -> tuple[str | None, str]:
    """Split the name of a configured budget of pipelines or labels: the tenant that it names (None: it
    is for each tenant), and what it names of the tenant. A `/` may be part of a label's value, and of a
    pipeline's name that a call over HTTP gives."""
    tenant, _, rest = name.partition("/")
    names_tenant = rest and (tenant == ANYBODY or TOKEN.fullmatch(tenant))
    return (tenant, rest) if names_tenant else (None, name)


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
