"""What workers report of attempts counts where it is from who was handed them."""

from types import SimpleNamespace
from typing import Any, cast

from hocket.coordinator.core.run.state.run import FAILED, Run
from hocket.coordinator.partition.events.attempt_reports import AttemptReports
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import AttemptFinished, AttemptReturned, CancelRequested

CAPABILITIES = Capabilities([b"k" * 32])
AT_MS = 5.0


class Dispatcher:
    """Stands for the dispatcher, which has nothing out: what it is told has ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, int]] = []

    def has_sent(self, event: AttemptFinished, attempt_id: str) -> bool:
        return False

    def finished(self, event: AttemptFinished, attempt_id: str) -> None:
        self.ended.append((attempt_id, event.took))


class Rig:
    """Reports of a run that has ended, as its only step `a` has."""

    def __init__(self) -> None:
        self.dispatcher = Dispatcher()
        services = SimpleNamespace(dispatcher=self.dispatcher, capabilities=CAPABILITIES)
        self.reports = AttemptReports(cast(Any, services))
        step = SimpleNamespace(capable=True, state=FAILED, attempt=1)
        self.run = cast(Run, SimpleNamespace(tenant="t", steps={"a": step}))


def capability() -> str:
    return CAPABILITIES.of_attempt("t", "r1", "a", 1, AT_MS)


def result(capability: str | None, took: int = 0) -> AttemptFinished:
    return AttemptFinished(
        run_id="r1", step="a", attempt=1, dispatched_at_ms=AT_MS, capability=capability, took=took
    )


def test_each_end_of_an_attempt_is_told_the_last_one_long_after_its_run_too() -> None:
    rig = Rig()
    for took in (2, 0):
        assert rig.reports.believes(result(capability(), took), rig.run)
    assert rig.dispatcher.ended == [("r1:a:1", 2), ("r1:a:1", 0)]


def test_what_a_stranger_reports_counts_for_nothing() -> None:
    rig = Rig()
    for claimed in (None, "0" * 32):
        assert not rig.reports.believes(result(claimed), rig.run)
        returned = AttemptReturned(
            run_id="r1", step="a", attempt=1, dispatched_at_ms=AT_MS, capability=claimed
        )
        assert not rig.reports.believes(returned, rig.run)
    assert rig.dispatcher.ended == []


def test_an_attempt_is_given_back_by_who_has_it() -> None:
    rig = Rig()
    returned = AttemptReturned(
        run_id="r1", step="a", attempt=1, dispatched_at_ms=AT_MS, capability=capability()
    )
    assert rig.reports.believes(returned, rig.run)
    assert rig.dispatcher.ended == []


def test_what_reports_of_no_attempt_counts() -> None:
    assert Rig().reports.believes(CancelRequested(run_id="r1"), None)
