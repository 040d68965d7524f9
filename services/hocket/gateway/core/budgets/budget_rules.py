"""Which budgets a call spends from: that of its run, and those configured for its pipeline, labels
and tenant.

Read from the section `budgets:`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any, Literal

from hocket.gateway.core.budgets.budget import Budget, Period
from hocket.gateway.core.config.fields import Fields, wrong
from hocket.schemas.labels import is_label
from hocket.schemas.messages import MAX_TOLD_BUDGETS, BudgetRule, CallRequest, RootBudget

ANYBODY = "*"
Level = Literal["tenant", "pipeline", "label"]
Unpriced = Literal["allow", "refuse"]
"""How a call under a budget is treated if its backend has no known price: it counts as free,
or is refused."""

Reserve = Literal["expected", "worst"]
"""What calls in flight are assumed to cost: an amount they are unlikely to exceed, judging by the
history of their kind, or the most that their `max_tokens` allows."""

_FIELDS = frozenset({"unpriced", "reserve", "tenants", "pipelines", "labels"})
_NO_LABELS: Mapping[str, str] = {}
_LIMIT_FIELDS = frozenset({"usd", "per"})


@dataclass(frozen=True, slots=True)
class Allowance:
    """An amount per period."""

    usd: Decimal
    per: Period


@dataclass(frozen=True, slots=True)
class BudgetRules:
    """Allowances by tenant, by pipeline (`pipeline`, or `tenant/pipeline`), and by label
    (`key=value`, or `tenant/key=value`).

    `*` applies to everyone not named, and `key=*` to every value not named; each of them gets an
    account of its own.
    """

    unpriced: Unpriced = "allow"
    reserve: Reserve = "expected"
    tenants: Mapping[str, Allowance] = field(default_factory=dict)
    pipelines: Mapping[str, Allowance] = field(default_factory=dict)
    labels: Mapping[str, Allowance] = field(default_factory=dict)

    def budgets_of(
        self,
        request: CallRequest,
        run_usd: Decimal | None,
        labels: Mapping[str, str] = _NO_LABELS,
        root: RootBudget | None = None,
        pipeline: str | None = None,
    ) -> tuple[Budget, ...]:
        """Return the budgets that a call spends from, the narrowest first.

        `run_usd` is the budget of its run, `root` is the budget at the top of a sub-run's tree, and
        `labels` and `pipeline` are those of its run, as far as it has a run that is known. They count,
        and not others that the call names: it would leave its own budgets, and use up those of others.
        """
        who = request.attribution
        found = _of_runs(request, run_usd, root)
        pipeline = pipeline or who.pipeline
        if pipeline is not None and self.pipelines:
            name = f"{who.tenant}/{pipeline}"
            allowance = (
                self.pipelines.get(name)
                or self.pipelines.get(pipeline)
                or self.pipelines.get(ANYBODY)
            )
            if allowance is not None:
                found.append(
                    Budget("pipeline", name, allowance.usd, allowance.per, tenant=who.tenant)
                )
        if self.labels:
            found += self._of_labels(who.tenant, {**labels, **(who.labels or {}), **labels})
        allowance = self.tenants.get(who.tenant) or self.tenants.get(ANYBODY)
        if allowance is not None:
            found.append(Budget("tenant", who.tenant, allowance.usd, allowance.per))
        return tuple(found)

    def told(self) -> tuple[BudgetRule, ...]:
        """Return the first MAX_TOLD_BUDGETS rules, for display."""
        levels: tuple[tuple[Level, Mapping[str, Allowance]], ...] = (
            ("tenant", self.tenants),
            ("pipeline", self.pipelines),
            ("label", self.labels),
        )
        rules = (
            BudgetRule(level=level, name=name, usd=allowance.usd, per=allowance.per)
            for level, allowances in levels
            for name, allowance in allowances.items()
        )
        return tuple(islice(rules, MAX_TOLD_BUDGETS))

    def _of_labels(self, tenant: str, labels: Mapping[str, str]) -> list[Budget]:
        found: list[Budget] = []
        for key, value in labels.items():
            names = (f"{tenant}/{key}={value}", f"{key}={value}", f"{tenant}/{key}=*", f"{key}=*")
            allowance = next((self.labels[name] for name in names if name in self.labels), None)
            if allowance is not None:
                found.append(Budget("label", names[0], allowance.usd, allowance.per, tenant=tenant))
        return found


def _of_runs(
    request: CallRequest, run_usd: Decimal | None, root: RootBudget | None
) -> list[Budget]:
    """Return the budgets of a call's run and of the run at the top of its tree. A call without a run
    has a budget of its own, named after it, that no other gateway needs to know."""
    who = request.attribution
    alone = None if who.run_id else request.call_id
    of_runs = {} if run_usd is None else {who.run_id or request.call_id: run_usd}
    if root is not None:
        of_runs.setdefault(root.run_id, root.budget_usd)
    return [
        Budget("run", f"{who.tenant}/{run}", usd, tenant=who.tenant, is_shared=run != alone)
        for run, usd in of_runs.items()
    ]


NO_BUDGETS = BudgetRules()


def read(section: Any, environment: Mapping[str, str]) -> BudgetRules:
    """Return the rules of a `budgets:` section; raise RoutingInvalid."""
    if section is None:
        return NO_BUDGETS
    budgets = Fields(section, "budgets", environment)
    budgets.only(_FIELDS)
    return BudgetRules(
        budgets.choice("unpriced", ("allow", "refuse"), "allow"),
        budgets.choice("reserve", ("expected", "worst"), "expected"),
        _allowances(budgets.under("tenants")),
        _allowances(budgets.under("pipelines")),
        _label_allowances(budgets.under("labels")),
    )


def _label_allowances(names: Fields) -> dict[str, Allowance]:
    for name in names:
        key, _, value = str(name).partition("=")
        if not is_label(key.rpartition("/")[2], value):
            cure = "Name a label like `team=search`, `team=*` or `acme/team=search`."
            raise wrong(names.at(str(name)), "it is not a label", cure)
    return _allowances(names)


def _allowances(names: Fields) -> dict[str, Allowance]:
    found: dict[str, Allowance] = {}
    for name in names:
        entry = names.under(str(name))
        entry.only(_LIMIT_FIELDS)
        usd = entry.money("usd")
        if usd is None:
            raise wrong(entry.at("usd"), "it is missing", "Set `usd` to US dollars per period.")
        found[str(name)] = Allowance(usd, entry.choice("per", ("hour", "day", "month"), "month"))
    return found
