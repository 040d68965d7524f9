"""Measure the share of a request that checking its key takes, at REST and at the gateway's HTTP door.

Requests are submissions of runs to REST and model calls to the door. Uses its own platform with REST
and gateway, plus one REST process and one gateway that skip the check for requests that ask for it
(`bench/steps/trusting.py`), and a model endpoint that answers at once. The latter two processes receive
the same requests alternately, over `--connections` connections that stay open: checked, trusted,
trusted, checked, and the other way round in every other round. Compared are CPU time of the process per
request and elapsed time per request. Rounds are short and many, because the speed of a machine changes
within seconds: with rounds of 3,000 requests, two sides that did the same differed by 1 %. Printed is
the mean of the rounds' ratios without the tenth at either end, with its standard error, one line of JSON
for each door. A wrong answer ends the bench. The exit code is 1 if checking keys costs more than
MOST_SHARE of the CPU time.

    .venv/bin/python -m bench.steps.key_share --requests 200 --rounds 300
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
import yaml

from bench.support.machine import exact_cpu_s, machine_text
from bench.support.processes import BenchFailed, answering, free_port, process
from bench.throughput.rest_submit import PIPELINE, TASK, Client
from hocket.cli.local.platform import Platform
from hocket.cli.local.processes import PlatformProcess

MOST_SHARE = 0.03
MODEL = "writer"
PRICES = {"input_usd_per_mtok": "0.15", "output_usd_per_mtok": "0.60"}
ANY_CORE = 0
WARM_UP = 1_000
PORTS = {"admin": "HOCKET_API_PORT", "gateway": "HOCKET_GATEWAY_PORT"}
CALL = {"model": MODEL, "messages": [{"role": "user", "content": "How high is the tide? " * 8}]}

Send = Callable[[int], Awaitable[None]]


@dataclass
class Side:
    """One kind of request to a process, and what a request took in each round: CPU and elapsed time."""

    pid: int
    send: Send
    cpu_us: list[float] = field(default_factory=list)
    clock_us: list[float] = field(default_factory=list)

    async def measure(self, requests: int, connections: int) -> None:
        """Send the requests of a round."""
        began_s, cpu_s = time.perf_counter(), exact_cpu_s(self.pid)
        each = requests // connections
        await asyncio.gather(*(self.send(each) for _ in range(connections)))
        sent = each * connections
        self.clock_us.append(1e6 * (time.perf_counter() - began_s) / sent)
        self.cpu_us.append(1e6 * (exact_cpu_s(self.pid) - cpu_s) / sent)


async def main(options: argparse.Namespace) -> int:
    """Measure both kinds in alternation; return the exit code."""
    print(machine_text(), file=sys.stderr)
    code = 0
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hkt-")))
        doors = await _doors(stack, folder)
        for sides in doors.values():
            for side in sides:
                await side.measure(WARM_UP, options.connections)
                side.cpu_us.clear()
                side.clock_us.clear()
        for name, (checking, trusting) in doors.items():
            for number in range(options.rounds):
                one, other = (checking, trusting) if number % 2 else (trusting, checking)
                for side in (one, other, other, one):
                    await side.measure(options.requests, options.connections)
            code |= _told(name, checking, trusting)
    return code


def _told(name: str, checking: Side, trusting: Side) -> int:
    more_cpu, cpu_error = _more(checking.cpu_us, trusting.cpu_us)
    more_time, time_error = _more(checking.clock_us, trusting.clock_us)
    told = {
        "door": name,
        "cpu_us": {
            "checking": round(statistics.median(checking.cpu_us), 1),
            "trusting": round(statistics.median(trusting.cpu_us), 1),
        },
        "more_cpu": [round(more_cpu, 4), round(cpu_error, 4)],
        "more_time": [round(more_time, 4), round(time_error, 4)],
        "rounds": len(checking.cpu_us) // 2,
    }
    print(json.dumps(told), flush=True)
    return int(more_cpu > MOST_SHARE)


def _more(checking: list[float], trusting: list[float]) -> tuple[float, float]:
    """Return how much more the checking side took, as a share, and the standard error of that."""
    pairs = zip(_pairs(checking), _pairs(trusting), strict=True)
    shares = sorted(one / other - 1 for one, other in pairs)
    cut = len(shares) // 10
    kept = shares[cut : len(shares) - cut]
    return statistics.fmean(kept), statistics.pstdev(kept) / len(kept) ** 0.5


def _pairs(found: list[float]) -> list[float]:
    return [sum(found[first : first + 2]) for first in range(0, len(found), 2)]


async def _doors(stack: AsyncExitStack, folder: Path) -> dict[str, tuple[Side, Side]]:
    upstream_port = free_port()
    log = folder / "upstream.log"
    command = (sys.executable, "-m", "bench.support.upstream", str(upstream_port))
    upstream = await stack.enter_async_context(process(*command, core=ANY_CORE, log=log))
    await answering(upstream_port, upstream, log)
    backend = {"base_url": f"http://127.0.0.1:{upstream_port}/v1", "model": "m", "limit": 1_000}
    models = {MODEL: {"backends": [backend | {"prices": PRICES}]}}
    config = folder / "hocket.yaml"
    config.write_text(yaml.safe_dump({"models": models}))
    platform = await stack.enter_async_context(
        Platform(
            folder / "data",
            services=("admin", "gateway"),
            config=config,
            env={"HOCKET_KEY_REQUESTS_PER_S": "1000000"},
        )
    )
    await asyncio.to_thread(platform.api().post, "/v1/pipelines", PIPELINE)
    found = {}
    for name, path, body in (
        ("admin", "/v1/runs", TASK),
        ("gateway", "/v1/chat/completions", CALL),
    ):
        content = json.dumps(body).encode()
        pid, port = await _beside(stack, platform, name)
        url = f"http://127.0.0.1:{port}"
        checking, trusting = (
            Side(pid, _sender(url, f"{platform.api_key}\r\nX-Api-Key: {trust}", path, content))
            for trust in ("check", "trust")
        )
        found[name] = (checking, trusting)
    return found


async def _beside(stack: AsyncExitStack, platform: Platform, name: str) -> tuple[int, int]:
    """Start a trusting process with the settings of one of the platform's; return its process id and
    port."""
    port, alike = free_port(), platform.process(name)
    trusting = PlatformProcess(
        f"trusting-{name}",
        "bench.steps.trusting",
        name,
        env={**alike._env, PORTS[name]: str(port), "HOCKET_INSTANCE": f"trusting-{name}"},
        run_dir=platform.data_dir / "run",
        log_path=platform.log_dir / f"trusting-{name}.log",
    )
    stack.push_async_callback(trusting.stop)
    await trusting.start()
    await trusting.wait_ready()
    return trusting.pid, port


def _sender(url: str, key: str, path: str, body: bytes) -> Send:
    client = Client(url, key)

    async def send(times: int) -> None:
        if await client.send(path, body, times) != times:
            raise BenchFailed(f"{path} did not take all")

    return send


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--requests", type=int, default=200, help="of a round, to each")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--connections", type=int, default=16)
    sys.exit(uvloop.run(main(parser.parse_args())))
