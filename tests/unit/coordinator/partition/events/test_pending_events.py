"""What comes for runs that are not there yet, within bounds."""

from types import SimpleNamespace

from hocket.coordinator.partition.events import pending_events as module
from hocket.coordinator.partition.events.pending_events import PendingEvents
from hocket.schemas.messages import AttemptFinished, CancelRequested
from support.lone_partition import lone_partition


def result(run_id: str, attempt: int = 1, size: int = 0) -> AttemptFinished:
    return AttemptFinished(run_id=run_id, step="a", attempt=attempt, output="x" * size)


def test_results_are_held_in_their_order_until_they_are_taken() -> None:
    orphans = PendingEvents()
    for attempt in (1, 2):
        orphans.hold(result("r1", attempt))
    assert orphans.take("r1") == [result("r1", 1), result("r1", 2)]
    assert orphans.take("r1") == []


def test_the_oldest_go_when_there_are_too_many_bytes() -> None:
    orphans = PendingEvents()
    half = module.MAX_BYTES // 2
    for run_id in ("r1", "r2", "r3"):
        orphans.hold(result(run_id, size=half))
    assert orphans.take("r1") == []
    assert orphans.take("r2") == []
    assert len(orphans.take("r3")) == 1


async def test_a_cancellation_that_overtakes_its_run_is_held() -> None:
    async def stored(run_id: str) -> None:
        return None

    tenure = SimpleNamespace(
        epoch=1,
        partition=0,
        write_watermark=None,
        unwritten=SimpleNamespace(of=lambda run_id: []),
    )
    partition = lone_partition(tenure, store=SimpleNamespace(stored_for_events=stored))
    application = partition._events._application
    cancel = CancelRequested(run_id="r1", reason="parent")
    await application.apply(cancel, 1.0)
    assert application._pending.take("r1") == [cancel]
