"""The rule of the cache's entries: hit, compute or wait."""

import pytest

from hocket.coordinator.core.reuse.cache_entry import Claim, Entry, Verdict, seen, verdict

NOW_MS = 1_000.0
THEIRS = Claim("r2", "b", until_ms=2_000)


def told(entry: Entry, ttl_ms: float = 500) -> Verdict:
    return verdict(entry, run_id="r1", step="a", ttl_ms=ttl_ms, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (Entry(), "compute"),
        (Entry(filled_at_ms=900, fresh_until_ms=1_001), "hit"),
        (Entry(filled_at_ms=900, fresh_until_ms=1_000), "compute"),
        (Entry(filled_at_ms=500, fresh_until_ms=9_000), "compute"),
        (Entry(filled_at_ms=501, fresh_until_ms=9_000, claim=THEIRS), "hit"),
        (Entry(filled_at_ms=500, fresh_until_ms=9_000, claim=THEIRS), "wait"),
        (Entry(claim=THEIRS), "wait"),
        (Entry(claim=Claim("r2", "b", until_ms=1_000)), "compute"),
        (Entry(claim=Claim("r2", "b", until_ms=2_000, holder_ended=True)), "wait"),
        (Entry(claim=Claim("r1", "a", until_ms=2_000)), "compute"),
        (Entry(claim=Claim("r1", "other", until_ms=2_000)), "wait"),
    ],
)
def test_what_an_entry_means_for_who_asks(entry: Entry, expected: str) -> None:
    assert told(entry) == expected


@pytest.mark.parametrize(
    ("until_ms", "ended", "expected_ms"),
    [(9_000, False, 9_000), (9_000, True, 3_000), (1_500, True, 1_500)],
)
def test_a_claim_whose_holder_has_ended_is_over_two_seconds_after_that_was_seen(
    until_ms: float, ended: bool, expected_ms: float
) -> None:
    claim = Claim("r2", "b", until_ms=until_ms, holder_ended=ended)
    assert seen(claim, NOW_MS).until_ms == expected_ms
