"""The worker runtime on a real NATS: what becomes of steps, whatever happens to them."""

import asyncio
import gc
import json
import os
import signal
import sys
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from hocket.kit.blobs import FileBlobs
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.errors import ErrorClass
from hocket.schemas.messages import (
    CallCancelled,
    CallReply,
    CallRequest,
    StepCancelled,
)
from hocket.workers.errors import Retryable
from hocket.workers.runtime.execution import pool, runner
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.intake import arrivals
from hocket.workers.runtime.intake.after_worker_death import (
    MAX_DELIVERIES,
    MAX_DELIVERIES_UNKNOWN,
)
from hocket.workers.runtime.results.encoding import MAX_RESULT_BYTES
from hocket.workers.runtime.transport.consumers import consumer_name
from hocket.workers.runtime.values import large_values
from hocket.workers.runtime.values.blob_room import BlobRoom
from support.places import HANDLERS
from support.worker_rig import WAIT_S, Journal, Rig, attempt_id, eventually, recorded

SHORT_ACK_WAIT_S = 2.0
TRIALS = 5


@pytest.fixture
async def rig(nats_url: str) -> AsyncIterator[Rig]:
    rig = await Rig.open(nats_url)
    yield rig
    await rig.close()


@pytest.fixture
def journal() -> Journal:
    return Journal()


async def echo(context: Context) -> Any:
    return context.input


async def wait_for_ever(context: Context) -> Any:
    await asyncio.Event().wait()


def waits_for(journal: Journal) -> Any:
    async def wait(context: Context) -> str:
        await journal.release.wait()
        return "released"

    return wait


async def async_echo(value: Any) -> Any:
    return value


# ---- the way of a step -----------------------------------------------------------------------


async def test_a_step_gives_its_result_and_leaves_the_stream(rig: Rig) -> None:
    async with rig.worker(modules=[__name__]):
        step = await rig.send(input={"a": [1, "x"]}, config={"handler": f"{__name__}:async_echo"})
        result = await rig.result(step)
        assert (result.output, result.error, result.worker) == (
            {"a": [1, "x"]},
            None,
            "worker-under-test",
        )
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)


@pytest.mark.parametrize(
    ("handler", "code"),
    [("subprocess:getoutput", "handler_not_allowed"), ("os:system", "handler_not_allowed"),
     ("test_worker:eventually", "handler_not_here")],
)  # fmt: skip
async def test_a_step_that_names_a_function_off_the_list_is_not_run(
    rig: Rig, tmp_path: Path, handler: str, code: str
) -> None:
    mark = tmp_path / "mark"
    async with rig.worker(modules=[__name__]):
        step = await rig.send(input=f"touch {mark}", config={"handler": handler})
        result = await rig.result(step)
    assert result.error is not None
    assert result.error.code == code
    assert not mark.exists()


async def test_a_step_is_acknowledged_after_its_result_is_in_the_log(rig: Rig) -> None:
    logged_at_ack: list[int] = []

    async def on_ack(msg: Msg) -> None:
        logged_at_ack.append((await rig.bus.js.stream_info(subjects.LOG)).state.messages)

    await rig.bus.subscribe(f"$JS.ACK.{subjects.STEPS}.>", on_ack)
    async with rig.worker({"python": echo}):
        await rig.send()
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)
    await rig.bus.nc.flush()
    assert logged_at_ack == [1]


async def test_a_worker_never_runs_more_steps_than_it_has_slots(rig: Rig, journal: Journal) -> None:
    for _ in range(40):
        await rig.send()
    async with rig.worker({"python": recorded(journal, waits_for(journal))}, slots=8):
        await journal.until(lambda: journal.running == 8)
        info = await rig.bus.js.consumer_info(subjects.STEPS, consumer_name("python", "normal"))
        assert info.num_ack_pending is not None
        assert info.num_ack_pending <= 8
        journal.release.set()
        await rig.until(lambda: len(rig.results) == 40)
    assert journal.peak <= 8


async def test_one_slow_step_does_not_hold_up_fast_ones(rig: Rig, journal: Journal) -> None:
    async def handler(context: Context) -> Any:
        return await (waits_for(journal) if context.input.get("slow") else echo)(context)

    async with rig.worker({"python": recorded(journal, handler)}, slots=4):
        slow = await rig.send(input={"slow": True})
        fast = [await rig.send() for _ in range(50)]
        for step in fast:
            await rig.result(step)
        assert not rig.results[attempt_id(slow)]
        journal.release.set()
        assert (await rig.result(slow)).output == "released"


async def test_urgent_steps_go_first_and_batch_steps_are_not_starved(
    rig: Rig, journal: Journal
) -> None:
    lane_of: dict[str, str] = {}
    for lane in ("batch", "normal", "urgent"):
        for _ in range(30):
            step = await rig.send(lane=lane)
            lane_of[step.run_id] = lane
    async with rig.worker({"python": recorded(journal, echo)}, slots=1):
        await rig.until(lambda: len(rig.results) == 90)
    first = [lane_of[run_id] for run_id in journal.order[:39]]
    assert first.count("urgent") > first.count("normal") > first.count("batch") > 0


async def test_a_step_that_comes_to_a_full_worker_is_run_by_one_that_is_free(
    rig: Rig, journal: Journal
) -> None:
    async with rig.worker({"python": recorded(journal, waits_for(journal))}, slots=1, name="full"):
        await rig.send(lane="normal")
        await journal.until(lambda: journal.running == 1)
        async with rig.worker({"python": echo}, slots=1, name="free"):
            steps = [await rig.send(lane="urgent"), await rig.send(lane="batch")]
            assert [(await rig.result(step)).worker for step in steps] == ["free", "free"]
        journal.release.set()


async def test_of_steps_that_wait_in_a_worker_the_one_with_least_slack_starts_first(
    rig: Rig, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "PASS_ON_S", WAIT_S)
    async with rig.worker({"python": recorded(journal, waits_for(journal))}, slots=1):
        running = await rig.send(lane="normal", slack_ms=1)
        await journal.until(lambda: journal.running == 1)
        loose = await rig.send(lane="urgent", slack_ms=20_000)
        tight = await rig.send(lane="batch", slack_ms=100)
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 3)
        journal.release.set()
        await rig.result(tight)
        await rig.result(loose)
    assert journal.order == [running.run_id, tight.run_id, loose.run_id]


async def test_a_failing_handler_gives_a_typed_error(rig: Rig) -> None:
    async def fail(context: Context) -> Any:
        raise {"typed": Retryable("later"), "plain": ValueError("bad")}[context.input]

    async with rig.worker({"python": fail}):
        typed = await rig.result(await rig.send(input="typed"))
        plain = await rig.result(await rig.send(input="plain"))
    assert typed.error is not None
    assert (typed.error.code, typed.error.error_class) == ("retryable", ErrorClass.TRANSIENT)
    assert plain.error is not None
    assert (plain.error.code, plain.error.details["exception"]) == (
        "handler_failed",
        "builtins.ValueError",
    )


async def test_an_output_that_is_no_json_gives_a_typed_error(rig: Rig) -> None:
    async def give_object(context: Context) -> Any:
        return object()

    async with rig.worker({"python": give_object}):
        result = await rig.result(await rig.send())
    assert result.error is not None
    assert result.error.code == "output_not_json"


# ---- time ------------------------------------------------------------------------------------


async def test_a_step_is_stopped_when_its_time_is_over(rig: Rig) -> None:
    async with rig.worker({"python": wait_for_ever}):
        result = await rig.result(await rig.send(timeout_ms=50))
    assert result.error is not None
    assert (result.error.code, result.error.error_class) == (
        "attempt_timeout",
        ErrorClass.TIMEOUT,
    )


async def test_the_deadline_stops_a_step_before_its_timeout(rig: Rig) -> None:
    async with rig.worker({"python": wait_for_ever}):
        step = await rig.send(deadline_at_ms=time.time() * 1000 + 500)
        result = await rig.result(step)
    assert result.error is not None
    assert result.error.code == "attempt_timeout"


async def test_a_step_that_comes_after_its_deadline_is_not_run(rig: Rig, journal: Journal) -> None:
    async with rig.worker({"python": recorded(journal, echo)}):
        result = await rig.result(await rig.send(deadline_at_ms=time.time() * 1000 - 1))
    assert result.error is not None
    assert (result.error.code, result.error.error_class) == ("deadline_passed", ErrorClass.TIMEOUT)
    assert not journal.order


async def test_a_step_that_comes_too_late_for_its_run_is_given_back_to_it(
    rig: Rig, journal: Journal
) -> None:
    now_ms = time.time() * 1000
    async with rig.worker({"python": recorded(journal, echo)}):
        late = await rig.result(await rig.send(start_by_at_ms=now_ms - 1))
        in_time = await rig.result(await rig.send(start_by_at_ms=now_ms + 60_000))
    assert late.error is not None
    assert (late.error.code, in_time.error) == ("held_too_long", None)
    assert len(journal.order) == 1


async def test_a_handler_that_ignores_its_cancellation_is_answered_for(rig: Rig) -> None:
    stubborn_ends = asyncio.Event()

    async def stubborn(context: Context) -> Any:
        while not stubborn_ends.is_set():
            try:
                await stubborn_ends.wait()
            except asyncio.CancelledError:
                continue

    async with rig.worker({"python": stubborn}, slots=1):
        result = await rig.result(await rig.send(timeout_ms=20))
        assert result.error is not None
        assert result.error.code == "attempt_timeout"
        stubborn_ends.set()
        assert (await rig.result(await rig.send())).output is None


# ---- cancellation ----------------------------------------------------------------------------


async def test_a_running_step_is_cancelled_within_50_ms(rig: Rig, journal: Journal) -> None:
    took_s = []
    async with rig.worker({"python": recorded(journal, wait_for_ever)}):
        for _ in range(TRIALS):
            step = await rig.send()
            await journal.until(lambda: journal.running == 1)
            asked_at_s = time.monotonic()
            rig.cancel(step)
            result = await rig.result(step)
            assert result.error is not None
            assert (result.error.code, result.error.error_class) == (
                "attempt_cancelled",
                ErrorClass.CANCELLED,
            )
            took_s.append(rig.result_at_s[attempt_id(step)] - asked_at_s)
    assert min(took_s) < 0.05, took_s  # a busy machine only ever makes it later


async def test_a_step_cancelled_before_it_comes_is_answered_without_running(
    rig: Rig, journal: Journal
) -> None:
    async with rig.worker({"python": recorded(journal, waits_for(journal))}, slots=1):
        running = await rig.send()
        await journal.until(lambda: journal.running == 1)
        waiting = [await rig.send() for _ in range(3)]
        for step in waiting:
            rig.cancel(step)
        await rig.bus.nc.flush()
        journal.release.set()
        for step in waiting:
            error = (await rig.result(step)).error
            assert error is not None
            assert error.error_class is ErrorClass.CANCELLED
    assert journal.order == [running.run_id]


async def test_an_attempt_that_is_cancelled_before_its_first_turn_is_answered_at_once(
    rig: Rig, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = pool.Pool._turn

    def turn_and_cancel(python: pool.Pool) -> None:
        turn(python)
        for attempt in list(python.attempts):
            python.cancel(StepCancelled(run_id=attempt.step.run_id, reason="lost the race"))

    monkeypatch.setattr(pool.Pool, "_turn", turn_and_cancel)
    monkeypatch.setattr(runner, "STOP_GRACE_S", 600.0)
    async with rig.worker({"python": recorded(journal, wait_for_ever)}):
        result = await rig.result(await rig.send())
    assert result.error is not None
    assert result.error.code == "attempt_cancelled"
    assert result.started_at_ms > 0
    assert not journal.order


async def test_a_cancelled_run_stops_all_its_steps_and_no_others(
    rig: Rig, journal: Journal
) -> None:
    async with rig.worker({"python": recorded(journal, waits_for(journal))}):
        first = await rig.send(run_id="run-a", step="x")
        second = await rig.send(run_id="run-a", step="y")
        other = await rig.send(run_id="run-b", step="x")
        await journal.until(lambda: journal.running == 3)
        cancelled = StepCancelled(run_id="run-a").model_dump_json().encode()
        rig.bus.publish_nowait(subjects.CANCEL_FILTER, cancelled)
        for step in (first, second):
            error = (await rig.result(step)).error
            assert error is not None
            assert error.error_class is ErrorClass.CANCELLED
        journal.release.set()
        assert (await rig.result(other)).output == "released"


# ---- redelivery ------------------------------------------------------------------------------


async def test_a_step_delivered_again_while_it_runs_is_not_run_twice(
    rig: Rig, journal: Journal
) -> None:
    async with rig.worker({"python": recorded(journal, waits_for(journal))}) as worker:
        step = await rig.send()
        await journal.until(lambda: journal.running == 1)
        attempt = worker._pools[0].attempts.find(attempt_id(step))
        assert attempt is not None
        first = attempt.ack_subject
        rig.bus.publish_nowait(first, b"-NAK")

        async def came_again() -> bool:
            return attempt.ack_subject != first

        await eventually(came_again)
        journal.release.set()
        await rig.result(step)
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)
    assert journal.started[step.run_id] == 1
    (result,) = rig.results[attempt_id(step)]
    assert result.delivery == 1  # as in the ids of its calls, or its spending would count twice


async def test_a_long_step_is_reported_as_in_progress(rig: Rig, journal: Journal) -> None:
    said: list[bytes] = []
    heard = asyncio.Event()

    async def on_ack(msg: Msg) -> None:
        said.append(msg.data)
        heard.set()

    await rig.bus.subscribe(f"$JS.ACK.{subjects.STEPS}.>", on_ack)
    async with rig.worker({"python": recorded(journal, waits_for(journal))}) as worker:
        await rig.send()
        await journal.until(lambda: journal.running == 1)
        worker._pools[0].keep_alive(0.0)
        async with asyncio.timeout(WAIT_S):
            await heard.wait()
        journal.release.set()
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)
    assert said[0] == b"+WPI"


async def test_what_a_killed_worker_held_is_finished_by_another(rig: Rig, tmp_path: Path) -> None:
    async def started() -> bool:
        return (tmp_path / "started-1").exists()

    first = await start_process(rig.nats_url, tmp_path)
    try:
        step = await rig.send(
            config={"handler": "worker_handlers:wait_in_first_delivery"},
            input={"dir": str(tmp_path)},
        )
        await eventually(started)
    finally:
        first.send_signal(signal.SIGKILL)
        await first.wait()
    assert not rig.results[attempt_id(step)]
    second = await start_process(rig.nats_url, tmp_path)
    try:
        assert (await rig.result(step)).output == {"delivery": 2}
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)
    finally:
        second.send_signal(signal.SIGTERM)
        assert await second.wait() == 0


async def start_process(nats_url: str, folder: Path) -> asyncio.subprocess.Process:
    """Start a worker for `python` steps as users do, in a process of its own."""
    (folder / "hocket.yaml").write_text(f"workers: {{ack_wait_s: {SHORT_ACK_WAIT_S}}}")
    environment = os.environ | {
        "NATS_URL": nats_url,
        "HOCKET_DATA_DIR": str(folder),
        "HOCKET_CONFIG": str(folder / "hocket.yaml"),
        "HOCKET_HANDLERS": "worker_handlers",
        "PYTHONPATH": HANDLERS,
    }
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hocket.workers", "--types", "python", env=environment
    )


# ---- stopping --------------------------------------------------------------------------------


async def test_a_drained_worker_finishes_what_runs(rig: Rig, journal: Journal) -> None:
    async with rig.worker({"python": recorded(journal, waits_for(journal))}) as worker:
        step = await rig.send()
        await journal.until(lambda: journal.running == 1)
        draining = asyncio.create_task(worker.drain(WAIT_S))
        late = await rig.send()
        journal.release.set()
        await draining
        assert (await rig.result(step)).output == "released"
        assert not rig.results[attempt_id(late)]
        worker.drain = _no_drain  # type: ignore[method-assign]


async def _no_drain(drain_s: float = 0.0) -> None:
    return None


async def test_a_drained_worker_gives_the_rest_back_at_once(rig: Rig, journal: Journal) -> None:
    async with rig.worker({"python": recorded(journal, wait_for_ever)}, name="first"):
        step = await rig.send()
        await journal.until(lambda: journal.running == 1)
    given_back_at_s = time.monotonic()
    async with rig.worker({"python": echo}, name="second"):
        assert (await rig.result(step)).worker == "second"
    assert rig.result_at_s[attempt_id(step)] - given_back_at_s < 5
    assert len(rig.results[attempt_id(step)]) == 1


async def test_a_worker_that_drains_keeps_its_steps_through_a_reconnect(
    rig: Rig, journal: Journal
) -> None:
    handlers = {"python": recorded(journal, waits_for(journal))}
    short = {"ack_wait_s": SHORT_ACK_WAIT_S}
    async with (
        rig.worker(handlers, name="first", **short) as first,
        rig.worker(handlers, name="second", **short),
    ):
        step = await rig.send()
        await journal.until(lambda: journal.running == 1)
        draining = asyncio.create_task(first.drain(WAIT_S))
        transport = first._bus.nc._transport
        assert transport is not None
        transport.close()
        await asyncio.sleep(3 * SHORT_ACK_WAIT_S)
        journal.release.set()
        await rig.result(step)
        await draining
        first.drain = _no_drain  # type: ignore[method-assign]
    assert journal.started == {step.run_id: 1}
    assert first._bus.losses


async def test_a_step_that_was_given_back_is_answered_only_by_whoever_has_it(
    rig: Rig, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "STOP_GRACE_S", 0.0)

    async def ignores(context: Context) -> str:
        while not journal.release.is_set():
            with suppress(asyncio.CancelledError):
                await journal.release.wait()
        return "late"

    async with rig.worker({"python": recorded(journal, ignores)}, name="first") as first:
        step = await rig.send(timeout_ms=5_000)
        await journal.until(lambda: journal.running == 1)
        async with rig.worker({"python": recorded(journal, wait_for_ever)}, name="second"):
            draining = asyncio.create_task(first.drain(0.0))
            result = await rig.result(step)
        journal.release.set()
        await draining
        first.drain = _no_drain  # type: ignore[method-assign]
    assert result.worker == "second", "the time of the first was up before"
    assert len(rig.results[attempt_id(step)]) == 1


async def test_steps_run_again_after_nats_was_killed(rig: Rig, servers: EmbeddedServers) -> None:
    async with rig.worker({"python": echo}, ack_wait_s=SHORT_ACK_WAIT_S):
        await rig.result(await rig.send())
        await servers.nats.kill()
        await servers.nats.wait_ready()
        for _ in range(20):
            assert (await rig.result(await rig.send(input=1))).output == 1


async def test_steps_run_again_after_their_consumer_was_deleted(rig: Rig) -> None:
    async with rig.worker({"python": echo}):
        await rig.result(await rig.send())
        await rig.bus.js.delete_consumer(subjects.STEPS, consumer_name("python", "normal"))
        assert (await rig.result(await rig.send(input=1))).output == 1


# ---- poison ----------------------------------------------------------------------------------


async def test_an_unreadable_step_is_dead_lettered_and_does_not_hold_up_others(rig: Rig) -> None:
    async with rig.worker({"python": echo}):
        await rig.bus.publish(subjects.step("python", "normal"), b"{not json")
        assert (await rig.result(await rig.send(input=1))).output == 1
        await rig.until_stream(subjects.DLQ, lambda messages: messages == 1)
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)
    letter = await rig.bus.js.get_last_msg(subjects.DLQ, "hocket.dlq.step.>")
    assert letter.data == b"{not json"


async def test_the_run_of_an_unreadable_step_is_told_where_its_name_can_be_read(rig: Rig) -> None:
    step = rig.step()
    body = step.model_dump(mode="json") | {"timeout_ms": "soon"}
    async with rig.worker({"python": echo}):
        await rig.bus.publish(subjects.step("python", "normal"), json.dumps(body).encode())
        result = await rig.result(step)
    assert result.error is not None
    assert (result.error.code, result.error.error_class) == ("step_malformed", ErrorClass.INVALID)
    assert "timeout_ms" in result.error.message


async def deliver_and_give_back(rig: Rig, times: int) -> None:
    """Take the only step of the lane so many times, as workers that die do."""
    name = consumer_name("python", "normal")
    pull = await rig.bus.js.pull_subscribe_bind(consumer=name, stream=subjects.STEPS)
    for _ in range(times):
        (msg,) = await pull.fetch(1, timeout=WAIT_S)
        await msg.nak()
    await pull.unsubscribe()


async def test_a_step_that_only_waited_while_servers_and_workers_ended_runs_all_the_same(
    rig: Rig,
) -> None:
    """It was a dead letter after 20 deliveries, though no worker had ever begun it on probation."""
    async with rig.worker({"python": echo}):
        pass
    step = await rig.send()
    await deliver_and_give_back(rig, MAX_DELIVERIES_UNKNOWN + 3)
    async with rig.worker({"python": echo}):
        result = await rig.result(step)
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)
    assert result.error is None
    await rig.until_stream(subjects.DLQ, lambda messages: messages == 0)


async def test_a_step_delivered_too_often_is_dead_lettered_and_its_run_told(
    rig: Rig, journal: Journal
) -> None:
    async with rig.worker({"python": echo}):
        pass
    step = await rig.send()
    await deliver_and_give_back(rig, MAX_DELIVERIES - 1)
    async with rig.worker({"python": recorded(journal, echo)}):
        result = await rig.result(step)
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)
    assert result.error is not None
    assert result.error.code == "step_undeliverable"
    assert not journal.order
    await rig.until_stream(subjects.DLQ, lambda messages: messages == 1)


async def test_a_step_that_no_worker_could_bury_is_delivered_on_until_one_does(rig: Rig) -> None:
    async with rig.worker({"python": echo}):
        pass
    step = await rig.send()
    await deliver_and_give_back(rig, MAX_DELIVERIES + 3)
    async with rig.worker({"python": echo}):
        result = await rig.result(step)
        assert result.error is not None
        assert result.error.code == "step_undeliverable"
        await rig.until_stream(subjects.STEPS, lambda messages: messages == 0)


async def test_nobody_who_says_that_a_step_was_given_up_ends_it(rig: Rig) -> None:
    release = asyncio.Event()

    async def held(context: Context) -> Any:
        await release.wait()
        return "done"

    async with rig.worker({"python": held}, slots=1):
        steps = [await rig.send() for _ in range(3)]
        for seq in range(1, 4):
            told = {"stream_seq": seq, "consumer": consumer_name("python", "normal")}
            await rig.bus.nc.publish(
                f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{subjects.STEPS}.x",
                json.dumps(told | {"deliveries": MAX_DELIVERIES}).encode(),
            )
        await rig.bus.nc.flush()
        release.set()
        for step in steps:
            assert (await rig.result(step)).output == "done"
        assert all(len(results) == 1 for results in rig.results.values())


# ---- large values ----------------------------------------------------------------------------


async def test_an_output_over_the_limit_is_refused_without_a_blob_store(rig: Rig) -> None:
    async def give_much(context: Context) -> Any:
        return "x" * MAX_RESULT_BYTES

    async with rig.worker({"python": give_much}):
        result = await rig.result(await rig.send())
    assert result.error is not None
    assert result.error.code == "output_too_large"
    assert "blob store" in result.error.message


async def test_a_large_value_travels_through_a_blob_from_step_to_step(
    rig: Rig, tmp_path: Path
) -> None:
    text = "x\u00e9" * MAX_RESULT_BYTES

    async def give_or_measure(context: Context) -> Any:
        if "text" in context.input:
            return {"equal": context.input["text"] == text}
        return {"text": text, "n": 1}

    async with rig.worker({"python": give_or_measure}, blobs=FileBlobs(tmp_path)):
        given = (await rig.result(await rig.send())).output
        assert given["n"] == 1
        assert given["text"]["type"] == "text"
        measured = (await rig.result(await rig.send(input=given))).output
    assert measured == {"equal": True}


async def test_a_large_output_is_repaired_before_it_goes_to_a_blob(
    rig: Rig, tmp_path: Path
) -> None:
    text = "x" * MAX_RESULT_BYTES

    async def give_or_pass_on(context: Context) -> Any:
        if context.input:
            return {"end": context.input["text"][-4:]}
        return {"text": f"{text} \x00 \ud800"}

    async with rig.worker({"python": give_or_pass_on}, blobs=FileBlobs(tmp_path)):
        given = (await rig.result(await rig.send(input={}))).output
        passed_on = (await rig.result(await rig.send(input=given))).output
    assert passed_on == {"end": " \ufffd \ufffd"[-4:]}


async def test_inputs_with_blobs_are_held_by_as_many_steps_as_there_is_room_for(
    rig: Rig, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_values, "BlobRoom", lambda: BlobRoom(100_000))
    blobs = FileBlobs(tmp_path)
    stored = await blobs.put("t", b"x" * 20_000)
    with_blob = {"text": {"$blob": stored.hash, "size": stored.size, "type": "text"}}
    release = asyncio.Event()

    async def held(context: Context) -> Any:
        await release.wait()
        return len(context.input["text"])

    async with rig.worker({"python": recorded(journal, held)}, blobs=blobs):
        steps = [await rig.send(input=with_blob, timeout_ms=5_000) for _ in range(5)]
        late = await rig.send(input=with_blob, deadline_at_ms=time.time() * 1000 + 300)
        await journal.until(lambda: journal.running == 2)
        error = (await rig.result(late)).error
        assert error is not None
        assert error.code == "deadline_passed"
        release.set()
        for step in steps:
            assert (await rig.result(step)).output == 20_000
    assert journal.peak == 2


# ---- model calls -----------------------------------------------------------------------------


class Gateway:
    """Answers model calls at the gateway's subject, or keeps silent."""

    def __init__(self, rig: Rig, *, silent: bool = False) -> None:
        self.asked: list[CallRequest] = []
        self.asked_again: list[str] = []
        """The ids of those that say they may have been made before."""
        self.cancelled: list[str] = []
        self.changed = asyncio.Event()
        self.silent = silent
        self._rig = rig

    async def open(self) -> "Gateway":
        await self._rig.bus.subscribe(subjects.GATEWAY_CALL, self._on_call)
        await self._rig.bus.subscribe(subjects.GATEWAY_CANCEL, self._on_cancel)
        await self._rig.bus.nc.flush()
        return self

    async def until(self, count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.asked) < count:
                self.changed.clear()
                await self.changed.wait()

    async def _on_call(self, msg: Msg) -> None:
        request = CallRequest.model_validate_json(msg.data)
        self.asked.append(request)
        if subjects.ASKED_AGAIN in (msg.headers or {}):
            self.asked_again.append(request.call_id)
        self.changed.set()
        if not self.silent:
            reply = CallReply(call_id=request.call_id, text="yes", input_tokens=3)
            self._rig.bus.publish_nowait(msg.reply, reply.model_dump_json().encode())

    async def _on_cancel(self, msg: Msg) -> None:
        self.cancelled.append(CallCancelled.model_validate_json(msg.data).call_id)
        self.changed.set()


async def ask_model(context: Context) -> str:
    return (await context.model("writer", "Is it so?")).text


async def test_a_model_call_counts_in_the_spend_of_its_attempt(rig: Rig) -> None:
    gateway = await Gateway(rig).open()
    async with rig.worker({"python": ask_model}):
        step = await rig.send()
        result = await rig.result(step)
    assert (result.output, result.spend.calls, result.spend.input_tokens) == ("yes", 1, 3)
    assert gateway.asked[0].call_id == f"{attempt_id(step)}:1:1"


async def test_what_a_handler_spent_counts_though_it_ignores_its_cancellation(rig: Rig) -> None:
    await Gateway(rig).open()
    has_spent, stubborn_ends = asyncio.Event(), asyncio.Event()

    async def stubborn(context: Context) -> Any:
        with context.charging(lambda: Decimal("0.5")):
            await context.model("writer", "Is it so?")
            context.charge("0.02")
            has_spent.set()
            while not stubborn_ends.is_set():
                with suppress(asyncio.CancelledError):
                    await stubborn_ends.wait()

    async with rig.worker({"python": stubborn}, slots=1):
        step = await rig.send()
        await has_spent.wait()
        rig.cancel(step)
        try:
            result = await rig.result(step)
        finally:
            stubborn_ends.set()
    assert result.error is not None
    assert (result.error.code, result.spend.calls) == ("attempt_cancelled", 1)
    assert result.spend.charged_usd == Decimal("0.52")


async def test_a_result_tells_when_its_step_was_queued_and_how_long_models_took(rig: Rig) -> None:
    await Gateway(rig).open()
    before_ms = time.time() * 1000
    async with rig.worker({"python": ask_model, "llm": echo}):
        asked = await rig.result(await rig.send())
        plain = await rig.result(await rig.send(type="llm"))
        held = await rig.result(await rig.send(held_ms=5_000))
    assert held.queued_at_ms < before_ms - 4_000
    assert asked.timing is not None
    assert 0 < asked.timing.model_ms <= asked.finished_at_ms - asked.started_at_ms
    assert plain.timing is None
    for result in (asked, plain):  # one machine: the server's clock is ours
        assert before_ms - 1 <= result.queued_at_ms <= result.started_at_ms + 1


async def test_a_call_waits_for_a_gateway_that_is_not_there_yet(rig: Rig, journal: Journal) -> None:
    async with rig.worker({"python": recorded(journal, ask_model)}):
        step = await rig.send()
        await journal.until(lambda: journal.running == 1)
        await Gateway(rig).open()
        assert (await rig.result(step)).output == "yes"


async def test_cancelling_a_step_cancels_its_call_at_the_gateway(rig: Rig) -> None:
    gateway = await Gateway(rig, silent=True).open()
    async with rig.worker({"python": ask_model}):
        step = await rig.send()
        await gateway.until(1)
        rig.cancel(step)
        await rig.result(step)
        async with asyncio.timeout(WAIT_S):
            while not gateway.cancelled:
                gateway.changed.clear()
                await gateway.changed.wait()
    assert gateway.cancelled == [gateway.asked[0].call_id]


async def test_a_call_whose_reply_was_lost_is_asked_again_with_its_id(
    rig: Rig, servers: EmbeddedServers
) -> None:
    gateway = await Gateway(rig, silent=True).open()
    async with rig.worker({"python": ask_model}):
        step = await rig.send()
        await gateway.until(1)
        gateway.silent = False
        await servers.nats.kill()
        await servers.nats.wait_ready()
        assert (await rig.result(step)).output == "yes"
    assert {request.call_id for request in gateway.asked} == {f"{attempt_id(step)}:1:1"}


async def test_what_was_stored_before_nats_was_lost_may_be_in_the_hands_of_another_worker(
    rig: Rig, servers: EmbeddedServers
) -> None:
    """A server that crashed forgets to whom it gave a step: its calls are asked for as if once more."""
    gateway = await Gateway(rig, silent=True).open()
    async with rig.worker({"python": ask_model}, slots=1):
        first = await rig.send()
        await gateway.until(1)
        waiting = await rig.send()
        gateway.silent = False
        await servers.nats.stop()  # one that is killed may lose the step itself
        await servers.nats.start()
        for step in (first, waiting):
            assert (await rig.result(step)).output == "yes"
        later = await rig.send()
        assert (await rig.result(later)).output == "yes"
    assert f"{attempt_id(waiting)}:1:1" in gateway.asked_again
    assert f"{attempt_id(later)}:1:1" not in gateway.asked_again


async def test_an_attempt_that_is_over_leaves_no_reference_cycle_to_the_collector(rig: Rig) -> None:
    known: list[weakref.ref[asyncio.Task[None]]] = []

    async def handler(context: Context) -> None:
        task = asyncio.current_task()
        assert task is not None
        known.append(weakref.ref(task))

    async with rig.worker({"python": handler}, ack_wait_s=600.0):  # attempts are known for so long
        gc.collect()
        gc.disable()
        try:
            for step in [await rig.send(journal=True) for _ in range(20)]:
                await rig.result(step)

            async def freed() -> bool:
                return not any(task() for task in known)

            await eventually(freed)
        finally:
            gc.enable()


async def test_an_acknowledgement_that_was_lost_with_the_connection_is_sent_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the step would be delivered again after `ack_wait_s`, and its calls be paid twice."""
    said: asyncio.Future[Bus] = asyncio.get_running_loop().create_future()
    ack = Bus.ack

    def swallowed(bus: Bus, *ack_subjects: str) -> None:
        if ack_subjects:
            said.set_result(bus)

    async with rig.worker({"python": echo}, ack_wait_s=600.0):
        monkeypatch.setattr(Bus, "ack", swallowed)
        step = await rig.send()
        await rig.result(step)
        bus = await asyncio.wait_for(said, WAIT_S)
        monkeypatch.setattr(Bus, "ack", ack)
        transport = bus.nc._transport
        assert transport is not None
        transport.close()
        await rig.until_stream(subjects.STEPS, lambda left: left == 0)
        first, again = rig.results[attempt_id(step)]
        assert first == again, "a server that crashed may have lost the result that it had"
