"""Which attempts that arrive after a cancellation it concerns."""

from hocket.schemas.capabilities import hashed
from hocket.schemas.messages import StepCancelled
from hocket.workers.runtime.transport.cancellations import MAX_AGE_MS, MAX_REMEMBERED, Cancellations


def remembered(*, step: str | None = "s", attempt: int | None = 1) -> Cancellations:
    cancellations = Cancellations()
    cancelled = StepCancelled(run_id="r", step=step, attempt=attempt, reason="lost the race")
    cancellations.remember(cancelled, 1_000)
    return cancellations


def reason(
    cancellations: Cancellations,
    *,
    run_id: str = "r",
    step: str = "s",
    attempt: int = 1,
    sent_at_ms: float = 900,
    now_ms: float = 1_100,
) -> str | None:
    return cancellations.reason_for(run_id, step, attempt, sent_at_ms=sent_at_ms, now_ms=now_ms)


def test_a_cancelled_attempt_that_comes_later_is_known() -> None:
    assert reason(remembered()) == "lost the race"


def test_another_attempt_of_the_step_is_not_concerned() -> None:
    assert reason(remembered(), attempt=2) is None


def test_a_cancellation_without_attempt_concerns_every_attempt_of_the_step() -> None:
    assert reason(remembered(attempt=None), attempt=7) == "lost the race"


def test_a_cancellation_without_step_concerns_the_whole_run() -> None:
    assert reason(remembered(step=None, attempt=None), step="other") == "lost the race"


def test_another_run_is_not_concerned() -> None:
    assert reason(remembered(step=None, attempt=None), run_id="r2") is None


def test_an_attempt_with_a_capability_is_concerned_by_its_hash_alone() -> None:
    for told, why in (
        (None, None),
        ("mine", None),
        (hashed("other"), None),
        (hashed("mine"), "lost"),
    ):
        cancellations = Cancellations()
        cancellations.remember(
            StepCancelled(run_id="r", reason="lost", capability_sha256=told), 1_000
        )
        found = cancellations.reason_for(
            "r", "s", 1, sent_at_ms=900, now_ms=1_100, capability="mine"
        )
        assert found == why, told


def test_a_worker_whose_clock_is_behind_knows_an_attempt_by_its_capability() -> None:
    cancellations = Cancellations()
    cancellations.remember(
        StepCancelled(run_id="r", reason="lost", capability_sha256=hashed("mine")), 1_000
    )
    found = cancellations.reason_for(
        "r", "s", 1, sent_at_ms=61_000, now_ms=1_100, capability="mine"
    )
    assert found == "lost"


def test_what_was_sent_after_the_cancellation_runs() -> None:
    assert reason(remembered(step=None, attempt=None), sent_at_ms=1_001) is None


def test_a_cancellation_is_forgotten_after_its_time() -> None:
    assert reason(remembered(), now_ms=1_000 + MAX_AGE_MS + 1) is None


def test_only_so_many_cancellations_are_kept() -> None:
    cancellations = remembered()
    for number in range(MAX_REMEMBERED):
        cancellations.remember(StepCancelled(run_id=f"r{number}"), 1_001)
    assert reason(cancellations) is None
    assert reason(cancellations, run_id="r0") == "cancelled"
