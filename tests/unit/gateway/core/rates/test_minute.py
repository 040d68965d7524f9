"""No more than the limit within any minute, wherever it begins."""

from random import Random

from hocket.gateway.core.rates.minute import SLOTS, Minute

LIMIT = 50


def test_what_was_used_counts_until_the_minute_behind_its_slot_is_over() -> None:
    minute = Minute()
    minute.take(1_000, 7)
    assert minute.used(1_000 + SLOTS) == 7
    assert minute.used(1_000 + SLOTS + 1) == 0


def test_there_is_room_again_when_enough_is_over() -> None:
    minute = Minute()
    minute.take(100, 30)
    minute.take(200, 20)
    assert minute.room_at(300, 1, LIMIT) == 100 + SLOTS + 1
    assert minute.room_at(300, 31, LIMIT) == 200 + SLOTS + 1
    assert minute.room_at(300, 0, LIMIT) == 300


def test_what_is_beyond_the_limit_by_itself_waits_until_nothing_else_counts() -> None:
    minute = Minute()
    assert minute.room_at(100, LIMIT + 1, LIMIT) == 100
    minute.take(100, 1)
    assert minute.room_at(300, LIMIT + 1, LIMIT) == 100 + SLOTS + 1


def test_what_was_expected_is_corrected_by_what_was_used() -> None:
    minute = Minute()
    slot = minute.take(100, 40)
    minute.correct(slot, -30)
    assert minute.used(100) == 10
    assert minute.used(100 + SLOTS + 1) == 0
    minute.correct(slot, 30)
    assert minute.used(100 + SLOTS + 1) == 0, "its minute is over"


def test_no_minute_has_more_than_the_limit() -> None:
    dice, minute, now = Random(5), Minute(), 0
    used: list[tuple[int, int]] = []
    for _ in range(2_000):
        now += dice.randrange(0, 20)
        amount = dice.randrange(1, 9)
        if minute.room_at(now, amount, LIMIT) == now:
            minute.take(now, amount)
            used.append((now, amount))
    assert len(used) > 200
    for first, _ in used:
        within = [amount for slot, amount in used if first <= slot <= first + SLOTS]
        assert sum(within) <= LIMIT
