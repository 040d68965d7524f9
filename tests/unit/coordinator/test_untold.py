"""Up to when the ends of runs are known to be told."""

from hocket.coordinator.untold import CLOCKS_MS, SETTLED_MS, Untold

NOW_MS = 1_000_000.0
TOLD_MS = 5_000.0
"""Monotonic, as are SETTLED and those below."""
SETTLED = TOLD_MS + SETTLED_MS


def test_nothing_is_news_where_nothing_ended() -> None:
    assert Untold(NOW_MS).news(NOW_MS + 60_000, SETTLED) is None


def test_what_is_told_is_news_once_the_clocks_allow_it() -> None:
    untold = Untold(0.0)
    untold.ended("r1", NOW_MS, 1)
    untold.told("r1", TOLD_MS)
    assert untold.news(NOW_MS + CLOCKS_MS + 1, SETTLED) == NOW_MS + 1
    assert untold.news(NOW_MS + 2 * CLOCKS_MS, SETTLED) is None, "there is no later end to tell of"


def test_an_end_that_was_told_a_moment_ago_is_not_known_to_be_kept() -> None:
    untold = Untold(0.0)
    untold.ended("r1", NOW_MS, 1)
    untold.told("r1", TOLD_MS)
    assert len(untold) == 0, "nobody need wait for it"
    assert untold.news(NOW_MS + 60_000, SETTLED - 1) == NOW_MS
    assert untold.news(NOW_MS + 60_000, SETTLED) == NOW_MS + 60_000 - CLOCKS_MS


def test_an_end_that_was_told_again_settles_anew() -> None:
    untold = Untold(0.0)
    for at_ms in (TOLD_MS, SETTLED):
        untold.ended("r1", NOW_MS, 1)
        untold.told("r1", at_ms)
    assert untold.news(NOW_MS + 60_000, SETTLED) == NOW_MS
    assert untold.kept_ms == NOW_MS


def test_an_end_that_is_not_told_holds_the_time_back() -> None:
    untold = Untold(0.0)
    untold.ended("r1", NOW_MS, 1)
    untold.ended("r2", NOW_MS + 10, 1)
    untold.told("r2", TOLD_MS)
    assert untold.news(NOW_MS + 60_000, SETTLED) == NOW_MS


def test_an_end_that_takes_two_posts_is_told_with_the_second() -> None:
    untold = Untold(0.0)
    untold.ended("r1", NOW_MS, 2)
    untold.told("r1", TOLD_MS)
    assert len(untold) == 1
    untold.told("r1", TOLD_MS)
    assert len(untold) == 0


def test_an_end_that_waits_for_its_commit_holds_the_time_back_however_long() -> None:
    untold = Untold(0.0)
    untold.decided("r1", NOW_MS)
    assert untold.news(NOW_MS + 12 * CLOCKS_MS, SETTLED) == NOW_MS
    untold.ended("r1", NOW_MS, 1)
    untold.told("r1", TOLD_MS)  # it is committed
    assert untold.news(NOW_MS + 12 * CLOCKS_MS, SETTLED) is None
    untold.told("r1", TOLD_MS)  # and its stream has it
    assert untold.news(NOW_MS + 12 * CLOCKS_MS, SETTLED) == NOW_MS + 11 * CLOCKS_MS


def test_an_end_that_is_told_twice_is_told_when_all_posts_are_in() -> None:
    untold = Untold(0.0)
    untold.ended("r1", NOW_MS, 2)
    untold.ended("r1", NOW_MS, 1)
    untold.told("r1", TOLD_MS)
    untold.told("r1", TOLD_MS)
    assert len(untold) == 1
    untold.told("r1", TOLD_MS)
    assert len(untold) == 0


def test_an_end_that_has_settled_is_told_though_an_earlier_one_is_not() -> None:
    """Else every return of the server tells it again, for as long as the earlier one waits."""
    untold = Untold(0.0)
    untold.ended("r1", NOW_MS, 1)
    untold.ended("r2", NOW_MS + 10, 1)
    untold.told("r2", TOLD_MS)
    untold.news(NOW_MS + 60_000, SETTLED - 1)
    assert not untold.has_told("r2", NOW_MS + 10), "the server may lose it still"
    untold.news(NOW_MS + 60_000, SETTLED)
    assert untold.has_told("r2", NOW_MS + 10)
    assert not untold.has_told("r1", NOW_MS)


def test_what_is_before_the_time_that_is_kept_needs_no_place_in_memory() -> None:
    untold = Untold(0.0)
    for number in range(100):
        untold.ended(f"r{number}", NOW_MS + number, 1)
        untold.told(f"r{number}", TOLD_MS)
    assert untold.news(NOW_MS + CLOCKS_MS + 50, SETTLED) == NOW_MS + 50
    assert all(untold.has_told(f"r{number}", NOW_MS + number) for number in range(100))
    assert len(untold._settled) == 50
    untold.news(NOW_MS + 60_000, SETTLED)
    assert not untold._settled


def test_what_a_server_that_came_back_has_still_settles_as_if_it_was_not_told_again() -> None:
    untold = Untold(0.0)
    untold.ended("r1", NOW_MS, 1)
    untold.told("r1", TOLD_MS)
    untold.ended("r1", NOW_MS, 1)
    untold.told("r1", SETTLED - 1, lasting=True)
    assert untold.news(NOW_MS + 60_000, SETTLED - 1) == NOW_MS
    assert untold.news(NOW_MS + 60_000, SETTLED) == NOW_MS + 60_000 - CLOCKS_MS


def test_what_a_server_lost_settles_anew_however_long_it_had_it() -> None:
    untold = Untold(0.0)
    untold.ended("r1", NOW_MS, 1)
    untold.told("r1", TOLD_MS)
    untold.ended("r1", NOW_MS, 1)
    untold.told("r1", SETTLED)
    untold.news(NOW_MS + 60_000, SETTLED + 1)
    assert not untold.has_told("r1", NOW_MS)


def test_an_end_of_which_one_post_may_be_lost_settles_in_its_time() -> None:
    untold = Untold(0.0)
    untold.ended("r1", NOW_MS, 2)
    untold.told("r1", TOLD_MS)
    untold.told("r1", TOLD_MS, lasting=True)
    assert untold.news(NOW_MS + 60_000, SETTLED - 1) == NOW_MS
    assert untold.news(NOW_MS + 60_000, SETTLED) == NOW_MS + 60_000 - CLOCKS_MS
