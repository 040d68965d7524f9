"""What a handler did once is not done again: journals of steps, on a real NATS."""

import asyncio
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg
from pydantic import BaseModel, ConfigDict, Field, computed_field

from hocket.coordinator.journals import door, stored_journals
from hocket.coordinator.journals.door import JournalDoor
from hocket.kit.blobs import FileBlobs
from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.messages import (
    AttemptFinished,
    CallReply,
    CallRequest,
    encoded,
)
from hocket.worker import Retryable, StepFailed
from hocket.workers.runtime.execution.context import Context, ModelCallFailed
from hocket.workers.runtime.execution.functions import described, run_function
from hocket.workers.runtime.execution.step_threads import StepThreads
from hocket.workers.runtime.journal import journal as journal_module
from hocket.workers.runtime.values import large_values
from hocket.workers.runtime.values.blob_room import BlobRoom
from support.durable.framework_agents import ENTRIES, TOOL_CALLS
from support.durable.handlers import ACK_WAIT_S, CALLS, handler, node_type
from support.durable.rig import (
    CAPABILITIES,
    TYPE,
    again,
    durable_rig,
    ok,
    send,
    worker,
    written,
)
from support.places import PACKAGES
from support.worker_rig import Rig

ROOT = Path(__file__).parents[3]
EVERY_POINT = bool(os.environ.get("HOCKET_EVERY_POINT"))
PRICE_USD = Decimal("0.25")
DYING_AT_ONCE = 8
"""Processes with a worker each; more would take longer than an attempt may, on a crowded machine."""


@pytest.fixture
async def rig(nats_url: str) -> AsyncIterator[Rig]:
    async with durable_rig(nats_url) as rig:
        yield rig


class Gateway:
    """Answers model calls, and counts them by run."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.calls = Counter[str]()
        self.asked: list[str] = []

    async def answer(self, msg: Msg) -> None:
        request = CallRequest.model_validate_json(msg.data)
        self.calls[request.attribution.run_id or ""] += 1
        told: dict[str, Any] = {
            "call_id": request.call_id,
            "input_tokens": 3,
            "cost_usd": PRICE_USD,
        }
        if request.openai is not None:
            given = request.openai.body["messages"]
            uses = sum(message["role"] == "tool" for message in given)
            reply = CallReply(**told, **next_turn(uses))
        else:
            text = request.messages[-1].content
            self.asked.append(text)
            reply = CallReply(**told, text=f"re {text}"[:60])
        self._bus.respond(msg.reply, encoded(reply))


def next_turn(uses: int) -> dict[str, Any]:
    """Return what a model says to a framework that has told it so many answers of its tool."""
    if uses == TOOL_CALLS:
        return {"text": "done"}
    function = {"name": "note", "arguments": json.dumps({"text": f"number {uses}"})}
    return {"tool_calls": ({"id": f"call{uses}", "type": "function", "function": function},)}


@pytest.fixture
async def gateway(rig: Rig) -> Gateway:
    gateway = Gateway(rig.bus)
    await rig.bus.subscribe(subjects.GATEWAY_CALL, gateway.answer)
    return gateway


@pytest.mark.timeout(900 if EVERY_POINT else 180)
@pytest.mark.parametrize("framework", ["plain", pytest.param("langgraph", marks=pytest.mark.long)])
async def test_killed_at_every_point_at_most_the_call_under_way_is_made_again(
    rig: Rig, gateway: Gateway, framework: str
) -> None:
    wheres = ("before", "after", "unwritten", "written")
    points = [f"{framework} {where} {number}" for number in (2, 9) for where in wheres]
    if EVERY_POINT:
        points = [f"{framework} {where} {n}" for n in range(1, CALLS + 1) for where in wheres]
    results = await _killed_at(rig, points)
    for point, result in results.items():
        assert len(ok(result)) == CALLS + 1, point
        assert result.delivery > 1, point
        _, where, number = point.split()
        is_call = framework == "plain" or int(number) % 2  # a graph's others are its nodes
        once_more = bool(where == "unwritten" and is_call)
        assert gateway.calls[result.run_id] == CALLS + once_more, point


@pytest.mark.long
@pytest.mark.timeout(900 if EVERY_POINT else 180)
@pytest.mark.parametrize("framework", ["openai-agents", "pydantic-ai"])
async def test_a_framework_killed_at_every_entry_makes_at_most_the_call_under_way_again(
    rig: Rig, gateway: Gateway, framework: str
) -> None:
    entries = range(1, ENTRIES + 1) if EVERY_POINT else (4, 9)
    points = [f"{framework} {where} {n}" for n in entries for where in ("unwritten", "written")]
    for point, result in (await _killed_at(rig, points)).items():
        assert ok(result) == "done", point
        assert result.delivery > 1, point
        assert gateway.calls[result.run_id] == ENTRIES + (" unwritten " in point), point


async def _killed_at(rig: Rig, points: list[str]) -> dict[str, AttemptFinished]:
    """Let a process die at each point, and another one go on; return the results."""
    results: dict[str, AttemptFinished] = {}
    for begin in range(0, len(points), DYING_AT_ONCE):
        some = dict(enumerate(points[begin : begin + DYING_AT_ONCE], begin))
        steps = {
            point: await send(rig, node_type(point), run_id=f"r{number:024x}")
            for number, point in some.items()
        }
        killed = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "support.durable.handlers", rig.nats_url, *steps,
            env=os.environ | {"PYTHONPATH": PACKAGES},
        )  # fmt: skip
        await killed.wait()
        with closing(StepThreads(8)) as threads:
            handlers = {node_type(point): handler(threads, point.split()[0]) for point in steps}
            async with rig.worker(handlers, ack_wait_s=ACK_WAIT_S):
                results |= {point: await rig.result(step) for point, step in steps.items()}
    return results


async def test_what_an_attempt_did_the_next_one_does_not_do_again(rig: Rig) -> None:
    done = []

    class Receipt(BaseModel):
        total: int
        where: tuple[str, ...]

    async def charge(amount: int) -> Receipt:
        done.append(amount)
        return Receipt(total=amount, where=("here",))

    def in_a_thread(text: str) -> str:
        done.append(text)
        return text * 2

    async def order(_given: Any, context: Context) -> Any:
        receipt = await context.step("charge", charge, 7)
        assert isinstance(receipt, Receipt)
        doubled = await context.step("double", in_a_thread, "x")
        plain = await context.step("plain", lambda: {"a": (1, 2)})
        when, number = await context.now(), context.random()
        await context.sleep(0.001)
        if context.step.attempt < 3:
            raise Retryable("later")
        return [receipt, doubled, plain, when.isoformat(), number, context.random()]

    async with worker(rig, order):
        step = await send(rig)
        assert (await rig.result(step)).error is not None
        second = await again(rig, step)
        third = await again(rig, step, attempt=3)
        fourth = await again(rig, step, attempt=4)
    assert second.error is not None
    output = ok(third)
    assert output[:3] == [{"total": 7, "where": ["here"]}, "xx", {"a": [1, 2]}]
    assert output == ok(fourth)
    assert output[4] != output[5]
    assert done == [7, "x"]
    entries = [entry for one in await written(rig, step) for entry in one.entries]
    assert [(entry.kind, entry.name, entry.ordinal) for entry in entries] == [
        ("step", "charge", 1), ("step", "double", 2), ("step", "plain", 3), ("now", "now", 4),
        ("sleep", "sleep", 5),
    ]  # fmt: skip


async def test_a_model_with_aliases_and_a_text_enum_come_back_from_a_step(rig: Rig) -> None:
    class Size(str, Enum):  # noqa: UP042  # as in code written for Python 3.10
        LARGE = "large"

    class Parcel(BaseModel):
        weight_g: int = Field(alias="weightG")
        size: Size

    done = []

    async def pack(weight_g: int) -> list[Parcel]:
        done.append(weight_g)
        return [Parcel(weightG=weight_g, size=Size.LARGE)]

    async def order(_given: Any, context: Context) -> Any:
        (parcel,) = await context.step("pack", pack, 7)
        assert isinstance(parcel, Parcel)
        if context.step.attempt == 1:
            raise Retryable("later")
        return {"weight_g": parcel.weight_g, "size": parcel.size is Size.LARGE}

    async with worker(rig, order):
        step = await send(rig)
        first = await rig.result(step)
        second = await again(rig, step)
    assert first.error is not None
    assert first.error.code == "retryable", first.error
    assert ok(second) == {"weight_g": 7, "size": True}
    assert done == [7]


async def test_the_annotation_of_a_partial_or_a_callable_object_says_what_comes_back(
    rig: Rig,
) -> None:
    class Receipt(BaseModel):
        cents: int

    async def charge(cents: int, key: str) -> Receipt:
        return Receipt(cents=cents + len(key))

    class Shop:
        def __call__(self, cents: int) -> Receipt:
            return Receipt(cents=cents)

        @staticmethod
        def sell(cents: int) -> Receipt:
            return Receipt(cents=cents)

    async def order(_given: Any, context: Context) -> list[int]:
        shop = Shop()
        calls = (partial(partial(charge, 7), key="a"), partial(shop, 7), shop, shop.sell)
        receipts = [
            await context.step(f"call {number}", call, *(() if number < 2 else (7,)))
            for number, call in enumerate(calls)
        ]
        if context.step.attempt == 1:
            raise Retryable("later")
        return [receipt.cents for receipt in receipts]

    async with worker(rig, order):
        step = await send(rig)
        await rig.result(step)
        assert ok(await again(rig, step)) == [8, 7, 7, 7]


async def test_a_function_that_is_interrupted_ends_no_worker(rig: Rig) -> None:
    def interrupts() -> None:
        raise KeyboardInterrupt

    async def order(_given: Any, context: Context) -> str:
        failed: list[Any] = await asyncio.gather(
            context.step("a", interrupts), context.step("b", interrupts), return_exceptions=True
        )
        return " ".join(type(one).__name__ for one in failed)

    async with worker(rig, order):
        assert ok(await rig.result(await send(rig))) == "StepFailed StepFailed"


async def test_a_strict_model_that_computes_fields_comes_back_from_a_step(rig: Rig) -> None:
    class Basket(BaseModel):
        model_config = ConfigDict(extra="forbid")
        cents: list[int]

        @computed_field  # type: ignore[prop-decorator]
        @property
        def total(self) -> int:
            return sum(self.cents)

    done = []

    async def fill(*cents: int) -> Basket:
        done.append(cents)
        return Basket(cents=list(cents))

    async def order(_given: Any, context: Context) -> int:
        basket = await context.step("fill", fill, 3, 4)
        if context.step.attempt == 1:
            raise Retryable("later")
        return int(basket.total)

    async with worker(rig, order):
        step = await send(rig)
        first = await rig.result(step)
        second = await again(rig, step)
    assert first.error is not None
    assert first.error.code == "retryable", first.error
    assert ok(second) == 7
    assert done == [(3, 4)]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"cents": "7 EUR"}, ("output_not_json", "`charge` returned", "`cents`")),
        ({"euros": 7}, ("handler_failed", "ValidationError", "euros")),
    ],
)
async def test_a_value_that_its_annotation_does_not_accept_is_a_failure_like_others(
    rig: Rig, answer: dict[str, Any], told: tuple[str, str, str]
) -> None:
    class Euros(BaseModel):
        euros: str

    class Receipt(BaseModel):
        cents: int

    done = []

    def charge() -> Receipt:
        done.append("charged")
        if "euros" in answer:
            Euros.model_validate(answer)  # as what a provider answered is read
        return answer  # type: ignore[return-value]

    async def order(_given: Any, context: Context) -> str:
        try:
            await context.step("charge", charge)
        except StepFailed as error:
            reason = f"{error.info().code}: {error}"
        await context.step("between", lambda: None)
        if context.step.attempt == 1:
            raise Retryable("later")
        return reason

    async with worker(rig, order):
        step = await send(rig)
        await rig.result(step)
        said = ok(await again(rig, step))
    assert [part for part in told if part not in said] == []
    assert done == ["charged"]


async def test_code_that_changed_underneath_is_told(rig: Rig) -> None:
    async def one() -> int:
        return 1

    async def before(_given: Any, context: Context) -> None:
        await context.step("charge", one)
        raise Retryable

    async def after(_given: Any, context: Context) -> None:
        await context.step("ship", one)

    step = await send(rig)
    async with worker(rig, before):
        await rig.result(step)
    async with worker(rig, after):
        error = (await again(rig, step)).error
    assert error is not None
    assert error.code == "journal_mismatch"
    assert "`step ship`" in error.message
    assert "`step charge`" in error.message
    assert "number 1" in error.message


async def test_a_failure_is_kept_where_the_handler_goes_on_and_tried_again_where_not(
    rig: Rig,
) -> None:
    tried = Counter[str]()

    async def fails(name: str) -> None:
        tried[name] += 1
        raise ConnectionError(f"{name} is away")

    async def run(_given: Any, context: Context) -> str:
        reason = ""
        try:
            await context.step("caught", fails, "caught")
        except StepFailed as error:
            reason = str(error)
        await context.step("between", lambda: None)
        if context.step.attempt < 3:
            await context.step("raised", fails, "raised")
        return reason

    async with worker(rig, run):
        step = await send(rig)
        errors = [(await rig.result(step)).error, (await again(rig, step)).error]
        assert "caught is away" in ok(await again(rig, step, attempt=3))
    assert [error and (error.code, error.error_class) for error in errors] == [
        ("handler_failed", "transient")
    ] * 2
    assert tried == {"caught": 1, "raised": 2}


async def test_an_attempt_that_was_left_behind_writes_nothing_and_has_no_result(
    rig: Rig,
) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    wrote = []

    async def slow(attempt: int) -> int:
        if attempt == 1:
            started.set()
            await go_on.wait()
        wrote.append(attempt)
        return attempt

    async def run(_given: Any, context: Context) -> list[int]:
        attempt = context.step.attempt
        return [await context.step("a", slow, attempt), await context.step("b", slow, attempt)]

    async with worker(rig, run):
        now_ms = round(time.time() * 1000)
        step = await send(rig, dispatched_at_ms=now_ms)
        await started.wait()
        later = {"dispatched_at_ms": now_ms + 1}
        assert ok(await again(rig, step, **later)) == [2, 2]
        go_on.set()
        await _until(lambda: 1 in wrote)
        assert ok(await again(rig, step, attempt=3, dispatched_at_ms=now_ms + 2)) == [2, 2]
    assert [one for one in rig.results if one.startswith(f"{step.run_id}:s:1")] == []
    assert wrote == [2, 2, 1]


async def test_a_straggler_that_opens_late_does_nothing_at_all(rig: Rig) -> None:
    done = []

    async def run(_given: Any, context: Context) -> int:
        return int(await context.step("a", lambda: done.append(context.step.attempt) or 7))

    async with worker(rig, run):
        now_ms = round(time.time() * 1000)
        second = await send(rig, attempt=2, dispatched_at_ms=now_ms + 5)
        assert ok(await rig.result(second)) == 7
        first = await send(
            rig, **(second.model_dump() | {"attempt": 1, "dispatched_at_ms": now_ms})
        )
        outdated = (await rig.result(first)).error
        assert outdated is not None
        assert outdated.code == "journal_taken"
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)
        rig.results.clear()
        anew = {"attempt": 1, "dispatched_at_ms": now_ms + 9}  # a log that lost its tail does so
        assert ok(await rig.result(await send(rig, **(second.model_dump() | anew)))) == 7
    assert done == [2]


async def test_a_journal_of_many_pages_is_read_whole(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_journals, "MAX_PAGE_BYTES", 1_000)

    async def run(_given: Any, context: Context) -> int:
        for number in range(12):
            await context.step(f"no {number}", lambda: "x" * 250)
        if context.step.attempt == 1:
            raise Retryable
        return len([one for one in dir(context) if one == "step"])

    async with worker(rig, run):
        step = await send(rig)
        await rig.result(step)
        assert ok(await again(rig, step)) == 1
    entries = [entry for one in await written(rig, step) for entry in one.entries]
    assert len(entries) == 12


async def test_a_journal_waits_for_a_coordinator(nats_url: str) -> None:
    rig = await Rig.open(nats_url)

    async def run(_given: Any, context: Context) -> str:
        return str(await context.step("look", lambda: "looked"))

    async with worker(rig, run):
        step = await send(rig)
        await asyncio.sleep(0.05)  # it asks; were it slower, nothing would be shown, nor be wrong
        async with JournalDoor(rig.bus, CAPABILITIES).open():
            assert ok(await rig.result(step)) == "looked"
    await rig.close()


async def test_branches_side_by_side_find_their_own_entries(rig: Rig, gateway: Gateway) -> None:
    slow, quick = asyncio.Event(), asyncio.Event()

    async def branch(name: str, context: Context) -> list[str]:
        with context.branch(name):
            await (slow if name == "a" else quick).wait()
            first = await context.step("look", lambda: f"{name} looked")
            (quick if name == "a" else slow).set()
            answer = await context.model("clerk", f"{name} asks")
            return [first, answer.text, await context.step("end", lambda: f"{name} ended")]

    async def run(_given: Any, context: Context) -> Any:
        first, last = (slow, quick) if context.step.attempt == 1 else (quick, slow)
        last.clear()
        first.set()
        found = await asyncio.gather(branch("a", context), branch("b", context))
        if context.step.attempt == 1:
            raise Retryable
        return [*found, await context.step("outer", outer, context)]

    async def outer(context: Context) -> str:
        return str(await context.step("inner", lambda: "nested"))

    async with worker(rig, run):
        step = await send(rig)
        await rig.result(step)
        assert ok(await again(rig, step)) == [
            ["a looked", "re a asks", "a ended"],
            ["b looked", "re b asks", "b ended"],
            "nested",
        ]
        assert gateway.calls[step.run_id] == 2
    scopes = {entry.scope for one in await written(rig, step) for entry in one.entries}
    assert scopes == {"", "a/", "b/", "#1/"}


async def test_more_functions_side_by_side_than_threads_wait_for_their_turn(rig: Rig) -> None:
    """No more threads than the worker has slots, and no error that blames functions which end."""
    count, running, peaks = 20, set[int](), []
    lock = threading.Lock()
    all_busy = threading.Barrier(8)

    def look(number: int) -> int:
        with lock:
            running.add(number)
            peaks.append(len(running))
            is_early = len(peaks) <= all_busy.parties
        if is_early:
            all_busy.wait(20)
        with lock:
            running.discard(number)
        return number

    async def research(_given: Any, context: Context) -> Any:
        async def one(number: int) -> Any:
            with context.branch(f"topic {number}"):
                return await context.step("look", look, number)

        return await asyncio.gather(*map(one, range(count)))

    async with worker(rig, research):
        assert ok(await rig.result(await send(rig))) == list(range(count))
    assert max(peaks) == all_busy.parties


async def test_a_step_with_many_functions_leaves_threads_to_the_functions_of_others(
    rig: Rig,
) -> None:
    release, begun = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def fetch() -> str:
        loop.call_soon_threadsafe(begun.set)
        release.wait(20)
        return "fetched"

    async def work(given: Any, context: Context) -> Any:
        async def one(number: int) -> Any:
            with context.branch(f"page {number}"):
                return await context.step("fetch", fetch)

        if given == "crowd":
            return await asyncio.gather(*map(one, range(100)))
        return await context.step("look", str.upper, "quick")

    async with worker(rig, work):
        crowd = await send(rig, input="crowd")
        async with asyncio.timeout(20):
            await begun.wait()
        assert ok(await rig.result(await send(rig, tenant="globex", input="alone"))) == "QUICK"
        assert ok(await rig.result(await send(rig, input="alone"))) == "QUICK"
        release.set()
        assert ok(await rig.result(crowd)) == ["fetched"] * 100


async def test_a_function_that_exits_fails_its_own_step_and_not_the_worker(rig: Rig) -> None:
    def exits() -> None:
        sys.exit(2)

    async def exits_here() -> None:
        sys.exit(2)

    async def research(_given: Any, context: Context) -> Any:
        async def one(function: Callable[[], Any]) -> Any:
            with context.branch(function.__name__):
                return await context.step("look", function)

        found = await asyncio.gather(one(exits), one(exits_here), return_exceptions=True)
        return [type(each).__name__ for each in found]

    async with worker(rig, research):
        assert ok(await rig.result(await send(rig))) == ["StepFailed", "StepFailed"]


async def test_a_slot_is_held_by_every_function_that_does_not_end(rig: Rig) -> None:
    release, seen = threading.Event(), asyncio.Event()

    async def hurried(_given: Any, context: Context) -> Any:
        with context.branch("slow"):
            slow = asyncio.create_task(context.step("wait", release.wait, 20))
            while not threads.beside.count:  # noqa: ASYNC110 (a thread has no event)
                await asyncio.sleep(0.001)
        with context.branch("fast"):
            await context.step("fast", str.upper, "done")
        slow.cancel()
        return "done"

    def report(_component: str, _ok: bool, detail: str) -> None:
        if "1 of 8 slots are held" in detail:
            seen.set()

    with closing(StepThreads(8)) as threads:

        async def run(context: Context) -> Any:
            return await run_function(described("function", hurried), context, threads)

        async with rig.worker({TYPE: run}, report=report):
            assert ok(await rig.result(await send(rig))) == "done"
            async with asyncio.timeout(20):
                await seen.wait()
            release.set()


async def test_questions_of_loops_side_by_side_are_told_apart_by_what_they_ask(
    rig: Rig, gateway: Gateway
) -> None:
    async def loop(name: str, context: Context) -> list[str]:
        return [(await context.model("clerk", f"{name} {n}")).text for n in range(3)]

    async def run(_given: Any, context: Context) -> Any:
        names = ("a", "b") if context.step.attempt == 1 else ("b", "a")
        found = await asyncio.gather(*(loop(name, context) for name in names))
        if context.step.attempt == 1:
            raise Retryable
        return sorted(map(list, found))

    async with worker(rig, run):
        step = await send(rig)
        await rig.result(step)
        result = await again(rig, step)
    assert ok(result) == [[f"re {name} {n}" for n in range(3)] for name in "ab"]
    assert gateway.calls[step.run_id] == 6
    assert result.spend.calls == 0


@pytest.mark.parametrize("end", ["its time is over", "its worker stops"])
async def test_what_is_cleaned_up_where_an_attempt_is_cut_off_is_not_in_the_way_of_the_next(
    rig: Rig, end: str
) -> None:
    done = []
    started = asyncio.Event()

    async def run(_given: Any, context: Context) -> str:
        try:
            if not started.is_set():
                started.set()
                await asyncio.sleep(60)
            await context.step("ship", done.append, "shipped")
        finally:
            await context.step("release", done.append, "released")
        return "done"

    is_timed_out = end == "its time is over"
    step = await send(rig, timeout_ms=500 if is_timed_out else 60_000, dispatched_at_ms=1e12)
    async with worker(rig, run):
        await started.wait()
        if is_timed_out:
            error = (await rig.result(step)).error
            assert error is not None
            assert error.code == "attempt_timeout"
            assert ok(await again(rig, step, timeout_ms=60_000)) == "done"
    if not is_timed_out:
        async with worker(rig, run):
            assert ok(await rig.result(step)) == "done"
    assert done == ["released"] * is_timed_out + ["shipped", "released"]


async def test_the_same_question_twice_is_asked_twice_and_paid_once_reported(
    rig: Rig, gateway: Gateway
) -> None:
    async def run(_given: Any, context: Context) -> Any:
        for _ in range(2):
            await context.model("clerk", "the same")
        assert context.delivery > 1 or not await asyncio.sleep(60)
        return "done"

    step = await send(rig, dispatched_at_ms=1e12)
    async with worker(rig, run, ack_wait_s=1.0):
        await asyncio.sleep(0)
        await _until(lambda: gateway.calls[step.run_id] == 2)
    async with worker(rig, run, ack_wait_s=1.0):
        result = await rig.result(step)
    assert ok(result) == "done"
    assert gateway.calls[step.run_id] == 2
    assert (result.spend.calls, result.spend.input_tokens) == (2, 6)  # nobody else reports them


async def test_what_a_function_of_a_step_asked_is_reported_where_its_worker_died(
    rig: Rig, gateway: Gateway
) -> None:
    async def draft(context: Context) -> str:
        return f"{(await context.model('clerk', 'draft')).text}."

    async def polish(context: Context) -> str:
        drafted = await context.step("draft", draft, context)
        return (await context.model("clerk", f"polish {drafted}")).text

    async def run(_given: Any, context: Context) -> str:
        polished = await context.step("polish", polish, context)
        assert max(context.delivery, context.step.attempt) > 1 or not await asyncio.sleep(60)
        return str(polished)

    step = await send(rig, dispatched_at_ms=1e12)
    async with worker(rig, run, ack_wait_s=1.0):
        await _until(lambda: gateway.calls[step.run_id] == 2)
        await rig.until_stream(subjects.JOURNALS, lambda messages: messages >= 4)
    async with worker(rig, run, ack_wait_s=1.0):
        result = await rig.result(step)
        second = await again(rig, step, dispatched_at_ms=1e12 + 1)
    assert ok(result) == "re polish re draft."
    assert gateway.calls[step.run_id] == 2
    assert (result.spend.calls, result.spend.input_tokens) == (2, 6)  # nobody else reports them
    assert result.spend.cost_usd == 2 * PRICE_USD
    assert (second.spend.calls, second.spend.cost_usd) == (0, 0)


async def test_large_values_are_kept_as_blobs(rig: Rig, tmp_path: Path) -> None:
    async def run(given: Any, context: Context) -> int:
        large = await context.step("large", lambda: {"text": "y" * given})
        if context.step.attempt == 1:
            raise Retryable
        return len(large["text"])

    async with worker(rig, run, blobs=FileBlobs(tmp_path)):
        step = await send(rig, input=2_000_000)
        await rig.result(step)
        assert ok(await again(rig, step)) == 2_000_000
    async with worker(rig, run):
        error = (await rig.result(await send(rig, input=2_000_000))).error
    assert error is not None
    assert error.code == "journal_full"


async def test_large_values_beside_a_large_input_do_not_wait_for_its_own_room(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_values, "BlobRoom", partial(BlobRoom, 3_000_000))
    blobs = FileBlobs(tmp_path)

    async def run(given: Any, context: Context) -> list[int]:
        def large() -> str:
            return "y" * 1_000_000

        async def of_branch(name: str) -> int:
            with context.branch(name):
                return len(await context.step("large", large))

        found = await asyncio.gather(*(of_branch(name) for name in "ab"))
        if context.step.attempt == 1:
            raise Retryable
        return [len(given), *found]

    async with worker(rig, run, blobs=blobs):
        draft = rig.step(type=TYPE)
        stored = await blobs.put(draft.tenant, b"x" * 1_000_000)
        given = {"$blob": stored.hash, "size": stored.size, "type": "text"}
        step = await send(rig, input=given, timeout_ms=20_000)
        assert (await rig.result(step)).error is not None
        assert ok(await again(rig, step)) == [1_000_000] * 3


async def test_a_handler_that_goes_on_after_its_time_gives_back_the_room_that_it_takes(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms: list[BlobRoom] = []

    class Seen(BlobRoom):
        def __init__(self) -> None:
            super().__init__(3_000_000)
            rooms.append(self)

    monkeypatch.setattr(large_values, "BlobRoom", Seen)
    reported, ended = asyncio.Event(), asyncio.Event()

    async def run(_given: Any, context: Context) -> None:
        if context.step.attempt == 1:
            await context.step("large", lambda: "y" * 1_000_000)
            raise Retryable
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await reported.wait()
        await context.step("large", lambda: "")
        assert rooms[-1].free_bytes == 2_000_000
        ended.set()

    async with worker(rig, run, blobs=FileBlobs(tmp_path)):
        step = await send(rig)
        assert (await rig.result(step)).error is not None
        late = (await again(rig, step, timeout_ms=500)).error
        assert late is not None
        assert late.code == "attempt_timeout"
        reported.set()
        async with asyncio.timeout(20):
            await ended.wait()
            await _until(lambda: rooms[-1].free_bytes == 3_000_000)


async def test_bounds_are_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module.journals, "MAX_ENTRIES", 3)

    async def run(given: Any, context: Context) -> None:
        for number in range(4):
            await context.step(f"no {number}", lambda: "x" * given)

    async with worker(rig, run):
        many = (await rig.result(await send(rig, input=1))).error
        monkeypatch.setattr(door.journals, "MAX_JOURNAL_BYTES", 1_000)
        large = (await rig.result(await send(rig, input=400))).error
    assert many is not None
    assert many.code == "journal_full"
    assert "`no 3`" in many.message
    assert large is not None
    assert large.code == "journal_full"
    assert "the limit is 1000" in large.message


async def test_another_input_begins_a_new_journal(rig: Rig) -> None:
    async def run(given: Any, context: Context) -> str:
        return str(await context.step("look", lambda: f"saw {given}"))

    async with worker(rig, run):
        step = await send(rig, input=1)
        assert ok(await rig.result(step)) == "saw 1"
        assert ok(await again(rig, step, input=2)) == "saw 2"
        assert ok(await again(rig, step, input=2, attempt=3)) == "saw 2"


async def test_without_a_journal_steps_say_so_and_models_are_asked(
    rig: Rig, gateway: Gateway
) -> None:
    async def run(given: Any, context: Context) -> str:
        if given == "model":
            return (await context.model("clerk", "hello")).text
        return str(await context.step("look", lambda: "looked"))

    async with worker(rig, run):
        asked = await send(rig, journal=False, input="model")
        assert ok(await rig.result(asked)) == "re hello"
        error = (await rig.result(await send(rig, journal=False))).error
    assert error is not None
    assert error.code == "journal_missing"


async def test_a_model_that_failed_is_asked_again_unless_the_handler_went_on(rig: Rig) -> None:
    calls = []

    async def answer(msg: Msg) -> None:
        request = CallRequest.model_validate_json(msg.data)
        calls.append(request.messages[-1].content)
        error = {"code": "model_down", "message": "it is down", "error_class": "unavailable"}
        rig.bus.respond(
            msg.reply,
            encoded(CallReply.model_validate({"call_id": request.call_id, "error": error})),
        )

    async def run(_given: Any, context: Context) -> str:
        try:
            await context.model("clerk", "first")
        except ModelCallFailed as error:
            code = error.error.code
            fallen_back = await context.step("fall back", lambda: code)
        if context.step.attempt == 1:
            await context.model("clerk", "second")
        return str(fallen_back)

    await rig.bus.subscribe(subjects.GATEWAY_CALL, answer)
    async with worker(rig, run):
        step = await send(rig)
        assert (await rig.result(step)).error is not None
        assert ok(await again(rig, step)) == "model_down"
    assert calls == ["first", "second"]


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the state of another task
            await asyncio.sleep(0.01)


async def test_the_page_of_durable_handlers_shows_what_works(rig: Rig) -> None:
    page = (ROOT / "docs/how-to/durable-handlers.md").read_text("utf-8")
    orders, branches, *_ = (block.split("```")[0] for block in page.split("```python")[1:])
    place: dict[str, Any] = {"__name__": "orders"}
    exec(compile(orders, "orders.py", "exec"), place)
    found: dict[str, Any] = {}
    exec(compile(branches, "branches.py", "exec"), found)

    async def research(given: list[str], context: Context) -> list[str]:
        return list(await found["research"](given, context))

    async with place["worker"].run(nats_url=rig.nats_url):
        order = {"customer": "ada", "cents": 5}
        first = await send(rig, "shop.order", input=order)
        output = ok(await rig.result(first))
        assert output["receipt"] == {"number": f"C-{first.run_id}-s", "cents": 5}
        assert output["told"] is False
        assert ok(await again(rig, first)) == output
    async with worker(rig, research):
        step = await send(rig, input=["salt", "pepper"])
        assert ok(await rig.result(step)) == ["Salt", "Pepper"]
