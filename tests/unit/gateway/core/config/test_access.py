"""Keys of the HTTP door, as the configuration has them."""

from collections.abc import Mapping
from typing import Any

import pytest

from hocket.gateway.core.config.access import hashed, parse_access
from hocket.gateway.core.errors import RoutingInvalid
from hocket.schemas.access.keys import AccessDenied, sent_key

SHA = hashed("hk-1")


def test_a_key_is_known_by_its_hash() -> None:
    access = parse_access({"keys": [{"name": "ci", "sha256": SHA, "tenant": "acme"}]}, {})
    key = access.key("hk-1")
    assert (key.name, key.tenant, key.models) == ("ci", "acme", None)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "hk-1"},
        {"authorization": "Basic hk-1"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer hk-2"},
        {"x-api-key": "hk-2"},
        {"x-api-key": "hk-1", "authorization": "Bearer hk-2"},
    ],
)
def test_what_is_no_known_key_is_refused(headers: Mapping[str, str]) -> None:
    access = parse_access({"keys": [{"name": "ci", "sha256": SHA}]}, {})
    with pytest.raises(AccessDenied):
        access.key(sent_key(headers))


@pytest.mark.parametrize("headers", [{"authorization": "bearer hk-1"}, {"x-api-key": "hk-1"}])
def test_a_key_is_sent_as_openai_or_as_anthropic_has_it(headers: Mapping[str, str]) -> None:
    access = parse_access({"keys": [{"name": "ci", "sha256": SHA}]}, {})
    assert access.key(sent_key(headers)).name == "ci"


def test_a_door_is_open_only_where_the_configuration_says_so() -> None:
    assert not parse_access(None, {}).open
    assert not parse_access({"open": False}, {}).open
    assert parse_access({"open": True}, {}).open


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ([], "access"),
        ({"keys": []}, "access.keys"),
        ({"key": "x"}, "access.key"),
        ({"keys": [{"name": "ci", "sha256": "hk-1"}]}, "access.keys[0].sha256"),
        ({"open": True, "keys": [{"name": "ci", "sha256": SHA}]}, "access.open"),
        ({"open": "yes"}, "access.open"),
        ({"keys": [{"sha256": SHA}]}, "access.keys[0].name"),
        ({"keys": [{"name": "a", "sha256": SHA}] * 2}, "access.keys[1].sha256"),
        ({"keys": [{"name": "a", "sha256": SHA, "tenant": "a.b"}]}, "access.keys[0].tenant"),
    ],
)
def test_a_mistake_in_the_keys_is_named(section: Any, field: str) -> None:
    with pytest.raises(RoutingInvalid) as refused:
        parse_access(section, {})
    assert refused.value.fields["field"] == field
