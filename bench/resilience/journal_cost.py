"""Measure the cost of one `context.step`: a call to a function that does nothing, with its journal.

The journal is on a real NATS server, whose store is in `--folder`, and is kept by a coordinator's door
in another process. Several steps run concurrently in one worker (`--side-by-side`), each with `--calls`
calls. The percentiles over all calls are printed as a line of JSON. For the cost of a journal that is
not used, run `bench.throughput.worker_loop --against` a checkout without journals.

    .venv/bin/python -m bench.resilience.journal_cost --folder /var/tmp
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import uvloop
from prometheus_client import CollectorRegistry

from bench.support.machine import machine_text
from hocket.coordinator.journals.door import JournalDoor
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.journals import MAX_ENTRIES
from hocket.schemas.messages import (
    AttemptFinished,
    AttemptsFinished,
    Priority,
    StepRequested,
    encoded,
)
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.functions import described, run_function
from hocket.workers.runtime.execution.metrics import Meters
from hocket.workers.runtime.execution.step_threads import StepThreads
from hocket.workers.runtime.execution.worker import Worker

TYPE = "bench.journal"
VALUE = {"text": "x" * 500}
BOUND_S = 300.0
PARTITION = 0
CAPABILITIES = Capabilities([b"k" * 32])


async def main(arguments: argparse.Namespace) -> None:
    """Run the steps, and print what their calls took."""
    print(machine_text(), file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hkt-", dir=arguments.folder) as folder:
        async with EmbeddedServers(Path(folder), postgres=False) as servers:
            bus = await Bus.connect(servers.nats_url, name="journal-cost")
            await ensure_streams(bus)
            door = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bench.resilience.journal_cost", "--door", servers.nats_url
            )
            try:
                for at_once in arguments.side_by_side:
                    took_ms = await measured(bus, at_once, arguments.calls)
                    cuts = statistics.quantiles(took_ms, n=100)
                    shown = {"side_by_side": at_once, "calls": len(took_ms)}
                    shown |= {f"p{n}_ms": round(cuts[n - 1], 3) for n in (50, 90, 99)}
                    print(json.dumps(shown), flush=True)
            finally:
                door.terminate()
                await door.wait()
                await bus.close()


async def keep_journals(nats_url: str) -> None:
    """Serve journals until the process ends."""
    bus = await Bus.connect(nats_url, name="journal-door")
    async with JournalDoor(bus, CAPABILITIES).open():
        await asyncio.Event().wait()


async def measured(bus: Bus, at_once: int, calls: int) -> list[float]:
    """Return the duration of each call in milliseconds."""
    took_ms: list[float] = []
    ended = asyncio.Semaphore(0)

    async def nothing() -> dict[str, str]:
        return VALUE

    async def handle(_given: Any, context: Context) -> None:
        for _ in range(calls):
            began = time.perf_counter()
            await context.step("nothing", nothing)
            took_ms.append((time.perf_counter() - began) * 1000)

    async def on_result(_message: Any) -> None:
        ended.release()

    subscriptions = [
        await bus.subscribe(subjects.log(PARTITION, kind), on_result)
        for kind in (AttemptFinished.kind, AttemptsFinished.kind)
    ]
    with closing(StepThreads(1)) as threads:

        async def run(context: Context) -> Any:
            return await run_function(described("handle", handle), context, threads)

        worker = Worker(
            bus,
            {TYPE: run},
            {TYPE: at_once},
            name=f"bench-{at_once}",
            meters=Meters(CollectorRegistry()),
        )
        await worker.start()
        for number in range(at_once):
            step = requested(at_once * 1_000 + number)
            await bus.publish(subjects.step(TYPE, "normal"), encoded(step))
        try:
            async with asyncio.timeout(BOUND_S):
                while len(took_ms) < at_once * calls:
                    await ended.acquire()
        finally:
            await worker.drain()
    for subscription in subscriptions:
        await subscription.unsubscribe()
    return took_ms


def requested(number: int) -> StepRequested:
    """Return a step as a coordinator would send it."""
    now_ms = time.time() * 1000
    run_id = f"r{number:024x}"
    return StepRequested(
        run_id=run_id,
        tenant="bench",
        pipeline="bench",
        version=1,
        step="s",
        node="s",
        type=TYPE,
        attempt=1,
        input={},
        config={},
        deadline_at_ms=now_ms + 1000 * BOUND_S,
        slack_ms=1000.0,
        timeout_ms=1000 * BOUND_S,
        priority=Priority.STANDARD,
        partition=PARTITION,
        epoch=1,
        dispatched_at_ms=now_ms,
        capability=CAPABILITIES.of_attempt("bench", run_id, "s", 1, now_ms),
        journal=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--side-by-side", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--door", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.calls > MAX_ENTRIES:
        parser.error(f"--calls: a journal has {MAX_ENTRIES} entries at most")
    uvloop.run(keep_journals(given.door) if given.door else main(given))
