"""What is held against kinds of steps, and how they come clear."""

from hocket.workers.runtime.intake.suspicion import MAX_DEBT, MAX_DOUBLINGS, Suspicion

EVIL, GOOD = "kind-a", "kind-b"


def told() -> tuple[Suspicion, dict[str, tuple[int, int]]]:
    kept: dict[str, tuple[int, int]] = {}

    def changed(kind: str, debt: int, deaths: int) -> None:
        kept[kind] = debt, deaths

    return Suspicion(changed), kept


def test_a_kind_that_ran_at_two_ends_is_on_probation_and_one_that_ends_well_is_not() -> None:
    suspicion, _ = told()
    suspicion.died([EVIL, EVIL, GOOD])
    assert not suspicion.tried
    for _ in range(20):
        suspicion.ended_well(GOOD, alone=False)
    suspicion.died([EVIL, GOOD])
    assert suspicion.tried == {EVIL}


def test_a_kind_that_ended_its_worker_alone_is_on_probation_for_long() -> None:
    suspicion, _ = told()
    suspicion.died_alone(EVIL)
    for _ in range(8):
        suspicion.ended_well(EVIL, alone=True)
        assert suspicion.tried == {EVIL}
    suspicion.ended_well(EVIL, alone=True)
    assert not suspicion.tried


def test_each_end_alone_doubles_the_wait_of_its_kind() -> None:
    suspicion, kept = told()
    for number in range(MAX_DOUBLINGS + 3):
        assert suspicion.doublings(EVIL) == min(number, MAX_DOUBLINGS)
        suspicion.died_alone(EVIL)
    assert suspicion.doublings(GOOD) == 0
    suspicion.ended_well(EVIL, alone=True)
    assert suspicion.doublings(EVIL) == MAX_DOUBLINGS // 2

    later, _ = told()  # the next worker
    later.take_over(kept)
    assert later.tried == {EVIL}
    assert later.doublings(EVIL) == MAX_DOUBLINGS // 2


def test_what_another_worker_recorded_is_believed_within_the_same_bounds() -> None:
    suspicion, kept = told()
    suspicion.take_over({EVIL: (10**9, 10**9)})
    assert suspicion.doublings(EVIL) == MAX_DOUBLINGS
    assert kept == {EVIL: (MAX_DEBT, MAX_DOUBLINGS)}
    suspicion.take_over({EVIL: (1, 1)})
    assert kept == {EVIL: (MAX_DEBT, MAX_DOUBLINGS)}, "the worse of the two counts"


def test_after_hundreds_of_deaths_thirty_good_steps_clear_a_kind() -> None:
    suspicion, _ = told()
    for _ in range(200):
        suspicion.died([GOOD])
        suspicion.died_alone(GOOD)
    ended = 0
    while suspicion.tried:
        suspicion.ended_well(GOOD, alone=True)
        ended += 1
    assert ended < 30
    assert suspicion.doublings(GOOD) == 0


def test_what_nothing_is_held_against_is_forgotten() -> None:
    suspicion, kept = told()
    suspicion.died([GOOD])
    assert suspicion
    for _ in range(20):
        suspicion.ended_well(GOOD, alone=False)
    assert not suspicion
    assert kept == {GOOD: (0, 0)}
