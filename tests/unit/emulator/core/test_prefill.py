"""What of a prompt is computed, and what is known of it."""

from hocket.emulator.core.job import Job, Prefilled
from hocket.emulator.core.prefill import Prefill
from hocket.emulator.core.prefix_cache import PrefixCache
from hocket.emulator.core.profile import EngineProfile


def made() -> tuple[Prefill, PrefixCache]:
    """A prefill of 1 token a millisecond, with blocks of 10 tokens."""
    cache = PrefixCache(100)
    fields = {"prefill_tokens_per_s": 1_000, "decode_tokens_per_s": 1, "batch_tokens_per_s": 1}
    return Prefill(EngineProfile.model_validate({**fields, "block_tokens": 10}), cache), cache


def test_a_prefix_that_was_computed_before_takes_no_time_but_its_last_token_does() -> None:
    prefill, _ = made()
    job = Job("a", 20, 1, chain=("x", "xy"))
    prefill.begin(job, 100.0)
    assert (prefill.job, prefill.ends_ms) == (job, 120.0)
    assert prefill.end(job, 120.0) == Prefilled("a", 120.0, 0)
    assert prefill.job is None
    again = Job("b", 20, 1, chain=("x", "xy"))
    prefill.begin(again, 200.0)
    assert prefill.ends_ms == 201.0
    assert prefill.end(again, 201.0).cached_tokens == 19


def test_a_prompt_that_is_dropped_leaves_no_prefix_and_others_go_on() -> None:
    prefill, cache = made()
    job = Job("a", 20, 1, chain=("x", "xy"))
    prefill.begin(job, 0.0)
    prefill.drop("b")
    assert prefill.job is job
    prefill.drop("a")
    assert (prefill.job, len(cache)) == (None, 0)
