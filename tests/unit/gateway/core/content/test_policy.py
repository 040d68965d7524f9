"""Whose prompts and answers are kept."""

import pytest

from hocket.gateway.core.content.policy import read
from hocket.schemas.messages import Attribution

SECTION = {
    "keep": "full",
    "tenants": {"acme": "redacted", "rival": "none"},
    "pipelines": {"billing": "none", "globex/support": "redacted", "rival/support": "full"},
}


@pytest.mark.parametrize(
    ("tenant", "kept"), [("acme", "redacted"), ("rival", None), ("globex", None), ("other", None)]
)
def test_a_call_of_an_unknown_pipeline_is_kept_as_the_one_of_which_the_least_is(
    tenant: str, kept: str | None
) -> None:
    assert read(SECTION, {}).strictest_of(tenant) == kept


def test_what_does_not_concern_a_tenant_makes_its_rule_no_stricter() -> None:
    section = {"keep": "full", "pipelines": {"rival/billing": "none", "acme/billing": "redacted"}}
    policy = read(section, {})
    assert [policy.strictest_of(one) for one in ("other", "acme")] == ["full", "redacted"]
    assert policy.of(Attribution(tenant="acme", pipeline="billing")) == "redacted"


def test_what_a_call_names_with_a_slash_is_no_pipeline_of_another_tenant() -> None:
    policy = read({"pipelines": {"acme/billing": "full"}}, {})
    for tenant, pipeline in (("other", "acme/billing"), ("acme", "acme/billing"), ("", "billing")):
        assert policy.of(Attribution(tenant=tenant, pipeline=pipeline)) is None
    assert policy.of(Attribution(tenant="acme", pipeline="billing")) == "full"


def test_what_is_remembered_of_tenants_is_bounded_by_the_rules() -> None:
    policy = read(SECTION, {})
    for number in range(100):
        assert policy.strictest_of(f"t{number}") is None
    assert policy.strictest_of("acme") == "redacted"
    assert len(policy._strictest) == 2
