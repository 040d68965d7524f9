"""Measure the cost of traces: a platform that exports them by OTLP with the default sampling, against
one that does not.

The two platforms run side by side and are loaded alternately; while one is loaded, the other is idle. A
round lasts longer than a trace waits for its run's calls (five seconds), so that traces are built and
sent under the load that they describe. What remains of a round is sent, and counted, before the other
side's turn. The endpoint is a separate process that accepts everything. Prints the median over the
rounds of steps/s and CPU time of both, their ratios by round, and how many requests the endpoint
received.

    .venv/bin/python -m bench.reading.tracing --rounds 5
"""

import argparse
import asyncio
import json
import statistics
import sys
from contextlib import AsyncExitStack
from typing import Any

import structlog
import uvloop

from bench.support import sides
from bench.support.load import WORKLOADS, check
from bench.support.machine import cpu_s, machine_text
from bench.support.sides import Side
from hocket.ledger.traces.export import SETTLE_S

WARMUP_RUNS = 500
REST_S = SETTLE_S + 3.0
ENDPOINT = """
import http.server, sys
class Taker(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
        print(1, flush=True)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Taker)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


async def main(options: argparse.Namespace) -> None:
    """Measure, and print."""
    print(machine_text(), file=sys.stderr)
    endpoint = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ENDPOINT, stdout=asyncio.subprocess.PIPE
    )
    assert endpoint.stdout is not None
    try:
        port = int(await endpoint.stdout.readline())
        posts = asyncio.create_task(_counted(endpoint.stdout))
        found = await measured(options, f"http://127.0.0.1:{port}/v1/traces")
    finally:
        endpoint.kill()
        await endpoint.wait()
    print(json.dumps({**found, "posts": await posts}), flush=True)


async def measured(options: argparse.Namespace, url: str) -> dict[str, Any]:
    """Return the figures of both sides."""
    name = options.workload
    envs = {"untraced": {}, "traced": {"HOCKET_OTLP_ENDPOINT": url}}
    took: dict[str, list[tuple[float, float]]] = {side: [] for side in envs}
    async with AsyncExitStack() as stack:
        both = [
            await stack.enter_async_context(sides.opened(side, sides.of_hocket(name), env, name))
            for side, env in envs.items()
        ]
        for side in both:
            await side.load.run(WARMUP_RUNS, 64, side.pid)
        await asyncio.sleep(REST_S)
        for number in range(options.rounds):
            for side in both if number % 2 == 0 else both[::-1]:
                took[side.name].append(await _round(side, options))
        for side in both:
            await check(side.database_url, name, side.load.published, WORKLOADS[name].steps)
    pairs = list(zip(took["traced"], took["untraced"], strict=True))
    return {
        "workload": name,
        **{
            f"{side}_{figure}": round(statistics.median(one[place] for one in figures), 4)
            for side, figures in took.items()
            for place, figure in enumerate(("steps_per_s", "cpu_s_per_1000_steps"))
        },
        "throughput_ratios": [round(a[0] / b[0], 3) for a, b in pairs],
        "cpu_ratios": [round(a[1] / b[1], 3) for a, b in pairs],
    }


async def _round(side: Side, options: argparse.Namespace) -> tuple[float, float]:
    """Return steps/s, and CPU seconds per 1,000 steps including the work that follows the last run."""
    before = sum(cpu_s(side.pid).values())
    loaded = await side.load.run(options.runs, options.inflight, side.pid)
    await asyncio.sleep(REST_S)
    steps = options.runs * WORKLOADS[options.workload].steps
    cpu = 1_000 * (sum(cpu_s(side.pid).values()) - before) / steps
    print(
        f"{side.name}: {steps / loaded.took_s:.0f} steps/s, {cpu:.3f}", file=sys.stderr, flush=True
    )
    return steps / loaded.took_s, cpu


async def _counted(lines: asyncio.StreamReader) -> int:
    """Return the number of requests that the endpoint received until it ended."""
    number = 0
    while await lines.readline():
        number += 1
    return number


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", choices=list(WORKLOADS), default="agent6")
    parser.add_argument("--runs", type=int, default=6_000)
    parser.add_argument("--inflight", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    uvloop.run(main(parser.parse_args()))
