"""Tasks whose key is that of a task that waits for workers: they neither take its place nor stay
unacknowledged until it begins."""

from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.intake.arrival import Arrival, read_arrival
from hocket.coordinator.intake.task_admission import TaskAdmission
from hocket.coordinator.intake.task_message import Task
from hocket.kit.nats.protocol import RawMessage
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import Priority, RunAccepted

FIRST_SEQ = 7


def arrival(
    pipeline: str,
    *,
    seq: int,
    delivered: int = 1,
    stored_ms: int = 1,
    headers: bytes = b"Nats-Msg-Id: k\r\n",
) -> Arrival:
    """Return a delivery of a task with the key `k`, stored under a sequence at a time (epoch ms)."""
    headers = b"NATS/1.0\r\n" + headers + b"\r\n"
    reply = f"$JS.ACK.TASKS.intake.{delivered}.{seq}.{seq}.{stored_ms}000000.0"
    subject = f"hocket.task.acme.{pipeline}"
    return read_arrival(RawMessage(subject, reply, b"{}", headers), max_bytes=1_000)


class Reached(Exception):
    """The admission went on to accept a task."""


class Rig:
    """An admission at which the first task of the key waits; whatever else is taken fails the test."""

    def __init__(self) -> None:
        self.acked: list[str] = []
        self.rejected: list[tuple[str, str | None]] = []
        self.asked: list[Task] = []
        first = arrival("order", seq=FIRST_SEQ)
        assert isinstance(first.task, Task), first.task
        self.waiting = RunAccepted(
            run_id=first.task.run_id,
            tenant="acme",
            pipeline="order",
            version=1,
            input={},
            priority=Priority.STANDARD,
            deadline_at_ms=1,
            task_ack=first.message.reply,
        )
        parts: Any = SimpleNamespace(
            bus=SimpleNamespace(ack=self.acked.append),
            metrics=SimpleNamespace(task=lambda _: None),
            acceptance=SimpleNamespace(accepted=self._accepted),
            rejection=SimpleNamespace(reject=self._reject),
            overload=SimpleNamespace(waiting={first.task.run_id: self.waiting}.get),
        )
        self.admission = TaskAdmission(
            parts.bus,
            parts.metrics,
            replies=parts,
            acceptance=parts.acceptance,
            rejection=parts.rejection,
            overload=parts.overload,
            posts=parts,
            over_share=lambda _: None,
            done=self.acked.append,
            partitions=1,
        )

    async def _reject(self, message: RawMessage, error: ErrorInfo, *, run_id: str | None) -> None:
        assert run_id is None, "the run of the key is not this task's to end"
        self.rejected.append((message.reply, error.code))

    async def _accepted(self, task: Task, *_: Any) -> None:
        self.asked.append(task)
        raise Reached


async def test_another_task_with_the_key_of_one_that_waits_is_acknowledged() -> None:
    rig = Rig()
    another = arrival("order", seq=FIRST_SEQ + 1)
    await rig.admission.admit(another, {}, 0.0)
    assert rig.acked == [another.message.reply]
    assert rig.rejected == rig.asked == []


async def test_one_of_another_pipeline_is_refused() -> None:
    rig = Rig()
    another = arrival("refund", seq=FIRST_SEQ + 1)
    await rig.admission.admit(another, {}, 0.0)
    assert rig.rejected == [(another.message.reply, "idempotency_key_reused")]
    assert rig.acked == rig.asked == []


async def test_the_one_that_waits_is_taken_when_it_is_delivered_again() -> None:
    rig = Rig()
    with pytest.raises(Reached):
        await rig.admission.admit(arrival("order", seq=FIRST_SEQ, delivered=2), {}, 0.0)
    assert len(rig.asked) == 1
    assert rig.acked == rig.rejected == []


REFUSED_MS = 5_000
RESTORED = b"Nats-Msg-Id: k\r\nHocket-Stored-At: 4999000000\r\n"
WITHOUT_A_KEY = b"Traceparent: x\r\n"


def refused(task: Arrival) -> dict[str, Any]:
    """Return what Postgres has of a task that was refused at REFUSED_MS."""
    assert isinstance(task.task, Task), task.task
    run = SimpleNamespace(
        status="rejected", finished_at_ms=float(REFUSED_MS), pipeline=task.task.pipeline
    )
    return {task.task.run_id: run}


@pytest.mark.parametrize(
    "again",
    [
        arrival("order", seq=9, stored_ms=REFUSED_MS - 1),
        arrival("order", seq=9, stored_ms=REFUSED_MS - 1, delivered=2),
        arrival("order", seq=9, stored_ms=REFUSED_MS + 1, headers=RESTORED),
        arrival("order", seq=9, stored_ms=REFUSED_MS - 1, headers=WITHOUT_A_KEY),
    ],
    ids=["the server lost that it was done", "delivered twice", "restored", "without a key"],
)
async def test_a_task_that_was_refused_is_not_begun_when_it_comes_back(again: Arrival) -> None:
    rig = Rig()
    rig.admission._overload = SimpleNamespace(waiting=lambda _: None)  # type: ignore[assignment]
    await rig.admission.admit(again, refused(again), 0.0)
    assert rig.acked == [again.message.reply]
    assert rig.asked == rig.rejected == []


@pytest.mark.parametrize("delivered", [1, 2])
async def test_a_later_task_with_the_key_of_one_that_was_refused_is_taken(delivered: int) -> None:
    rig = Rig()
    rig.admission._overload = SimpleNamespace(waiting=lambda _: None)  # type: ignore[assignment]
    later = arrival("order", seq=9, stored_ms=REFUSED_MS + 1, delivered=delivered)
    with pytest.raises(Reached):
        await rig.admission.admit(later, refused(later), 0.0)
