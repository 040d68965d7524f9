"""Results that nobody waits for yet, within bounds."""

from hocket.coordinator import orphans as module
from hocket.coordinator.orphans import Orphans
from hocket.schemas.messages import AttemptFinished


def result(run_id: str, attempt: int = 1, size: int = 0) -> AttemptFinished:
    return AttemptFinished(run_id=run_id, step="a", attempt=attempt, output="x" * size)


def test_results_are_held_in_their_order_until_they_are_taken() -> None:
    orphans = Orphans()
    for attempt in (1, 2):
        orphans.hold(result("r1", attempt))
    assert [event.attempt for event in orphans.take("r1")] == [1, 2]
    assert orphans.take("r1") == []


def test_the_oldest_go_when_there_are_too_many_bytes() -> None:
    orphans = Orphans()
    half = module.MAX_BYTES // 2
    for run_id in ("r1", "r2", "r3"):
        orphans.hold(result(run_id, size=half))
    assert orphans.take("r1") == []
    assert orphans.take("r2") == []
    assert len(orphans.take("r3")) == 1
