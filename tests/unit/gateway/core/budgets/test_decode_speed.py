"""How many tokens of a whole answer an engine has written when it is stopped."""

import random

import pytest

from hocket.gateway.core.budgets.decode_speed import (
    LEAST_ANSWERS,
    MAX_BACKENDS,
    DecodeSpeeds,
    kind_of,
)


@pytest.mark.parametrize(("wait_ms", "ms_of_one"), [(0.0, 20.0), (300.0, 8.0), (2_000.0, 25.0)])
def test_answers_of_several_lengths_tell_the_wait_and_the_speed(
    wait_ms: float, ms_of_one: float
) -> None:
    dice, speeds = random.Random(1), DecodeSpeeds()
    for _ in range(60):
        tokens = dice.randint(10, 400)
        speeds.learn("e", tokens, (wait_ms + tokens * ms_of_one) * dice.uniform(0.95, 1.05))
    for tokens in (20, 150, 300):
        found = speeds.tokens_within("e", wait_ms + tokens * ms_of_one)
        assert found == pytest.approx(tokens, rel=0.1, abs=4)
    assert speeds.tokens_within("e", wait_ms / 2) == pytest.approx(0, abs=8)


def test_answers_that_were_late_to_arrive_tell_nothing_of_the_engine() -> None:
    """As many as three in five; those that are short are late like the others."""
    dice, speeds = random.Random(1), DecodeSpeeds()
    for number in range(60):
        tokens = 24 if number % 4 else 200
        late_ms = dice.uniform(100, 500) if dice.random() < 0.6 else 0
        speeds.learn("e", tokens, 10 * tokens + late_ms)
    for tokens in (15, 40, 150):
        assert speeds.tokens_within("e", 10 * tokens) == pytest.approx(tokens, rel=0.1, abs=2)


def test_answers_of_one_length_tell_the_mean_speed() -> None:
    speeds = DecodeSpeeds()
    for _ in range(20):
        speeds.learn("e", 100, 5_000)
    assert speeds.tokens_within("e", 1_000) == pytest.approx(20)


def test_the_first_answers_tell_the_mean_speed_and_no_wait() -> None:
    speeds = DecodeSpeeds()
    for number in range(LEAST_ANSWERS - 1):
        speeds.learn("e", 100 + 50 * number, 20 * (100 + 50 * number))
        assert speeds.tokens_within("e", 1_000) == pytest.approx(50)


def test_answers_without_tokens_tell_nothing() -> None:
    speeds = DecodeSpeeds()
    speeds.learn("e", 0, 5_000)
    assert speeds.tokens_within("e", 1_000) is None
    assert speeds.tokens_within("other", 1_000) is None


def test_what_was_known_of_a_backend_is_restored_as_it_was() -> None:
    speeds, restored = DecodeSpeeds(), DecodeSpeeds()
    for tokens in range(20, 200, 10):
        speeds.learn("e", tokens, 300 + tokens * 8)
    kind = kind_of("e")
    assert restored.count(kind) == 0
    restored.restore(kind, speeds.kept(kind))
    assert restored.count(kind) == speeds.count(kind) == 18
    assert restored.tokens_within("e", 1_100) == pytest.approx(100, rel=0.01)


def test_single_slow_answers_do_not_count() -> None:
    speeds = DecodeSpeeds()
    for number in range(40):
        tokens = 50 + 5 * number
        speeds.learn("e", tokens, tokens * 20 + (8_000 if number % 13 == 6 else 100))
    assert speeds.tokens_within("e", 100 + 150 * 20) == pytest.approx(150, rel=0.1)


def test_a_faster_engine_is_known_after_some_fifty_answers() -> None:
    speeds = DecodeSpeeds()
    for ms_of_one in [50] * 200 + [10] * 200:
        speeds.learn("e", 100, 100 * ms_of_one)
    assert speeds.tokens_within("e", 1_000) == pytest.approx(100, rel=0.1)


def test_no_more_backends_are_remembered_than_the_bound() -> None:
    speeds = DecodeSpeeds()
    for number in range(MAX_BACKENDS + 50):
        for _ in range(LEAST_ANSWERS):
            speeds.learn(f"e{number}", 10, 100)
    known = [speeds.tokens_within(f"e{n}", 50) is not None for n in range(MAX_BACKENDS + 50)]
    assert known == [False] * 50 + [True] * MAX_BACKENDS
