"""Which rates hold for which calls, and what the section may not say."""

from typing import Any

import pytest

from hocket.gateway.core.config.configuration import parse
from hocket.gateway.core.errors import RoutingInvalid
from hocket.gateway.core.rates.rules import NO_RATES, RateRules, of_models, read


def rules(*section: dict[str, Any]) -> RateRules:
    return read(list(section), {})


def accounts(found: RateRules, tenant: str, model: str) -> list[tuple[str | None, str | None]]:
    return [account for account, _ in found.of(tenant, model)]


def test_all_rules_that_fit_hold_each_with_its_own_account() -> None:
    found = rules(
        {"tenant": "acme", "model": "writer", "requests_per_min": 1},
        {"tenant": "*", "requests_per_min": 2},
        {"model": "writer", "tokens_per_min": 3},
        {"model": "other", "tokens_per_min": 3},
    )
    assert accounts(found, "acme", "writer") == [
        ("acme", "writer"),
        ("acme", None),
        (None, "writer"),
    ]
    assert accounts(found, "globex", "small") == [("globex", None)]


def test_a_rule_for_each_is_not_for_who_is_named() -> None:
    found = rules(
        {"tenant": "*", "model": "writer", "requests_per_min": 1},
        {"tenant": "acme", "model": "writer", "requests_per_min": 100},
    )
    ((_, rule),) = found.of("acme", "writer")
    assert rule.requests_per_min == 100
    ((account, rule),) = found.of("globex", "writer")
    assert (account, rule.requests_per_min) == (("globex", "writer"), 1)
    found = rules(
        {"tenant": "acme", "model": "writer", "requests_per_min": 100},
        {"tenant": "acme", "model": "*", "requests_per_min": 1},
        {"tenant": "*", "model": "*", "requests_per_min": 2},
    )
    ((account, rule),) = found.of("acme", "small")
    assert (account, rule.requests_per_min) == (("acme", "small"), 1)
    ((_, rule),) = found.of("acme", "writer")
    assert rule.requests_per_min == 100
    assert [rule.requests_per_min for rule in found.of_account(("globex", "small"))] == [2]


TABLE = parse(
    {
        "writer": {"backends": [{"base_url": "http://a/v1", "model": "m"}]},
        "small": {"backends": [{"base_url": "http://b/v1", "model": "m"}]},
        "editor": "writer",
        "careful": {"cascade": {"models": ["small", "writer"], "accept": "answer.text"}},
    },
    {},
)


def test_a_rule_for_an_alias_is_for_its_model() -> None:
    found = of_models(
        rules(
            {"model": "editor", "requests_per_min": 1},
            {"model": "*", "requests_per_min": 2},
            {"tenant": "acme", "requests_per_min": 3},
        ),
        TABLE,
    )
    assert accounts(found, "globex", "writer") == [(None, "writer")]
    assert accounts(found, "globex", "small") == [(None, "small")]


@pytest.mark.parametrize(
    ("models", "field", "reason"),
    [
        (("writer", "poet"), "rates[1].model", "no model `poet`"),
        (("careful",), "rates[0].model", "is a cascade"),
        (("writer", "editor"), "rates[1]", "same tenant and model"),
    ],
)
def test_a_rule_that_would_limit_nothing_is_refused(
    models: tuple[str, ...], field: str, reason: str
) -> None:
    found = rules(*({"model": model, "requests_per_min": 1} for model in models))
    with pytest.raises(RoutingInvalid) as raised:
        of_models(found, TABLE)
    assert raised.value.fields["field"] == field
    assert reason in raised.value.fields["reason"]


def test_without_the_section_nothing_is_held() -> None:
    assert read(None, {}) is NO_RATES
    assert NO_RATES.of("acme", "writer") == ()


@pytest.mark.parametrize(
    ("section", "field", "reason"),
    [
        ({}, "rates", "not a list of rules"),
        ([{}], "rates[0]", "limits nothing"),
        ([{"requests_per_min": 0}], "rates[0].requests_per_min", "it is 0"),
        ([{"tokens_per_min": 1.5}], "rates[0].tokens_per_min", "it is 1.5"),
        ([{"tokens_per_min": True}], "rates[0].tokens_per_min", "it is True"),
        ([{"rpm": 1}], "rates[0].rpm", "no such field"),
        ([{"requests_per_min": 1, "beyond": "x"}], "rates[0].beyond", "x"),
        ([{"requests_per_min": 1}, {"tokens_per_min": 1}], "rates[1]", "same tenant and model"),
    ],
)
def test_what_it_may_not_say_is_told_with_its_field(section: Any, field: str, reason: str) -> None:
    with pytest.raises(RoutingInvalid) as raised:
        read(section, {})
    assert raised.value.fields["field"] == field
    assert reason in raised.value.fields["reason"]
