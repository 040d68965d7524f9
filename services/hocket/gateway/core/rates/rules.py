"""How many requests and tokens per minute tenants may send to models, read from the section `rates:`.

Every rule that matches a call applies, each with its own account. A rule without `tenant` (or
`model`) covers all of them together; `*` covers, separately, each one that no other rule with the
same `model` (or `tenant`) names. A rule for an alias is for its model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hocket.gateway.core.config.fields import Fields, wrong
from hocket.gateway.core.config.table import RoutingTable

EACH = "*"
MAX_RULES = 1_000
MAX_PER_MIN = 1_000_000_000
_FIELDS = frozenset({"tenant", "model", "requests_per_min", "tokens_per_min", "beyond"})
Beyond = Literal["wait", "refuse"]
"""What happens to a call beyond its rate: it waits for its turn, or is refused at once."""


@dataclass(frozen=True, slots=True)
class RateRule:
    """A limit on requests and tokens per minute; None means no limit."""

    tenant: str | None
    model: str | None
    requests_per_min: int | None
    tokens_per_min: int | None
    beyond: Beyond = "wait"


Account = tuple[str | None, str | None]
"""The key of an account: tenant and model, either of them None if the rule covers all together."""


@dataclass(frozen=True, slots=True)
class RateRules:
    """The rules, in file order."""

    rules: tuple[RateRule, ...] = ()
    _places: dict[Account, int] = field(init=False, repr=False, compare=False)
    """Where each rule is, by the tenant and model that it names: no two name the same."""

    def __post_init__(self) -> None:
        places = {(rule.tenant, rule.model): n for n, rule in enumerate(self.rules)}
        object.__setattr__(self, "_places", places)

    def of(self, tenant: str, model: str) -> tuple[tuple[Account, RateRule], ...]:
        """Return the rules that apply to a call, each with the key of its account."""
        if not self.rules:
            return ()
        held = self._among((None, EACH, tenant), (None, EACH, model))
        return tuple(
            ((None if rule.tenant is None else tenant, None if rule.model is None else model), rule)
            for rule in held
        )

    def of_account(self, account: Account) -> tuple[RateRule, ...]:
        """Return the rules whose account has this key: none if they were removed, and two if one is for
        each model of the tenant and the other for each tenant of the model."""
        tenants, models = ((None,) if name is None else (EACH, name) for name in account)
        return self._among(tenants, models)

    def _among(
        self, tenants: Sequence[str | None], models: Sequence[str | None]
    ) -> tuple[RateRule, ...]:
        """Return the rules for one of the tenants and one of the models, in file order; `*` stands for
        the last of them, unless another rule names that."""
        places = self._places
        found = {
            places[tenant, model]
            for tenant in tenants
            for model in models
            if (tenant, model) in places
            and not (tenant == EACH and (tenants[-1], model) in places)
            and not (model == EACH and (tenant, models[-1]) in places)
        }
        return tuple(self.rules[place] for place in sorted(found))


NO_RATES = RateRules()


def read(section: Any, environment: Mapping[str, str]) -> RateRules:
    """Return the rules of a `rates:` section; raise RoutingInvalid."""
    if section is None:
        return NO_RATES
    if not isinstance(section, list) or len(section) > MAX_RULES:
        cure = (
            f"Write up to {MAX_RULES:,} lines `- {{tenant: NAME, requests_per_min: N}}` under it."
        )
        raise wrong("rates", "it is not a list of rules", cure)
    rules = [_rule(Fields(entry, f"rates[{n}]", environment)) for n, entry in enumerate(section)]
    _check_each_once(rules)
    return RateRules(tuple(rules))


def of_models(rules: RateRules, table: RoutingTable) -> RateRules:
    """Return the rules with each alias replaced by its model; raise RoutingInvalid if a rule names a
    model that gets no calls: one that is not in the table, or a cascade, whose stages get them."""
    named = [_of_model(rule, f"rates[{n}].model", table) for n, rule in enumerate(rules.rules)]
    _check_each_once(named)
    return RateRules(tuple(named))


def _of_model(rule: RateRule, where: str, table: RoutingTable) -> RateRule:
    name = rule.model
    if name is None or name == EACH or name in table.unserved:
        return rule
    model = table.models.get(table.canonical(name))
    if model is None:
        cure = f"Use one of: {', '.join(table.names())}."
        raise wrong(where, f"there is no model `{name}`", cure)
    if model.cascade is not None:
        cure = f"Name its stages: {', '.join(model.cascade.stages)}."
        raise wrong(where, f"`{name}` is a cascade, whose calls are those of its stages", cure)
    return replace(rule, model=table.canonical(name))


def _check_each_once(rules: Sequence[RateRule]) -> None:
    """Raise RoutingInvalid if two rules are for the same tenant and model."""
    seen: dict[Account, int] = {}
    for n, rule in enumerate(rules):
        first = seen.setdefault((rule.tenant, rule.model), n)
        if first != n:
            reason = f"`rates[{first}]` is for the same tenant and model"
            raise wrong(f"rates[{n}]", reason, "Set both limits in one of them.")


def _rule(entry: Fields) -> RateRule:
    entry.only(_FIELDS)
    rule = RateRule(
        entry.text("tenant") if "tenant" in entry else None,
        entry.text("model") if "model" in entry else None,
        _per_min(entry, "requests_per_min"),
        _per_min(entry, "tokens_per_min"),
        entry.choice("beyond", ("wait", "refuse"), "wait"),
    )
    if rule.requests_per_min is None and rule.tokens_per_min is None:
        cure = "Set `requests_per_min`, `tokens_per_min` or both."
        raise wrong(entry.where, "it limits nothing", cure)
    return rule


def _per_min(entry: Fields, name: str) -> int | None:
    value = entry.raw(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_PER_MIN:
        raise wrong(
            entry.at(name), f"it is {value!r}", f"Use a whole number from 1 to {MAX_PER_MIN:,}."
        )
    return value
