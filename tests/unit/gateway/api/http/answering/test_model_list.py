"""Which models a caller sees."""

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from hocket.gateway.api.http.answering.model_list import ModelList
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.config.access import Key, ModelForbidden
from hocket.gateway.core.errors import ModelNotGranted, ModelUnknown
from hocket.gateway.metrics import GatewayMetrics
from support.gateway.routing_rig import Rig, backend

MODELS = {name: {"backends": [backend(name)]} for name in ("writer", "reader")}


@pytest.fixture
async def registry() -> CallRegistry:
    return CallRegistry(Rig(MODELS).calls, GatewayMetrics(CollectorRegistry()))


@pytest.fixture
def listed(registry: CallRegistry) -> ModelList:
    return ModelList(registry)


def key(*models: str) -> Key:
    return Key("ci", "acme", frozenset(models))


def names(found: dict[str, list[dict[str, str]]]) -> Iterator[str]:
    return (one["id"] for one in found["data"])


def test_a_key_sees_the_models_that_it_may_call_and_are_there(listed: ModelList) -> None:
    assert set(names(listed.all(None, "acme"))) >= {"reader", "writer"}
    assert listed.all(Key("ci", "acme"), "acme") == listed.all(None, "acme")
    assert list(names(listed.all(key("writer", "gone"), "acme"))) == ["writer"]
    assert listed.all(key(), "acme")["data"] == []


def test_a_model_of_others_is_forbidden_and_one_that_is_not_there_unknown(
    listed: ModelList,
) -> None:
    assert listed.one("writer", key("writer"), "acme")["id"] == "writer"
    with pytest.raises(ModelForbidden):
        listed.one("reader", key("writer"), "acme")
    with pytest.raises(ModelForbidden) as told:
        listed.one("nobody", key("writer"), "acme")
    assert "reader" not in str(told.value)
    with pytest.raises(ModelUnknown):
        listed.one("gone", key("gone"), "acme")


def test_a_tenant_sees_the_models_that_it_has_a_grant_for(registry: CallRegistry) -> None:
    granted = {"acme": {"writer", "gone"}}
    listed = ModelList(registry, lambda tenant, model: model in granted.get(tenant, MODELS))
    assert list(names(listed.all(None, "acme"))) == ["writer"]
    assert list(names(listed.all(key("reader", "writer"), "acme"))) == ["writer"]
    assert set(names(listed.all(None, "globex"))) >= {"reader", "writer"}
    assert listed.one("writer", None, "acme")["id"] == "writer"
    for name in ("reader", "nobody"):
        with pytest.raises(ModelNotGranted):
            listed.one(name, None, "acme")
    with pytest.raises(ModelUnknown) as told:
        listed.one("gone", None, "acme")
    assert ("writer" in str(told.value), "reader" in str(told.value)) == (True, False)
