"""When a wait ends, if the clock of the worker is behind the one of the coordinator."""

import pytest

from hocket.kit.process import clock
from hocket.schemas.messages import Priority
from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.runtime.journal.waiting import DurableWaits

DISPATCHED_MS = 1_800_000_000_000.0


@pytest.mark.parametrize(("ahead_s", "late_ms"), [(0.0, 0.0), (-15.0, 0.0), (2.0, 2_000.0)])
def test_a_wait_is_no_shorter_than_it_was_asked_for(ahead_s: float, late_ms: float) -> None:
    step = RequestedStep(
        run_id="r0", tenant="t", pipeline="p", version=1, step="s", node="s", type="a.b",
        attempt=1, input=None, config={}, deadline_at_ms=1e15, slack_ms=0.0, timeout_ms=1e4,
        priority=Priority.STANDARD, partition=0, epoch=0, dispatched_at_ms=DISPATCHED_MS,
    )  # fmt: skip
    waits = DurableWaits(step, None, None)
    with clock.source(lambda: DISPATCHED_MS / 1_000 + ahead_s, lambda: 0.0):
        until_ms = waits._moment_in(10.0, "seconds")
        assert until_ms == DISPATCHED_MS + 10_000 + late_ms
        assert until_ms - waits._least_now_ms() == 10_000
