"""What an attempt tells after its run has ended: what it spent is written, and the run above is told."""

import json
from collections.abc import Callable
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.core.run.faults import RunNotStorable
from hocket.coordinator.core.run.state.restore import readable
from hocket.coordinator.core.run.transition import Outcome
from hocket.coordinator.partition.events import event_application
from hocket.coordinator.partition.partition import Partition
from hocket.coordinator.storage.decided_rows import as_decided
from hocket.coordinator.storage.pending_changes import Dirty
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import (
    AttemptFinished,
    CancelRequested,
    RunCharged,
    RunParent,
    Spend,
)
from support.lone_partition import lone_partition
from support.run_player import Play, python, stored

ABOVE = RunParent(run_id="above", step="sub", attempt=1, partition=0, dispatched_at_ms=1.0)
STOPPED = ErrorInfo(code="cancelled", message="stopped", error_class=ErrorClass.CANCELLED)
NOW_MS = 2_000_000.0


class Tenure:
    """Stands for the partition's tenure: keeps what is to be written, and what follows the commit."""

    partition, epoch, over = 0, 1, False
    write_watermark = None

    def __init__(self) -> None:
        self.unwritten = SimpleNamespace(of=lambda run_id: [])
        self.added: list[dict[str, Any]] = []
        self.after: list[Callable[[], None]] = []

    def add(self, run: Any, **what: Any) -> None:
        self.added.append({"run": run, **what})

    def after_commit(self, action: Callable[[], None], **how: Any) -> None:
        self.after.append(action)


def partition_of(play: Play, tenure: Tenure, posts: list[tuple[str, AttemptFinished]]) -> Partition:
    """Return a partition whose new owner has read the own row of an ended run."""
    rows = stored(play.run)

    async def of_run(run_id: str) -> Any:
        return rows

    async def entry(*pipeline: Any) -> Any:
        return SimpleNamespace(compiled=play.compiled)

    def publish_durable(subject: str, body: bytes, *, msg_id: str) -> None:
        posts.append((msg_id, AttemptFinished.model_validate_json(body)))

    partition = lone_partition(
        tenure,
        store=SimpleNamespace(stored_for_events=of_run),
        catalog=SimpleNamespace(entry=entry),
        load=SimpleNamespace(ended=lambda run_id: None),
        bus=SimpleNamespace(losses=0, publish_durable=publish_durable),
        dispatcher=SimpleNamespace(
            dispatch=None, cancel=None, has_sent=lambda *told: False, finished=lambda *told: None
        ),
    )
    run, fault = readable(rows.row)
    assert fault is None
    partition._runs.remember(run)
    return partition


async def test_a_new_owner_writes_what_comes_late_and_tells_the_run_above_after_the_commit() -> (
    None
):
    play = Play({"a": python()}, parent=ABOVE)
    play.send(CancelRequested(run_id="r1"))
    tenure, posts = Tenure(), []
    partition = partition_of(play, tenure, posts)
    spend = Spend(cost_usd=Decimal("0.5"), charged_usd=Decimal("0.5"))
    late = AttemptFinished(run_id="r1", step="a", attempt=1, error=STOPPED, spend=spend)
    for _ in range(2):
        await partition._events._application.apply(late, NOW_MS)
    (added,) = tenure.added
    assert (added["changed"], added["run_changed"], added["spender"].key) == ([], False, "a")
    dirty = Dirty(added["run"])
    dirty.take(added["run"], (), run_changed=False, spender=added["spender"])
    (row,) = dirty.spending.values()
    assert row[:3] == ("r1", "a", Decimal("0.5"))
    assert posts == []
    (tell,) = tenure.after
    tell()
    ((msg_id, told),) = posts
    assert told.retold
    assert (told.run_id, told.step, told.spend.cost_usd) == ("above", "sub", Decimal("0.5"))
    assert told.error == play.run.error
    assert msg_id.endswith(":f:0.5")  # not that of its end, which the stream has


@pytest.mark.parametrize("untold", [True, False])
async def test_a_new_owner_writes_what_an_ended_run_is_charged_and_tells_the_run_above(
    *, untold: bool
) -> None:
    play = Play({"a": python()}, parent=ABOVE)
    play.send(CancelRequested(run_id="r1"))
    tenure, posts = Tenure(), []
    partition = partition_of(play, tenure, posts)
    charge = {"run_id": "r1", "tenant": "t", "source": "g", "untold": untold}
    for total in ("0.5", "0.5", "0.7"):
        event = RunCharged.model_validate({**charge, "total_usd": total})
        await partition._events._application.apply(event, NOW_MS)
    dirty = Dirty(play.run)
    for added in tenure.added:
        assert (added["changed"], added["run_changed"]) == ([], False)
        dirty.take(added["run"], (), run_changed=False, spender=added["spender"])
    spent = Decimal("0.7") if untold else Decimal(0)
    fact = "untold" if untold else "charges"
    run_facts = json.dumps({fact: [["g", "0.7"]]}, separators=(",", ":"))
    assert list(dirty.spending.values()) == [("r1", "", spent, "{}", run_facts)]
    rows = as_decided(stored(play.run), [dirty])
    assert rows is not None
    assert readable(rows.row)[0].cost_usd == Decimal("0.7")
    for tell in tenure.after:
        tell()
    assert posts[0][0].endswith(":f:0.7" if untold else ":f:0:0.7")
    assert [told.spend.cost_usd + told.outside_usd for _, told in posts][-1] == Decimal("0.7")


async def test_what_an_exception_left_half_counted_is_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play({"a": python()})
    play.send(CancelRequested(run_id="r1"))
    tenure = Tenure()
    partition = partition_of(play, tenure, [])
    apply, failures = event_application.apply, [RuntimeError("half changed")]

    def apply_and_raise_once(*arguments: Any, **named: Any) -> Outcome:
        outcome = apply(*arguments, **named)
        if failures:
            raise failures.pop()
        return outcome

    monkeypatch.setattr(event_application, "apply", apply_and_raise_once)
    spend = Spend(cost_usd=Decimal("0.5"), charged_usd=Decimal("0.25"))
    late = AttemptFinished(run_id="r1", step="a", attempt=1, error=STOPPED, spend=spend)
    await partition._events._application.apply(late, NOW_MS)
    (added,) = tenure.added
    assert not failures
    assert (added["run"].spent_usd, added["spender"].charged_usd) == (
        Decimal("0.5"),
        Decimal("0.25"),
    )


async def test_a_run_that_postgres_refuses_does_not_change_any_more() -> None:
    """Its bare rows are made from it, up to where it was refused."""
    play = Play({"a": python()})
    play.send(CancelRequested(run_id="r1"))
    play.run.error = RunNotStorable(reason="a value is refused").info()
    tenure = Tenure()
    partition = partition_of(play, tenure, [])
    partition._runs.remember(play.run)
    spend = Spend(cost_usd=Decimal("0.5"), charged_usd=Decimal("0.25"))
    late = AttemptFinished(run_id="r1", step="a", attempt=1, error=STOPPED, spend=spend)
    await partition._events._application.apply(late, NOW_MS)
    assert play.run.spent_usd == 0
    assert not any(one["spender"] for one in tenure.added)
