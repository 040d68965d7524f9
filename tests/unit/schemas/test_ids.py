"""Identifiers that streams drop repeats by."""

from hocket.schemas import ids

ATTEMPT = ids.attempt_id("r1", "a", 1)


def test_a_dispatch_that_is_repeated_has_its_name_and_one_that_was_decided_anew_another() -> None:
    first = ids.dispatch_id(ATTEMPT, 1_000.001)
    assert first == ids.dispatch_id(ATTEMPT, 1_000.001) != ids.dispatch_id(ATTEMPT, 1_000.002)
    assert first.startswith(ATTEMPT)


def test_a_result_is_named_after_its_dispatch_and_is_not_it() -> None:
    assert ids.result_id(ATTEMPT, 5.0).startswith(ids.dispatch_id(ATTEMPT, 5.0))
    assert ids.result_id(ATTEMPT, 5.0) != ids.dispatch_id(ATTEMPT, 5.0)
    assert ids.result_id(ATTEMPT, None) == f"{ATTEMPT}:f"
