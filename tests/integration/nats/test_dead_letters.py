"""Messages that could not be handled: kept with their context, and out of the way of others."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from hocket.coordinator.core.scheduling.backlog import Backlog
from hocket.coordinator.core.scheduling.gate import Gate
from hocket.coordinator.dispatch.workload import Load
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.service import build_intake
from hocket.coordinator.storage.pipelines.duration_stats import Durations
from hocket.coordinator.storage.pipelines.pipeline_catalog import PipelineUnknown
from hocket.kit.nats import dead_letters, letter_budget
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.cloudevents import task_identity
from hocket.kit.nats.consumers.delivery import Delivery
from hocket.kit.nats.dead_letters import (
    DeadLetterCut,
    DeadLetterForeign,
    DeadLetterSettled,
    DeadLetterUnknown,
)
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.process.lifecycle import Health
from hocket.schemas import subjects
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import StepRequested
from hocket.schemas.structs.steps import read_step
from hocket.workers.runtime.intake import undeliverable
from support.forger import Forger, head_of
from support.servers.tasks_left import tasks_left
from support.worker_rig import Rig

BOUND_S = 60
TAKEN = 3
"""Of four forged tasks: the stream refuses the one that tells it to roll up."""
STEP = b'{"run_id": "r1", "step": "a", "attempt": 2, "pipeline": "p", "partition": 0, "input": {}}'


async def bury(bus: Bus, source: str, subject: str, payload: bytes, **details: Any) -> None:
    error = ErrorInfo(code="broken", message="It broke.", details=details)
    await dead_letters.bury(
        bus, source, subject=subject, payload=payload, headers=None, error=error
    )


async def test_a_letter_says_whose_it_was_and_what_became_of_it(bus: Bus) -> None:
    await bury(bus, "step", subjects.step("python", "normal"), STEP, deliveries=20)
    await bury(bus, "task", subjects.task("acme", "p"), b"{")
    task, step = await dead_letters.list_(bus)
    assert step.context == {
        "run_id": "r1",
        "step": "a",
        "attempt": 2,
        "pipeline": "p",
        "deliveries": 20,
    }
    assert task.context == {"tenant": "acme", "pipeline": "p"}


async def test_a_tenants_letters_are_found_among_many_of_others_and_only_they_are_read(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def api(*given: Any, **options: Any) -> Any:
        nonlocal asked
        asked += 1
        return await real(*given, **options)

    asked, real = 0, bus.api
    for n in range(300):
        tenant = "few" if n in (3, 4, 120) else "many"
        await bury(bus, "task", subjects.task(tenant, "p"), b"y" * 1_000)
    monkeypatch.setattr(bus, "api", api)

    few = await dead_letters.list_(bus, tenant="few", payload_bytes=10)
    assert [letter.seq for letter in few] == [121, 5, 4]
    assert [(len(letter.payload), letter.payload_bytes) for letter in few] == [(10, 1_000)] * 3
    assert asked < 30
    assert [letter.seq for letter in await dead_letters.list_(bus, 2, tenant="few")] == [121, 5]
    older = await dead_letters.list_(bus, 2, tenant="few", before=121)
    assert [letter.seq for letter in older] == [letter.seq for letter in few[1:3]]
    many = await dead_letters.list_(bus, 5, tenant="many", source="task")
    assert [letter.seq for letter in many] == [300, 299, 298, 297, 296]


async def test_a_tenant_sees_redrives_and_drops_its_own_letters_only(bus: Bus) -> None:
    await bury(bus, "task", subjects.task("acme", "p"), b"{}")
    await bury(bus, "task", subjects.task("globex", "p"), b"{}")
    await bury(bus, "step", subjects.step("python", "normal"), b'{"tenant": "globex"}')
    await bury(bus, "usage", "hocket.usage", b'{"attribution": {"tenant": "acme"}}')
    await bury(bus, "step", subjects.step("python", "normal"), b'{"tenant": "acme.>"}')
    await bury(bus, "log", "hocket.log.0.timer", b"not json")

    async def seen(tenant: str) -> list[int]:
        return [letter.seq for letter in await dead_letters.list_(bus, tenant=tenant)]

    assert await seen("acme") == [4, 1]
    assert await seen("globex") == [3, 2]
    assert await seen(subjects.UNATTRIBUTED) == [6, 5]
    assert await seen("nobody") == []
    for refused in (dead_letters.show, dead_letters.redrive, dead_letters.drop):
        with pytest.raises(DeadLetterUnknown):
            await refused(bus, 2, tenant="acme")
    assert (await dead_letters.show(bus, 2, tenant="globex")).tenant == "globex"
    assert (await bus.js.stream_info(subjects.TASKS)).state.messages == 0


@pytest.mark.parametrize(
    ("source", "subject"),
    [
        ("log", "hocket.log.>"),
        ("log", "hocket.log.0 timer"),
        ("step", "hocket.step..normal"),
        ("usage", "hocket.usage.acme"),
        ("task", "hocket.log.0.finished"),
        ("task", "hocket.task.globex.p"),
        ("task", "hocket.task.acme.p.more"),
        ("usage", "hocket.log.0.finished"),
        ("log", "hocket.step.python.normal"),
        ("other", "hocket.log.0.finished"),
    ],
)
async def test_a_letter_that_we_did_not_write_is_published_nowhere(
    bus: Bus, source: str, subject: str
) -> None:
    """Who can write to the stream DLQ must not be able to write, by our hand, to any other one."""
    headers = {"Hocket-Dead-Subject": subject}
    await bus.publish(subjects.dead_letter(source, "acme"), b"{}", headers=headers)
    with pytest.raises(DeadLetterForeign, match=subject):
        await dead_letters.redrive(bus, 1, tenant="acme")
    for stream in (subjects.TASKS, subjects.LOG, subjects.STEPS):
        assert (await bus.js.stream_info(stream)).state.messages == 0


async def test_letters_of_one_source_are_found_among_others_and_gaps(bus: Bus) -> None:
    await bury(bus, "usage", "hocket.usage", b"{}")
    for _ in range(3):
        await bury(bus, "task", subjects.task("acme", "p"), b"{}")
    await dead_letters.drop(bus, 3)
    found = await dead_letters.list_(bus, source="usage")
    assert [(letter.seq, letter.source) for letter in found] == [(1, "usage")]
    assert [letter.seq for letter in await dead_letters.list_(bus, 2)] == [4, 2]


async def test_a_step_whose_run_has_gone_on_without_it_is_not_run_again(bus: Bus) -> None:
    await bury(bus, "step", subjects.step("python", "normal"), STEP)
    with pytest.raises(DeadLetterSettled, match="hocket runs retry r1"):
        await dead_letters.redrive(bus, 1)
    assert (await bus.js.stream_info(subjects.STEPS)).state.messages == 0
    assert (await dead_letters.show(bus, 1)).payload == STEP


async def test_a_step_that_a_worker_can_read_is_not_run_again_however_it_is_written(
    bus: Bus,
) -> None:
    """A worker takes the attempt 1.0 for 1. Guests can write such letters, to the workers of others."""
    step = Rig(bus, "").step(tenant="acme")
    payload = step.model_dump_json().replace('"attempt":1', '"attempt":1.0').encode()
    assert read_step(payload).attempt == 1
    await bury(bus, "step", subjects.step("python", "normal"), payload)
    with pytest.raises(DeadLetterSettled, match=step.run_id):
        await dead_letters.redrive(bus, 1)
    assert (await bus.js.stream_info(subjects.STEPS)).state.messages == 0


async def test_a_task_that_is_redriven_is_a_task_again_and_no_letter(bus: Bus) -> None:
    await bury(bus, "task", subjects.task("acme", "p"), b'{"n": 1}')
    await dead_letters.redrive(bus, 1)
    assert (await bus.js.get_last_msg(subjects.TASKS, subjects.task("acme", "p"))).data == (
        b'{"n": 1}'
    )
    with pytest.raises(DeadLetterUnknown):
        await dead_letters.show(bus, 1)


@pytest.mark.parametrize(
    "headers",
    [
        {"Nats-Msg-Id": "m"},
        {"Nats-Msg-Id": "m", "ce-source": "s", "ce-id": "1"},
        {"Nats-Msg-Id": "m", "Hocket-Idempotency-Key": "k"},
    ],
)
async def test_a_task_keeps_its_identity_when_it_is_redriven(
    bus: Bus, headers: dict[str, str]
) -> None:
    error, subject = ErrorInfo(code="broken", message="It broke."), subjects.task("acme", "p")
    await dead_letters.bury(
        bus, "task", subject=subject, payload=b"{}", headers=headers, error=error
    )
    await dead_letters.redrive(bus, 1)
    again = await bus.js.get_last_msg(subjects.TASKS, subject)
    assert task_identity(again.headers, 1, 1) == task_identity(headers, 1, 1)


async def test_a_task_that_meets_a_bug_of_intake_is_buried_and_others_are_taken(bus: Bus) -> None:
    async def entry(tenant: str, pipeline: str, version: int | None, run_id: str) -> Any:
        if pipeline == "cursed":
            raise ZeroDivisionError("a bug")
        raise PipelineUnknown(tenant=tenant, pipeline=pipeline)

    async def known(run_ids: list[str]) -> dict[str, Any]:
        return {}

    store: Any = SimpleNamespace(known=known)
    catalog: Any = SimpleNamespace(entry_for=entry)
    intake = build_intake(
        bus, store, catalog, Health(), CoordinatorMetrics(CollectorRegistry()), Durations(store),
        Load(Backlog(), Gate()), partitions=1, max_task_bytes=1_000,
    )  # fmt: skip
    for pipeline in ("cursed", "unknown"):
        await bus.publish(subjects.task("acme", pipeline), b"{}")
    taking = asyncio.create_task(intake.run())
    async with asyncio.timeout(BOUND_S):
        while await tasks_left(bus.js):
            assert not taking.done(), taking.exception()
            await asyncio.sleep(0.02)
    taking.cancel()
    await asyncio.wait({taking})
    letters = await dead_letters.list_(bus)
    found = {letter.context["pipeline"]: letter.error.code for letter in letters}
    assert found == {"cursed": "task_not_taken", "unknown": "pipeline_unknown"}


async def test_a_flood_of_tasks_makes_a_bounded_number_of_letters(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def entry(tenant: str, pipeline: str, version: int | None, run_id: str) -> Any:
        raise PipelineUnknown(tenant=tenant, pipeline=pipeline)

    async def known(run_ids: list[str]) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(letter_budget, "LETTERS", 5)
    monkeypatch.setattr(letter_budget, "LETTERS_PER_S", 0)
    store: Any = SimpleNamespace(known=known)
    catalog: Any = SimpleNamespace(entry_for=entry)
    registry = CollectorRegistry()
    intake = build_intake(
        bus, store, catalog, Health(), CoordinatorMetrics(registry), Durations(store),
        Load(Backlog(), Gate()), partitions=1, max_task_bytes=1_000,
    )  # fmt: skip
    for _ in range(20):
        await bus.publish(subjects.task("acme", "none"), b"{}")
    taking = asyncio.create_task(intake.run())
    async with asyncio.timeout(BOUND_S):
        while await tasks_left(bus.js):
            assert not taking.done(), taking.exception()
            await asyncio.sleep(0.02)
    taking.cancel()
    await asyncio.wait({taking})
    assert len(await dead_letters.list_(bus)) == 5
    assert registry.get_sample_value("hocket_letters_not_kept_total") == 15
    assert (await bus.js.stream_info(subjects.EVENTS)).state.messages == 20, "all are told"


async def test_a_flood_of_steps_makes_a_bounded_number_of_letters_and_every_run_hears(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_budget, "LETTERS", 5)
    monkeypatch.setattr(undeliverable, "letters", letter_budget.LetterBudget())
    monkeypatch.setattr(letter_budget, "LETTERS_PER_S", 0)
    with pytest.raises(ValidationError) as raised:
        StepRequested.model_validate_json(STEP)
    for number in range(20):
        body = STEP.replace(b"r1", b"r%d" % number)
        frame = RawMessage(subjects.step("python", "normal"), "_INBOX.none", body, b"")
        await undeliverable.bury_malformed(bus, frame, raised.value, "w")
    known = Delivery(deliveries=20, stream_seq=1, consumer_seq=20, stored_ns=0, pending=0)
    await undeliverable.bury_undeliverable(bus, frame, known, "w")
    codes = Counter(letter.error.code for letter in await dead_letters.list_(bus))
    assert codes == {"step_malformed": 5, "step_undeliverable": 1}
    assert undeliverable.letters.unkept == 15
    assert (await bus.js.stream_info(subjects.LOG)).state.messages == 20


async def test_a_message_that_fills_the_limit_is_kept_without_its_end(bus: Bus) -> None:
    whole = b"x" * bus.nc.max_payload
    error = ErrorInfo(code="broken", message="It broke.")
    headers = {"a": "b" * 40_000, "Nats-Rollup": "all", "Nats-Expected-Last-Sequence": "7"}
    await dead_letters.bury(
        bus, "task", subject="hocket.task.a.p", payload=whole, headers=headers, error=error
    )
    letter = await dead_letters.show(bus, 1)
    assert len(letter.payload) == bus.nc.max_payload - dead_letters.LETTER_BYTES
    assert letter.headers == {dead_letters.CUT: f"{len(whole)} bytes with 1 headers"}
    with pytest.raises(DeadLetterCut, match=f"{len(whole)} bytes with 1 headers"):
        await dead_letters.redrive(bus, 1)
    assert (await bus.js.stream_info(subjects.TASKS)).state.messages == 0
    assert (await dead_letters.show(bus, 1)).payload == letter.payload


async def test_a_forged_letter_is_shown_and_goes_nowhere(bus: Bus, nats_url: str) -> None:
    head = head_of(
        dead_letters.SUBJECT.encode() + b": hocket.step.python.normal",
        dead_letters.ERROR.encode() + b": \xff{",
        b": nameless",
        b"torn: a\nb\rc",
    )
    async with Forger(nats_url) as forger:
        forger.write(b"hocket.dlq.task.acme", STEP, head)
        await forger.flushed()
    async with asyncio.timeout(
        BOUND_S
    ):  # the stream stores it a moment after the server has read it
        while not (letters := await dead_letters.list_(bus)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    (letter,) = letters
    assert letter.error.code == "unknown"
    assert letter.headers == {"torn": "a b c"}
    with pytest.raises(DeadLetterForeign, match="not"):
        await dead_letters.redrive(bus, 1)
    assert (await bus.js.stream_info(subjects.STEPS)).state.messages == 0


async def test_a_task_with_headers_that_cannot_be_sent_on_is_in_nobodys_way(
    bus: Bus, nats_url: str
) -> None:
    async def entry(tenant: str, pipeline: str, version: int | None, run_id: str) -> Any:
        raise PipelineUnknown(tenant=tenant, pipeline=pipeline)

    store: Any = SimpleNamespace()
    catalog: Any = SimpleNamespace(entry_for=entry)
    intake = build_intake(
        bus, store, catalog, Health(), CoordinatorMetrics(CollectorRegistry()), Durations(store),
        Load(Backlog(), Gate()), partitions=1, max_task_bytes=1_000,
    )  # fmt: skip
    heads = (head_of(b"x: a\nb"), head_of(b"y: a\rb", b"Nats-Rollup: all"), head_of(b"\xff: \xfe"))
    async with Forger(nats_url) as forger:
        for head in heads:
            forger.write(b"hocket.task.acme.p", b"{}", head)
        forger.write(b"hocket.task.acme.p", b"x" * (bus.nc.max_payload - 1_000))
        await forger.flushed()
    async with asyncio.timeout(BOUND_S):
        while (await bus.js.stream_info(subjects.TASKS)).state.messages < TAKEN:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.02)
    taking = asyncio.create_task(intake.run())
    async with asyncio.timeout(BOUND_S):
        while await tasks_left(bus.js):
            assert not taking.done(), taking.exception()
            await asyncio.sleep(0.02)
    taking.cancel()
    await asyncio.wait({taking})
    assert len(await dead_letters.list_(bus)) == TAKEN
