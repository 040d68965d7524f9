"""What a partition keeps in memory, and what it forgets."""

import gc

from hocket.coordinator.core.run.parking import PERSON_QUIET_MS
from hocket.coordinator.core.run.state.run import Run, Step
from hocket.coordinator.partition.runs import run_cache as module
from hocket.coordinator.partition.runs.run_cache import RUN_BYTES, STEP_BYTES, Runs
from hocket.schemas.messages import SignalReceived
from support.run_player import START_MS, Play, python

DAY = {"slo_ms": 86_400_000}
LATER_MS = START_MS + PERSON_QUIET_MS + 1


def play_of(run_id: str) -> Play:
    return Play({"ask": {"type": "approval"}}, spec=DAY, run_id=run_id)


def waiting(run_id: str) -> Run:
    return play_of(run_id).run


def signal(play: Play) -> None:
    play.send(SignalReceived(run_id=play.run_id, signal_id="s", name="other", payload=1, by="b"))


def ended(run_id: str, *, after_ms: float = 0.0) -> Run:
    play = Play({"a": python()}, run_id=run_id, now_ms=START_MS + after_ms)
    play.finish("a")
    return play.run


def test_a_run_that_ends_is_remembered() -> None:
    runs = Runs()
    play = Play({"a": python()})
    runs.put(play.run)
    play.finish("a")
    runs.put(play.run)
    assert runs.in_flight == {}
    assert runs.get("r1") is play.run


def test_a_run_that_ends_as_it_begins_is_remembered() -> None:
    runs = Runs()
    runs.put(ended("r1"))
    assert runs.get("r1") is not None


def test_of_many_ended_runs_the_oldest_are_forgotten_and_it_is_known_since_when(
    monkeypatch: object,
) -> None:
    runs = Runs()
    for n in range(module.MAX_ENDED + 2):
        runs.put(ended(f"r{n}", after_ms=n))
    assert (runs.get("r0"), runs.get("r1")) == (None, None)
    assert runs.get("r2") is not None
    assert runs.forgotten_ms == START_MS + 1


def test_large_ended_runs_are_forgotten_sooner() -> None:
    runs = Runs()
    big = module.MAX_ENDED_BYTES // 4
    for n in range(5):
        play = Play({"a": python()}, run_id=f"r{n}")
        runs.put(play.run)
        runs.grew(f"r{n}", big)
        play.finish("a")
        runs.put(play.run)
    assert [n for n in range(5) if runs.get(f"r{n}") is None] == [0, 1]


def test_ended_runs_of_many_steps_are_forgotten_sooner() -> None:
    runs = Runs()
    play = Play({f"n{number}": python() for number in range(500)}, run_id="wide")
    for number in range(500):
        play.finish(f"n{number}")
    runs.put(play.run)  # 1.5 MB by its steps, whatever of its events is known
    kept = module.MAX_ENDED_BYTES // (500 * STEP_BYTES)
    for n in range(kept):
        another = play.read_back()
        another.run_id = f"r{n}"
        runs.put(another)
    assert runs.get("wide") is None
    assert runs.get("r0") is not None


def test_a_large_ended_run_is_kept_for_a_while_only() -> None:
    runs = Runs()
    runs.put(ended("small"))
    runs.remember(ended("large", after_ms=7), 2 * module.MAX_ENDED_BYTES)
    runs.forget_large(LATER_MS)
    runs.forget_large(LATER_MS + module.LARGE_KEPT_MS - 1)
    assert runs.get("large") is not None
    runs.forget_large(LATER_MS + module.LARGE_KEPT_MS)
    assert (runs.get("large"), runs.get("small") is not None) == (None, True)
    assert runs.forgotten_ms == START_MS + 7
    assert runs._ended_bytes < module.LARGE_BYTES


def test_of_large_ended_runs_the_newest_are_kept() -> None:
    runs = Runs()
    for n in range(4):
        runs.remember(ended(f"r{n}"), 2 * module.MAX_ENDED_BYTES)
    assert [n for n in range(4) if runs.get(f"r{n}") is not None] == [2, 3]
    assert set(runs._large) == {"r2", "r3"}


def test_what_is_in_flight_counts_its_events_until_it_leaves() -> None:
    runs = Runs()
    one, other = waiting("r1"), waiting("r2")
    runs.put(one)
    runs.put(other)
    runs.grew("r1", 500)
    runs.grew("unknown", 10_000)
    assert runs.in_flight_bytes == 2 * RUN_BYTES + 500
    assert runs.park(one, one.revision)
    assert runs.in_flight_bytes == RUN_BYTES + other.size_bytes


def test_a_run_rests_once_it_was_the_same_for_a_while() -> None:
    runs = Runs()
    run = waiting("r1")
    runs.put(run)
    assert runs.resting(START_MS) == []
    assert runs.resting(LATER_MS) == [(run, START_MS + DAY["slo_ms"])]


def test_a_run_whose_parking_waits_for_postgres_is_not_found_again_until_it_changes() -> None:
    runs = Runs()
    play = play_of("r1")
    runs.put(play.run)
    found = [runs.resting(START_MS + n * 500.0) for n in range(60)]
    assert [len(one) for one in found if one] == [1]
    signal(play)
    runs.put(play.run)
    later_ms = START_MS + 30_000.0
    again = [runs.resting(later_ms + n * 500.0) for n in range(60)]
    assert [len(one) for one in again if one] == [1]


def test_a_run_that_changed_meanwhile_does_not_rest_yet() -> None:
    runs = Runs()
    play = play_of("r1")
    runs.put(play.run)
    runs.resting(START_MS)
    signal(play)
    runs.put(play.run)
    assert runs.resting(LATER_MS) == []
    assert runs.resting(LATER_MS + PERSON_QUIET_MS) != []


def test_a_run_that_changed_after_its_row_was_written_is_not_dropped() -> None:
    runs = Runs()
    play = play_of("r1")
    runs.put(play.run)
    revision = play.run.revision
    signal(play)
    runs.put(play.run)
    assert not runs.park(play.run, revision)
    assert "r1" in runs.in_flight
    assert runs.park(play.run, play.run.revision)
    assert runs.in_flight == {}


def test_a_run_that_was_read_back_is_another_one() -> None:
    runs = Runs()
    play = play_of("r1")
    runs.put(play.run)
    before = play.run
    runs.drop(before)
    assert (runs.get("r1"), runs.in_flight_bytes) == (None, 0)
    again = play.read_back()
    again.revision = before.revision
    runs.put(again)
    assert not runs.park(before, before.revision)
    assert runs.in_flight == {"r1": again}


def test_what_leaves_the_memory_is_freed_without_a_collector() -> None:
    """Steps and scopes refer to each other: the collector would find them much later."""

    def steps() -> int:
        return sum(type(one) is Step for one in gc.get_objects())  # `__class__` may be hostile

    gc.collect()
    gc.disable()
    try:
        before = steps()
        runs = Runs()
        play = Play(
            {
                "g": {"type": "graph", "nodes": {"x": python()}},
                "m": python(map={"over": "[1, 2]"}),
                "ask": {"type": "approval"},
            }
        )
        runs.put(play.run)
        assert steps() > before + 4
        assert runs.park(play.run, play.run.revision)
        del play
        assert steps() == before
    finally:
        gc.enable()


def test_what_is_in_memory_is_counted_by_tenant_too() -> None:
    runs = Runs()
    one, two = (Play({"a": python()}, run_id=run_id) for run_id in ("r1", "r2"))
    other = waiting("r3")
    other.tenant = "other"
    for run in (one.run, two.run, other):
        runs.put(run)
    for run_id in ("r1", "r2", "r2", "r3", "unknown"):
        runs.grew(run_id, 5_000)
    held = runs.by_tenant
    assert {tenant: held[tenant].runs for tenant in held} == {one.run.tenant: 2, "other": 1}
    assert held[one.run.tenant].size_bytes == 15_000 + 2 * RUN_BYTES
    assert sum(theirs.size_bytes for theirs in held.values()) == runs.in_flight_bytes
    for play in (one, two):
        play.finish("a")
        runs.put(play.run)
    assert set(held) == {"other"}
    runs.put(ended("r4"))
    assert set(held) == {"other"}
    assert runs.park(other, other.revision)
    assert (held, runs.in_flight_bytes) == ({}, 0)
