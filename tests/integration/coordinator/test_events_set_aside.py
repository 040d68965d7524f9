"""An event that the coordinator's rules cannot apply ends its run; others' runs go on, and with the next
owner too. The coordinator runs in this process, so that its rules can be made to fail."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from types import ModuleType
from typing import Any

import asyncpg
import pytest

from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.coordinator.core.run.state.restore import StoredRun
from hocket.coordinator.core.run.state.run import Step
from hocket.coordinator.core.run.transition import Transition
from hocket.coordinator.intake import task_acceptance
from hocket.coordinator.intake.task_message import admit, read_task
from hocket.coordinator.partition.command_executor import CommandExecutor
from hocket.coordinator.partition.events import event_application
from hocket.coordinator.partition.runs import run_acceptance, run_loader
from hocket.coordinator.storage import decided_rows, pending_changes
from hocket.coordinator.storage.commit_batch import Batch
from hocket.coordinator.storage.store import Store
from hocket.kit.nats import cloudevents, dead_letters
from hocket.kit.nats.bus import Bus
from hocket.kit.process.clock import now_ms
from hocket.kit.process.limits import memory
from hocket.schemas import ids, subjects
from hocket.schemas.messages import (
    AttemptFinished,
    Priority,
    RunAccepted,
    RunOrigin,
    TaskRejected,
    encoded,
)
from hocket.schemas.pipeline.plan import compile_pipeline
from support.coordinator_rig import Rig
from support.servers.tasks_left import all_tasks_done

BOUND_S = 60
Raising = Callable[..., Any]


@pytest.fixture
async def rig(bus: Bus, database_url: str) -> AsyncIterator[Rig]:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=4) as pool:
        rig = Rig(bus, pool)
        await rig.open()
        yield rig


def raising(original: Raising, error: Exception, is_meant: Callable[..., bool]) -> Raising:
    def call(*arguments: Any, **named: Any) -> Any:
        if is_meant(*arguments):
            raise error
        return original(*arguments, **named)

    return call


def is_result_of_default(run: Any, event: Any, *rest: Any) -> bool:
    return run.tenant == "default" and isinstance(event, AttemptFinished)


@pytest.mark.parametrize(
    ("module", "name"),
    [(event_application, "apply"), (task_acceptance, "admit"), (pending_changes, "run_row")],
)
async def test_what_a_process_without_memory_was_doing_is_done_again_and_is_nobodys_fault(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    """The process would end, and another one do it again; here it is this one, once it has memory."""
    ended: list[str] = []
    monkeypatch.setattr(memory, "is_short", lambda: not ended)

    def end() -> None:
        ended.append(name)
        raise InterruptedError("the process ends here")

    monkeypatch.setattr(memory, "_end", end)
    original = getattr(module, name)
    failing = raising(original, MemoryError(), lambda *_: not ended)
    monkeypatch.setattr(module, name, failing)
    async with rig.coordinator("one"):
        run = await rig.ends("default", "first")
    assert ended == [name]
    assert run["status"] == "succeeded"
    assert await dead_letters.list_(rig.bus) == []


async def test_a_database_without_memory_is_waited_for_and_blames_no_run(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a statement without rows, and none with them."""
    refused: list[str] = []
    short = asyncpg.OutOfMemoryError("out of memory")
    for name in ("commit", "rehearse"):
        original = getattr(Store, name)

        async def tried(
            store: Store,
            batch: Batch,
            *more: Any,
            name: str = name,
            original: Raising = original,
            **named: Any,
        ) -> None:
            if batch.runs and "rehearse" not in refused[2:]:
                refused.append(name)
                raise short
            await original(store, batch, *more, **named)

        monkeypatch.setattr(Store, name, tried)
    async with rig.coordinator("one"):
        run = await rig.ends("default", "first")
    assert "rehearse" in refused
    assert run["status"] == "succeeded"
    assert await dead_letters.list_(rig.bus) == []


@pytest.mark.parametrize(
    "error",
    [AssertionError("a bug"), RecursionError("too deep"), MemoryError(), ValueError("\ud800")],
)
async def test_an_event_that_cannot_be_applied_ends_its_run_and_the_others_go_on(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(
        event_application, "apply", raising(event_application.apply, error, is_result_of_default)
    )
    async with rig.coordinator("one"):
        bad, good = await asyncio.gather(rig.ends("default", "bad"), rig.ends("acme", "good"))
        await all_tasks_done(rig.bus.js)
    assert (bad["status"], bad["error"]["code"]) == ("failed", "event_not_applicable")
    assert "`finished`" in bad["error"]["message"]
    assert good["status"] == "succeeded"
    (letter,) = await dead_letters.list_(rig.bus)
    assert (letter.source, letter.error.code) == ("log", "event_not_applicable")
    assert letter.context["run_id"] == ids.run_id("default", "bad")
    assert (
        await rig.pool.fetchval("SELECT count(*) FROM hocket.step WHERE finished_at IS NULL") == 0
    )
    async with rig.coordinator("two"):
        assert (await rig.ends("acme", "after"))["status"] == "succeeded"
        assert (await rig.ends("default", "bad"))["status"] == "failed"


async def test_an_event_that_raises_once_is_applied_anew_to_the_run_as_it_was(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It left the run half changed."""
    raised: list[str] = []
    keep = Transition.keep

    def broken(t: Transition, step: Step) -> None:
        keep(t, step)
        if t.run.tenant == "default" and step.key == "b" and step.key not in raised:
            raised.append(step.key)
            raise KeyError("once")

    monkeypatch.setattr(Transition, "keep", broken)
    async with rig.coordinator("one"):
        assert (await rig.ends("default", "first"))["status"] == "succeeded"
    assert raised == ["b"]
    assert await dead_letters.list_(rig.bus) == []
    rows = await rig.pool.fetch("SELECT key, state, attempt FROM hocket.step ORDER BY key")
    assert [(row["key"], row["state"], row["attempt"]) for row in rows] == [
        ("a", "succeeded", 1),
        ("b", "succeeded", 1),
    ]


async def test_a_run_that_cannot_be_begun_ends_with_that_error(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = raising(
        run_acceptance.accept, KeyError("x"), lambda event, *rest: event.tenant == "default"
    )
    monkeypatch.setattr(run_acceptance, "accept", accept)
    async with rig.coordinator("one"):
        bad, good = await asyncio.gather(rig.ends("default", "bad"), rig.ends("acme", "good"))
        await all_tasks_done(rig.bus.js)
    assert (bad["status"], bad["error"]["code"]) == ("failed", "event_not_applicable")
    assert good["status"] == "succeeded"


async def test_a_task_whose_pipeline_went_away_after_its_admission_is_rejected_and_told(
    rig: Rig,
) -> None:
    inbox = rig.bus.nc.new_inbox()
    told = await rig.bus.nc.subscribe(inbox)
    event = RunAccepted(
        run_id="r-gone",
        tenant="acme",
        pipeline="gone",
        version=1,
        input={"n": 1},
        priority=Priority.STANDARD,
        deadline_at_ms=now_ms() + 60_000,
        reply_to=inbox,
    )
    async with rig.coordinator("one"):
        await rig.bus.publish(subjects.log(0, event.kind), encoded(event))
        rejected = json.loads((await told.next_msg(timeout=BOUND_S)).data)
        assert (await rig.ends("acme", "after"))["status"] == "succeeded"
    assert (rejected["task_id"], rejected["error"]["code"]) == ("r-gone", "pipeline_unknown")
    facts = await rig.bus.js.get_last_msg(
        subjects.EVENTS, subjects.event("acme", "gone", TaskRejected.kind)
    )
    assert json.loads(facts.data or b"")["error"]["code"] == "pipeline_unknown"
    (letter,) = await dead_letters.list_(rig.bus)
    assert (letter.source, letter.payload) == ("task", b'{"n":1}')
    status = await rig.pool.fetchval("SELECT status FROM hocket.run WHERE run_id = 'r-gone'")
    assert status == "rejected"


@pytest.mark.parametrize("key", [{"Hocket-Idempotency-Key": "k"}, {"ce-source": "s", "ce-id": "i"}])
async def test_a_task_whose_pipeline_went_away_is_the_same_task_when_it_is_redriven(
    rig: Rig, key: dict[str, str]
) -> None:
    inbox = rig.bus.nc.new_inbox()
    told = await rig.bus.nc.subscribe(inbox)
    identity = cloudevents.task_identity(key, 0, 0).key
    event = RunAccepted(
        run_id=ids.run_id("acme", identity),
        tenant="acme",
        pipeline="gone",
        version=3,
        input={"n": 1},
        priority=Priority.BATCH,
        deadline_at_ms=now_ms() + 60_000,
        budget_usd=Decimal("0.000000001"),
        idempotency_key=identity,
        reply_to=inbox,
        labels={"customer": "acme, inc"},
        origin=RunOrigin(
            run_id=f"r{'0' * 24}", operation="rerun", from_step="a", step_input={"b": 1}
        ),
    )
    async with rig.coordinator("one"):
        await rig.bus.publish(subjects.log(0, event.kind), encoded(event))
        await told.next_msg(timeout=BOUND_S)
    (letter,) = await dead_letters.list_(rig.bus)
    await dead_letters.redrive(rig.bus, letter.seq)
    again = await rig.bus.js.get_last_msg(subjects.TASKS, subjects.task("acme", "gone"))
    task = read_task(
        again.subject or "", again.data or b"", again.headers,
        stream_seq=1, stream_time_ns=1, max_bytes=1_000,
    )  # fmt: skip
    assert (task.run_id, task.key, task.version) == (event.run_id, identity, 3)
    assert task.origin == event.origin
    plan = compile_pipeline(
        {"pipeline": "gone", "nodes": {"a": {"type": "signal", "signal": "go"}}}
    )
    accepted = admit(task, plan, 3, now_ms=now_ms(), task_ack="")
    assert (accepted.priority, accepted.budget_usd, accepted.labels) == (
        event.priority,
        event.budget_usd,
        event.labels,
    )


async def test_a_decision_that_is_half_carried_out_is_taken_back_with_its_run(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = raising(
        CommandExecutor.execute,
        ValueError("not to be sent"),
        lambda self, command: (
            isinstance(command, Dispatch)
            and command.run.tenant == "default"
            and command.step == "b"
        ),
    )
    monkeypatch.setattr(CommandExecutor, "execute", execute)
    async with rig.coordinator("one"):
        bad, good = await asyncio.gather(rig.ends("default", "bad"), rig.ends("acme", "good"))
    assert (bad["error"]["code"], good["status"]) == ("event_not_applicable", "succeeded")
    rows = await rig.pool.fetch(
        "SELECT key, state FROM hocket.step WHERE run_id = $1", ids.run_id("default", "bad")
    )
    assert {row["key"]: row["state"] for row in rows} == {"a": "succeeded", "b": "cancelled"}


async def test_a_run_that_cannot_even_be_ended_by_the_rules_is_closed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        event_application,
        "apply",
        raising(event_application.apply, AssertionError("a bug"), is_result_of_default),
    )
    monkeypatch.setattr(
        "hocket.coordinator.core.run.ends.ending.critical_path",
        raising(
            lambda run, at_ms: [],
            AssertionError("too"),
            lambda run, at_ms: run.tenant != "acme",
        ),
    )
    async with rig.coordinator("one"):
        bad, good = await asyncio.gather(rig.ends("default", "bad"), rig.ends("acme", "good"))
    assert (bad["error"]["code"], good["status"]) == ("event_not_applicable", "succeeded")


def is_of_default(one: Any, *rest: Any) -> bool:
    """Tell whether a run, or its rows, is the tenant's whose runs are at fault."""
    return bool((one.row["tenant"] if isinstance(one, StoredRun) else one.tenant) == "default")


@pytest.mark.parametrize(
    ("where", "what"), [(decided_rows, "restored"), (run_loader, "resume")], ids=("rows", "rules")
)
async def test_a_run_that_the_next_owner_cannot_read_back_does_not_stop_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, where: ModuleType, what: str
) -> None:
    rig.holding.set()
    async with rig.coordinator("one"):
        bad, good = await rig.publish("default", "bad"), await rig.publish("acme", "good")
        async with asyncio.timeout(BOUND_S):
            out = "SELECT count(*) FROM hocket.step WHERE key = 'b'"
            while await rig.pool.fetchval(out) < 2:  # noqa: ASYNC110 - Postgres does not tell
                await asyncio.sleep(0.02)
    broken = raising(getattr(where, what), KeyError("x"), is_of_default)
    monkeypatch.setattr(where, what, broken)
    rig.holding.clear()
    async with rig.coordinator("two"):
        end = await asyncio.wait_for(bad, BOUND_S)
        assert (end["status"], end["error"]["code"]) == ("failed", "run_not_restorable")
        assert (await asyncio.wait_for(good, BOUND_S))["status"] == "succeeded"
        assert (await rig.ends("acme", "after"))["status"] == "succeeded"
    assert rig.registry.get_sample_value("hocket_set_aside_total", {"what": "run"}) == 1


async def test_an_event_waits_while_postgres_refuses_everything(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing right or table is no run's fault."""
    refused = asyncio.Event()
    stored, known = Store.stored, Store.known

    async def refuses(self: Any, *arguments: Any) -> Any:
        if refused.is_set():
            return await (stored if isinstance(arguments[0], str) else known)(self, *arguments)
        asyncio.get_running_loop().call_later(0.3, refused.set)
        raise asyncpg.InsufficientPrivilegeError("permission denied for table run")

    monkeypatch.setattr(Store, "known", refuses)
    async with rig.coordinator("one"):
        assert (await rig.ends("acme", "good"))["status"] == "succeeded"
    assert await dead_letters.list_(rig.bus) == []
