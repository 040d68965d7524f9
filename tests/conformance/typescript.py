"""`make typescript-test`: check the worker of examples/typescript-worker.

It is built in a temporary folder, played against the conformance suite, and run beside a platform.
Needs Node, npm and a registry. Exits with 1 if a check fails or a run does not end well."""

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import structlog

from hocket.cli.conformance.checks import CHECKS
from hocket.cli.conformance.journal_checks import CALL_CHECKS, JOURNAL_CHECKS, WAIT_CHECKS
from hocket.cli.conformance.play import play
from hocket.cli.conformance.stage import Stage
from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
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

LATE = """
import { Worker } from "./worker.js";
let cleaned;
const cleaning = new Promise((resolve) => { cleaned = resolve; });
async function handler(input, { signal, durable }) {
  if (input.do === "cleaned") return cleaning;
  await durable.once("made", () => 1);
  await new Promise((resolve) => signal.addEventListener("abort", resolve));
  cleaned(await durable.once("clean up", () => "removed"));
  return null;
}
await new Worker({ "conformance.step": { concurrency: 4, handler } }).run();
"""


async def main() -> int:
    """Build, play, and print the results."""
    if shutil.which("npm") is None:
        print("This needs Node 20 or later, with npm.", file=sys.stderr)
        return 1
    folder = Path(tempfile.mkdtemp(prefix="hocket-ts-"))
    try:
        built = _build(folder / "worker")
        checks = [*CHECKS, *JOURNAL_CHECKS, *WAIT_CHECKS, *CALL_CHECKS]
        found = await play(("node", str(built / "conformance.js")), checks)
        failed = {check: fault for check, fault in found.items() if fault}
        print(f"TypeScript worker: {len(found) - len(failed)} of {len(found)} checks passed")
        for check, fault in failed.items():
            print(f"FAULT {check}: {fault}")
        late = await _after_its_time(folder, built)
        print(f"What a handler begins after its time: {late or 'is done, and not in the journal'}")
        wrong = await _on_a_platform(folder, built)
        print(f"{RUNS} runs of {TYPE} on a platform: {wrong or 'all as they should be'}")
        return 1 if failed or late or wrong else 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _build(place: Path) -> Path:
    """Copy the example, install its dependencies, compile it, and return the folder of its JavaScript.
    x"""
    shutil.copytree(EXAMPLE, place, ignore=shutil.ignore_patterns("node_modules", "dist"))
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=place, check=True)
    subprocess.run(["npm", "run", "--silent", "build"], cwd=place, check=True)
    return place / "dist"


async def _after_its_time(folder: Path, built: Path) -> str:
    """Let a handler clean up after its time; return what is wrong with its journal."""
    script = built / "late.js"
    script.write_text(LATE)
    place = folder / "stage"
    place.mkdir()
    stage = Stage(place, ("node", str(script)))
    try:
        await stage.open()
        await stage.start()
        step = await stage.send({"do": "late"}, journal=True, timeout_ms=500)
        error = (await stage.result(step)).body["error"]["code"]
        other = await stage.send({"do": "cleaned"})
        seen = (await stage.result(other)).body["output"]
        kept = [entry.name for _, one in await stage.journal(step) for entry in one.entries]
    finally:
        await stage.close()
    if (error, seen, kept) != ("attempt_timeout", "removed", ["made"]):
        return f"the error is {error}, the clean-up {seen}, and the journal has {kept}"
    return ""


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
