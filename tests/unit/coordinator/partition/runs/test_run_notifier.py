"""What a task tells whose run has ended: it is delivered again, or a rewound log is read again."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.core.run.ends.notification_watermark import (
    CLOCKS_MS,
    SETTLED_MS,
    NotificationTracker,
    NotificationWatermark,
)
from hocket.coordinator.core.run.state.run import Owner, Run
from hocket.coordinator.core.run.state.values import json_of
from hocket.coordinator.partition.runs.end_publisher import EndPublisher
from hocket.coordinator.partition.runs.run_notifier import TOLD_AT_ONCE, RunNotifier
from hocket.kit.nats.connection.post_answers import PubAck
from hocket.kit.process.clock import now_ms
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.ids import input_digest
from hocket.schemas.messages import AttemptFinished, Priority, RunAccepted, RunParent
from support.lone_partition import lone_partition

ENDED_MS = 1_000_000.0


def ended_run(status: str = "succeeded") -> Run:
    run = Run(
        Owner(0, 1, None), None, run_id="r1", tenant="t", pipeline="p", version=1,
        priority=Priority.STANDARD, given=json_of({}), accepted_at_ms=ENDED_MS - 10,
        deadline_at_ms=ENDED_MS + 10,
    )  # fmt: skip
    run.status, run.output, run.finished_at_ms, run.reply_to = (
        status,
        json_of(5),
        ENDED_MS,
        "caller",
    )
    if status != "succeeded":
        run.error = ErrorInfo(code="x", message="x")
    return run


RUN = ended_run()
EVENT = RunAccepted(
    run_id="r1", tenant="t", pipeline="p", version=1, input={}, priority=Priority.STANDARD,
    deadline_at_ms=RUN.deadline_at_ms,
)  # fmt: skip


class Notes:
    """Stands for the bus and for the partition's tenure at a committer that commits at once."""

    losses = 0
    epoch = 1
    partition = 0
    write_watermark = None
    unwritten = None

    def __init__(self) -> None:
        self.answered: list[str] = []
        self.posted: list[str] = []

    def publish_nowait(self, subject: str, payload: bytes) -> None:
        self.answered.append(subject)

    def publish_durable(self, subject: str, payload: bytes, **rest: Any) -> Any:
        self.posted.append(subject)
        return SimpleNamespace(add_done_callback=lambda callback: None)

    def after_commit(self, action: Any) -> None:
        action()


async def accepted_again(*, told_ms: float) -> Notes:
    notes = Notes()
    partition = lone_partition(notes, told=NotificationWatermark(told_ms), bus=notes)
    partition._runs.remember(RUN)
    await partition._events._application.apply(EVENT, ENDED_MS + 60_000)
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
    untold = NotificationTracker(NotificationWatermark())
    untold.ended("r1", ENDED_MS, 1)
    untold.told("r1", 0.0)
    untold.news(ENDED_MS + later_ms, SETTLED_MS)
    assert untold.has_told("of a former owner", ENDED_MS) is told


def test_an_end_without_its_acknowledgement_is_not_known_to_be_told() -> None:
    untold = NotificationTracker(NotificationWatermark())
    untold.ended("r1", ENDED_MS, 1)
    untold.news(ENDED_MS + 10 * CLOCKS_MS, SETTLED_MS)
    assert not untold.has_told("r1", ENDED_MS)


# ---- the server goes and comes back ---------------------------------------------------------


class Server:
    """Stands for the bus, Postgres and the committer; says in which order they were asked."""

    def __init__(self) -> None:
        self.losses = 0
        self.asked: list[str] = []
        self.msg_ids: list[str] = []
        self.kept: list[NotificationWatermark] = []
        self.posts: list[asyncio.Future[PubAck]] = []
        self.written = asyncio.Event()
        self.written.set()

    def publish_nowait(self, subject: str, payload: bytes) -> None:
        return

    def publish_durable(
        self, subject: str, payload: bytes, **rest: Any
    ) -> "asyncio.Future[PubAck]":
        self.asked.append("post")
        self.msg_ids.append(rest["msg_id"])
        self.posts.append(asyncio.get_running_loop().create_future())
        return self.posts[-1]

    async def wait_for_capacity(self) -> None:
        return

    async def ended_since(self, partition: int, since_ms: float) -> list[Any]:
        self.asked.append("read")
        return [RUN]

    async def keep(self, told: NotificationWatermark) -> None:
        await self.written.wait()
        self.asked.append("keep")
        self.kept.append(told)

    async def acknowledge(self, *, duplicate: bool = False, repeated: bool = False) -> None:
        self.posts.pop().set_result(PubAck("EVENTS", 1, duplicate, repeated))
        await asyncio.sleep(0)


def ends_at(server: Any) -> RunNotifier:
    return RunNotifier(0, bus=server, store=server, told=NotificationWatermark(), keep=server.keep)


async def told_to(server: Server) -> RunNotifier:
    ends = ends_at(server)
    ends.tell(RUN)
    await server.acknowledge()
    return ends


async def test_from_when_the_server_went_until_all_is_told_again_nothing_settles() -> None:
    server = Server()
    ends = await told_to(server)
    server.losses += 1
    assert ends.news(now_ms()) is None
    ends.retell()
    await asyncio.sleep(0.01)
    assert ends.news(now_ms()) is not None


async def test_the_mark_is_taken_back_before_an_end_is_told_again() -> None:
    server = Server()
    ends = await told_to(server)
    told = ends.news(now_ms())
    assert told is not None
    assert told.acked_ms > ENDED_MS
    server.written.clear()
    ends.retell()
    await asyncio.sleep(0.01)
    assert server.asked == ["post"], "it was told once, and waits now until the mark is gone"
    assert ends.news(now_ms()) is None
    server.written.set()
    await asyncio.sleep(0.01)
    assert server.asked == ["post", "keep", "read", "post"]
    assert server.kept == [NotificationWatermark(told.told_ms)]


async def test_a_server_that_lost_nothing_leaves_the_mark_as_it_was() -> None:
    server = Server()
    ends = await told_to(server)
    before = ends.news(now_ms())
    ends.retell()
    await asyncio.sleep(0.01)
    await server.acknowledge(duplicate=True)
    after = ends.news(now_ms())
    assert before is not None
    assert after is not None
    assert (after.told_ms, after.acked_ms) == (before.told_ms, before.acked_ms)
    assert after.acked_at_ms == pytest.approx(before.acked_at_ms, abs=5)


async def test_a_repeat_of_ones_own_does_not_tell_that_a_server_had_lost_nothing() -> None:
    server = Server()
    ends = await told_to(server)
    ends.news(now_ms())
    ends.retell()
    await asyncio.sleep(0.01)
    before_ms = now_ms()
    await server.acknowledge(duplicate=True, repeated=True)
    after = ends.news(now_ms())
    assert after is not None
    assert after.acked_at_ms >= before_ms - 1


async def test_where_nothing_was_marked_nothing_is_taken_back() -> None:
    server = Server()
    ends = await told_to(server)
    ends.retell()
    await asyncio.sleep(0.01)
    assert server.asked == ["post", "read", "post"]


async def test_many_ends_that_are_told_again_leave_turns_to_everything_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server()
    turns: list[int] = []

    async def ended_since(partition: int, since_ms: float) -> list[Run]:
        return [RUN] * (5 * TOLD_AT_ONCE)

    async def beat() -> None:
        while True:
            turns.append(len(server.posts))
            await asyncio.sleep(0)

    monkeypatch.setattr(server, "ended_since", ended_since)
    beating = asyncio.create_task(beat())
    ends = ends_at(server)
    ends.retell()
    assert ends._retelling is not None
    await ends._retelling
    beating.cancel()
    told = [*turns, len(server.posts)]
    assert told[-1] == 5 * TOLD_AT_ONCE
    assert max(after - before for before, after in pairwise(told)) <= TOLD_AT_ONCE


async def test_the_clocks_of_two_owners_may_differ_about_a_mark() -> None:
    """What the former one saw 9 s ago by its clock may be as little as 4 s old."""
    server = Server()
    marked = NotificationWatermark(0.0, ENDED_MS + 1, now_ms() - SETTLED_MS - CLOCKS_MS + 1_000)
    for margin_ms, settled in ((0.0, False), (1_000.0, True)):
        told = NotificationWatermark(0.0, marked.acked_ms, marked.acked_at_ms - margin_ms)
        ends = RunNotifier(0, bus=server, store=server, told=told, keep=server.keep)  # type: ignore[arg-type]
        ends.tell(RUN)
        await server.acknowledge(duplicate=True)
        news = ends.news(now_ms())
        assert news is not None
        assert (news.told_ms > ENDED_MS) is settled


@pytest.mark.parametrize("status", ["succeeded", "rejected"])
async def test_nobody_knows_before_under_which_id_an_end_is_told(status: str) -> None:
    """Streams drop what comes under an id that they know: a fact could be kept from everybody."""
    server: Any = Server()
    keys = Capabilities([b"k" * 32])
    run = ended_run(status)
    for capabilities in (keys, None, keys):
        ends = RunNotifier(
            0,
            bus=server,
            store=server,
            told=NotificationWatermark(),
            keep=server.keep,
            capabilities=capabilities,
        )
        ends.tell(run)
    tagged, plain, again = server.msg_ids
    assert tagged == again == keys.id_of(plain)
    assert tagged != plain


# ---- the step of another run that waits for it -----------------------------------------------

STARTED = RunParent(
    run_id="above", step="sub", attempt=1, partition=0, dispatched_at_ms=1.0, input_digest="one"
)


def answered_to(parent: RunParent | None, *, started: RunParent = STARTED) -> AttemptFinished:
    """Return what the step is told that asks for an ended sub-run."""
    run, bodies = ended_run(), []

    def publish_durable(subject: str, payload: bytes, **rest: Any) -> Any:
        bodies.append(payload)

    run.parent = started
    bus: Any = SimpleNamespace(publish_nowait=print, publish_durable=publish_durable)
    EndPublisher(bus, None, SimpleNamespace(send=lambda *told: None)).answer(run, parent)  # type: ignore[arg-type]
    return AttemptFinished.model_validate_json(bodies[0])


def test_a_step_is_told_the_digest_of_what_it_gave_also_where_defaults_were_added() -> None:
    told = answered_to(None)
    assert (told.input_digest, told.dispatched_at_ms) == ("one", 1.0)
    older = STARTED.model_copy(update={"input_digest": ""})  # of a release that knew none
    assert answered_to(None, started=older).input_digest == input_digest({})


def test_a_step_that_asks_again_for_the_same_is_told_that_this_answers_its_request() -> None:
    again = STARTED.model_copy(update={"dispatched_at_ms": 2.0})
    assert answered_to(again).dispatched_at_ms == 2.0


def test_a_step_that_gives_another_input_after_a_lost_log_is_told_what_was_executed() -> None:
    """Otherwise it would take the output for another input as its own, without comparing."""
    other = STARTED.model_copy(update={"dispatched_at_ms": 2.0, "input_digest": "other"})
    told = answered_to(other)
    assert (told.input_digest, told.dispatched_at_ms) == ("one", 1.0)
