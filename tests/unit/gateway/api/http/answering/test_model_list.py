"""Which models a key sees."""

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from hocket.gateway.api.http.answering.model_list import ModelList
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.config.access import Key, ModelForbidden
from hocket.gateway.core.errors import ModelUnknown
from hocket.gateway.metrics import GatewayMetrics
from support.gateway.routing_rig import Rig, backend

MODELS = {name: {"backends": [backend(name)]} for name in ("writer", "reader")}


@pytest.fixture
async def listed() -> ModelList:
    calls = Rig(MODELS).calls
    return ModelList(CallRegistry(calls, GatewayMetrics(CollectorRegistry())))


def key(*models: str) -> Key:
    return Key("ci", "acme", frozenset(models))


def names(found: dict[str, list[dict[str, str]]]) -> Iterator[str]:
    return (one["id"] for one in found["data"])


def test_a_key_sees_the_models_that_it_may_call_and_are_there(listed: ModelList) -> None:
    assert set(names(listed.all(None))) >= {"reader", "writer"}
    assert listed.all(Key("ci", "acme")) == listed.all(None)
    assert list(names(listed.all(key("writer", "gone")))) == ["writer"]
    assert listed.all(key())["data"] == []


def test_a_model_of_others_is_forbidden_and_one_that_is_not_there_unknown(
    listed: ModelList,
) -> None:
    assert listed.one("writer", key("writer"))["id"] == "writer"
    with pytest.raises(ModelForbidden):
        listed.one("reader", key("writer"))
    with pytest.raises(ModelForbidden) as told:
        listed.one("nobody", key("writer"))
    assert "reader" not in str(told.value)
    with pytest.raises(ModelUnknown):
        listed.one("gone", key("gone"))
