"""Forged log events: what cannot be true is not believed, what can is."""

from decimal import Decimal

import pytest
from pydantic import ValidationError

from hocket.coordinator.core.run.event_checks import DAY_MS, doubt, plausible
from hocket.coordinator.core.run.state.charges import RESERVED
from hocket.schemas import ids
from hocket.schemas.messages import (
    AttemptFinished,
    CacheAnswered,
    CancelRequested,
    LogEvent,
    NodeDuration,
    OutlookChanged,
    Priority,
    RunAccepted,
    RunCharged,
    RunParent,
    SignalReceived,
    TimerFired,
    Timing,
    read_log,
)

NOW_MS = 1_800_000_000_000.0
PARTITIONS = 16
RUN = ids.run_id("acme", "key")
OURS = ids.partition_of(RUN, PARTITIONS)
PARENT = ids.run_id("acme", "parent")


def accepted(**changed: object) -> RunAccepted:
    fields: dict[str, object] = {
        "run_id": RUN,
        "tenant": "acme",
        "pipeline": "p",
        "version": 1,
        "input": {},
        "priority": Priority.STANDARD,
        "deadline_at_ms": NOW_MS + 60_000,
        "idempotency_key": "key",
        "task_ack": "$JS.ACK.TASKS.intake.1.22.33.1800000000000000000.4",
        "reply_to": "_INBOX.abc.1",
    }
    return RunAccepted.model_validate(fields | changed)


def parent(**changed: object) -> RunParent:
    fields: dict[str, object] = {
        "run_id": PARENT,
        "step": "s",
        "attempt": 1,
        "partition": ids.partition_of(PARENT, PARTITIONS),
    }
    return RunParent.model_validate(fields | changed)


def sub_run(of: RunParent) -> RunAccepted:
    run_id = ids.child_run_id(of.run_id, of.step, of.attempt)
    return accepted(run_id=run_id, parent=of, task_ack=None, idempotency_key=None, reply_to=None)


def outlook(**changed: object) -> OutlookChanged:
    fields: dict[str, object] = {"path": "n", "mean_ms": 5.0, "variance": 2.0, "weight": 1.0}
    node = NodeDuration.model_validate(fields | changed)
    return OutlookChanged(tenant="acme", pipeline="p", nodes=(node,))


def charge(source: str) -> RunCharged:
    return RunCharged(run_id=RUN, tenant="acme", source=source, total_usd=Decimal("0.1"))


def reason(event: LogEvent, partition: int | None = None) -> str | None:
    if partition is None:
        run_id = getattr(event, "run_id", RUN)
        partition = ids.partition_of(run_id, PARTITIONS)
    return doubt(event, partition=partition, partitions=PARTITIONS, now_ms=NOW_MS)


@pytest.mark.parametrize(
    "event",
    [
        accepted(),
        accepted(task_ack="$JS.ACK.hub.A1b2.TASKS.intake.1.22.33.1800000000000000000.4.x9"),
        accepted(idempotency_key=None, task_ack=None, reply_to=None),
        sub_run(parent()),
        AttemptFinished(run_id=RUN, step="a", attempt=1, output=1),
        TimerFired(run_id=RUN, due_at_ms=NOW_MS + 5),
        CancelRequested(run_id=RUN),
        SignalReceived(run_id=RUN, signal_id="1", name="go"),
        CacheAnswered(run_id=RUN, step="a", key="k", hit=False),
        charge("3f9a.1"),
        outlook(),
    ],
)
def test_what_the_platform_posts_is_believed(event: LogEvent) -> None:
    assert reason(event) is None
    assert plausible(event, NOW_MS) == event


@pytest.mark.parametrize(
    "event",
    [
        accepted(run_id=ids.run_id("other", "key")),
        accepted(tenant="other"),
        accepted(tenant="*"),
        accepted(pipeline="a.b"),
        accepted(deadline_at_ms=2e14),
        accepted(deadline_at_ms=-6e13),
        accepted(task_ack="hocket.step.python.urgent"),
        accepted(task_ack="$JS.ACK.STEPS.c.1.2.3.4.5"),
        accepted(task_ack="$JS.ACK.TASKS"),
        accepted(task_ack="$JS.ACK.TASKS.a.b.c.d.e.f"),
        accepted(task_ack="$JS.ACK.TASKS.>"),
        accepted(reply_to="hocket.log.0.finished"),
        accepted(reply_to="_INBOX.>"),
        accepted(reply_to="_INBOX"),
        accepted(reply_to="mine"),
        sub_run(parent(partition=ids.partition_of(PARENT, PARTITIONS) ^ 1)),
        sub_run(parent(depth=2**30)),
        sub_run(parent()).model_copy(update={"parent": parent(attempt=2)}),
        AttemptFinished(run_id=RUN, step="a", attempt=0),
        TimerFired(run_id=RUN, due_at_ms=2e14),
        TimerFired(run_id=RUN, due_at_ms=-6e13),
        CacheAnswered(run_id=RUN, step="a", key="", hit=True),
        charge(""),
        *map(charge, RESERVED),
        outlook(mean_ms=1e14),
        outlook(mean_ms=-1.0),
        outlook(variance=1e308),
        outlook(weight=-1.0),
        OutlookChanged(tenant="acme", pipeline="p", nodes=outlook().nodes * 5_000),
        OutlookChanged(tenant="a b", pipeline="p", nodes=()),
    ],
)
def test_what_cannot_be_is_not_believed(event: LogEvent) -> None:
    assert reason(event) is not None


@pytest.mark.parametrize("kind", ["finished", "timer", "cancel"])
def test_an_event_of_another_partitions_run_is_not_believed(kind: str) -> None:
    (event,) = read_log(
        kind, f'{{"run_id":"{RUN}","step":"a","attempt":1,"due_at_ms":{NOW_MS}}}'.encode()
    )
    assert reason(event, OURS) is None
    assert all(reason(event, other) for other in range(PARTITIONS) if other != OURS)


@pytest.mark.parametrize("literal", ["NaN", "1e400", "-Infinity", "1e16", '"x"', "null"])
def test_a_number_that_is_none_is_not_read(literal: str) -> None:
    node = f'{{"path":"n","mean_ms":{literal},"variance":1,"weight":1}}'
    body = f'{{"tenant":"a","pipeline":"p","nodes":[{node}]}}'
    with pytest.raises(ValidationError):
        read_log("outlook", body.encode())


@pytest.mark.parametrize(
    "told",
    [
        {"started_at_ms": -1e15},
        {"finished_at_ms": 1e15},
        {"queued_at_ms": NOW_MS + 400 * DAY_MS},
        {"started_at_ms": NOW_MS - 60 * DAY_MS, "finished_at_ms": NOW_MS},
    ],
)
def test_a_result_with_a_clock_that_is_years_away_counts_without_its_times(
    told: dict[str, float],
) -> None:
    event = AttemptFinished(run_id=RUN, step="a", attempt=1, output="x", **told)  # type: ignore[arg-type]
    assert reason(event) is None
    believed = plausible(event, NOW_MS)
    assert believed == AttemptFinished(run_id=RUN, step="a", attempt=1, output="x")


def test_a_timing_that_cannot_be_is_left_out() -> None:
    event = AttemptFinished(run_id=RUN, step="a", attempt=1, timing=Timing(model_ms=-5.0))
    assert plausible(event, NOW_MS) == event.model_copy(update={"timing": None})
