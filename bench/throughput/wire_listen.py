"""What it buys that messages are read where they arrive (`Wire.listen` in `kit/nats/protocol.py`).

Two platforms, each in a process of its own, with its own NATS and Postgres: one as it is, one whose
processes leave `Wire.listen` out (`bench/support/without_listen`). They take turns, in an order that
changes from round to round, and do nothing while the other's round lasts. The workload is `agent6`
under load (see `bench.throughput.overhead`). Each round is a JSON line on stderr. The last line, on
stdout, has the medians of both, and of the rounds' ratios: `without` divided by `with`, so that 1.03
says that leaving it out costs 3 % more. With fewer than 10 rounds the ratios say little.

    .venv/bin/python -m bench.throughput.wire_listen --rounds 10 --runs 1500 --inflight 256
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import nats
import structlog
import uvloop

from bench.support.load import CONNECT_TIMEOUT_S, TENANT, WORKLOADS, Load, RunsMissing, check
from bench.support.machine import machine_text
from bench.support.places import BENCH, HANDLERS, ROOT
from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api

WORKLOAD = "agent6"
ARMS = {"with": None, "without": str(BENCH / "support" / "without_listen")}
"""What stands first on the PYTHONPATH of an arm's processes."""
FIGURES = ("cpu_us_per_step", "steps_per_s", "p50_ms")
START_TIMEOUT_S = 120.0
ROUND_TIMEOUT_S = 600.0


async def compare(arguments: argparse.Namespace) -> None:
    """Let the arms take turns, and print what they measured."""
    print(machine_text(), file=sys.stderr)
    async with AsyncExitStack() as stack:
        arms = {arm: await stack.enter_async_context(started(arm, arguments)) for arm in ARMS}
        measured: dict[str, list[dict[str, float]]] = {arm: [] for arm in arms}
        for number in range(arguments.rounds):
            for arm in list(arms) if number % 2 else list(reversed(arms)):
                figures = await asked(arms[arm], ROUND_TIMEOUT_S)
                measured[arm].append(figures)
                shown = {"round": number + 1, "arm": arm} | figures
                print(json.dumps(shown), file=sys.stderr, flush=True)
    result: dict[str, object] = {"workload": WORKLOAD, "rounds": arguments.rounds}
    result |= {"runs": arguments.runs, "inflight": arguments.inflight}
    for name in FIGURES:
        ratios = [b[name] / a[name] for a, b in zip(*measured.values(), strict=True)]
        result[name] = {
            **{arm: median([one[name] for one in rounds]) for arm, rounds in measured.items()},
            "ratio": median(ratios, 4),
            "ratios": [round(min(ratios), 4), round(max(ratios), 4)],
        }
    print(json.dumps(result), flush=True)


def median(values: list[float], digits: int = 1) -> float:
    return round(statistics.median(values), digits)


@asynccontextmanager
async def started(
    arm: str, arguments: argparse.Namespace
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start the process of an arm; at the end it checks all runs, or this raises RunsMissing."""
    options = ("--runs", str(arguments.runs), "--inflight", str(arguments.inflight))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.throughput.wire_listen", "--arm", arm, *options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdin is not None
    try:
        await answered(process, START_TIMEOUT_S)
        yield process
    finally:
        process.stdin.close()  # it stops then
        code = await process.wait()
    if code:
        raise RunsMissing(f"the platform `{arm}` ended with {code}")


async def asked(process: asyncio.subprocess.Process, timeout_s: float) -> dict[str, float]:
    """Let an arm run a round; return what it measured."""
    assert process.stdin is not None
    process.stdin.write(b"\n")
    return await answered(process, timeout_s)


async def answered(process: asyncio.subprocess.Process, timeout_s: float) -> dict[str, float]:
    assert process.stdout is not None
    async with asyncio.timeout(timeout_s):
        line = await process.stdout.readline()
    if not line:
        raise RunsMissing("a platform has ended")
    figures: dict[str, float] = json.loads(line)
    return figures


async def play(arm: str, runs: int, inflight: int) -> None:
    """Run a platform; for each line of stdin a round, whose figures are a line of stdout."""
    workload = WORKLOADS[WORKLOAD]
    parts = (ARMS[arm], HANDLERS, os.environ.get("PYTHONPATH"))
    env = {
        "HOCKET_HANDLERS": "handlers",
        "PYTHONPATH": os.pathsep.join(part for part in parts if part),
    }
    await as_the_arm_says(arm, env)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        async with Platform(Path(folder), env=env, log_level="warning") as platform:
            api = Api(platform.api_url, TENANT)
            await asyncio.to_thread(api.post, "/v1/pipelines", workload.pipeline(WORKLOAD))
            client = await nats.connect(platform.nats_url, connect_timeout=CONNECT_TIMEOUT_S)
            try:
                load = Load(client, WORKLOAD)
                await load.start()
                await load.run(runs, inflight, os.getpid())  # to warm up
                print("{}", flush=True)
                while await lines.readline():
                    measured = await load.run(runs, inflight, os.getpid())
                    steps = runs * workload.steps
                    figures = {
                        "cpu_us_per_step": round(1e6 * measured.cpu_s / steps, 1),
                        "steps_per_s": round(steps / measured.took_s, 1),
                        "p50_ms": round(measured.p50_ms, 2),
                    }
                    print(json.dumps(figures), flush=True)
            finally:
                await client.close()
            await check(platform.database_url, WORKLOAD, load.published, workload.steps)


async def as_the_arm_says(arm: str, env: dict[str, str]) -> None:
    """Make sure that the platform's processes will have `Wire.listen`, or will not."""
    code = "from hocket.kit.nats.protocol import Wire; print(Wire.listen.__name__)"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code), env=os.environ | env, stdout=asyncio.subprocess.PIPE
    )
    found, _ = await process.communicate()
    expected = "<lambda>" if ARMS[arm] else "listen"
    if found.decode().strip() != expected:
        raise RunsMissing(f"the processes of `{arm}` would have {found.decode().strip()!r}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=1_500, help="per round and platform")
    parser.add_argument("--inflight", type=int, default=256)
    parser.add_argument("--arm", choices=sorted(ARMS), help=argparse.SUPPRESS)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    given = parser.parse_args()
    try:
        if given.arm:
            uvloop.run(play(given.arm, given.runs, given.inflight))
        else:
            uvloop.run(compare(given))
    except (RunsMissing, TimeoutError) as error:
        print(f"no figure: {error or 'a run did not end in time'}", file=sys.stderr)
        sys.exit(1)
