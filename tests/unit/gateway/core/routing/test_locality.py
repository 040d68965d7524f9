"""Prefix caches as the gateway knows them, and the choice that follows."""

import random
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hocket.gateway.core.config.table import BackendSpec, ModelSpec, RoutingTable
from hocket.gateway.core.routing.locality import (
    PREFILL_WEIGHT,
    PrefixCache,
    Prompt,
    ReplicaCache,
    chained,
    prompt_of,
)
from hocket.gateway.core.routing.replica_choice import CallFacts, View, choose
from hocket.schemas.messages import CallRequest

CACHE = PrefixCache(tokens=1_000, block_tokens=100, prefill_tokens_per_s=1_000)
BLOCK_CHARS = 4 * 100


def prompt(*blocks: int) -> Prompt:
    return Prompt(blocks, 100 * len(blocks), 100)


def test_a_call_costs_the_wait_and_twice_about_what_is_not_cached() -> None:
    cache = ReplicaCache(CACHE)
    cache.send(prompt(1, 2, 3), 0.0)
    fit = cache.fit(prompt(1, 2, 9), 100.0)
    assert (fit.wait_ms, fit.prefill_ms, fit.cached_tokens) == (200.0, 100.0, 200)
    assert fit.cost_ms == 200.0 + PREFILL_WEIGHT * 100.0


def test_only_a_prefix_is_a_hit() -> None:
    cache = ReplicaCache(CACHE)
    cache.send(prompt(1, 2, 3), 0.0)
    assert cache.fit(prompt(9, 2, 3), 0.0).cached_tokens == 0


def test_the_blocks_not_used_for_longest_go_first() -> None:
    cache = ReplicaCache(CACHE)
    cache.send(prompt(*range(1, 7)), 0.0)
    cache.send(prompt(*range(11, 15)), 1.0)
    cache.send(prompt(1, 2), 2.0)
    cache.send(prompt(21, 22), 3.0)
    cached = [cache.fit(prompt(*blocks), 3.0).cached_tokens for blocks in ((1, 2, 3), (11, 12))]
    assert cached == [200, 200]
    assert cache.oldest_ms() == 0.0


def test_a_replica_with_nothing_to_do_has_no_queue() -> None:
    cache = ReplicaCache(CACHE)
    cache.send(prompt(1, 2, 3), 0.0)
    cache.idle()
    assert cache.fit(prompt(1), 0.0).wait_ms == 0.0


def test_a_replica_that_tells_and_had_nothing_was_started_again() -> None:
    cache = ReplicaCache(CACHE)
    cache.send(prompt(1, 2, 3), 0.0)
    cache.metered(0, 0)
    cache.metered(300, 0)
    assert cache.fit(prompt(1, 2), 0.0).cached_tokens == 200, "one that never tells is believed"
    cache.metered(300, 300)
    cache.metered(300, 0)
    assert cache.fit(prompt(1, 2), 0.0).cached_tokens == 0


@given(st.lists(st.text(max_size=900), max_size=4), st.lists(st.text(max_size=900), max_size=4))
def test_equal_beginnings_are_equal_blocks_and_no_others(
    first: list[str], second: list[str]
) -> None:
    texts = ["\x1e".join(first), "\x1e".join(second)]
    chains = [chained(one, 100).blocks for one in (first, second)]
    common = 0
    while texts[0][: common + 1] == texts[1][: common + 1] and common < min(map(len, texts)):
        common += 1
    same = sum(1 for a, b in zip(*chains, strict=False) if a == b)
    assert same == common // BLOCK_CHARS
    assert [len(chain) for chain in chains] == [len(text) // BLOCK_CHARS for text in texts]


def test_a_conversation_continued_keeps_its_blocks() -> None:
    def turn(*contents: str) -> Prompt:
        messages: list[dict[str, Any]] = [{"role": "user", "content": one} for one in contents]
        call = {"call_id": "c", "model": "m", "deadline_at_ms": 0.0, "messages": messages}
        return prompt_of(CallRequest.model_validate(call), 100)

    first = turn("a" * 1_000)
    second = turn("a" * 1_000, "b" * 1_000)
    assert len(first.blocks) == 2
    assert second.blocks[:2] == first.blocks
    assert second.tokens == 1 + 2_001 // 4


# ---- the choice -------------------------------------------------------------------------------


class Fleet:
    """Replicas of one model with their caches."""

    def __init__(self, replicas: int) -> None:
        specs = tuple(
            BackendSpec("llm", "openai", "m", replica=str(n), limit=99, prefix_cache=CACHE)
            for n in range(replicas)
        )
        self.table = RoutingTable({"llm": ModelSpec(specs, choose="locality")})
        self.caches = {spec.key: ReplicaCache(CACHE) for spec in specs}

    def send(self, asked: Prompt, now_ms: float, **view: Any) -> str:
        facts = replace(CallFacts("llm"), prompt=asked)
        decision = choose(self.table, facts, View(now_ms, caches=self.caches, **view))
        assert decision.chosen is not None
        self.caches[decision.chosen.key].send(asked, now_ms)
        return decision.chosen.key


def test_a_call_goes_where_its_prefix_is() -> None:
    fleet = Fleet(3)
    fleet.caches["llm/2"].send(prompt(1, 2, 3, 4), 0.0)
    assert fleet.send(prompt(1, 2, 3, 9), 10_000.0) == "llm/2"


def test_a_call_goes_elsewhere_when_the_wait_there_costs_more_than_the_prefix_saves() -> None:
    fleet = Fleet(2)
    fleet.caches["llm/0"].send(prompt(1, 2), 0.0)
    fleet.caches["llm/0"].send(prompt(*range(10, 18)), 0.0)
    assert fleet.send(prompt(1, 2, 3), 0.0) == "llm/1"


def test_among_equals_the_oldest_cache_is_overwritten() -> None:
    fleet = Fleet(2)
    fleet.caches["llm/0"].send(prompt(*range(10)), 5_000.0)
    fleet.caches["llm/1"].send(prompt(*range(10, 20)), 0.0)
    assert fleet.send(prompt(99), 60_000.0) == "llm/1"


def test_a_replica_with_far_more_calls_than_the_others_is_spared_though_it_has_the_prefix() -> None:
    fleet = Fleet(4)
    fleet.caches["llm/1"].send(prompt(1, 2, 3), 0.0)
    crowd = {"llm/1": 40, "llm/0": 1}
    assert fleet.send(prompt(1, 2, 3), 60_000.0, in_flight=crowd) != "llm/1"


def test_one_block_that_all_share_does_not_draw_all_calls_to_one_replica() -> None:
    fleet, dice = Fleet(4), random.Random(1)
    got = [
        fleet.send(prompt(0, *(dice.getrandbits(40) for _ in range(4))), number * 100.0)
        for number in range(400)
    ]
    assert all(80 <= got.count(f"llm/{n}") <= 120 for n in range(4))
