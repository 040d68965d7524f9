"""`make typescript-test`: check the worker of examples/typescript-worker.

It is built in a temporary folder, played against the conformance suite, tried with what the suite does
not ask for, and run beside a platform. Needs Node, npm and a registry. Exits with 1 if a check
fails or a run does not end well."""

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import structlog

from hocket.cli.conformance.play import EVERY, play
from hocket.cli.conformance.stage import ACKS, NotSeen, Stage, dispatch_id, result_id
from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from hocket.kit.nats.streams import ensure_streams
from hocket.schemas import subjects
from hocket.schemas.messages import StepRequested, encoded
from support.places import ROOT
from support.worker_rig import eventually

EXAMPLE = ROOT / "examples" / "typescript-worker"
TYPE = "crm.lookup"
RUNS = 50
SPEC = {
    "pipeline": "leads",
    "nodes": {
        "find": {"type": TYPE, "config": {"region": "us"}, "with": {"email": "{{ input.email }}"}}
    },
}

ONE_SLOT = """
import { setTimeout as sleep } from "node:timers/promises";
import { StepError } from "./messages.js";
import { Worker } from "./worker.js";
let cleaned;
const cleaning = new Promise((resolve) => { cleaned = resolve; });
async function handler(input, { step, signal, durable }) {
  switch (input.do) {
    case "sleep":
      await sleep(input.ms, undefined, { signal });
      return "slept";
    case "late":
      await durable.once("made", () => 1);
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      cleaned(await durable.once("clean up", () => "removed"));
      return null;
    case "cleaned":
      return cleaning;
    case "all":
      return Promise.all([
        durable.once("charge", () => {
          if (step.attempt === 1) throw new Error("the card service is busy");
          return "charged";
        }),
        durable.once("slow", () => sleep(150, "slow")).then(() => durable.once("behind", () => "done")),
      ]);
    default:
      throw new StepError("x".repeat(2_000_000), "its code is too long for a message");
  }
}
await new Worker({ "conformance.step": { concurrency: 1, handler } }).run();
"""
SOON_S = 1.5
AGAIN_S = 5.0
UNSTORED_S = 10.0
"""A publication that is not answered is given up after 5 s, and repeated a second later."""

Trial = Callable[[Stage], Awaitable[None]]


async def main() -> int:
    """Build, play, and print the results."""
    if shutil.which("npm") is None:
        print("This needs Node 20 or later, with npm.", file=sys.stderr)
        return 1
    folder = Path(tempfile.mkdtemp(prefix="hocket-ts-"))
    try:
        built = _build(folder / "worker")
        found = await play(("node", str(built / "conformance.js")), list(EVERY))
        failed = {check: fault for check, fault in found.items() if fault}
        print(f"TypeScript worker: {len(found) - len(failed)} of {len(found)} checks passed")
        for check, fault in failed.items():
            print(f"FAULT {check}: {fault}")
        missed = {trial.__name__: await _fault(trial, folder, built) for trial in TRIALS}
        for name, fault in missed.items():
            print(f"{name.strip('_').replace('_', ' ')}: {fault or 'ok'}")
        wrong = await _on_a_platform(folder, built)
        print(f"{RUNS} runs of {TYPE} on a platform: {wrong or 'all as they should be'}")
        return 1 if failed or any(missed.values()) or wrong else 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _build(place: Path) -> Path:
    """Copy the example, install its dependencies, compile it, and return the folder of its JavaScript.
    x"""
    shutil.copytree(EXAMPLE, place, ignore=shutil.ignore_patterns("node_modules", "dist"))
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=place, check=True)
    subprocess.run(["npm", "run", "--silent", "build"], cwd=place, check=True)
    return place / "dist"


async def _fault(trial: Trial, folder: Path, built: Path) -> str:
    """Return what is wrong in a trial of a worker with one slot; nothing if all is well."""
    script = built / "one_slot.js"
    script.write_text(ONE_SLOT)
    place = folder / trial.__name__
    place.mkdir()
    try:
        async with _stage(place, "node", str(script)) as stage:
            stage.running = await stage.start()
            await trial(stage)
    except (AssertionError, NotSeen) as error:
        return str(error) or "it is not as it should be"
    return ""


@asynccontextmanager
async def _stage(place: Path, *command: str) -> AsyncIterator[Stage]:
    stage = Stage(place, command)
    try:
        await stage.open()
        yield stage
    finally:
        await stage.close()


async def _what_begins_after_its_time_is_not_in_the_journal(stage: Stage) -> None:
    step = await stage.send({"do": "late"}, journal=True, timeout_ms=500)
    assert await _error(stage, step) == "attempt_timeout"
    other = await stage.send({"do": "cleaned"})
    assert (await stage.result(other)).body["output"] == "removed"
    assert await _kept(stage, step) == ["made"]


async def _a_branch_that_goes_on_behind_a_failure_does_not_keep_it(stage: Stage) -> None:
    first = await stage.send({"do": "all"}, journal=True)
    assert await _error(stage, first) == "handler_failed"
    await asyncio.sleep(0.5)
    kept = await _kept(stage, first)
    assert kept == ["slow"], f"the journal has {kept}"
    later_ms = round(time.time() * 1000) + 1
    fields: dict[str, Any] = {"run_id": first.run_id, "attempt": 2, "dispatched_at_ms": later_ms}
    await stage.send({"do": "all"}, journal=True, **fields)
    await stage.until(lambda: len(stage.results(first)) == 2, "a result of attempt 2")
    body = stage.results(first)[1].body
    assert body.get("output") == ["charged", "done"], f"attempt 2 gave {body.get('error')}"


async def _a_result_that_no_message_holds_is_an_error(stage: Stage) -> None:
    step = await stage.send({"do": "fail"})
    assert await _error(stage, step) == "output_too_large"


async def _a_result_that_cannot_be_stored_ends_with_its_time(stage: Stage) -> None:
    await stage.bus.js.delete_stream(subjects.LOG)
    step = await stage.send({"do": "sleep", "ms": 0}, timeout_ms=1_500)
    await _ends_in_vain(stage, step, "attempt_timeout")


async def _a_result_that_cannot_be_stored_ends_with_a_cancellation(stage: Stage) -> None:
    await stage.bus.js.delete_stream(subjects.LOG)
    step = await stage.send({"do": "sleep", "ms": 0})
    assert (await stage.result(step)).body.get("output") == "slept"
    stage.cancel(step, step.capability)
    await _ends_in_vain(stage, step, "attempt_cancelled")


async def _ends_in_vain(stage: Stage, step: StepRequested, code: str) -> None:
    """Wait for an error in place of an output that is not stored, and until it is."""
    await stage.until(
        lambda: any(
            (one.body.get("error") or {}).get("code") == code for one in stage.results(step)
        ),
        f"a result with the error {code}",
        UNSTORED_S,
    )
    ids = {one.heard.headers.get("Nats-Msg-Id") for one in stage.results(step)}
    assert ids == {result_id(step)}, f"its results have the ids {ids}"
    await ensure_streams(stage.bus)
    await eventually(lambda: _is_empty(stage))


async def _a_step_without_a_slot_is_in_progress(stage: Stage) -> None:
    slow = await _sent(stage, "normal", 11_000)
    waiting = await _sent(stage, "urgent", 0)
    ended_s = [(await stage.result(step)).heard.at_s for step in (slow, waiting)]
    assert ended_s == sorted(ended_s), "a step without a slot did not wait for one"
    acks = [one for one in stage.heard if one.subject.startswith(ACKS.removesuffix(">"))]
    delivered = {one.subject.split(".")[-5] for one in acks}
    assert delivered == {"1"}, f"the steps were delivered {delivered} times"
    reported = {one.subject for one in acks if one.data == b"+WPI"}
    assert len(reported) == 2, f"{len(reported)} of 2 steps were reported as in progress"


async def _a_step_without_a_slot_can_be_cancelled_and_given_back(stage: Stage) -> None:
    slow = await _sent(stage, "normal", 4_000)
    cancelled, given_back = [await _sent(stage, lane, 0) for lane in ("urgent", "batch")]
    stage.cancel(cancelled, cancelled.capability)
    await stage.result(cancelled, SOON_S)
    told = await _error(stage, cancelled)
    assert told == "attempt_cancelled", (
        f"a step that was cancelled while it waited ended with {told}"
    )
    assert await stage.stop(stage.running, signal.SIGTERM) == 0
    assert (await stage.result(slow)).body.get("output") == "slept"
    assert not stage.results(given_back), "it began a step after SIGTERM"
    stage.running = await stage.start()
    assert (await stage.result(given_back, AGAIN_S)).body.get("delivery") == 2


async def _the_rest_of_a_bundle_is_given_back(stage: Stage) -> None:
    first, *others = [stage.made({"do": "sleep", "ms": 2_000}) for _ in range(3)]
    more = [json.loads(encoded(step)) for step in others]
    body = json.dumps(json.loads(encoded(first)) | {"more": more})
    await stage.send_raw(body.encode(), msg_id=dispatch_id(first))
    await asyncio.sleep(0.5)
    assert await stage.stop(stage.running, signal.SIGTERM) == 0
    assert (await stage.result(first)).body.get("took") == 3
    returned = [one.json()["run_id"] for one in stage.heard if one.subject.endswith(".returned")]
    assert sorted(returned) == sorted(step.run_id for step in others), f"it gave back {returned}"
    await eventually(lambda: _is_empty(stage))


async def _several_servers_may_be_named(stage: Stage) -> None:
    await stage.stop(stage.running, signal.SIGTERM)
    node = stage.command
    stage.command = ("env", f"NATS_URL={stage.server.url}, nats://127.0.0.1:1", *node)
    stage.running = await stage.start()
    await stage.stop(stage.running, signal.SIGTERM)
    for urls in ("nats://a:1,nats://w:hush@a:b", "nats://a:1,nats://hush%@a:1", ","):
        stage.command = ("env", f"NATS_URL={urls}", *node)
        try:
            await stage.start()
        except NotSeen:
            pass
        else:
            raise AssertionError(f"it began with {urls}")
    told = (stage.folder / "worker.log").read_text()
    assert "hush" not in told, "it shows a password"
    assert told.count("Error: server 2 of NATS_URL is no URL") == 2, told
    assert told.count("Error: NATS_URL names no server") == 1, told


async def _sent(stage: Stage, lane: str, ms: int) -> StepRequested:
    """Send a step that sleeps, and wait until a worker has had time to take it."""
    step = stage.made({"do": "sleep", "ms": ms})
    await stage.send_raw(encoded(step), msg_id=dispatch_id(step), lane=lane)
    await asyncio.sleep(0.3)
    return step


async def _error(stage: Stage, step: StepRequested) -> Any:
    return ((await stage.result(step)).body.get("error") or {}).get("code")


async def _kept(stage: Stage, step: StepRequested) -> list[str]:
    """Return the names of what is in a step's journal."""
    return [entry.name for _, one in await stage.journal(step) for entry in one.entries]


async def _is_empty(stage: Stage) -> bool:
    return not await stage.waiting()


TRIALS: tuple[Trial, ...] = (
    _what_begins_after_its_time_is_not_in_the_journal,
    _a_branch_that_goes_on_behind_a_failure_does_not_keep_it,
    _a_result_that_no_message_holds_is_an_error,
    _a_result_that_cannot_be_stored_ends_with_its_time,
    _a_result_that_cannot_be_stored_ends_with_a_cancellation,
    _a_step_without_a_slot_is_in_progress,
    _a_step_without_a_slot_can_be_cancelled_and_given_back,
    _the_rest_of_a_bundle_is_given_back,
    _several_servers_may_be_named,
)


async def _on_a_platform(folder: Path, built: Path) -> str:
    """Run the example's node type on a platform; return what is wrong."""
    async with Platform(folder / "platform", services=("coordinator", "admin")) as platform:
        api = platform.api()
        with (folder / "worker.log").open("wb") as log:
            worker = await asyncio.create_subprocess_exec(
                "node", str(built / "leads.js"), stdout=log, stderr=log,
                env=os.environ | {"NATS_URL": platform.nats_url},
            )  # fmt: skip
        try:
            await eventually(lambda: _is_served(api))
            await asyncio.to_thread(api.post, "/v1/pipelines", SPEC)
            ends = await asyncio.gather(*(_run(api, number) for number in range(RUNS)))
            refused = await _run(api, None)
            worker.terminate()
            code = await asyncio.wait_for(worker.wait(), 30)
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()
    wanted = [{"name": f"n{number}", "region": "us"} for number in range(RUNS)]
    if [end["output"] for end in ends] != wanted:
        return f"they gave {[end['output'] or end['error'] for end in ends][:3]} ..."
    if refused["error"]["code"] != "invalid_input" or code != 0:
        return f"a bad input gave {refused['error']}, and the worker ended with {code}"
    return ""


async def _run(api: Api, number: int | None) -> Any:
    given = {"email": None if number is None else f"n{number}@example.org"}
    body = {"pipeline": "leads", "input": given, "wait_ms": 30_000}
    return await asyncio.to_thread(api.post, "/v1/runs", body)


async def _is_served(api: Api) -> bool:
    found = await asyncio.to_thread(api.get, "/v1/types", limit=500)
    return any(
        one["type"] == TYPE and any(queue["workers"] for queue in one["queues"])
        for one in found["types"]
    )


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    sys.exit(asyncio.run(main()))
