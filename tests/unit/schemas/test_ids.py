"""Identifiers that streams drop repeats by."""

import pytest

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


@pytest.mark.parametrize(
    ("given", "read_back"),
    [
        (1e20, 100000000000000000000), (1e23, 10**23), (-1.5e17, -150000000000000000),
        (-0.0, 0.0), (1e-7, 1e-7), (123456789012345680.0, 123456789012345680),
    ],
)  # fmt: skip
def test_an_input_has_the_digest_that_it_has_once_it_is_read_from_postgres(
    given: float, read_back: float
) -> None:
    before, after = ({"b": ["-0.0 e+", {"x": number}], "a": 1} for number in (given, read_back))
    assert ids.input_digest(before) == ids.input_digest(after)


def test_inputs_of_other_numbers_have_other_digests() -> None:
    digests = {ids.input_digest({"x": number}) for number in (1e20, 1e21, 1.0, 1, 0.0, "1e+20")}
    assert len(digests) == 6
