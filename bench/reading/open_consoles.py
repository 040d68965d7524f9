"""Measure what open consoles cost the platform, and how soon they show a change.

Uses one platform, whose list of runs is open in `--consoles` consoles. Each keeps the stream of rows
open, as a browser does, and reads all of it; they run in a separate process. For `--rounds` rounds,
`--runs` runs of agent6 are executed with `--inflight` at once, alternating between no consoles and all
of them: the ratio of the runs per second is the cost of the consoles. Then `--changes` runs are
submitted one at a time, `--gap-ms` apart, with the consoles open. Printed are the time from just before
a task is published until a console has the row of its run, and the time from when the submitter hears
of the run's end until the row shows it.

    .venv/bin/python -m bench.reading.open_consoles --consoles 50
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import nats
import uvloop

from bench.support.load import BODY, CONNECT_TIMEOUT_S, TENANT, WORKLOADS, Load
from bench.support.machine import machine_text
from bench.support.places import HANDLERS
from bench.support.processes import percentile
from hocket.cli.local.platform import Platform
from hocket.kit.nats.cloudevents import REPLY_TO
from hocket.schemas import subjects

WORKLOAD = "agent6"
ROW = re.compile(r'<tr data-run="(\w+)".*?class="status (\w+)"', re.DOTALL)
BOUND_S = 30.0
READY = "open"


async def main(arguments: argparse.Namespace) -> None:
    """Measure, and print a line of JSON."""
    print(machine_text(), file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        env = {"HOCKET_HANDLERS": "handlers", "PYTHONPATH": HANDLERS}
        async with Platform(Path(folder), env=env, log_level="warning") as platform:
            workload = WORKLOADS[WORKLOAD]
            spec = workload.pipeline(WORKLOAD)
            await asyncio.to_thread(platform.api(TENANT).post, "/v1/pipelines", spec)
            client = await nats.connect(platform.nats_url, connect_timeout=CONNECT_TIMEOUT_S)
            load = Load(client, WORKLOAD)
            await load.start()
            await load.run(arguments.runs // 4, arguments.inflight, os.getpid())
            speeds: dict[str, list[float]] = {"without": [], "with": []}
            for _ in range(arguments.rounds):
                speeds["without"].append(await speed(load, arguments))
                async with consoles(platform, arguments.consoles):
                    speeds["with"].append(await speed(load, arguments))
                print({name: round(of[-1], 1) for name, of in speeds.items()}, file=sys.stderr)
            async with consoles(platform, arguments.consoles - 1):
                shown_ms, ended_ms = await changes(platform, client, arguments)
            await client.close()
    ratios = [b / a for a, b in zip(speeds["without"], speeds["with"], strict=True)]
    print(
        json.dumps(
            {
                "consoles": arguments.consoles,
                "runs_per_s": {
                    name: round(statistics.median(of), 1) for name, of in speeds.items()
                },
                "ratio": round(statistics.median(ratios), 3),
                "ratios": [round(one, 3) for one in ratios],
                **_percentiles("submitted_to_shown", shown_ms),
                **_percentiles("ended_to_shown", ended_ms),
            }
        )
    )


async def speed(load: Load, arguments: argparse.Namespace) -> float:
    """Return the runs executed per second."""
    measured = await load.run(arguments.runs, arguments.inflight, os.getpid())
    return float(arguments.runs / measured.took_s)


@asynccontextmanager
async def consoles(platform: Platform, count: int) -> AsyncIterator[None]:
    """Keep `count` consoles open in a separate process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.reading.open_consoles", "--watch", platform.api_url),
        *("--consoles", str(count)),
        env={**os.environ, "HOCKET_API_KEY": platform.api_key},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(BOUND_S):
        assert (await process.stdout.readline()).decode().strip() == READY
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def watch(url: str, count: int) -> None:
    """Keep consoles open until the process ends."""
    left = count
    async with session(url, os.environ["HOCKET_API_KEY"]) as client:

        async def one() -> None:
            nonlocal left
            async with client.get(f"/console/live/runs?tenant={TENANT}") as answer:
                await answer.content.readline()
                left -= 1
                if left == 0:
                    print(READY, flush=True)
                async for _ in answer.content.iter_any():
                    pass

        await asyncio.gather(*(one() for _ in range(count)))


@asynccontextmanager
async def session(url: str, key: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(
        url,
        headers={"Authorization": f"Bearer {key}"},
        timeout=aiohttp.ClientTimeout(total=None),
        connector=aiohttp.TCPConnector(limit=0),
        read_bufsize=2**22,
    ) as made:
        yield made


async def changes(
    platform: Platform, client: nats.NATS, arguments: argparse.Namespace
) -> tuple[list[float], list[float]]:
    """Submit runs one at a time; return, in milliseconds, how long a console took to show each run and
    each end."""
    seen: dict[str, dict[str, float]] = {}
    news = asyncio.Event()
    opened = asyncio.Event()

    async def look(page: aiohttp.ClientSession) -> None:
        async with page.get(f"/console/live/runs?tenant={TENANT}") as answer:
            opened.set()
            async for line in answer.content:
                if line.startswith(b"data: "):
                    now = time.perf_counter()
                    for run_id, status in ROW.findall(json.loads(line[6:])["lines"]):
                        seen.setdefault(run_id, {}).setdefault(status, now)
                    news.set()

    shown_ms, ended_ms = [], []
    async with session(platform.api_url, platform.api_key) as page:
        looking = asyncio.create_task(look(page))
        await opened.wait()
        jetstream = client.jetstream(timeout=CONNECT_TIMEOUT_S)
        for _ in range(arguments.changes):
            inbox = client.new_inbox()
            answer = await client.subscribe(inbox, max_msgs=1)
            began = time.perf_counter()
            subject = subjects.task(TENANT, WORKLOAD)
            await jetstream.publish(subject, json.dumps(BODY).encode(), headers={REPLY_TO: inbox})
            end = json.loads((await answer.next_msg(BOUND_S)).data)
            ended = time.perf_counter()
            async with asyncio.timeout(BOUND_S):
                while "succeeded" not in seen.get(end["run_id"], {}):
                    news.clear()
                    await news.wait()
            times = seen[end["run_id"]]
            shown_ms.append((min(times.values()) - began) * 1000)
            ended_ms.append((times["succeeded"] - ended) * 1000)
            await asyncio.sleep(arguments.gap_ms / 1000)
        looking.cancel()
    return shown_ms, ended_ms


def _percentiles(name: str, took_ms: list[float]) -> dict[str, float]:
    ordered = sorted(took_ms)
    shares = {"p50": 0.5, "p95": 0.95}
    return {f"{name}_{one}_ms": round(percentile(ordered, at), 1) for one, at in shares.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--consoles", type=int, default=50)
    parser.add_argument("--runs", type=int, default=4_000)
    parser.add_argument("--inflight", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--gap-ms", type=float, default=100.0)
    parser.add_argument("--watch", help=argparse.SUPPRESS)
    given = parser.parse_args()
    uvloop.run(watch(given.watch, given.consoles) if given.watch else main(given))
