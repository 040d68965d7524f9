"""The emulated engine's time: prefill in a row, decoding in a batch, prefixes that are kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.emulator.core.engine import Engine, EngineFull
from hocket.emulator.core.job import Event, Finished, Job, Prefilled
from hocket.emulator.core.prefix_cache import PrefixCache
from hocket.emulator.core.profile import EngineProfile

FAR_MS = 1e9


def profile(**fields: object) -> EngineProfile:
    """1 token of prompt a millisecond, 1 token of reply in 10 ms, no shared limit in reach."""
    speeds = {"prefill_tokens_per_s": 1_000, "decode_tokens_per_s": 100, "batch_tokens_per_s": 1e6}
    return EngineProfile.model_validate({**speeds, "block_tokens": 10, **fields})


def ends(events: list[Event]) -> dict[str, float]:
    return {event.job_id: event.at_ms for event in events if isinstance(event, Finished)}


def first_tokens(events: list[Event]) -> dict[str, float]:
    return {event.job_id: event.at_ms for event in events if isinstance(event, Prefilled)}


def test_a_job_takes_its_prefill_and_one_interval_for_each_further_token() -> None:
    engine = Engine(profile(), now_ms=0)
    engine.submit(Job("a", 50, 5), 0)
    events = engine.advance(FAR_MS)
    assert first_tokens(events) == {"a": 50}
    assert ends(events) == pytest.approx({"a": 50 + 4 * 10})


def test_prompts_are_read_one_after_the_other() -> None:
    engine = Engine(profile(), now_ms=0)
    engine.submit(Job("a", 50, 1), 0)
    engine.submit(Job("b", 30, 1), 0)
    assert first_tokens(engine.advance(FAR_MS)) == {"a": 50, "b": 80}


def test_a_full_batch_lets_the_next_job_wait_for_an_end() -> None:
    engine = Engine(profile(max_running=1), now_ms=0)
    engine.submit(Job("a", 10, 11), 0)
    engine.submit(Job("b", 10, 1), 0)
    assert (engine.running, engine.waiting) == (1, 1)
    assert first_tokens(engine.advance(FAR_MS)) == pytest.approx({"a": 10, "b": 110 + 10})


def test_a_batch_at_its_limit_shares_it() -> None:
    """100 tokens/s for all: alone 10 ms a token, two at once 20 ms each."""
    engine = Engine(profile(batch_tokens_per_s=100, prefill_tokens_per_s=1e9), now_ms=0)
    engine.submit(Job("a", 1, 11), 0)
    engine.submit(Job("b", 1, 6), 0)
    events = engine.advance(FAR_MS)
    assert ends(events) == pytest.approx({"b": 5 * 20, "a": 5 * 20 + 5 * 10}, abs=0.01)


def test_a_prefix_that_is_cached_is_not_read_again() -> None:
    engine = Engine(profile(), now_ms=0)
    engine.submit(Job("a", 35, 1, ("x", "y", "z")), 0)
    engine.submit(Job("b", 35, 1, ("x", "y", "q")), 0)
    events = engine.advance(FAR_MS)
    assert [e.cached_tokens for e in events if isinstance(e, Prefilled)] == [0, 20]
    assert first_tokens(events)["b"] == 35 + 15


def test_the_last_token_of_a_prompt_is_always_read() -> None:
    engine = Engine(profile(), now_ms=0)
    engine.submit(Job("a", 20, 1, ("x", "y")), 0)
    engine.submit(Job("b", 20, 1, ("x", "y")), 0)
    events = engine.advance(FAR_MS)
    assert [e.cached_tokens for e in events if isinstance(e, Prefilled)] == [0, 19]


def test_embeddings_end_with_their_prefill() -> None:
    engine = Engine(profile(), now_ms=0)
    engine.submit(Job("a", 20, 0), 0)
    assert ends(engine.advance(FAR_MS)) == {"a": 20}


def test_tokens_are_there_when_they_are_due_and_not_before() -> None:
    engine = Engine(profile(), now_ms=0)
    engine.submit(Job("a", 50, 5), 0)
    seen = []
    for now_ms in (49.9, 50, 59.9, 60, 89.9):
        engine.advance(now_ms)
        seen.append(engine.emitted("a"))
    assert seen == [0, 1, 1, 2, 4]
    assert engine.next_token_ms("a") == pytest.approx(90)


def test_a_cancelled_job_gives_its_place_to_the_next() -> None:
    engine = Engine(profile(max_running=1), now_ms=0)
    engine.submit(Job("a", 10, 1_000), 0)
    engine.submit(Job("b", 10, 1), 0)
    emitted, _ = engine.cancel("a", 30)
    assert emitted == 3
    assert first_tokens(engine.advance(FAR_MS)) == {"b": 40}


def test_a_closed_engine_keeps_jobs_until_it_opens() -> None:
    engine = Engine(profile(), now_ms=0, is_open=False)
    engine.submit(Job("a", 10, 1), 0)
    assert engine.advance(500) == []
    engine.open(1_000)
    assert first_tokens(engine.advance(FAR_MS)) == {"a": 1_010}


def test_what_happened_until_it_opens_is_told() -> None:
    engine = Engine(profile(), now_ms=0)
    engine.submit(Job("a", 10, 1), 0)
    assert ends(engine.open(1_000)) == {"a": 10}


def test_a_full_waiting_room_refuses() -> None:
    engine = Engine(profile(max_running=1, max_waiting=1), now_ms=0)
    engine.submit(Job("a", 10, 1), 0)
    engine.submit(Job("b", 10, 1), 0)
    with pytest.raises(EngineFull):
        engine.submit(Job("c", 10, 1), 0)


def test_a_chain_is_forgotten_from_its_end() -> None:
    cache = PrefixCache(3)
    cache.keep(("a", "b", "c"))
    cache.keep(("d",))
    assert cache.longest_prefix(("a", "b", "c")) == 2


@given(
    st.lists(
        st.tuples(
            st.floats(0, 100),  # after the one before
            st.integers(1, 200),
            st.integers(0, 40),
            st.lists(st.sampled_from("xyz"), max_size=5),
        ),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 5),
    st.floats(50, 1_000),
)
def test_every_job_ends_once_in_a_time_that_the_speeds_allow(
    jobs: list[tuple[float, int, int, list[str]]], max_running: int, batch_rate: float
) -> None:
    engine = Engine(profile(max_running=max_running, batch_tokens_per_s=batch_rate), now_ms=0)
    events: list[Event] = []
    now_ms = 0.0
    submitted_ms = {}
    for number, (gap_ms, prompt, output, chain) in enumerate(jobs):
        now_ms += gap_ms
        submitted_ms[str(number)] = now_ms
        events += engine.submit(Job(str(number), prompt, output, chain), now_ms)
        assert engine.running <= max_running
    events += engine.advance(FAR_MS)
    finished = [event.job_id for event in events if isinstance(event, Finished)]
    assert sorted(finished) == sorted(submitted_ms)
    assert [event.at_ms for event in events] == sorted(event.at_ms for event in events)
    for number, (_, _, output, _) in enumerate(jobs):
        at_least_ms = max(output - 1, 0) * 10
        took_ms = ends(events)[str(number)] - first_tokens(events)[str(number)]
        assert took_ms >= at_least_ms * (1 - 1e-6)
    made = sum(max(output - 1, 0) for _, _, output, _ in jobs)
    assert max(ends(events).values()) >= made / batch_rate * 1000 * (1 - 1e-6)
    assert engine.running == engine.waiting == 0
