"""No more than the limit within any minute, wherever it begins."""

from random import Random
from typing import Any

from hocket.gateway.core.rates.minute import OVERDUE_SLOTS, SLOTS, Minute

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


def test_what_is_beyond_the_limit_by_itself_does_not_wait_for_slots_that_count_nothing() -> None:
    minute = Minute()
    minute.settle(minute.expect(100, 90), 90, 0, 200)
    minute.take(250, 0)
    assert minute.room_at(300, LIMIT + 1, LIMIT) == 300
    minute.take(150 + SLOTS, 1)
    minute.take(160 + SLOTS, 0)
    assert minute.room_at(170 + SLOTS, LIMIT + 1, LIMIT) == 150 + 2 * SLOTS + 1


def test_what_a_call_used_counts_from_its_beginning() -> None:
    minute = Minute()
    slot = minute.expect(100, 40)
    assert minute.used(100) == 40
    minute.settle(slot, 40, 30, 100 + SLOTS)
    assert minute.used(100 + SLOTS) == 30
    assert minute.used(100 + SLOTS + 1) == 0


def test_calls_of_up_to_a_minute_get_the_whole_rate() -> None:
    for took in (1, 100, 300, SLOTS):
        minute, in_progress, used = Minute(), list[Any](), 0
        for now in range(4 * SLOTS):
            while in_progress and in_progress[0][0] <= now:
                minute.settle(in_progress.pop(0)[1], 10, 10, now)
            while minute.room_at(now, 10, LIMIT) == now:
                in_progress.append((now + took, minute.expect(now, 10)))
                used += 10
        assert used == 4 * LIMIT, took


def test_what_a_call_of_over_a_minute_is_expected_to_use_counts_until_it_has_ended() -> None:
    minute = Minute()
    slot = minute.expect(100, 40)
    minute.take(100, 5)
    assert minute.used(100 + SLOTS) == 45
    assert minute.used(100 + SLOTS + 1) == 40, "it is in progress"
    minute.settle(slot, 40, 0, 100 + SLOTS + 1)
    assert minute.used(100 + SLOTS + 1) == 0


def test_of_a_call_of_over_a_minute_counts_what_it_used_in_its_last_minute() -> None:
    minute, ends = Minute(), 100 + 615
    slot = minute.expect(100, 40)
    minute.settle(slot, 40, 50_000, ends)
    assert minute.used(ends + SLOTS) == 48_781
    assert minute.used(ends + SLOTS + 1) == 0


def test_a_clock_that_is_set_back_changes_nothing_of_what_a_call_used() -> None:
    minute = Minute()
    slot = minute.expect(1_000, 40)
    minute.used(1_000 + SLOTS + 1)
    minute.settle(slot, 40, 30, 1_000)
    assert minute.used(1_000) == 30


def test_calls_that_began_in_one_slot_end_one_by_one() -> None:
    minute, over = Minute(), 100 + SLOTS + 1
    slots = [minute.expect(100, amount) for amount in (1, 2, 4)]
    minute.settle(slots[0], 1, 0, 100)
    assert minute.used(100) == 6
    assert minute.used(over) == 6
    minute.settle(slots[2], 4, 0, over)
    minute.settle(slots[1], 2, 0, over)
    assert minute.used(over) == 0


def test_a_call_in_progress_for_over_a_minute_is_assumed_to_end_soon() -> None:
    minute = Minute()
    minute.expect(100, 40)
    now = 100 + SLOTS + 1
    assert minute.room_at(100, 20, LIMIT) == now
    assert minute.room_at(now, 20, LIMIT) == now + OVERDUE_SLOTS
    minute.take(now - SLOTS + 2, 8)  # counts for 3 more slots
    minute.take(now, 2)
    assert minute.room_at(now, 8, LIMIT) == now + 3
    assert minute.room_at(now, 20, LIMIT) == now + OVERDUE_SLOTS
    assert minute.room_at(now, LIMIT, LIMIT) == now + SLOTS + 1


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
