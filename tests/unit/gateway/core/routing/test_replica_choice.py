"""The choice of a replica: deterministic, from exact counters, and explained."""

from dataclasses import replace
from decimal import Decimal

import pytest

from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.config.table import (
    BackendSpec,
    Hosting,
    Mode,
    ModelSpec,
    PoolSpec,
    RoutingTable,
)
from hocket.gateway.core.errors import ModelUnknown
from hocket.gateway.core.routing.breaker import BreakerRule, Outcome
from hocket.gateway.core.routing.history import CallDurations
from hocket.gateway.core.routing.replica_choice import (
    CallFacts,
    Decision,
    View,
    alternatives,
    choose,
)
from hocket.gateway.core.routing.tenant_breakers import ReplicaBreaker

WRITER = CallFacts("writer")


def backend(
    name: str,
    *,
    limit: int = 10,
    usd: str = "1",
    replica: str = "",
    hosting: Hosting = "dedicated",
    pool: str = "",
) -> BackendSpec:
    return BackendSpec(
        name,
        "openai",
        "m",
        base_url="http://x",
        limit=limit,
        prices=Prices(Decimal(usd)),
        replica=replica,
        hosting=hosting,
        pool=pool,
    )


def table(*backends: BackendSpec, mode: Mode = "auto", **pools: PoolSpec) -> RoutingTable:
    return RoutingTable({"writer": ModelSpec(backends, mode)}, {"editor": "writer"}, pools)


def opened(until_ms: float = 400.0) -> ReplicaBreaker:
    breaker = ReplicaBreaker(BreakerRule(failures_in_a_row=1, open_ms=until_ms), lambda _: 0.5)
    breaker.ended("", Outcome.FAILED, 0, began_ms=0)
    return breaker


def chosen(decision: Decision) -> str | None:
    return decision.chosen.key if decision.chosen else None


def test_the_backend_with_the_smallest_share_of_its_limit_in_use_is_chosen() -> None:
    two = table(backend("small", limit=4), backend("large", limit=100))
    assert chosen(choose(two, WRITER, View(0, {"small": 1, "large": 20}))) == "large"


def test_the_cheaper_backend_wins_at_equal_load() -> None:
    two = table(backend("dear", usd="3"), backend("cheap", usd="0.2"))
    assert chosen(choose(two, WRITER, View(0))) == "cheap"


def test_the_order_of_the_configuration_decides_a_tie() -> None:
    assert chosen(choose(table(backend("b"), backend("a")), WRITER, View(0))) == "b"


def test_an_alias_is_routed_like_its_model() -> None:
    assert chosen(choose(table(backend("a")), CallFacts("editor"), View(0))) == "a"


def test_a_backend_at_its_limit_gets_no_call() -> None:
    two = table(backend("full", limit=1, usd="0"), backend("free", usd="9"))
    assert chosen(choose(two, WRITER, View(0, {"full": 1}))) == "free"


def test_a_backend_that_was_tried_is_not_asked_again() -> None:
    two = table(backend("a"), backend("b"))
    assert chosen(choose(two, replace(WRITER, tried=("a",)), View(0))) == "b"


def test_each_replica_of_a_backend_is_chosen_and_counted_by_itself() -> None:
    two = table(backend("gpu", replica="r1", limit=2), backend("gpu", replica="r2", limit=2))
    assert chosen(choose(two, WRITER, View(0, {"gpu/r1": 1}))) == "gpu/r2"


def test_a_resting_backend_is_asked_again_when_its_rest_ends() -> None:
    two = table(backend("a", usd="0"), backend("b"))
    views = [View(now_ms, resting_until_ms={"a": 100.0}) for now_ms in (99, 100)]
    assert [chosen(choose(two, WRITER, view)) for view in views] == ["b", "a"]


def test_without_a_free_backend_the_earliest_end_of_rest_is_told() -> None:
    two = table(backend("a"), backend("b"))
    decision = choose(two, WRITER, View(10, resting_until_ms={"a": 900.0, "b": 400.0}))
    assert (decision.chosen, decision.retry_at_ms, decision.unroutable) == (None, 400.0, False)


def test_a_call_that_tried_every_backend_is_hopeless() -> None:
    assert choose(table(backend("a")), replace(WRITER, tried=("a",)), View(0)).unroutable


def test_calls_spill_to_somebody_elses_machines_only_when_ours_are_full() -> None:
    two = table(backend("cloud", usd="0", hosting="serverless"), backend("ours", limit=1, usd="9"))
    views = [View(0), View(0, {"ours": 1})]
    assert [chosen(choose(two, WRITER, view)) for view in views] == ["ours", "cloud"]


@pytest.mark.parametrize(("mode", "expected"), [("dedicated", None), ("serverless", "cloud")])
def test_a_mode_keeps_a_model_on_one_kind_of_machine(mode: Mode, expected: str | None) -> None:
    two = table(backend("ours", limit=1), backend("cloud", hosting="serverless"), mode=mode)
    assert chosen(choose(two, WRITER, View(0, {"ours": 1}))) == expected


def test_a_full_pool_refuses_backends_that_have_room_themselves() -> None:
    one = table(backend("a", pool="gpu"), gpu=PoolSpec(2))
    decision = choose(one, WRITER, View(0, {}, {}, {"gpu": 2}))
    assert (decision.chosen, decision.pools) == (None, {"gpu"})


def test_reserved_places_are_for_fast_calls() -> None:
    one = table(backend("a", pool="gpu"), gpu=PoolSpec(3, reserved_fast=1))
    view = View(0, {}, {}, {"gpu": 2}, {"gpu": 2})
    calls = (WRITER, replace(WRITER, fast=True))
    assert [chosen(choose(one, call, view)) for call in calls] == [None, "a"]


def test_a_replica_with_an_open_breaker_gets_no_call() -> None:
    two = table(backend("a", usd="0"), backend("b"))
    assert chosen(choose(two, WRITER, View(0, breakers={"a": opened()}))) == "b"


def test_where_every_breaker_is_open_there_is_nothing_to_wait_for_but_a_time() -> None:
    two = table(backend("a"), backend("b"))
    breakers = {"a": opened(900.0), "b": opened(500.0)}
    decision = choose(two, WRITER, View(0, breakers=breakers))
    assert (decision.pools, decision.unroutable, decision.retry_at_ms) == (set(), False, 500.0)


def test_a_dead_dedicated_pool_spills() -> None:
    two = table(backend("ours"), backend("cloud", hosting="serverless"))
    assert chosen(choose(two, WRITER, View(0, breakers={"ours": opened()}))) == "cloud"


def test_a_floor_of_quality_refuses_worse_and_unknown_backends() -> None:
    best = replace(backend("good", usd="9"), quality=0.8)
    three = table(backend("unknown"), replace(backend("poor"), quality=0.4), best)
    decision = choose(three, replace(WRITER, min_quality=0.7), View(0))
    assert chosen(decision) == "good"
    assert [candidate.refused for candidate in decision.candidates[:2]] == [
        "has quality unknown, below the floor of 0.7",
        "has quality 0.4, below the floor of 0.7",
    ]


def test_a_call_with_a_residency_stays_there_even_if_nobody_is_left() -> None:
    two = table(replace(backend("eu"), residency=frozenset({"eu"}), limit=1), backend("us"))
    call = replace(WRITER, residency="eu")
    assert chosen(choose(two, call, View(0))) == "eu"
    full = choose(two, call, View(0, {"eu": 1}))
    assert (full.chosen, full.pools) == (None, {"eu"})
    assert choose(two, replace(call, residency="de"), View(0)).unroutable


def test_a_call_gets_a_backend_with_the_labels_it_requires() -> None:
    exact = replace(backend("exact", usd="9"), labels=(("precision", "fp16"),))
    two = table(replace(backend("quick"), labels=(("precision", "fp8"),)), exact)
    assert chosen(choose(two, replace(WRITER, labels=(("precision", "fp16"),)), View(0))) == "exact"


def test_by_price_the_cheapest_that_is_good_enough_is_chosen_whatever_its_load() -> None:
    specs = (backend("dear", usd="3"), backend("cheap", usd="0.2", limit=4))
    cheap_first = RoutingTable({"writer": ModelSpec(specs, choose="price")})
    assert chosen(choose(cheap_first, WRITER, View(0, {"cheap": 3}))) == "cheap"
    assert chosen(choose(cheap_first, WRITER, View(0, {"cheap": 4}))) == "dear"


def test_by_latency_the_replica_that_is_usually_the_quickest_is_chosen() -> None:
    durations = CallDurations()
    for replica, took_ms in (("slow", 900.0), ("quick", 90.0)):
        durations.add(("writer", "", ""), replica, took_ms)
    specs = (backend("slow", usd="0"), backend("quick"))
    by_latency = RoutingTable({"writer": ModelSpec(specs, choose="latency")})
    assert chosen(choose(by_latency, WRITER, View(0, durations=durations))) == "quick"


@pytest.mark.parametrize(
    ("in_flight", "expected"),
    [
        ({}, "new"),
        ({"new": 1}, "known"),
        ({"new": 3, "known": 9}, "known"),
        ({"new": 1, "known": 10}, "new"),
    ],
)
def test_by_latency_a_replica_that_has_not_answered_yet_gets_one_call_at_a_time(
    in_flight: dict[str, int], expected: str
) -> None:
    durations = CallDurations()
    durations.add(("writer", "", ""), "known", 900.0)
    specs = (backend("known"), backend("new"))
    by_latency = RoutingTable({"writer": ModelSpec(specs, choose="latency")})
    view = View(0, in_flight, durations=durations)
    assert chosen(choose(by_latency, WRITER, view)) == expected


def with_fallback() -> RoutingTable:
    return RoutingTable(
        {
            "writer": ModelSpec((backend("a", limit=1),), fallbacks=("spare",)),
            "spare": ModelSpec((backend("s", usd="0"),)),
        }
    )


def test_a_fallback_model_serves_when_the_own_replicas_failed_or_are_broken() -> None:
    views = (View(0), View(0, breakers={"a": opened()}))
    calls = (replace(WRITER, tried=("a",)), WRITER)
    decided = [choose(with_fallback(), call, view) for call, view in zip(calls, views, strict=True)]
    assert [chosen(decision) for decision in decided] == ["s", "s"]


def test_a_fallback_model_is_not_used_just_because_there_is_no_place() -> None:
    decision = choose(with_fallback(), WRITER, View(0, {"a": 1}))
    assert (decision.chosen, decision.pools) == (None, {"a"})


def test_alternatives_are_the_other_models_that_suit_the_call() -> None:
    eu = replace(backend("e"), residency=frozenset({"eu"}))
    models = {"writer": ModelSpec((backend("a"),)), "eu": ModelSpec((eu,))}
    three = RoutingTable({**models, "us": ModelSpec((backend("u"),))})
    assert alternatives(three, WRITER) == ("eu", "us")
    assert alternatives(three, replace(WRITER, residency="eu")) == ("eu",)


def test_a_decision_names_every_candidate_with_the_reason_against_it() -> None:
    three = table(backend("a"), backend("b", limit=1), backend("c"))
    view = View(0, {"b": 1}, {"c": 5.0})
    decision = choose(three, replace(WRITER, tried=("a",)), view)
    assert {c.backend: c.refused for c in decision.candidates} == {
        "a": "was tried already",
        "b": "is at its limit of 1",
        "c": "asked to rest for another 5 ms",
    }


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelUnknown, match=r"no model `poet`. Known models: editor, writer\."):
        choose(table(backend("a")), CallFacts("poet"), View(0))
