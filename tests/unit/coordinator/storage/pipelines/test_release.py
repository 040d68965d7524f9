"""Which version a run takes that names none."""

from hocket.coordinator.storage.pipelines.release import Release

RUNS = [f"r{number:024x}" for number in range(4_000)]


def test_without_a_choice_it_is_the_newest_and_with_one_that() -> None:
    assert {Release(7).version_for(run_id) for run_id in RUNS} == {7}
    assert {Release(7, active=3).version_for(run_id) for run_id in RUNS} == {3}


def test_a_share_of_the_runs_takes_the_canary_and_each_run_always_the_same() -> None:
    release = Release(7, active=3, canary=7, canary_share=0.25)
    taken = [release.version_for(run_id) for run_id in RUNS]
    assert set(taken) == {3, 7}
    assert abs(taken.count(7) / len(RUNS) - 0.25) < 0.04  # six standard deviations
    assert [release.version_for(run_id) for run_id in RUNS] == taken


def test_a_larger_share_leaves_the_runs_that_took_it() -> None:
    small, large = [Release(2, active=1, canary=2, canary_share=share) for share in (0.1, 0.5)]
    took = [run_id for run_id in RUNS if small.version_for(run_id) == 2]
    assert took
    assert all(large.version_for(run_id) == 2 for run_id in took)
