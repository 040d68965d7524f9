"""Measure what one no-op step costs in a worker: CPU per step, steps per second, and the time of a
single hop.

Publishes steps as a coordinator would, lets one worker process run them, and reads the results from the
log. The node is a `python` function that returns its input, or an `llm` step whose model call this
process answers at once in place of the gateway. Modes: `throughput` (`--inflight` steps are published
ahead) and `latency` (one step at a time, from publishing the step to reading its result).

With `--against` the code of another checkout (`git worktree add`) is measured as well, in alternation:
each checkout has its own worker process and its own NATS, which are idle during the other's rounds.
Prints the medians of the rounds, a JSON line per checkout, node and mode; every round is on stderr.

With `--journals` the two sides are steps whose handlers may keep a journal, as coordinators dispatch
them, and steps without: this shows what the journal costs where it is not used.

    git worktree add /tmp/before b381ade
    .venv/bin/python -m bench.throughput.worker_loop --against /tmp/before --rounds 7
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import uvloop
from nats.aio.msg import Msg

from bench.support.machine import exact_cpu_s, machine_text
from bench.support.places import HANDLERS, ROOT
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.schemas import ids, subjects
from hocket.schemas.messages import (
    AttemptFinished,
    CallReply,
    CallRequest,
    Priority,
    StepRequested,
    encoded,
    read_log,
)

PAYLOAD = {"text": "x" * 180}
CONFIGS: dict[str, dict[str, Any]] = {
    "python": {"handler": "handlers:pass_along"},
    "llm": {"model": "quick", "prompt": "Say {{ input.text }}"},
}
RESULTS_TIMEOUT_S = 120.0
DEADLINE_MS = 600_000
WARM_UP_STEPS = 2_000
LATENCY_SHARE = 20
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PARTITION = 0


@dataclass(frozen=True)
class Figures:
    """One round of one checkout."""

    steps_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float


async def main(arguments: argparse.Namespace) -> None:
    """Measure every side in alternation, and print the medians."""
    print(machine_text(), file=sys.stderr)
    chosen = {str(ROOT): (ROOT, False)}
    if arguments.against:
        chosen[str(arguments.against)] = (arguments.against.resolve(), False)
    if arguments.journals:
        chosen = {"journal": (ROOT, True), "none": (ROOT, False)}
    async with AsyncExitStack() as stack:
        sides = {
            name: await stack.enter_async_context(side(tree, journals=journals))
            for name, (tree, journals) in chosen.items()
        }
        for node in arguments.nodes:
            for mode in arguments.modes:
                await compare(sides, node, mode, arguments)


async def compare(
    sides: "dict[str, Load]", node: str, mode: str, arguments: argparse.Namespace
) -> None:
    """Run the rounds of one node and mode."""
    one_at_a_time = mode == "latency"
    steps = arguments.steps // LATENCY_SHARE if one_at_a_time else arguments.steps
    inflight = 1 if one_at_a_time else arguments.inflight
    measured: dict[str, list[Figures]] = {name: [] for name in sides}
    for load in sides.values():
        await load.run(node, WARM_UP_STEPS if mode == "throughput" else 200, inflight)
    for number in range(arguments.rounds):
        order = list(sides) if number % 2 else list(reversed(sides))
        for name in order:
            figures = await sides[name].run(node, steps, inflight)
            measured[name].append(figures)
            print(f"{node} {mode} {number + 1} {name}: {figures}", file=sys.stderr)
    for name, rounds in measured.items():
        medians = {
            field: round(statistics.median(getattr(each, field) for each in rounds), 3)
            for field in Figures.__dataclass_fields__
        }
        shown = {"side": name, "node": node, "mode": mode, "inflight": inflight} | medians
        print(json.dumps(shown), flush=True)


@asynccontextmanager
async def side(tree: Path, *, journals: bool) -> "AsyncIterator[Load]":
    """Start a NATS server and a worker process with the code of one checkout."""
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        async with EmbeddedServers(Path(folder), postgres=False) as servers:
            bus = await Bus.connect(servers.nats_url, name="worker-loop")
            await ensure_streams(bus)
            worker = await start_worker(tree, servers.nats_url, folder)
            try:
                load = Load(bus, worker.pid, journals=journals)
                await load.start()
                yield load
            finally:
                worker.terminate()
                await worker.wait()
                await bus.close()


async def start_worker(tree: Path, nats_url: str, folder: str) -> asyncio.subprocess.Process:
    """Start a worker process with the code of a checkout."""
    parts = [str(tree / room) for room in ("schemas", "services", "workers")]
    environment = os.environ | {
        "NATS_URL": nats_url,
        "HOCKET_NATS_URL": nats_url,
        "HOCKET_DATA_DIR": folder,
        "HOCKET_LOG_LEVEL": "warning",
        "HOCKET_HANDLERS": "handlers",
        "PYTHONPATH": os.pathsep.join([*parts, HANDLERS]),
    }
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hocket.workers", "--types", ",".join(CONFIGS), env=environment
    )


class Load:
    """Publishes steps, waits for their results, answers model calls, and reads the worker's CPU time."""

    def __init__(self, bus: Bus, pid: int, *, journals: bool) -> None:
        self._bus = bus
        self._journals = journals
        self._pid = pid
        self._sent_at_s: dict[str, float] = {}
        self._latencies_s: list[float] = []
        self._slots = asyncio.Semaphore(1)
        self._done = asyncio.Event()
        self._number = 0

    async def start(self) -> None:
        """Subscribe to the results (core NATS sees what is published to the log) and to model calls."""
        await self._bus.subscribe(subjects.log_of(PARTITION), self._on_result)
        await self._bus.subscribe(subjects.GATEWAY_CALL, self._on_call)

    async def run(self, node: str, steps: int, inflight: int) -> Figures:
        """Return the figures of one round."""
        self._latencies_s.clear()
        self._slots = asyncio.Semaphore(inflight)
        cpu_before_s, began_s = exact_cpu_s(self._pid), time.perf_counter()
        async with asyncio.timeout(RESULTS_TIMEOUT_S):
            for _ in range(steps):
                await self._slots.acquire()
                self._publish(node)
            while len(self._latencies_s) < steps:
                self._done.clear()
                await self._done.wait()
        took_s = time.perf_counter() - began_s
        latencies_ms = sorted(1000 * latency for latency in self._latencies_s)
        return Figures(
            steps_per_s=round(steps / took_s),
            p50_ms=round(statistics.median(latencies_ms), 3),
            p99_ms=round(latencies_ms[int(len(latencies_ms) * 0.99)], 3),
            cpu_us=round(1e6 * (exact_cpu_s(self._pid) - cpu_before_s) / steps, 1),
        )

    def _publish(self, node: str) -> None:
        self._number += 1
        at_ms = time.time() * 1000
        step = StepRequested(
            run_id=f"r{self._number:024d}",
            tenant="default",
            pipeline="bench",
            version=1,
            step="noop",
            node="noop",
            type=node,
            attempt=1,
            input=PAYLOAD,
            config=CONFIGS[node],
            deadline_at_ms=at_ms + DEADLINE_MS,
            run_deadline_at_ms=at_ms + DEADLINE_MS,
            slack_ms=60_000,
            timeout_ms=60_000,
            priority=Priority.STANDARD,
            partition=PARTITION,
            epoch=1,
            dispatched_at_ms=at_ms,
            capability=f"{self._number:032x}",
            journal=self._journals,
            suspends=self._journals,
        )
        attempt_id = ids.attempt_id(step.run_id, step.step, step.attempt)
        self._sent_at_s[step.run_id] = time.perf_counter()
        self._bus.publish_durable(
            subjects.step(node, "normal"),
            encoded(step),
            msg_id=attempt_id,
            headers={"traceparent": TRACEPARENT},
        )

    async def _on_result(self, msg: Msg) -> None:
        for result in read_log(msg.subject.rsplit(".", 1)[1], msg.data):
            assert isinstance(result, AttemptFinished)
            if result.error is not None:
                raise RuntimeError(result.error.message)
            self._latencies_s.append(time.perf_counter() - self._sent_at_s.pop(result.run_id))
            self._slots.release()
        self._done.set()

    async def _on_call(self, msg: Msg) -> None:
        request = CallRequest.model_validate_json(msg.data)
        reply = CallReply(
            call_id=request.call_id,
            text="5.1 m",
            model=request.model,
            backend="quick",
            input_tokens=12,
            output_tokens=3,
        )
        self._bus.respond(msg.reply, encoded(reply))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", type=Path, help="another checkout, measured in turns")
    parser.add_argument("--journals", action="store_true", help="with and without, in turns")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--inflight", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", nargs="+", choices=sorted(CONFIGS), default=["python", "llm"])
    parser.add_argument(
        "--modes", nargs="+", choices=("throughput", "latency"), default=["throughput"]
    )
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    uvloop.run(main(parser.parse_args()))
