"""Handlers that wait are suspended, and go on with what came: on a real NATS."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hocket.kit.process.clock import now_ms
from hocket.schemas.messages import (
    AttemptFinished,
    HandlerWait,
    Resumption,
    StepRequested,
    WaitEnded,
)
from hocket.worker import SignalTimedOut, StepFailed
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.journal.store import JournalStore
from hocket.workers.runtime.journal.waits import QUIET_S
from support.durable.rig import again, durable_rig, ok, send, worker, written
from support.worker_rig import Rig


@pytest.fixture
async def rig(nats_url: str) -> AsyncIterator[Rig]:
    async with durable_rig(nats_url) as rig:
        yield rig


async def first(rig: Rig) -> tuple[StepRequested, AttemptFinished]:
    step = await send(rig, suspends=True)
    return step, await rig.result(step)


async def resumed(
    rig: Rig, step: StepRequested, attempt: int, *ended: WaitEnded, waits: Any = ()
) -> AttemptFinished:
    """Hand out the next attempt with what came."""
    going_on = Resumption(ended=ended, waits=waits)
    return await again(rig, step, attempt=attempt, resumption=going_on)


def came(ordinal: int, signal: str, payload: Any = None, scope: str = "") -> WaitEnded:
    return WaitEnded(ordinal=ordinal, scope=scope, signal=signal, payload=payload)


async def test_a_handler_goes_on_with_its_signal_and_does_nothing_twice(rig: Rig) -> None:
    done = []

    async def order(_given: Any, context: Context) -> Any:
        await context.step("charge", done.append, "charged")
        paid = await context.wait_for_signal("paid", returns=dict[str, int])
        await context.step("ship", done.append, "shipped")
        sent = await context.wait_for_signal("sent", timeout_s=60)
        return [paid, sent]

    async with worker(rig, order):
        step, result = await first(rig)
        assert result.error is not None  # for coordinators of before, which know no `waits`
        assert (result.output, result.error.code) == (None, "retryable")
        assert result.waits == (HandlerWait(ordinal=2, signal="paid"),)
        second = await resumed(rig, step, 2, came(2, "paid", {"cents": 5}))
        assert second.journaled[0].key == ("", 2)
        wait = second.waits[0]
        assert (wait.ordinal, wait.signal) == (4, "sent")
        assert wait.until_ms == pytest.approx(now_ms() + 60_000, abs=30_000)
        third = await resumed(rig, step, 3, came(4, "sent", "by post"))
        assert ok(third) == [{"cents": 5}, "by post"]
        assert ok(await again(rig, step, attempt=4)) == ok(third)
    assert done == ["charged", "shipped"]
    kinds = [(one.kind, one.name) for all_ in await written(rig, step) for one in all_.entries]
    assert kinds == [("step", "charge"), ("signal", "paid"), ("step", "ship"), ("signal", "sent")]


async def test_a_suspended_attempt_is_counted_as_one(rig: Rig) -> None:
    registry = CollectorRegistry()

    async def ask(_given: Any, context: Context) -> Any:
        return await context.wait_for_signal("answer")

    async with worker(rig, ask, registry=registry):
        step, _ = await first(rig)
        ok(await resumed(rig, step, 2, came(1, "answer", "yes")))
    for outcome in ("suspended", "succeeded"):
        labels = {"type": step.type, "outcome": outcome}
        assert registry.get_sample_value("hocket_worker_steps_total", labels) == 1


async def test_a_signal_that_does_not_come_in_time_is_an_error_of_the_handler(rig: Rig) -> None:
    async def ask(_given: Any, context: Context) -> Any:
        try:
            return await context.wait_for_signal("answer", timeout_s=0.5)
        except SignalTimedOut as error:
            return str(error)

    async with worker(rig, ask):
        step, result = await first(rig)
        assert result.waits[0].signal == "answer"
        ended = WaitEnded(ordinal=1, signal="answer", timed_out=True)
        assert "Raise `timeout_s`" in ok(await resumed(rig, step, 2, ended))


async def test_a_long_sleep_suspends_and_a_short_one_does_not(rig: Rig) -> None:
    async def nap(_given: Any, context: Context) -> Any:
        await context.sleep(0.01)
        await context.sleep(3_600)
        return "awake"

    async with worker(rig, nap):
        step, result = await first(rig)
        assert [(one.ordinal, one.signal) for one in result.waits] == [(2, None)]
        ended = WaitEnded(ordinal=2, timed_out=True)
        assert ok(await resumed(rig, step, 2, ended)) == "awake"


async def test_a_time_that_nobody_can_wait_for_is_named(rig: Rig) -> None:
    async def endless(_given: Any, context: Context) -> Any:
        said = []
        for seconds in (float("inf"), float("nan"), 1e18):
            with pytest.raises(ValueError, match="`seconds` is") as slept:
                await context.sleep(seconds)
            with pytest.raises(ValueError, match="`timeout_s` is"):
                await context.wait_for_signal("answer", timeout_s=seconds)
            said.append(str(slept.value))
        return said

    async with worker(rig, endless):
        _, result = await first(rig)
    assert len(ok(result)) == 3


async def test_what_runs_side_by_side_ends_before_the_step_is_suspended(rig: Rig) -> None:
    done = []

    async def slow() -> str:
        await asyncio.sleep(0.3)
        done.append("slow")
        return "made"

    async def both(_given: Any, context: Context) -> Any:
        async def left() -> Any:
            with context.branch("left"):
                return await context.wait_for_signal("go")

        async def right() -> Any:
            with context.branch("right"):
                made = await context.step("slow", slow)
                return made, await context.wait_for_signal("stop")

        return await asyncio.gather(left(), right())

    async with worker(rig, both):
        step, result = await first(rig)
        keys = [(one.scope, one.ordinal, one.signal) for one in result.waits]
        assert keys == [("left/", 1, "go"), ("right/", 2, "stop")]
        second = await resumed(rig, step, 2, came(1, "go", 1, "left/"), waits=result.waits[1:])
        assert [one.key for one in second.journaled] == [("left/", 1)]
        third = await resumed(rig, step, 3, came(2, "stop", 2, "right/"))
        assert ok(third) == [1, ["made", 2]]
    assert done == ["slow"]


@pytest.mark.parametrize("doing", ["now", "sleep", "failure"])
async def test_what_the_journal_still_takes_ends_before_the_step_is_suspended(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, doing: str
) -> None:
    async def slow_write(self: JournalStore, *args: Any, **kwargs: Any) -> int:
        await asyncio.sleep(6 * QUIET_S)
        return await write(self, *args, **kwargs)

    def fails() -> None:
        raise ConnectionError("away")

    async def both(_given: Any, context: Context) -> Any:
        async def left() -> Any:
            with context.branch("left"):
                return await context.wait_for_signal("go")

        async def right() -> Any:
            with context.branch("right"):
                if doing == "now":
                    await context.now()
                elif doing == "sleep":
                    return await context.sleep(3_600)
                else:
                    with suppress(StepFailed):
                        await context.step("notify", fails)
                return await context.wait_for_signal("stop")

        return await asyncio.gather(left(), right())

    write = JournalStore.write
    monkeypatch.setattr(JournalStore, "write", slow_write)
    async with worker(rig, both):
        _, result = await first(rig)
    assert [one.scope for one in result.waits] == ["left/", "right/"]


async def test_a_wait_keeps_the_moment_that_it_had_first(rig: Rig) -> None:
    async def ask(_given: Any, context: Context) -> Any:
        return await context.wait_for_signal("answer", timeout_s=60)

    async with worker(rig, ask):
        step, result = await first(rig)
        second = await resumed(rig, step, 2, waits=result.waits)
        assert second.waits == result.waits


async def test_a_failure_that_was_dealt_with_is_not_tried_again_after_a_wait(rig: Rig) -> None:
    tried = []

    def fails() -> None:
        tried.append(1)
        raise ConnectionError("away")

    async def order(_given: Any, context: Context) -> Any:
        try:
            await context.step("notify", fails)
        except StepFailed:
            return await context.wait_for_signal("go")

    async with worker(rig, order):
        step, _ = await first(rig)
        assert ok(await resumed(rig, step, 2, came(2, "go", "on"))) == "on"
    assert tried == [1]


async def test_a_handler_that_will_not_be_cancelled_is_suspended_all_the_same(rig: Rig) -> None:
    async def stubborn(_given: Any, context: Context) -> Any:
        try:
            await context.wait_for_signal("go")
        except asyncio.CancelledError:
            return "no"

    async with worker(rig, stubborn):
        _, result = await first(rig)
    assert (result.output, len(result.waits)) == (None, 1)


async def test_what_is_cleaned_up_in_the_end_is_not_done_where_the_step_only_waits(
    rig: Rig,
) -> None:
    done = []

    async def order(_given: Any, context: Context) -> Any:
        try:
            came_in = await context.wait_for_signal("go")
            await context.step("ship", done.append, "shipped")
        finally:
            await context.step("release", done.append, "released")
        return came_in

    async with worker(rig, order):
        step, result = await first(rig)
        assert len(result.waits) == 1
        assert ok(await resumed(rig, step, 2, came(1, "go", "on"))) == "on"
    assert done == ["shipped", "released"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"suspends": False}, "cannot_suspend"), ({"journal": False}, "journal_missing")],
)
async def test_a_platform_that_does_not_suspend_steps_is_told_apart(
    rig: Rig, fields: dict[str, Any], code: str
) -> None:
    async def ask(_given: Any, context: Context) -> Any:
        return await context.wait_for_signal("answer")

    async with worker(rig, ask):
        result = await rig.result(await send(rig, **({"suspends": True} | fields)))
    assert result.error is not None
    assert result.error.code == code
    assert result.waits == ()


async def test_a_wait_inside_of_a_journaled_function_is_refused(rig: Rig) -> None:
    async def outer(_given: Any, context: Context) -> Any:
        async def inner() -> Any:
            return await context.wait_for_signal("go")

        return await context.step("inner", inner)

    async with worker(rig, outer):
        _, result = await first(rig)
    assert result.error is not None
    assert "wait outside it" in result.error.message


async def test_a_handler_whose_code_changed_under_its_wait_says_so(rig: Rig) -> None:
    async def changed(_given: Any, context: Context) -> Any:
        return await context.wait_for_signal("new")

    async with worker(rig, changed):
        step, _ = await first(rig)
        result = await resumed(rig, step, 2, came(1, "old"))
    assert result.error is not None
    assert result.error.code == "journal_mismatch"
    assert "signal old" in result.error.message


async def test_a_signal_that_does_not_fit_is_told_and_another_can_be_waited_for(rig: Rig) -> None:
    async def count(_given: Any, context: Context) -> Any:
        return await context.wait_for_signal("count", returns=int)

    async with worker(rig, count):
        step, _ = await first(rig)
        result = await resumed(rig, step, 2, came(1, "count", "many"))
    assert result.error is not None
    assert result.error.code == "signal_malformed"
    assert "`payload`" in result.error.message


async def test_the_page_of_durable_handlers_shows_how_to_wait(rig: Rig) -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/durable-handlers.md").read_text("utf-8")
    blocks = [block.split("```")[0] for block in page.split("```python")[1:]]
    place: dict[str, Any] = {"__name__": "refunds"}
    source = next(block for block in blocks if block.startswith("\n# refunds"))
    exec(compile(source, "refunds.py", "exec"), place)
    question = "Refund order 7?"
    timed_out = WaitEnded(ordinal=2, signal="answer", timed_out=True)
    async with place["worker"].run(nats_url=rig.nats_url):
        for run_id, ended, refunded in (
            (f"r{1:024x}", came(2, "answer", {"refund": True}), True),
            (f"r{2:024x}", timed_out, False),
        ):
            step = await send(
                rig, "shop.refund", suspends=True, input={"number": "7"}, run_id=run_id
            )
            result = await rig.result(step)
            assert [one.signal for one in result.waits] == ["answer"]
            second = await resumed(rig, step, 2, ended)
            assert ok(second) == {"question": question, "refunded": refunded}
