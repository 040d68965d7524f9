"""The choice of a backend: deterministic, from exact counters, and explained."""

from decimal import Decimal

import pytest

from hocket.gateway.core.errors import ModelUnknown
from hocket.gateway.core.price import Prices
from hocket.gateway.core.routing import BackendSpec, RoutingTable, choose


def backend(name: str, *, limit: int = 10, usd: str = "1") -> BackendSpec:
    return BackendSpec(
        name, "openai", "m", base_url="http://x", limit=limit, prices=Prices(Decimal(usd))
    )


def table(*backends: BackendSpec) -> RoutingTable:
    return RoutingTable({"writer": backends}, {"editor": "writer"})


def test_the_backend_with_the_smallest_share_of_its_limit_in_use_is_chosen() -> None:
    decision = choose(
        table(backend("small", limit=4), backend("large", limit=100)),
        "writer",
        {"small": 1, "large": 20},
        0,
    )
    assert decision.chosen == "large"


def test_the_cheaper_backend_wins_at_equal_load() -> None:
    two = table(backend("dear", usd="3"), backend("cheap", usd="0.2"))
    assert choose(two, "writer", {}, 0).chosen == "cheap"


def test_the_order_of_the_configuration_decides_a_tie() -> None:
    two = table(backend("b"), backend("a"))
    assert choose(two, "writer", {}, 0).chosen == "b"


def test_an_alias_is_routed_like_its_model() -> None:
    assert choose(table(backend("a")), "editor", {}, 0).chosen == "a"


def test_a_backend_at_its_limit_gets_no_call() -> None:
    two = table(backend("full", limit=1, usd="0"), backend("free", usd="9"))
    assert choose(two, "writer", {"full": 1}, 0).chosen == "free"


def test_a_backend_that_was_tried_is_not_asked_again() -> None:
    two = table(backend("a"), backend("b"))
    assert choose(two, "writer", {}, 0, tried=("a",)).chosen == "b"


def test_a_resting_backend_is_asked_again_when_its_rest_ends() -> None:
    two = table(backend("a", usd="0"), backend("b"))
    assert [
        choose(two, "writer", {}, now_ms, resting_until_ms={"a": 100.0}).chosen
        for now_ms in (99, 100)
    ] == ["b", "a"]


def test_without_a_free_backend_the_earliest_end_of_rest_is_told() -> None:
    two = table(backend("a"), backend("b"))
    decision = choose(two, "writer", {}, 10, resting_until_ms={"a": 900.0, "b": 400.0})
    assert (decision.chosen, decision.retry_at_ms, decision.hopeless) == (None, 400.0, False)


def test_a_call_that_tried_every_backend_is_hopeless() -> None:
    assert choose(table(backend("a")), "writer", {}, 0, tried=("a",)).hopeless


def test_a_decision_names_every_candidate_with_the_reason_against_it() -> None:
    three = table(backend("a"), backend("b", limit=1), backend("c"))
    decision = choose(three, "writer", {"b": 1}, 0, resting_until_ms={"c": 5.0}, tried=("a",))
    assert {c.backend: c.refused for c in decision.candidates} == {
        "a": "was tried already",
        "b": "is at its limit of 1",
        "c": "asked to rest for another 5 ms",
    }


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelUnknown, match=r"no model `poet`. Known models: editor, writer\."):
        choose(table(backend("a")), "poet", {}, 0)
