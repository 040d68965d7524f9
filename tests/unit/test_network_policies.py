"""The chart's network policies against what the code connects to: who asks whom is read from the
services' code, from the settings that name a place, and from what AsyncAPI says."""

import re

import pytest
import yaml

from hocket.kit.process.settings import Settings
from support.access.network_policies import (
    ASKS,
    INTERNET,
    MODELS,
    SERVICES,
    WEBHOOKS,
    NetworkPolicies,
    asks,
)
from support.places import ROOT

POLICIES = NetworkPolicies(
    one
    for one in yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "hocket.yaml").read_text())
    if one
)
NAME = "app.kubernetes.io/name"
NOT_ASKED = {"public_url"}
"""Settings that name a place to which people are sent, and no process of ours."""


def test_each_setting_that_names_a_place_is_known_here() -> None:
    places = {
        name for name in Settings.model_fields if re.search(r"_(?:url|endpoint|issuer)$", name)
    }
    assert places == ASKS.keys() | NOT_ASKED


def test_users_reach_the_platform_over_nats_alone_where_the_policies_have_it() -> None:
    document = yaml.safe_load((ROOT / "docs" / "reference" / "asyncapi.yaml").read_text())
    assert {server["protocol"] for server in document["servers"].values()} == {"nats"}
    for server in document["servers"].values():
        port = int(server["host"].rpartition(":")[2])
        assert all(POLICIES.may_speak(one, port, {NAME: "nats"}) for one in SERVICES)


@pytest.mark.parametrize("service", SERVICES)
def test_pods_may_speak_to_whom_their_code_does_and_to_nobody_else(service: str) -> None:
    assert asks(service, ASKS["nats_url"])
    assert POLICIES.may_speak(service, 4222, {NAME: "nats"})
    assert POLICIES.may_speak(service, 5432, {NAME: "postgres"}) == asks(
        service, ASKS["database_url"]
    )
    outside = asks(service, WEBHOOKS) or asks(service, MODELS)
    assert POLICIES.may_speak(service, 443, {}, INTERNET) == outside
    assert POLICIES.may_speak(service, 53, {}, "kube-system")
    assert not POLICIES.may_speak(service, 4222, {NAME: "postgres"})
    assert not POLICIES.may_speak(service, 5432, {NAME: "postgres"}, "another")
    assert not POLICIES.may_speak(service, 8080, {"app": "hocket", "service": "admin"})


def test_only_doors_are_open_to_others() -> None:
    assert POLICIES.opened() == {"all": {9090}, "admin": {8080}, "gateway": {8081}}
