"""Up to when the ends of runs are known to be told."""

from hocket.coordinator.core.run.ends.notification_watermark import (
    CLOCKS_MS,
    SETTLED_MS,
    NotificationTracker,
    NotificationWatermark,
)

NOW_MS = 1_000_000.0
TOLD_MS = 5_000.0
"""Monotonic, as are SETTLED and those below."""
SETTLED = TOLD_MS + SETTLED_MS


def told_ms(news: NotificationWatermark | None) -> float:
    assert news is not None
    return news.told_ms


def test_nothing_is_news_where_nothing_ended() -> None:
    assert NotificationTracker(NotificationWatermark(NOW_MS)).news(NOW_MS + 60_000, SETTLED) is None


def test_what_is_told_is_news_once_the_clocks_allow_it() -> None:
    untold = NotificationTracker(NotificationWatermark())
    untold.ended("r1", NOW_MS, 1)
    untold.told("r1", TOLD_MS)
    assert told_ms(untold.news(NOW_MS + CLOCKS_MS + 1, SETTLED)) == NOW_MS + 1
    assert untold.news(NOW_MS + 2 * CLOCKS_MS, SETTLED) is None, "there is no later end to tell of"


def test_an_end_that_was_told_a_moment_ago_is_not_known_to_be_kept() -> None:
    untold = NotificationTracker(NotificationWatermark())
    untold.ended("r1", NOW_MS, 1)
    untold.told("r1", TOLD_MS)
    assert len(untold) == 0, "nobody need wait for it"
    assert told_ms(untold.news(NOW_MS + 60_000, SETTLED - 1)) == NOW_MS
    assert told_ms(untold.news(NOW_MS + 60_000, SETTLED)) == NOW_MS + 60_000 - CLOCKS_MS


def test_an_end_that_was_told_again_settles_anew() -> None:
    untold = NotificationTracker(NotificationWatermark())
    for at_ms in (TOLD_MS, SETTLED):
        untold.ended("r1", NOW_MS, 1)
        untold.told("r1", at_ms)
    assert told_ms(untold.news(NOW_MS + 60_000, SETTLED)) == NOW_MS
    assert untold.kept_ms == NOW_MS


def test_an_end_that_is_not_told_holds_the_time_back() -> None:
    untold = NotificationTracker(NotificationWatermark())
    untold.ended("r1", NOW_MS, 1)
    untold.ended("r2", NOW_MS + 10, 1)
    untold.told("r2", TOLD_MS)
    assert told_ms(untold.news(NOW_MS + 60_000, SETTLED)) == NOW_MS


def test_an_end_that_takes_two_posts_is_told_with_the_second() -> None:
    untold = NotificationTracker(NotificationWatermark())
    untold.ended("r1", NOW_MS, 2)
    untold.told("r1", TOLD_MS)
    assert len(untold) == 1
    untold.told("r1", TOLD_MS)
    assert len(untold) == 0


def test_an_end_that_waits_for_its_commit_holds_the_time_back_however_long() -> None:
    untold = NotificationTracker(NotificationWatermark())
    untold.decided("r1", NOW_MS)
    assert told_ms(untold.news(NOW_MS + 12 * CLOCKS_MS, SETTLED)) == NOW_MS
    untold.ended("r1", NOW_MS, 1)
    untold.told("r1", TOLD_MS)  # it is committed
    assert untold.news(NOW_MS + 12 * CLOCKS_MS, SETTLED) is None
    untold.told("r1", TOLD_MS)  # and its stream has it
    assert told_ms(untold.news(NOW_MS + 12 * CLOCKS_MS, SETTLED)) == NOW_MS + 11 * CLOCKS_MS


def test_an_end_that_is_told_twice_is_told_when_all_posts_are_in() -> None:
    untold = NotificationTracker(NotificationWatermark())
    untold.ended("r1", NOW_MS, 2)
    untold.ended("r1", NOW_MS, 1)
    untold.told("r1", TOLD_MS)
    untold.told("r1", TOLD_MS)
    assert len(untold) == 1
    untold.told("r1", TOLD_MS)
    assert len(untold) == 0


def test_an_end_that_has_settled_is_told_though_an_earlier_one_is_not() -> None:
    """Else every return of the server tells it again, for as long as the earlier one waits."""
    untold = NotificationTracker(NotificationWatermark())
    untold.ended("r1", NOW_MS, 1)
    untold.ended("r2", NOW_MS + 10, 1)
    untold.told("r2", TOLD_MS)
    untold.news(NOW_MS + 60_000, SETTLED - 1)
    assert not untold.has_told("r2", NOW_MS + 10), "the server may lose it still"
    untold.news(NOW_MS + 60_000, SETTLED)
    assert untold.has_told("r2", NOW_MS + 10)
    assert not untold.has_told("r1", NOW_MS)


def test_what_is_before_the_time_that_is_kept_needs_no_place_in_memory() -> None:
    untold = NotificationTracker(NotificationWatermark())
    for number in range(100):
        untold.ended(f"r{number}", NOW_MS + number, 1)
        untold.told(f"r{number}", TOLD_MS)
    assert told_ms(untold.news(NOW_MS + CLOCKS_MS + 50, SETTLED)) == NOW_MS + 50
    assert all(untold.has_told(f"r{number}", NOW_MS + number) for number in range(100))
    assert len(untold._settled) == 50
    untold.news(NOW_MS + 60_000, SETTLED)
    assert not untold._settled


def test_what_a_server_that_came_back_has_still_settles_as_if_it_was_not_told_again() -> None:
    untold = NotificationTracker(NotificationWatermark())
    untold.ended("r1", NOW_MS, 1)
    untold.told("r1", TOLD_MS)
    untold.ended("r1", NOW_MS, 1)
    untold.told("r1", SETTLED - 1, lasting=True)
    assert told_ms(untold.news(NOW_MS + 60_000, SETTLED - 1)) == NOW_MS
    assert told_ms(untold.news(NOW_MS + 60_000, SETTLED)) == NOW_MS + 60_000 - CLOCKS_MS


def test_what_a_server_lost_settles_anew_however_long_it_had_it() -> None:
    untold = NotificationTracker(NotificationWatermark())
    untold.ended("r1", NOW_MS, 1)
    untold.told("r1", TOLD_MS)
    untold.ended("r1", NOW_MS, 1)
    untold.told("r1", SETTLED)
    untold.news(NOW_MS + 60_000, SETTLED + 1)
    assert not untold.has_told("r1", NOW_MS)


def test_an_end_of_which_one_post_may_be_lost_settles_in_its_time() -> None:
    untold = NotificationTracker(NotificationWatermark())
    untold.ended("r1", NOW_MS, 2)
    untold.told("r1", TOLD_MS)
    untold.told("r1", TOLD_MS, lasting=True)
    assert told_ms(untold.news(NOW_MS + 60_000, SETTLED - 1)) == NOW_MS
    assert told_ms(untold.news(NOW_MS + 60_000, SETTLED)) == NOW_MS + 60_000 - CLOCKS_MS


# ---- what an owner leaves to the next one ---------------------------------------------------

LATER_MS = NOW_MS + 60_000
AHEAD_MS = LATER_MS - CLOCKS_MS
"""Before when all is acknowledged that ended until LATER_MS."""


def left_by(owner: NotificationTracker, at_ms: float) -> NotificationWatermark:
    """Return what an owner keeps last."""
    told = owner.news(LATER_MS, at_ms)
    assert told is not None
    return told


def told_again(untold: NotificationTracker, at_ms: float, *, lost: bool = False) -> None:
    untold.ended("r1", NOW_MS, 1)
    untold.told("r1", at_ms, lasting=not lost)


def owned(*, acked: bool = True) -> NotificationTracker:
    """Return what an owner has seen who told an end, and saw it acknowledged at TOLD_MS."""
    untold = NotificationTracker(NotificationWatermark())
    untold.ended("r1", NOW_MS, 1)
    if acked:
        untold.told("r1", TOLD_MS)
    return untold


def test_an_owner_keeps_before_when_ends_are_acknowledged_and_since_when() -> None:
    assert left_by(owned(), TOLD_MS + 7) == NotificationWatermark(NOW_MS, AHEAD_MS, TOLD_MS + 7)


def test_what_is_not_acknowledged_is_not_before_the_mark() -> None:
    untold = owned()
    untold.ended("r2", NOW_MS + 10, 1)
    assert left_by(untold, TOLD_MS) == NotificationWatermark(NOW_MS, NOW_MS + 10, TOLD_MS)


def test_a_mark_stays_until_what_is_before_it_has_settled() -> None:
    untold = owned()
    marked = left_by(untold, TOLD_MS + 7)
    untold.ended("r2", AHEAD_MS + 10, 1)
    untold.told("r2", TOLD_MS + 100)
    assert untold.news(LATER_MS + 1_000, TOLD_MS + 200) is None
    settled = untold.news(LATER_MS + 1_000, SETTLED + 7)
    assert settled == NotificationWatermark(AHEAD_MS + 10, AHEAD_MS + 1_000, SETTLED + 7) != marked


def test_what_the_next_owner_finds_stored_settles_as_of_the_mark() -> None:
    """However short owners last."""
    first = left_by(owned(), TOLD_MS)
    second = NotificationTracker(first)
    told_again(second, TOLD_MS + 4_000)
    handed_on = left_by(second, TOLD_MS + 4_000)
    assert handed_on == first
    third = NotificationTracker(handed_on)
    settled_ms = SETTLED + CLOCKS_MS  # two clocks may differ about the time of the mark
    told_again(third, settled_ms - 1)
    assert left_by(third, settled_ms - 1).told_ms == NOW_MS
    assert left_by(third, settled_ms).told_ms == AHEAD_MS
    assert third.has_told("r1", NOW_MS)


def test_a_mark_is_void_while_its_ends_are_told_again() -> None:
    second = NotificationTracker(left_by(owned(), TOLD_MS))
    second.ended("r1", NOW_MS, 1)
    assert second.news(LATER_MS, TOLD_MS + 4_000) is None, "it is not kept in the new epoch"
    second.told("r1", TOLD_MS + 4_100, lasting=True)
    assert left_by(second, TOLD_MS + 4_200) == NotificationWatermark(NOW_MS, AHEAD_MS, TOLD_MS)


def test_what_the_next_owner_finds_lost_settles_anew_and_voids_the_mark() -> None:
    second = NotificationTracker(left_by(owned(), TOLD_MS))
    told_again(second, TOLD_MS + 4_000, lost=True)
    assert left_by(second, TOLD_MS + 4_100) == NotificationWatermark(
        NOW_MS, AHEAD_MS, TOLD_MS + 4_100
    )
    second.news(LATER_MS, SETTLED)
    assert not second.has_told("r1", NOW_MS)


def test_what_ended_after_the_mark_settles_anew_though_it_is_stored() -> None:
    first = owned(acked=False)
    second = NotificationTracker(left_by(first, TOLD_MS))
    told_again(second, TOLD_MS + 4_000)
    second.news(LATER_MS, SETTLED)
    assert not second.has_told("r1", NOW_MS)


def test_a_mark_goes_back_to_before_what_was_lost() -> None:
    first = owned()
    first.ended("r2", NOW_MS + 10, 1)
    first.told("r2", TOLD_MS)
    second = NotificationTracker(left_by(first, TOLD_MS))
    second.ended("r2", NOW_MS + 10, 1)
    told_again(second, TOLD_MS + 4_000)
    second.told("r2", TOLD_MS + 4_000)
    assert left_by(second, TOLD_MS + 4_100) == NotificationWatermark(NOW_MS, NOW_MS + 10, TOLD_MS)


def test_a_mark_that_was_taken_back_is_kept_again_once_it_holds() -> None:
    untold = owned()
    marked = left_by(untold, TOLD_MS)
    assert untold.marked
    untold.unmarked()
    assert not untold.marked
    assert left_by(untold, TOLD_MS + 100) == marked


def test_nothing_is_kept_anew_once_all_has_settled() -> None:
    untold = owned()
    left_by(untold, TOLD_MS)
    assert left_by(untold, SETTLED) == NotificationWatermark(AHEAD_MS)
    assert untold.news(LATER_MS + 60_000, SETTLED + 60_000) is None
