"""The duties of a worker, each as a check of a running worker. A check that fails raises AssertionError
or NotSeen with the reason; docs/reference/worker-protocol.md says the same in words."""

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Callable

from hocket.cli.conformance.bundle_checks import keeps_to_its_slots, takes_bundles
from hocket.cli.conformance.stage import (
    ACKS,
    NODE_TYPE,
    PARTITION,
    TENANT,
    Heard,
    Result,
    Stage,
    result_id,
    slots_of,
)
from hocket.kit.blobs import BlobUnknown
from hocket.schemas import subjects

ACK_WAIT_S = 10.0
SOON_S = 2.5
ANNOUNCED_S = 7.0
QUIET_S = 1.0
LARGE_CHARS = 2_000_000
MAX_MESSAGE_BYTES = 1_000_000
ACK, TERM, PROGRESS = (b"", b"+ACK"), b"+TERM", b"+WPI"

Check = Callable[[Stage], Awaitable[None]]


async def announces(stage: Stage) -> None:
    """It announces itself every few seconds, and when asked."""
    stage.bus.publish_nowait(subjects.WORKER_ASKED, b"")
    for what in ("an answer to hocket.worker.asked", "another announcement within 7 s"):
        stage.heard.clear()
        await stage.until(lambda: any(map(slots_of, stage.heard)), what, ANNOUNCED_S)


async def describes(stage: Stage) -> None:
    """It describes its node type."""
    stage.bus.publish_nowait(subjects.WORKER_ASKED, b"")
    await stage.until(
        lambda: any(
            one.subject == subjects.WORKER_DESCRIBED and one.json()["type"] == NODE_TYPE
            for one in stage.heard
        ),
        f"a description of {NODE_TYPE} on {subjects.WORKER_DESCRIBED}",
        ANNOUNCED_S,
    )


async def answers(stage: Stage) -> None:
    """A result names its attempt, carries its capability, and has the id that drops repeats."""
    value = {"text": "grüße", "list": [1, 2.5, None, True]}
    step = await stage.send({"do": "echo", "value": value}, attempt=3, step="a.b[1]")
    result = await stage.result(step)
    for name in ("run_id", "step", "attempt", "dispatched_at_ms", "capability"):
        given, wanted = result.body.get(name), getattr(step, name)
        assert given == wanted, f"the result's `{name}` is {given!r}, not {wanted!r}"
    assert result.body.get("error") is None, f"it has an error: {result.body['error']}"
    assert result.body.get("output") == value, f"its output is {result.body.get('output')!r}"
    assert result.heard.subject.split(".")[2] == str(PARTITION), (
        "it does not belong to the step's partition"
    )
    if result.heard.subject.endswith(".finished"):
        msg_id = result.heard.headers.get("Nats-Msg-Id")
        assert msg_id == result_id(step), f"its Nats-Msg-Id is {msg_id!r}"


async def acknowledges_after(stage: Stage) -> None:
    """A step is acknowledged once its result is in the log, not before."""
    step = await stage.send({"do": "sleep", "ms": 300, "value": 1})
    result = await stage.result(step)
    await stage.until(lambda: any(map(_is_ack, stage.heard)), "an acknowledgement", SOON_S)
    first = next(one for one in stage.heard if _is_ack(one))
    assert first.number > result.heard.number, (
        "the step was acknowledged before its result was sent"
    )
    await _until_empty(stage)


async def reports_progress(stage: Stage) -> None:
    """A step that takes longer than the ack wait is reported as in progress, and is not redelivered."""
    step = await stage.send({"do": "sleep", "ms": 1_300 * ACK_WAIT_S, "value": "done"})
    await stage.until(
        lambda: any(
            one.subject.startswith("$JS.ACK") and one.data == PROGRESS for one in stage.heard
        ),
        "a report that the step is in progress (+WPI) within the ack wait",
        ACK_WAIT_S,
    )
    result = await stage.result(step, 3 * ACK_WAIT_S)
    assert result.body.get("output") == "done", f"it ended with {result.body.get('error')}"
    delivered = {one.subject.split(".")[-5] for one in stage.heard if one.subject.startswith("$JS")}
    assert delivered <= {"1"}, "the step was delivered again while it ran"


async def keeps_time(stage: Stage) -> None:
    """An attempt ends at its timeout with an error of the class `timeout`."""
    began = time.monotonic()
    step = await stage.send({"do": "sleep", "ms": 20_000}, timeout_ms=500)
    error = _error(await stage.result(step, 0.5 + 2 * SOON_S))
    assert error["error_class"] == "timeout", f"the error's class is {error['error_class']}"
    assert time.monotonic() - began >= 0.4, "it ended too early"


async def leaves_what_is_late(stage: Stage) -> None:
    """A step that arrives after its run's deadline is not run."""
    late_ms = time.time() * 1000 - 1_000
    step = await stage.send(
        {"do": "echo", "value": 1}, deadline_at_ms=late_ms, run_deadline_at_ms=late_ms
    )
    error = _error(await stage.result(step, SOON_S))
    assert error["error_class"] == "timeout", f"the error's class is {error['error_class']}"


async def cancels(stage: Stage) -> None:
    """A cancelled attempt ends at once with an error of the class `cancelled`."""
    step = await stage.send({"do": "sleep", "ms": 20_000})
    await asyncio.sleep(QUIET_S)
    stage.cancel(step, step.capability)
    error = _error(await stage.result(step, SOON_S))
    assert error["error_class"] == "cancelled", f"the error's class is {error['error_class']}"


async def cancels_before(stage: Stage) -> None:
    """An attempt that arrives after its cancellation is not run."""
    body = {"do": "sleep", "ms": 20_000}
    step = await stage.send(body, run_id="cancelled-later")
    stage.cancel(step, step.capability)
    error = _error(await stage.result(step, SOON_S))
    assert error["error_class"] == "cancelled", f"the error's class is {error['error_class']}"


async def believes_no_stranger(stage: Stage) -> None:
    """A cancellation without the attempt's capability stops nothing."""
    step = await stage.send({"do": "sleep", "ms": 2_000, "value": "mine"})
    await asyncio.sleep(QUIET_S / 2)
    for forged in (None, "", "other", "secret"):
        stage.cancel(step, forged)
    result = await stage.result(step)
    assert result.body.get("output") == "mine", "it was stopped by someone without the capability"


async def tells_errors(stage: Stage) -> None:
    """An exception of a handler becomes the step's error, and the worker continues."""
    step = await stage.send({"do": "fail", "message": "no such customer"})
    error = _error(await stage.result(step))
    assert error.get("code"), "the error has no code"
    assert "no such customer" in error.get("message", ""), (
        f"its message is {error.get('message')!r}"
    )
    again = await stage.send({"do": "echo", "value": 1})
    assert (await stage.result(again)).body.get("output") == 1
    await _until_empty(stage)


async def buries_junk(stage: Stage) -> None:
    """A message that is not a step becomes a dead letter and leaves the stream; the worker continues."""
    for number, junk in enumerate((b"\xff\xfe", b"[]", b'{"run_id": "x"}', b"{" * 5_000)):
        await stage.send_raw(junk, msg_id=f"junk{number}")
    await stage.until(
        lambda: sum(one.subject.startswith("hocket.dlq.step.") for one in stage.heard) >= 4,
        "a dead letter on hocket.dlq.step.TENANT for each of 4 unreadable messages",
        2 * ACK_WAIT_S,
    )
    step = await stage.send({"do": "echo", "value": 1})
    await stage.result(step)
    await _until_empty(stage)


async def reads_and_writes_blobs(stage: Stage) -> None:
    """`$blob` in an input is replaced by the value; an output too large for a message is stored as a
    blob."""
    text = "x" * 100_000
    ref = await stage.blobs.put(TENANT, text.encode())
    given = {"$blob": ref.hash, "size": ref.size, "type": "text"}
    step = await stage.send({"do": "length", "value": given})
    result = await stage.result(step)
    assert result.body.get("output") == len(text), f"it read {result.body.get('output')!r}"
    large = await stage.send({"do": "large", "chars": LARGE_CHARS})
    result = await stage.result(large)
    assert len(result.heard.data) < MAX_MESSAGE_BYTES, "the output is inside the message"
    output = result.body.get("output")
    reference = output["text"] if isinstance(output, dict) and "text" in output else output
    assert isinstance(reference, dict), f"the output is not a reference: {str(output)[:100]}"
    try:
        data = await stage.blobs.get(TENANT, reference["$blob"])
    except BlobUnknown:
        raise AssertionError(f"its output names no blob: {str(reference)[:100]}") from None
    assert reference["size"] == len(data), "its size does not match the blob"
    found = data.decode() if reference["type"] == "text" else _text_of(json.loads(data))
    assert found == "y" * LARGE_CHARS, "the blob contains something else"


async def drains(stage: Stage) -> None:
    """On SIGTERM it takes no more steps, finishes those in progress, announces zero slots, and exits
    with 0."""
    process = stage.running
    running = await stage.send({"do": "sleep", "ms": 2_000, "value": "ended"})
    await asyncio.sleep(QUIET_S)
    since = len(stage.heard)
    ending = asyncio.create_task(stage.stop(process, signal.SIGTERM))
    await asyncio.sleep(QUIET_S / 2)
    after = await stage.send({"do": "echo", "value": "too late"})
    result = await stage.result(running)
    assert result.body.get("output") == "ended", (
        f"the running step ended with {result.body.get('error')}"
    )
    code = await ending
    assert code == 0, f"it ended with {code}" if code is not None else "it did not end within 20 s"
    assert not stage.results(after), "it took a step after SIGTERM"
    said = [one for one in stage.heard[since:] if one.subject == subjects.WORKER_ANNOUNCED]
    assert any(not slots_of(one) for one in said), "it did not announce that it takes no more steps"
    stage.running = await stage.start()
    assert (await stage.result(after)).body.get("output") == "too late"


async def leaves_its_steps(stage: Stage) -> None:
    """Steps held by a killed worker are run by the next one."""
    step = await stage.send({"do": "sleep", "ms": 2_000, "value": "again"})
    await asyncio.sleep(QUIET_S)
    await stage.stop(stage.running, signal.SIGKILL)
    assert not stage.results(step), "it already had a result"
    stage.running = await stage.start()
    result = await stage.result(step, 3 * ACK_WAIT_S)
    assert result.body.get("output") == "again", f"it ended with {result.body.get('error')}"
    assert result.body.get("delivery") == 2, (
        "its `delivery` does not say that the step was delivered twice"
    )
    await _until_empty(stage)


CHECKS: dict[str, Check] = {
    "announces": announces,
    "describes": describes,
    "answers": answers,
    "acknowledges-after": acknowledges_after,
    "keeps-time": keeps_time,
    "leaves-late": leaves_what_is_late,
    "cancels": cancels,
    "cancels-before": cancels_before,
    "believes-no-stranger": believes_no_stranger,
    "tells-errors": tells_errors,
    "buries-junk": buries_junk,
    "blobs": reads_and_writes_blobs,
    "progress": reports_progress,
    "drains": drains,
    "redelivery": leaves_its_steps,
    "bundles": takes_bundles,
    "slots": keeps_to_its_slots,
}


def _is_ack(one: Heard) -> bool:
    return one.subject.startswith(ACKS.removesuffix(">")) and one.data in ACK


def _error(result: Result) -> dict[str, str]:
    error = result.body.get("error")
    assert error, f"it has no error; its output is {result.body.get('output')!r}"
    assert isinstance(error, dict), f"its error is {error!r}, not an object"
    return error


def _text_of(value: object) -> object:
    return value.get("text") if isinstance(value, dict) else value


async def _until_empty(stage: Stage) -> None:
    """Wait until the stream contains no more steps."""
    for _ in range(50):
        if not await stage.waiting():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the step is still in the stream: it was never acknowledged")
