"""Measure the overhead of the gateway per model call over NATS and HTTP, next to the LiteLLM proxy.

One upstream that answers at once (`upstream.py`), the load generator and the NATS server share core 0.
The system under test has core 1 to itself: a gateway process, or a LiteLLM proxy (one worker, no
database, no callbacks). Every call is the same chat completion of 400 bytes, over connections that stay
open. With `--answers-after flush`, every answer waits until its usage record is flushed to disk.

Each target is measured in two ways. Targets alternate within each round, so that a slow moment of the
machine affects all of them:

- `direct`, `http`, `nats`, `litellm`: calls per second with `--connections` callers, each with one call
  at a time.
- immediately afterwards, calls that start on a schedule; their latency counts from the scheduled start.
  `added` is the difference from `direct` at the same rate, measured just before. `at_half_load` uses
  the rate that keeps core 1 busy half of the time; it is determined first. `at_half_rate` uses half of
  the calls per second that `--connections` callers achieved. That is a higher load: concurrent callers
  share turns of the event loop and warm caches, so calls that arrive one by one take nearly the whole
  core at that rate.

During these calls a thread writes and flushes 600 bytes in the folder of the NATS store 50 times a
second: `flush` is the latency of the disk alone. `--folder /dev/shm` keeps the store in memory, which
shows what the gateway adds without a disk.

Every answer must be a completion with the upstream's text, and USAGE must hold a record for each call
through the gateway; otherwise no figure is printed and the exit code is 1.

LiteLLM is installed from PyPI into `bench/.venvs/litellm` if it is missing; `--without-litellm`
leaves it out.

    .venv/bin/python -m bench.gateway.gateway_overhead --rounds 5 --seconds 3
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
import yaml

from bench.support.places import BENCH
from bench.support.processes import BenchFailed, answering, free_port, percentile, process
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.kit.process import clock
from hocket.schemas import subjects
from hocket.schemas.messages import CallRequest, ChatMessage

LITELLM = BENCH / ".venvs" / "litellm"
LITELLM_VERSION = "1.106.2"
MEASURED_CORE, LOAD_CORE = 1, 0
FETCH = 500
BOOKED_WITHIN_S = 5.0
"""If the stream brings nothing new for this long, no more records are expected."""
FLUSH_EVERY_S, FLUSHED_BYTES = 0.02, 600
CALL_TIMEOUT_MS = 30_000.0
CALL_ID, DEADLINE_MS = "call-id", 123_456_789.0
"""Placeholders in the request, which the NATS caller replaces in each call."""
TEXT = "tidal"
QUESTION = "How high is the tide in Brest at noon, and when does it turn again? " * 4
HALF, HALVINGS, HALVING_S = 0.5, 2, 1.0
"""The share of a core that counts as half load, the number of steps that search for its rate, and their
duration."""
GOAL_P50_MS, GOAL_P99_MS, GOAL_RATIO = 1.0, 5.0, 3.0

Call = Callable[[int], Awaitable[None]]


# ---- callers --------------------------------------------------------------------------------


class HttpCaller:
    """Makes calls over its own connections, with raw bytes to keep the client's own cost low."""

    def __init__(self, port: int, path: str, model: str) -> None:
        messages = [{"role": "user", "content": QUESTION}]
        body = json.dumps({"model": model, "messages": messages, "max_tokens": 64}).encode()
        self._port = port
        self._request = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer sk-bench\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def __call__(self, _number: int) -> None:
        reader, writer = await self._connection()
        writer.write(self._request)
        head = await reader.readuntil(b"\r\n\r\n")
        lower = head.lower()
        if b"content-length:" in lower:
            length = int(lower.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            content = await reader.readexactly(length)
        else:
            raise BenchFailed(f"an answer without a length: {head!r}")
        if (
            b" 200 " not in head[:16]
            or json.loads(content)["choices"][0]["message"]["content"] != TEXT
        ):
            raise BenchFailed(f"{head!r} {content[:300]!r}")
        self._idle.append((reader, writer))

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection that the server has not closed for being idle."""
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return await asyncio.open_connection("127.0.0.1", self._port)


class NatsCaller:
    """Makes calls as workers do, with raw bytes like the HTTP caller."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        request = CallRequest(
            call_id=CALL_ID,
            model="writer",
            messages=(ChatMessage(role="user", content=QUESTION),),
            max_tokens=64,
            deadline_at_ms=DEADLINE_MS,
        )
        head, *rest = request.model_dump_json().split(CALL_ID)
        middle, tail = "".join(rest).split(str(DEADLINE_MS))
        self._parts = head.encode(), middle.encode(), tail.encode()

    async def __call__(self, number: int) -> None:
        head, middle, tail = self._parts
        deadline_at_ms = clock.now_ms() + CALL_TIMEOUT_MS
        request = b"%sbench:%d%s%.1f%s" % (head, number, middle, deadline_at_ms, tail)
        message = await self._bus.request(
            subjects.GATEWAY_CALL, request, timeout_ms=CALL_TIMEOUT_MS
        )
        reply = json.loads(message.data)
        if reply["error"] is not None or reply["text"] != TEXT:
            raise BenchFailed(str(reply))


# ---- measuring ------------------------------------------------------------------------------


@dataclass
class Target:
    """A system under test, and what was measured of it."""

    name: str
    call: Call
    pids: tuple[int, ...] = ()
    calls: int = 0
    best_rate: float = 0.0
    cpu_us: float = float("inf")
    """User and system time of its processes per call, in the best round. For our gateway this includes
    the NATS server."""

    async def saturate(self, connections: int, seconds: float) -> float:
        """Return the calls per second of `connections` callers, each with one call at a time."""
        until = time.perf_counter() + seconds
        before = self.calls

        async def caller() -> None:
            while time.perf_counter() < until:
                self.calls += 1
                await self.call(self.calls)

        began, cpu_s = time.perf_counter(), sum(map(cpu_of, self.pids))
        await asyncio.gather(*(caller() for _ in range(connections)))
        made = self.calls - before
        rate = made / (time.perf_counter() - began)
        self.best_rate = max(self.best_rate, rate)
        self.cpu_us = min(self.cpu_us, (sum(map(cpu_of, self.pids)) - cpu_s) / made * 1e6)
        return rate

    async def paced(self, rate: float, seconds: float) -> list[float]:
        """Return the sorted latencies (ms) of calls that start on a schedule."""
        latencies: list[float] = []
        ongoing: set[asyncio.Task[None]] = set()

        async def one(number: int, due: float) -> None:
            await self.call(number)
            latencies.append((time.perf_counter() - due) * 1000)

        async with ticking(rate, int(rate * seconds)) as ticks:
            async for due in ticks:
                self.calls += 1
                task = asyncio.create_task(one(self.calls, due))
                ongoing.add(task)
                task.add_done_callback(ongoing.discard)
            await asyncio.gather(*ongoing)
        return sorted(latencies)


@asynccontextmanager
async def ticking(rate: float, number: int) -> AsyncIterator[AsyncIterator[float]]:
    """Yield the time at which each of `number` calls is due, when it is due. A thread keeps the time:
    the event loop's timers have a resolution of a millisecond, and spinning would take the core from
    the upstream."""
    loop = asyncio.get_running_loop()
    due: asyncio.Queue[float] = asyncio.Queue()
    began = time.perf_counter() + 0.05

    def tick() -> None:
        for index in range(number):
            at = began + index / rate
            if (wait_s := at - time.perf_counter()) > 0:
                time.sleep(wait_s)
            loop.call_soon_threadsafe(due.put_nowait, at)

    async def moments() -> AsyncIterator[float]:
        for _ in range(number):
            yield await due.get()

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield moments()
    finally:
        await asyncio.to_thread(thread.join)


def cpu_of(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---- what is measured -----------------------------------------------------------------------


def gateway_config(upstream_port: int) -> dict[str, Any]:
    backend = {
        "base_url": f"http://127.0.0.1:{upstream_port}/v1",
        "model": "m-1",
        "limit": 1_000,
        "prices": {"input_usd_per_mtok": "0.15", "output_usd_per_mtok": "0.60"},
    }
    return {"models": {"writer": {"backends": [backend]}}, "access": {"open": True}}


def litellm_config(upstream_port: int) -> dict[str, Any]:
    params = {
        "model": "openai/m-1",
        "api_base": f"http://127.0.0.1:{upstream_port}/v1",
        "api_key": "sk-none",
    }
    return {
        "model_list": [{"model_name": "writer", "litellm_params": params}],
        "litellm_settings": {"telemetry": False},
    }


def install_litellm() -> None:
    if (LITELLM / "bin" / "litellm").exists():
        return
    print(f"installing litellm {LITELLM_VERSION} into {LITELLM} ...", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", LITELLM], check=True)
    wanted = f"litellm[proxy]=={LITELLM_VERSION}"
    subprocess.run([LITELLM / "bin" / "pip", "install", "--quiet", wanted], check=True)


async def targets(stack: AsyncExitStack, folder: Path, options: argparse.Namespace) -> list[Target]:
    """Start everything and return the targets, `direct` first."""
    upstream_port = free_port()
    python = sys.executable
    log = folder / "upstream.log"
    upstream = await stack.enter_async_context(
        process(
            python,
            str(BENCH / "support" / "upstream.py"),
            str(upstream_port),
            core=LOAD_CORE,
            log=log,
        )
    )
    await answering(upstream_port, upstream, log)
    direct = HttpCaller(upstream_port, "/v1/chat/completions", "m-1")
    found = [Target("direct", direct)]
    found += await gateway_targets(stack, folder, upstream_port, options.answers_after)
    if not options.without_litellm:
        found.append(await litellm_target(stack, folder, upstream_port))
    return found


async def gateway_targets(
    stack: AsyncExitStack, folder: Path, upstream_port: int, answers_after: str
) -> list[Target]:
    os.environ["GOMAXPROCS"] = "1"  # the server must know that it has one core, as in a container
    servers = await stack.enter_async_context(EmbeddedServers(folder / "servers", postgres=False))
    config, log, port = folder / "hocket.yaml", folder / "gateway.log", free_port()
    config.write_text(yaml.safe_dump(gateway_config(upstream_port)))
    gateway = await stack.enter_async_context(
        process(
            sys.executable,
            "-m",
            "hocket.gateway",
            core=MEASURED_CORE,
            log=log,
            NATS_URL=servers.nats_url,
            HOCKET_CONFIG=str(config),
            HOCKET_DATA_DIR=str(folder),
            HOCKET_GATEWAY_PORT=str(port),
            HOCKET_GATEWAY_ANSWERS_AFTER=answers_after,
        )
    )
    await answering(port, gateway, log)
    bus = await Bus.connect(servers.nats_url, name="bench")
    stack.push_async_callback(bus.close)
    await ensure_streams(bus)
    http = HttpCaller(port, "/v1/chat/completions", "writer")
    pids = (gateway.pid, servers.nats.pid)
    return [Target("http", http, pids), Target("nats", NatsCaller(bus), pids)]


async def litellm_target(stack: AsyncExitStack, folder: Path, upstream_port: int) -> Target:
    install_litellm()
    config, log, port = folder / "litellm.yaml", folder / "litellm.log", free_port()
    config.write_text(yaml.safe_dump(litellm_config(upstream_port)))
    running = await stack.enter_async_context(
        process(
            str(LITELLM / "bin" / "litellm"),
            f"--config={config}",
            "--host=127.0.0.1",
            f"--port={port}",
            "--num_workers=1",
            core=MEASURED_CORE,
            log=log,
            LITELLM_LOG="ERROR",
            LITELLM_LOCAL_MODEL_COST_MAP="True",
            LITELLM_TELEMETRY="False",
            LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY="true",  # neither asks for a key
        )
    )
    await answering(port, running, log)
    return Target("litellm", HttpCaller(port, "/v1/chat/completions", "writer"), (running.pid,))


async def booked(bus: Bus, made: int) -> int:
    """Return the number of distinct calls in the stream USAGE, once it is `made` or no more arrive."""
    reading = await bus.js.pull_subscribe(subjects.USAGE_SUBJECT, "bench", stream=subjects.USAGE)
    calls: set[str] = set()
    while len(calls) < made:
        try:
            messages = await reading.fetch(FETCH, timeout=BOOKED_WITHIN_S)
        except TimeoutError:
            break
        for message in messages:
            bus.ack(message.reply)  # otherwise the server stops delivering
            calls |= {json.loads(line)["call_id"] for line in message.data.splitlines()}
    return len(calls)


# ---- the run --------------------------------------------------------------------------------


async def run(options: argparse.Namespace) -> dict[str, Any]:
    os.sched_setaffinity(0, {LOAD_CORE})
    with tempfile.TemporaryDirectory(prefix="hocket-bench-", dir=options.folder) as temporary:
        async with AsyncExitStack() as stack:
            found = await targets(stack, Path(temporary), options)
            for target in found:
                say(f"warm-up: {target.name:<8}{await target.saturate(8, 1.0):8.0f} calls/s")
                target.best_rate, target.cpu_us = 0.0, float("inf")
            by_name = {target.name: target for target in found}
            flushes: list[float] = []
            at_half_load: dict[str, list[Added]] = {}
            at_half_rate: dict[str, list[Added]] = {}
            for number in range(options.rounds):
                say(f"round {number + 1}")
                for target in found:
                    rate = await target.saturate(options.connections, options.seconds)
                    say(f"  {target.name:<8}{rate:8.0f} calls/s")
                    if target.name != "direct":
                        half = await half_busy_rate(target, rate)
                        with flushing(Path(temporary), flushes):
                            for rounds, wanted in ((at_half_load, half), (at_half_rate, rate / 2)):
                                seen = await added_at(
                                    target, by_name["direct"], wanted, options.seconds
                                )
                                rounds.setdefault(target.name, []).append(seen)
            nats_caller = by_name["nats"].call
            assert isinstance(nats_caller, NatsCaller)
            made = by_name["http"].calls + by_name["nats"].calls
            if (stored := await booked(nats_caller._bus, made)) != made:
                raise BenchFailed(f"{made} calls were made and {stored} booked")
    added = {"at_half_load": at_half_load, "at_half_rate": at_half_rate}
    return report(by_name, added, made, sorted(flushes))


@contextmanager
def flushing(folder: Path, took_ms: list[float]) -> Iterator[None]:
    """Write and flush periodically inside the block, and append the latencies to `took_ms`."""
    ended = threading.Event()

    def flush() -> None:
        with (folder / "flushed").open("ab", buffering=0) as file:
            while not ended.wait(FLUSH_EVERY_S):
                began = time.perf_counter()
                file.write(b"x" * FLUSHED_BYTES)
                os.fsync(file.fileno())
                took_ms.append((time.perf_counter() - began) * 1000)

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@dataclass(frozen=True)
class Added:
    """What a target added to a direct call in one round, at a rate in calls/s that kept its core `busy`
    (0 to 1)."""

    rate: float
    busy: float
    p50_ms: float
    p99_ms: float


async def half_busy_rate(target: Target, rate: float) -> float:
    """Return roughly the calls per second that use half of the core; `rate` uses all of it."""
    wanted = rate / 4
    for _ in range(HALVINGS):
        busy = (await busy_at(target, wanted, HALVING_S))[1]
        wanted = min(wanted * HALF / max(busy, 0.1), rate / 2)
    return wanted


async def busy_at(target: Target, rate: float, seconds: float) -> tuple[list[float], float]:
    """Return the sorted latencies (ms) at a rate, and the share of its core that the target used."""
    pid = target.pids[0]
    began, cpu_s = time.perf_counter(), cpu_of(pid)
    latencies = await target.paced(rate, seconds)
    return latencies, (cpu_of(pid) - cpu_s) / (time.perf_counter() - began)


async def added_at(target: Target, direct: Target, rate: float, seconds: float) -> Added:
    """Return the latency that `target` adds at `rate` calls per second."""
    p50s, p99s, busy = [], [], 0.0
    for one in (direct, target):
        if one is direct:
            latencies = await one.paced(rate, seconds)
        else:
            latencies, busy = await busy_at(one, rate, seconds)
        p50, p99 = percentile(latencies, 0.5), percentile(latencies, 0.99)
        p50s.append(p50)
        p99s.append(p99)
        say(f"    {one.name:<8}{rate:6.0f}/s  p50 {p50:6.2f}  p99 {p99:6.2f} ms  busy {busy:4.0%}")
    return Added(rate, busy, p50s[1] - p50s[0], p99s[1] - p99s[0])


def report(
    targets: dict[str, Target],
    added: dict[str, dict[str, list[Added]]],
    made: int,
    flushes: list[float],
) -> dict[str, Any]:
    rates = {name: round(target.best_rate) for name, target in targets.items()}
    result: dict[str, Any] = {
        "calls_per_s": rates,
        "cpu_us_per_call": {name: round(t.cpu_us) for name, t in targets.items() if t.pids},
        **{
            f"added_{where}": {name: summary(rounds) for name, rounds in seen.items()}
            for where, seen in added.items()
        },
        "flush_ms": {
            "p50": round(percentile(flushes, 0.5), 3),
            "p99": round(percentile(flushes, 0.99), 3),
        },
        "booked": made,
    }
    if "litellm" in rates:
        result["ratio_to_litellm"] = {
            name: round(rates[name] / rates["litellm"], 1) for name in ("http", "nats")
        }
    result["goals"] = {"p50_ms": GOAL_P50_MS, "p99_ms": GOAL_P99_MS, "ratio": GOAL_RATIO}
    return result


def summary(rounds: list[Added]) -> dict[str, Any]:
    """Return the median, the best and every round's value in milliseconds, with the median rate and the
    median share of the core that was busy."""
    found: dict[str, Any] = {
        "rate": round(statistics.median(one.rate for one in rounds)),
        "core_busy": round(statistics.median(one.busy for one in rounds), 2),
    }
    for name in ("p50_ms", "p99_ms"):
        values = [round(getattr(one, name), 3) for one in rounds]
        found[name] = {
            "median": round(statistics.median(values), 3),
            "best": min(values),
            "rounds": values,
        }
    return found


def say(text: str) -> None:
    print(text, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--without-litellm", action="store_true")
    parser.add_argument("--answers-after", choices=("journal", "flush"), default="journal")
    parser.add_argument("--folder", help="where the store of NATS is; a temporary folder as a rule")
    try:
        result = uvloop.run(run(parser.parse_args()))
    except BenchFailed as failed:
        print(f"failed: {failed}", file=sys.stderr)
        sys.exit(1)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
