"""Which budgets a call spends from: that of its run, and those configured for its pipeline, labels
and tenant.

Read from the section `budgets:`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any, Literal

from hocket.gateway.core.budgets.budget import Budget, Period
from hocket.gateway.core.config.fields import Fields, wrong
from hocket.gateway.core.errors import RoutingInvalid
from hocket.schemas.administration.budgets import ANYBODY, named_by
from hocket.schemas.checks.faults import Faults
from hocket.schemas.labels import KEY_LABEL, is_label, reserved_among
from hocket.schemas.messages import MAX_TOLD_BUDGETS, BudgetRule, CallRequest, RootBudget
from hocket.schemas.subjects import TOKEN

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
_CURES: Mapping[Level, str] = {
    "tenant": "Name a tenant, or `*` for each that is not named.",
    "pipeline": "Name a pipeline like `report` or `acme/report`, or `*` or `acme/*` for each that is "
    "not named.",
    "label": "Name a label like `team=search` or `acme/team=search`, or `team=*` or `acme/team=*` for "
    "each value that is not named.",
}


@dataclass(frozen=True, slots=True)
class Allowance:
    """An amount per period."""

    usd: Decimal
    per: Period


@dataclass(frozen=True, slots=True)
class BudgetRules:
    """Allowances by tenant, by pipeline (`pipeline`, or `tenant/pipeline`), and by label
    (`key=value`, or `tenant/key=value`).

    `*` applies to everyone not named, `tenant/*` to every pipeline of a tenant not named, and `key=*` to
    every value not named; each of them gets an account of its own.
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
            found += self._of_pipeline(who.tenant, pipeline)
        if self.labels:
            found += self._of_labels(who.tenant, {**labels, **(who.labels or {}), **labels})
        allowance = self.tenants.get(who.tenant) or self.tenants.get(ANYBODY)
        if allowance is not None:
            found.append(Budget("tenant", who.tenant, allowance.usd, allowance.per))
        return tuple(found)

    def _of_pipeline(self, tenant: str, pipeline: str) -> Iterator[Budget]:
        name = f"{tenant}/{pipeline}"
        allowance = (
            self.pipelines.get(name)
            or (named_by(pipeline)[0] is None and self.pipelines.get(pipeline))
            or self.pipelines.get(f"{tenant}/{ANYBODY}")
            or self.pipelines.get(ANYBODY)
        )
        if allowance:
            yield Budget("pipeline", name, allowance.usd, allowance.per, tenant=tenant)

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
    faults = Faults(RoutingInvalid)
    with faults.part():
        budgets.only(_FIELDS)
    unpriced: Unpriced = faults.read(
        lambda: budgets.choice("unpriced", ("allow", "refuse"), "allow"), "allow"
    )
    reserve: Reserve = faults.read(
        lambda: budgets.choice("reserve", ("expected", "worst"), "expected"), "expected"
    )
    tenants: dict[str, Allowance] = faults.read(
        lambda: _allowances(budgets.under("tenants"), "tenant"), {}
    )
    pipelines: dict[str, Allowance] = faults.read(
        lambda: _allowances(budgets.under("pipelines"), "pipeline"), {}
    )
    labels: dict[str, Allowance] = faults.read(
        lambda: _allowances(budgets.under("labels"), "label"), {}
    )
    faults.check()
    return BudgetRules(unpriced, reserve, tenants, pipelines, labels)


def _allowances(names: Fields, level: Level) -> dict[str, Allowance]:
    found: dict[str, Allowance] = {}
    faults = Faults(RoutingInvalid)
    for name in map(str, names):
        with faults.part():
            _check_name(level, name, names.at(name))
        with faults.part():
            found[name] = _allowance(names.under(name))
    faults.check()
    return found


def _check_name(level: Level, name: str, where: str) -> None:
    """Refuse a name that no call can match: its budget would look as if it were in force."""
    if level == "tenant":
        if name != ANYBODY and not TOKEN.fullmatch(name):
            raise wrong(where, f"`{name}` is not the name of a tenant", _CURES[level])
        return
    tenant, rest = named_by(name)
    if tenant == ANYBODY:
        reason = "`*` may not stand before a `/`: a name without a tenant is for each of them"
        raise wrong(where, reason, _CURES[level])
    if level == "pipeline":
        _check_pipeline(rest, where)
    else:
        _check_label(rest, where)


def _check_pipeline(name: str, where: str) -> None:
    """Refuse what is no pipeline of a call. Over HTTP, a caller names any printable text."""
    if ANYBODY in name and name != ANYBODY:
        reason = "`*` may only stand alone, or alone after a tenant and `/`"
        raise wrong(where, reason, _CURES["pipeline"])
    if not name or not name.isprintable():
        raise wrong(where, "it is not the name of a pipeline", _CURES["pipeline"])


def _check_label(name: str, where: str) -> None:
    key, _, value = name.partition("=")
    if not is_label(key, value):
        raise wrong(where, "it is not a label", _CURES["label"])
    if ANYBODY in value and value != ANYBODY:
        raise wrong(where, "`*` stands for each value, not for a part of it", _CURES["label"])
    if key != KEY_LABEL and reserved_among((key,)):
        raise wrong(where, f"no call has the label `{key}`", f"Is `{KEY_LABEL}` meant?")


def _allowance(entry: Fields) -> Allowance:
    faults = Faults(RoutingInvalid)
    with faults.part():
        entry.only(_LIMIT_FIELDS)
    usd = faults.read(lambda: _usd(entry), Decimal(0))
    per: Period = faults.read(
        lambda: entry.choice("per", ("hour", "day", "month"), "month"), "month"
    )
    faults.check()
    return Allowance(usd, per)


def _usd(entry: Fields) -> Decimal:
    usd = entry.money("usd")
    if usd is None:
        raise wrong(entry.at("usd"), "it is missing", "Set `usd` to US dollars per period.")
    return usd
