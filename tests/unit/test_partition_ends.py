"""What a task tells whose run has ended: it is delivered again, or a rewound log is read again."""

from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.core.state import RunStatus
from hocket.coordinator.partition import Partition
from hocket.coordinator.untold import CLOCKS_MS, SETTLED_MS, Untold
from hocket.schemas.messages import Priority, RunAccepted

ENDED_MS = 1_000_000.0
RUN: Any = SimpleNamespace(
    run_id="r1", tenant="t", pipeline="p", version=1, status=RunStatus.SUCCEEDED, output=5,
    error=None, accepted_at_ms=ENDED_MS - 10, finished_at_ms=ENDED_MS, deadline_at_ms=ENDED_MS + 10,
    ended=True, reply_to="caller", traceparent=None, parent=None,
)  # fmt: skip
EVENT = RunAccepted(
    run_id="r1", tenant="t", pipeline="p", version=1, input={}, priority=Priority.STANDARD,
    deadline_at_ms=RUN.deadline_at_ms,
)  # fmt: skip


class Notes:
    """Stands for the bus and for the partition's tenure at a committer that commits at once."""

    def __init__(self) -> None:
        self.answered: list[str] = []
        self.posted: list[str] = []

    def tell(self, subject: str, payload: bytes) -> None:
        self.answered.append(subject)

    def post(self, subject: str, payload: bytes, **rest: Any) -> Any:
        self.posted.append(subject)
        return SimpleNamespace(add_done_callback=lambda callback: None)

    def after(self, action: Any) -> None:
        action()


async def accepted_again(*, told_ms: float) -> Notes:
    notes = Notes()
    names = ("store", "catalog", "durations", "load", "step_cache", "dispatcher", "metrics")
    parts: dict[str, Any] = {**dict.fromkeys(names), "bus": notes, "committer": notes}
    partition = Partition(0, partitions=1, **parts)
    partition._tenure = notes  # type: ignore[assignment]
    partition._ends = partition._telling(told_ms)
    partition._runs.remember(RUN)
    await partition._accept(EVENT, ENDED_MS + 60_000)
    return notes


async def test_an_end_that_may_be_untold_is_told_to_everybody() -> None:
    notes = await accepted_again(told_ms=ENDED_MS)
    assert (notes.answered, len(notes.posted)) == (["caller"], 1)


async def test_an_end_that_was_told_long_ago_is_told_to_the_caller_alone() -> None:
    notes = await accepted_again(told_ms=ENDED_MS + 1)
    assert (notes.answered, notes.posted) == (["caller"], [])


@pytest.mark.parametrize(("later_ms", "told"), [(0.0, False), (CLOCKS_MS + 1, True)])
def test_an_end_is_known_to_be_told_once_clocks_cannot_differ_about_it(
    later_ms: float, told: bool
) -> None:
    untold = Untold(0.0)
    untold.ended("r1", ENDED_MS, 1)
    untold.told("r1", 0.0)
    untold.news(ENDED_MS + later_ms, SETTLED_MS)
    assert untold.has_told("of a former owner", ENDED_MS) is told


def test_an_end_without_its_acknowledgement_is_not_known_to_be_told() -> None:
    untold = Untold(0.0)
    untold.ended("r1", ENDED_MS, 1)
    untold.news(ENDED_MS + 10 * CLOCKS_MS, SETTLED_MS)
    assert not untold.has_told("r1", ENDED_MS)
