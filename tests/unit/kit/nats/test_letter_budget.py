"""How many dead letters a flood makes."""

from hocket.kit.nats.letter_budget import (
    BYTES_PER_S,
    LETTER_BYTES,
    LETTERS,
    LETTERS_PER_S,
    LetterBudget,
)


def test_a_thousand_letters_are_kept_and_of_a_flood_as_many_as_there_is_room_for() -> None:
    now_s = 0.0
    budget = LetterBudget(clock_s=lambda: now_s)
    assert sum(budget.takes(100) for _ in range(10 * LETTERS)) == LETTERS
    assert budget.unkept == 9 * LETTERS
    now_s = 100.0
    assert sum(budget.takes(100) for _ in range(1_000)) == 100 * LETTERS_PER_S
    now_s = 1e9
    assert sum(budget.takes(100) for _ in range(10 * LETTERS)) == LETTERS


def test_large_letters_have_a_bound_of_their_own() -> None:
    now_s = 0.0
    budget = LetterBudget(clock_s=lambda: now_s)
    size = 1024 * 1024
    assert sum(budget.takes(size) for _ in range(200)) == LETTER_BYTES // size
    now_s = 10.0
    assert not budget.takes(10 * BYTES_PER_S + 1)
    assert budget.takes(10 * BYTES_PER_S)
