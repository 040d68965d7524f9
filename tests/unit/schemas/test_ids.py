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


def test_steps_are_sorted_by_the_numbers_in_their_names() -> None:
    names = ["a", "m", "m[2]", "m[10]", "m[10]/b[9]", "m[10]/b[11]", "m#1", "x" + "9" * 40, "²"]
    assert sorted(set(names), key=ids.by_number) == [
        "a", "m", "m#1", "m[2]", "m[10]", "m[10]/b[9]", "m[10]/b[11]", "x" + "9" * 40, "²"
    ]  # fmt: skip


@pytest.mark.parametrize("end", ["", ":t2", ":r1", ":h", ":r12:h", ":t1:r3:h", "#" + "0f" * 8])
def test_a_request_has_the_id_of_its_call_and_an_end(end: str) -> None:
    assert ids.call_of(f"{ATTEMPT}:1{end}") == f"{ATTEMPT}:1"


def test_no_id_that_a_caller_chooses_is_that_of_a_request_and_no_two_become_one() -> None:
    given = ["job", "job~", "job:h:x", "run:t", "c#1"]
    assert [ids.given_call_id(one) for one in given] == given
    given += [f"job{end}{more}" for end in (":r1", ":r2", ":t1:h", "#" + "a" * 16)
              for more in ("", "~", "~~")]  # fmt: skip
    made = [ids.given_call_id(one) for one in given]
    assert [ids.call_of(one) for one in made] == made
    assert len(set(made)) == len(given)


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
