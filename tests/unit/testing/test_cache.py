"""The step cache of a play answers like that of the platform."""

from decimal import Decimal

from hocket.coordinator.core.run.commands import FillCache, LookUpCache, ReleaseCache
from hocket.testing import Play
from hocket.testing.stand_ins.cache import PlayedCache

MINUTE_MS = 60_000


def asks(step: str, ttl_ms: float = MINUTE_MS, until_ms: float = MINUTE_MS) -> LookUpCache:
    return LookUpCache("k", "t", "r", step, ttl_ms=ttl_ms, claim_until_ms=until_ms)


def fills(step: str, output: object = 1, ttl_ms: float = MINUTE_MS) -> FillCache:
    return FillCache("k", "t", "r", step, ttl_ms, output, Decimal(0))


def told(
    cache: PlayedCache, command: LookUpCache | FillCache | ReleaseCache, at_ms: float
) -> dict[str, object]:
    """Return which steps are answered, and with what; None for those whose turn it is."""
    return {
        one.step: one.output if one.hit else None for one in cache.answers(command, now_ms=at_ms)
    }


def test_an_output_is_as_old_at_most_as_the_step_that_asks_accepts() -> None:
    cached = {"type": "python", "handler": "hocket.workers.builtin:echo"}
    pipeline = {
        "pipeline": "p",
        "nodes": {
            "a": cached | {"with": {"n": 1}, "cache": {"ttl_ms": 3_600_000, "key": "'k'"}},
            "wait": {"type": "python", "handler": "x:y", "needs": ["a"], "timeout_ms": 5_000},
            "b": cached
            | {"with": {"n": 2}, "needs": ["wait"], "cache": {"ttl_ms": 1_000, "key": "'k'"}},
            "c": cached
            | {"with": {"n": 3}, "needs": ["b"], "cache": {"ttl_ms": 1_000, "key": "'k'"}},
        },
    }
    play = Play(pipeline)
    play.node("wait", lambda: None)
    play.takes("wait", 3_000)
    steps = play.run().steps
    assert [steps[name].output["n"] for name in "abc"] == [1, 2, 2]
    assert [steps[name].attempts for name in "abc"] == [1, 1, 0]


def test_an_output_is_kept_no_longer_than_the_step_that_computed_it_says() -> None:
    cache = PlayedCache()
    assert told(cache, asks("a"), 0) == {"a": None}
    assert told(cache, fills("a", ttl_ms=1_000), 0) == {}
    assert told(cache, asks("b"), 999) == {"b": 1}
    assert told(cache, asks("b"), 1_000) == {"b": None}


def test_those_that_wait_are_answered_once_however_often_they_ask() -> None:
    cache = PlayedCache()
    assert told(cache, asks("a"), 0) == {"a": None}
    for at_ms in (1, 5_001):
        assert told(cache, asks("b"), at_ms) == {}
    assert len(cache.answers(fills("a"), now_ms=6_000)) == 1


def test_those_that_wait_are_answered_though_another_step_took_the_turn_over() -> None:
    cache = PlayedCache()
    assert told(cache, asks("a", until_ms=100), 0) == {"a": None}
    assert told(cache, asks("b"), 50) == {}
    assert told(cache, asks("c"), 100) == {"c": None}
    assert told(cache, fills("c"), 200) == {"b": 1}


def test_the_first_that_waits_computes_if_the_one_that_did_gives_up() -> None:
    cache = PlayedCache()
    told(cache, asks("a"), 0)
    for step in ("b", "c", "d"):
        assert told(cache, asks(step), 1) == {}
    assert told(cache, ReleaseCache("k", "r", "b"), 2) == {}
    assert told(cache, ReleaseCache("k", "r", "a"), 3) == {"c": None}
    assert told(cache, fills("c"), 4) == {"d": 1}
