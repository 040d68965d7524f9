"""Who counts as living, by the age of signs of life."""

from hocket.kit.nats.membership import NEVER, Liveness

LEASE_S, GRACE_S = 2.0, 1.0


def liveness() -> Liveness:
    return Liveness(lease_s=LEASE_S, grace_s=GRACE_S)


def test_nobody_is_judged_before_the_bucket_was_read() -> None:
    seen = liveness()
    assert not seen.look(10.0, NEVER)
    assert seen.current_since_s == NEVER


def test_a_newcomer_waits_for_old_signs_as_long_as_the_grace() -> None:
    seen = liveness()
    assert not seen.look(10.0, 9.9)
    assert seen.is_heard(0.0, 10.0 + GRACE_S)
    assert not seen.is_heard(0.0, 10.1 + GRACE_S)
    assert seen.is_heard(10.0, 10.0 + LEASE_S)


def test_a_watch_that_began_anew_gives_everybody_a_whole_lease() -> None:
    seen = liveness()
    seen.look(10.0, 9.9)
    assert seen.look(20.0, 19.9)
    assert seen.is_heard(0.0, 20.0 + LEASE_S)
    assert not seen.look(20.1, 19.9), "that was told once"


def test_a_process_that_stood_still_waits_as_one_that_has_just_started() -> None:
    seen = liveness()
    seen.look(10.0, 9.9)
    seen.look(10.0 + LEASE_S / 2, 9.9)
    assert not seen.is_heard(0.0, 11.5)
    seen.look(30.0, 9.9)
    assert seen.is_heard(0.0, 30.0 + GRACE_S)
    assert not seen.is_heard(0.0, 30.1 + GRACE_S)
