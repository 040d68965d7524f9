"""FastStream subscribers as node types: in memory, and over a real NATS."""

import asyncio
import importlib
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from faststream.nats import NatsBroker, NatsRouter, TestNatsBroker
from faststream.specification import AsyncAPI

from hocket.schemas import subjects
from hocket.schemas.capabilities import hashed
from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import StepCancelled, TypeDescribed, encoded
from hocket.worker.errors import NodeTypeInvalid
from hocket.worker.faststream import ModelsMissing, hocket_step, run_step
from hocket.workers.errors import Retryable
from hocket.workers.runtime.execution.context import Context
from support.durable import lead_app
from support.durable.lead_app import SEEN, broker_of
from support.durable.rig import again, durable_rig, ok, send
from support.places import ROOT
from support.worker_rig import Rig


@pytest.fixture
async def rig(nats_url: str) -> AsyncIterator[Rig]:
    async with durable_rig(nats_url) as rig:
        yield rig


@asynccontextmanager
async def running(url: str) -> AsyncIterator[NatsBroker]:
    broker = broker_of(url)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


async def test_in_memory_a_handler_has_its_dependencies_middlewares_and_step() -> None:
    broker = broker_of()
    async with TestNatsBroker(broker) as test:
        SEEN.clear()
        given = {"email": "ada@x.org"}
        found = await run_step(broker, "crm.lookup", given, config={"region": "us"})
        assert found.model_dump() == {"name": "Ada", "region": "us"}
        assert SEEN == ["test:step:1"]
        assert await run_step(broker, "crm.score", {"email": "ab"}) == 3
        with pytest.raises(InvalidInput, match=r"`input\.score`"):
            await run_step(broker, "crm.lookup", {"email": "x", "score": -1})
        with pytest.raises(Retryable):
            await run_step(broker, "crm.refuse", {"how": "nack"})
        reply = await test.request({"email": "abc"}, "hocket.step.crm-score.normal")
        assert await reply.decode() == 4


async def test_on_nats_steps_are_run_and_answered_for(rig: Rig) -> None:
    told: list[TypeDescribed] = []

    async def described(message: Any) -> None:
        told.append(TypeDescribed.model_validate_json(message.data))

    await rig.bus.subscribe(subjects.WORKER_DESCRIBED, described)
    async with running(rig.nats_url):
        fine = await send(rig, "crm.lookup", input={"email": "ada@x.org"})
        thread = await send(rig, "crm.score", input={"email": "ab", "score": 2})
        wrong = await send(rig, "crm.lookup", input={"email": "x", "score": -1})
        how = {name: await send(rig, "crm.refuse", input={"how": name}) for name in HOW}
        late = await send(rig, "crm.wait", input={"s": 30}, timeout_ms=50)
        assert ok(await rig.result(fine)) == {"name": "Ada", "region": "eu"}
        assert ok(await rig.result(thread)) == 4
        errors = {one: (await rig.result(step)).error for one, step in how.items()}
        assert {name: error.code for name, error in errors.items() if error} == HOW
        error = (await rig.result(wrong)).error
        assert error is not None
        assert (error.code, error.field) == ("invalid_input", "input.score")
        error = (await rig.result(late)).error
        assert error is not None
        assert error.error_class == "timeout"
        durable = await send(rig, "crm.durable")
        first = ok(await rig.result(durable))
        assert ok(await again(rig, durable)) == [first[0], 2]
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)
    by_type = {one.type: one for one in told}
    assert by_type["crm.lookup"].version == "2"
    assert by_type["crm.lookup"].input is not None
    assert by_type["crm.lookup"].input["required"] == ["email"]
    assert by_type["crm.lookup"].description == "Find the person behind a lead."
    assert by_type["crm.score"].input is not None
    assert set(by_type["crm.score"].input["properties"]) == {"email", "score"}


HOW = {"nack": "retryable", "reject": "step_rejected", "fault": "handler_failed"}


async def test_on_nats_a_step_is_cancelled_and_no_more_are_fetched_than_run(rig: Rig) -> None:
    async with running(rig.nats_url):
        lead_app.STARTED = asyncio.Event()
        first = await send(rig, "crm.wait", input={"s": 60})
        await asyncio.wait_for(lead_app.STARTED.wait(), 20)
        others = [await send(rig, "crm.wait", input={"s": 0}) for _ in range(3)]
        consumer = subjects.step_consumer("crm-wait", "normal")
        info = await rig.bus.js.consumer_info(subjects.STEPS, consumer)
        assert info.num_ack_pending is not None
        assert info.num_ack_pending <= 2  # one that runs, one that waits for its slot at most
        cancelled = StepCancelled(
            run_id=first.run_id,
            step="s",
            attempt=1,
            capability_sha256=hashed(first.capability),
        )
        rig.bus.publish_nowait(subjects.CANCEL_FILTER, encoded(cancelled))
        error = (await rig.result(first)).error
        assert error is not None
        assert error.error_class == "cancelled"
        assert [ok(await rig.result(one)) for one in others] == ["waited"] * 3


async def test_a_function_in_a_thread_holds_the_slot_of_its_attempt_until_it_ends() -> None:
    broker, begun, ends = NatsBroker(logger=None), asyncio.Event(), threading.Event()
    loop, contexts = asyncio.get_running_loop(), list[Context]()

    @hocket_step(broker, "crm.block")
    def block(given: Any, context: lead_app.StepContext) -> str:
        contexts.append(context)
        loop.call_soon_threadsafe(begun.set)
        ends.wait(20)
        return "ended"

    async with TestNatsBroker(broker):
        step = asyncio.create_task(run_step(broker, "crm.block"))
        await asyncio.wait_for(begun.wait(), 20)
        step.cancel()
        await asyncio.wait({step}, timeout=20)
        left_behind = contexts[0].left_behind
        assert step.cancelled()
        assert left_behind is not None
        assert not left_behind.done()
        ends.set()
        await asyncio.wait_for(asyncio.wrap_future(left_behind), 20)
        assert await run_step(broker, "crm.block") == "ended"
        assert contexts[1].left_behind is None
        assert block(None, contexts[1]) == "ended"  # called without a worker


async def test_on_nats_a_function_that_does_not_end_in_time_keeps_its_slot(rig: Rig) -> None:
    broker, ends = NatsBroker(rig.nats_url, logger=None), threading.Event()
    begun: list[int] = []

    @hocket_step(broker, "crm.block", concurrency=1)
    def block(number: int) -> int:
        begun.append(number)
        ends.wait(20)
        return number

    @hocket_step(broker, "crm.other")
    async def other(number: int) -> int:
        return number

    await broker.start()
    late = await send(rig, "crm.block", input=1, timeout_ms=300)
    error = (await rig.result(late)).error
    assert error is not None
    assert error.code == "attempt_timeout"
    second = await send(rig, "crm.block", input=2)
    for number in range(5):  # the worker is at work meanwhile
        assert ok(await rig.result(await send(rig, "crm.other", input=number))) == number
    assert begun == [1]
    ends.set()
    assert ok(await rig.result(second)) == 2
    await broker.stop()


async def test_on_nats_stopping_lets_what_runs_end(rig: Rig) -> None:
    lead_app.STARTED = asyncio.Event()
    async with running(rig.nats_url):
        step = await send(rig, "crm.wait", input={"s": 0.3})
        await asyncio.wait_for(lead_app.STARTED.wait(), 20)
    assert ok(await rig.result(step)) == "waited"


def test_it_is_in_the_brokers_document_and_a_type_is_named_once() -> None:
    broker = broker_of()
    document = AsyncAPI(broker).to_specification().to_json()
    assert "hocket.step.crm-lookup" in document
    assert '"Lead"' in document
    with pytest.raises(NodeTypeInvalid, match="already"):
        hocket_step(broker, "crm.lookup")(lambda given: given)
    with pytest.raises(NodeTypeInvalid, match="not the name"):
        hocket_step(broker, "CRM")(lambda given: given)
    with pytest.raises(NodeTypeInvalid, match="its usd_per_second is 'cheap'"):
        hocket_step(broker, "crm.dear", usd_per_second="cheap")(lambda given: given)


async def test_a_router_has_node_types_too(rig: Rig) -> None:
    router, broker = NatsRouter(), NatsBroker(rig.nats_url, logger=None)

    @hocket_step(router, "crm.routed")
    async def routed(given: dict[str, Any], context: lead_app.StepContext) -> list[Any]:
        return [given["a"], context.step.attempt]

    broker.include_router(router)
    async with TestNatsBroker(broker):
        assert await run_step(router, "crm.routed", {"a": 1}, attempt=4) == [1, 4]
    for _ in range(2):  # it may be started again
        await broker.start()
        assert ok(await rig.result(await send(rig, "crm.routed", input={"a": 2}))) == [2, 1]
        await broker.stop()


async def test_the_page_shows_what_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/faststream.md").read_text("utf-8")
    app, test = (block.split("```")[0] for block in page.split("```python")[1:])
    (tmp_path / "crm.py").write_text(app)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "crm_test.py").write_text(test.replace("asyncio.run(test_lookup())", ""))
    await importlib.import_module("crm_test").test_lookup()


async def test_models_are_missing_in_memory_unless_given() -> None:
    broker = NatsBroker(logger=None)

    @hocket_step(broker, "crm.ask")
    async def ask(given: Any, context: lead_app.StepContext) -> str:
        return (await context.model("clerk", "hello", journal=False)).text

    async with TestNatsBroker(broker):
        with pytest.raises(ModelsMissing):
            await run_step(broker, "crm.ask")
