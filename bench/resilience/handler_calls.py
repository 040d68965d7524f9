"""Measure the cost of one `context.call_node`, on a platform of processes.

Runs whose handler calls a node that does nothing `--calls` times, one after another, alternate with
runs whose handler calls none. The cost of a call is the difference of the medians, divided by the
number of calls.

    .venv/bin/python -m bench.resilience.handler_calls --calls 20 --rounds 10
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.support.machine import machine_text
from hocket.cli.local.platform import Platform
from hocket.worker import Context

BOUND_S = 120.0
PAUSE_S = 0.02
HERE = "bench.resilience.handler_calls"


async def calls_so_often(given: dict[str, Any], context: Context) -> int:
    """Call a node `calls` times, one after another."""
    for number in range(given["calls"]):
        await context.call_node("nothing", {"n": number})
    return context.step.attempt


async def nothing(given: dict[str, Any]) -> dict[str, Any]:
    """Return the input."""
    return given


async def main(arguments: argparse.Namespace) -> None:
    """Alternate the two kinds of run, and print what a call took."""
    print(machine_text(), file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hkt-", dir=arguments.folder) as folder:
        environment = {"HOCKET_HANDLERS": HERE, "PYTHONPATH": str(Path.cwd())}
        services = ("coordinator", "worker", "admin")
        async with Platform(Path(folder) / "data", services=services, env=environment) as platform:
            api = platform.api()
            await asyncio.to_thread(api.post, "/v1/pipelines", pipeline(arguments.calls))
            took: dict[int, list[float]] = {0: [], arguments.calls: []}
            for _ in range(arguments.rounds + 1):
                for calls, found in took.items():
                    found.append(await took_ms(api, calls))
    none, some = (statistics.median(found[1:]) for found in took.values())
    each_ms = round((some - none) / arguments.calls, 2)
    print(json.dumps({"calls": arguments.calls, "run_ms": round(none, 2), "call_ms": each_ms}))


def pipeline(calls: int) -> dict[str, Any]:
    """Return the pipeline."""
    node = {
        "type": "python",
        "handler": f"{HERE}:calls_so_often",
        "with": {"calls": "{{ input.calls }}"},
        "calls": {"nothing": {"type": "python", "handler": f"{HERE}:nothing"}},
        "max_calls": calls,
    }
    return {"pipeline": "calls", "nodes": {"a": node}}


async def took_ms(api: Any, calls: int) -> float:
    """Return a run's duration from its acceptance to its end, in milliseconds."""
    asked = {"pipeline": "calls", "input": {"calls": calls}}
    begun = await asyncio.to_thread(api.post, "/v1/runs", asked)
    async with asyncio.timeout(BOUND_S):
        while True:
            run = await asyncio.to_thread(api.get, f"/v1/runs/{begun['run_id']}")
            if run["finished_at"] is not None:
                assert run["status"] == "succeeded", run
                return float(run["duration_ms"])
            await asyncio.sleep(PAUSE_S)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=10)
    asyncio.run(main(parser.parse_args()))
