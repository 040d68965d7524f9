"""What one no-op step costs in a worker: CPU per step, steps per second, latency of a single hop.

Publishes steps as a coordinator would, lets one worker process run them, and reads the results from
the log. Prints one JSON line per mode: `throughput` (steps are published ahead, `--inflight` of them)
and `latency` (one step at a time: from publishing the step to reading its result).

    .venv/bin/python -m bench.throughput.worker_hop --steps 20000 --inflight 256
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from nats.aio.msg import Msg

from bench.support.places import ROOT
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.schemas import ids, subjects
from hocket.schemas.messages import AttemptFinished, Priority, StepRequested, read_log

PAYLOAD = {"text": "x" * 180}
START_TIMEOUT_S = 20.0
BODY_TIMEOUT_S = 120.0


async def no_op(value: object) -> object:
    """Return the input; the handler of every step here."""
    return value


async def main(arguments: argparse.Namespace) -> None:
    """Run both modes against one worker process."""
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        async with EmbeddedServers(Path(folder), postgres=False) as servers:
            bus = await Bus.connect(servers.nats_url, name="worker-hop")
            await ensure_streams(bus)
            worker = await start_worker(servers.nats_url, folder)
            try:
                measure = Measure(bus, worker.pid)
                await measure.start()
                await measure.run(200, 1)
                for mode, steps, inflight in (
                    ("latency", arguments.steps // 10, 1),
                    ("throughput", arguments.steps, arguments.inflight),
                ):
                    result = await measure.run(steps, inflight)
                    print(json.dumps({"mode": mode, "inflight": inflight, **result}), flush=True)
            finally:
                worker.terminate()
                await worker.wait()
                await bus.close()


async def start_worker(nats_url: str, folder: str) -> asyncio.subprocess.Process:
    """Start a worker process for `python` steps that can import this file."""
    environment = os.environ | {
        "NATS_URL": nats_url,
        "HOCKET_NATS_URL": nats_url,
        "HOCKET_DATA_DIR": folder,
        "HOCKET_LOG_LEVEL": "warning",
        "HOCKET_HANDLERS": "bench.throughput.worker_hop",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hocket.workers", "--types", "python", env=environment
    )


class Measure:
    """Publishes steps, waits for their results, and reads the worker's CPU time."""

    def __init__(self, bus: Bus, pid: int) -> None:
        self._bus = bus
        self._pid = pid
        self._sent_at_s: dict[str, float] = {}
        self._latencies_s: list[float] = []
        self._slots = asyncio.Semaphore(1)
        self._done = asyncio.Event()
        self._number = 0

    async def start(self) -> None:
        """Listen to the results; core NATS sees what is published to the log."""
        await self._bus.subscribe(subjects.log_of(0), self._on_result)

    async def run(self, steps: int, inflight: int) -> dict[str, float]:
        """Return the figures of one mode."""
        self._latencies_s.clear()
        self._done.clear()
        self._slots = asyncio.Semaphore(inflight)
        cpu_before, began_s = self._cpu_s(), time.perf_counter()
        for _ in range(steps):
            await self._slots.acquire()
            self._publish()
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while len(self._latencies_s) < steps:
                self._done.clear()
                await self._done.wait()
        took_s = time.perf_counter() - began_s
        latencies_ms = sorted(1000 * latency for latency in self._latencies_s)
        return {
            "steps": steps,
            "steps_per_s": round(steps / took_s),
            "p50_ms": round(statistics.median(latencies_ms), 3),
            "p99_ms": round(latencies_ms[int(len(latencies_ms) * 0.99)], 3),
            "worker_cpu_us_per_step": round(1e6 * (self._cpu_s() - cpu_before) / steps, 1),
        }

    def _publish(self) -> None:
        self._number += 1
        step = StepRequested(
            run_id=f"r{self._number:024d}",
            tenant="default",
            pipeline="bench",
            version=1,
            step="noop",
            node="noop",
            type="python",
            attempt=1,
            input=PAYLOAD,
            config={"handler": "bench.throughput.worker_hop:no_op"},
            deadline_at_ms=time.time() * 1000 + 600_000,
            slack_ms=60_000,
            timeout_ms=60_000,
            priority=Priority.STANDARD,
            partition=0,
            epoch=1,
        )
        attempt_id = ids.attempt_id(step.run_id, step.step, step.attempt)
        self._sent_at_s[step.run_id] = time.perf_counter()
        self._bus.post(
            subjects.step("python", "normal"), step.model_dump_json().encode(), msg_id=attempt_id
        )

    async def _on_result(self, msg: Msg) -> None:
        for result in read_log(msg.subject.rsplit(".", 1)[1], msg.data):
            assert isinstance(result, AttemptFinished)
            if result.error is not None:
                raise RuntimeError(result.error.message)
            self._latencies_s.append(time.perf_counter() - self._sent_at_s.pop(result.run_id))
            self._slots.release()
        self._done.set()

    def _cpu_s(self) -> float:
        """Return user and system time of the worker (Linux: /proc/PID/stat, fields 14 and 15)."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--inflight", type=int, default=256)
    asyncio.run(main(parser.parse_args()))
