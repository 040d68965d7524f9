"""Measure how pipelines fare while one model after another dies under load.

Uses its own platform, and four emulated engines as separate processes: a writer, which the pipeline
requires, and three models that it can do without: `tagger` (an optional node), `ranker` (a node with a
fallback) and `drafter`, whose dedicated engine is paired with a serverless one (`mode: auto`). While
`--inflight` runs are kept in flight, each of the three dispensable engines in turn is killed (SIGKILL),
stays down for `--down-s`, and is started again.

Printed for each engine: when its breaker opened after the kill, and when it closed after the engine
responded again, from the gateway's log; how many runs ended with which status in that time; and for the
drafter how many calls each of its engines received, and whether any step failed because of it. Goals:
at least 99.5 % of the runs complete (degraded counts); a breaker opens within 1 s and closes within 2
s; no call to the drafter fails, including the first one after the kill.

    .venv/bin/python -m bench.resilience.gateway_faults
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import nats
import structlog
import uvloop
import yaml
from nats.aio.client import Client

from bench.support.load import TENANT
from bench.support.machine import machine_text
from hocket.cli.local.platform import Platform
from hocket.kit.nats.cloudevents import REPLY_TO
from hocket.schemas import subjects

PIPELINE = "faults"
ENGINES = ("writer", "tagger", "ranker", "drafter", "drafter-cloud")
DOOMED = ("tagger", "ranker", "drafter")
MIN_COMPLETED, MAX_OPEN_MS, MAX_CLOSE_MS = 0.995, 1_000.0, 2_000.0
RUN_TIMEOUT_S = 60.0
START_TIMEOUT_S = 180.0
CONNECT_TIMEOUT_S = 10.0
SETTLE_S = 2.0
MAX_WAIT_S = 15.0


class Engine:
    """An emulated engine as a process, on a fixed port."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.port = _free_port()
        self._config = folder / f"{name}.yaml"
        self._log = folder / f"{name}.log"
        profile = {"model": name, "output_tokens": 8, "decode_tokens_per_s": 400}
        engine = {"port": self.port, "profile": profile}
        self._config.write_text(yaml.safe_dump({"engines": [engine]}))
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> float:
        """Start it, and return when it first responded (Unix ms)."""
        command = [str(Path(sys.executable).with_name("hocket")), "emulate"]
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, "--config", str(self._config), stdout=log, stderr=log
            )
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await self._answers():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return time.time() * 1000

    async def kill(self) -> float:
        """Kill it, and return when (Unix ms)."""
        assert self._process is not None
        at_ms = time.time() * 1000
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()
        return at_ms

    async def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            await self.kill()

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True


def models(engines: dict[str, Engine]) -> dict[str, Any]:
    def backend(name: str, **more: Any) -> dict[str, Any]:
        url = f"http://127.0.0.1:{engines[name].port}/v1"
        return {"name": name, "base_url": url, "model": name, "timeout_ms": 2_000, **more}

    drafter = [backend("drafter"), backend("drafter-cloud", mode="serverless")]
    return {
        "models": {
            "writer": {"backends": [backend("writer")]},
            "tagger": {"backends": [backend("tagger")]},
            "ranker": {"backends": [backend("ranker")]},
            "drafter": {"mode": "auto", "backends": drafter},
        }
    }


def pipeline() -> dict[str, Any]:
    def ask(model: str, **more: Any) -> dict[str, Any]:
        node = {"type": "llm", "model": model, "prompt": "{{ input.text }}", "max_tokens": 8}
        return {**node, "with": {"text": "{{ input.text }}"}, **more}

    served = {"type": "llm", "model": "writer", "prompt": "{{ input.text }}", "max_tokens": 8}
    return {
        "pipeline": PIPELINE,
        "input": {"type": "object", "properties": {"text": {"type": "string"}}},
        "slo_ms": 20_000,
        "nodes": {
            "tag": ask("tagger", optional=True),
            "rank": ask("ranker", fallback=[{"node": served}]),
            "draft": ask("drafter"),
            "write": ask("writer", needs=["tag", "rank", "draft"]),
        },
    }


@dataclass
class Load:
    """Keeps runs in flight until stopped; records when each began and how it ended."""

    client: Client
    stopped: bool = False
    ends: list[tuple[float, float, str, str]] = field(default_factory=list)
    """Begin and end (Unix ms), status and error code of each run."""

    async def run(self, inflight: int) -> None:
        jetstream = self.client.jetstream(timeout=CONNECT_TIMEOUT_S)
        inbox = self.client.new_inbox()
        waiting: dict[str, asyncio.Future[bytes]] = {}

        async def ended(message: Any) -> None:
            waiting.pop(message.subject.rpartition(".")[2]).set_result(message.data)

        async def one_after_the_other(caller: int) -> None:
            number = 0
            while not self.stopped:
                number += 1
                token = f"{caller}-{number}"
                end = waiting[token] = asyncio.get_running_loop().create_future()
                began_ms = time.time() * 1000
                await jetstream.publish(
                    subjects.task(TENANT, PIPELINE),
                    b'{"text":"How high is the tide?"}',
                    headers={REPLY_TO: f"{inbox}.{token}"},
                )
                async with asyncio.timeout(RUN_TIMEOUT_S):
                    told = json.loads(await end)
                code = (told.get("error") or {}).get("code", "")
                self.ends.append((began_ms, time.time() * 1000, told["status"], code))

        await self.client.subscribe(f"{inbox}.*", cb=ended)
        await asyncio.gather(*(one_after_the_other(caller) for caller in range(inflight)))


class GatewayLog:
    """The gateway's log file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def first_ms(self, event: str, backend: str, since_ms: float) -> float | None:
        """Return when a message about a backend first appears at or after a given time (Unix ms)."""
        for entry in self._entries():
            at_ms = datetime.fromisoformat(entry["timestamp"]).timestamp() * 1000
            if entry["event"] == event and entry.get("backend") == backend and at_ms >= since_ms:
                return at_ms
        return None

    def _entries(self) -> Any:
        with self._path.open() as lines:
            for line in lines:
                if '"breaker_' in line:
                    yield json.loads(line)


async def main(options: argparse.Namespace) -> int:
    """Run the bench, print the result, and return the exit code."""
    print(machine_text(), file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        engines = {name: Engine(name, Path(folder)) for name in ENGINES}
        config = _written(Path(folder), models(engines))
        platform = Platform(Path(folder), config=config, env={"HOCKET_LOG_FORMAT": "json"})
        async with AsyncExitStack() as stack:
            for engine in engines.values():
                stack.push_async_callback(engine.close)
            await asyncio.gather(*(engine.start() for engine in engines.values()))
            await stack.enter_async_context(platform)
            api = platform.api(TENANT)
            await asyncio.to_thread(api.post, "/v1/pipelines", pipeline())
            client = await nats.connect(platform.nats_url, connect_timeout=CONNECT_TIMEOUT_S)
            stack.push_async_callback(client.close)
            load = Load(client)
            loading = asyncio.create_task(load.run(options.inflight))
            await asyncio.sleep(SETTLE_S)
            log = GatewayLog(platform.log_dir / "gateway.log")
            faults = [await fault(engines[name], log, options.down_s, loading) for name in DOOMED]
            load.stopped = True
            await loading
            spilled = await drafts(platform.database_url, faults[-1])
    result = report(load, faults, spilled)
    print(json.dumps(result, indent=2))
    return 0 if result["held"] else 1


async def fault(
    engine: Engine, log: GatewayLog, down_s: float, loading: "asyncio.Task[None]"
) -> dict[str, Any]:
    """Kill an engine, keep it down for a while, start it again, and wait until it is in use."""
    killed_ms = await engine.kill()
    await asyncio.sleep(down_s)
    if loading.done():
        loading.result()
    back_ms = await engine.start()
    deadline = time.monotonic() + MAX_WAIT_S
    closed_ms = None
    while closed_ms is None and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
        closed_ms = log.first_ms("breaker_closed", engine.name, back_ms)
    opened_ms = log.first_ms("breaker_opened", engine.name, killed_ms)
    await asyncio.sleep(SETTLE_S)
    return {
        "engine": engine.name,
        "killed_ms": killed_ms,
        "until_ms": time.time() * 1000,
        "opened_after_ms": None if opened_ms is None else round(opened_ms - killed_ms),
        "closed_after_ms": None if closed_ms is None else round(closed_ms - back_ms),
    }


async def drafts(database_url: str, seen: dict[str, Any]) -> dict[str, Any]:
    """Return what the ledger holds about the drafter's calls while its dedicated engine was down, and
    about the steps that made them."""
    connection = await asyncpg.connect(database_url, timeout=CONNECT_TIMEOUT_S)
    try:
        window = [seen["killed_ms"] / 1000, seen["until_ms"] / 1000]
        rows = await connection.fetch(_DRAFTS, *window)
        failed = await connection.fetchval(_FAILED_DRAFTS)
    finally:
        await connection.close()
    return {
        "attempts": {f"{row['backend']} {row['status']}": row["calls"] for row in rows},
        "steps_that_failed": failed,
    }


def report(load: Load, faults: list[dict[str, Any]], spilled: dict[str, Any]) -> dict[str, Any]:
    """Return the figures, and whether the goals were met."""
    for seen in faults:
        ends = [
            one for one in load.ends if one[1] > seen["killed_ms"] and one[0] < seen["until_ms"]
        ]
        seen["runs"] = dict(Counter(status for _, _, status, _ in ends))
        seen["errors"] = dict(Counter(code for _, _, _, code in ends if code))
        good = sum(status in ("succeeded", "degraded") for _, _, status, _ in ends)
        seen["completed"] = round(good / max(len(ends), 1), 5)
        seen["run_p50_ms"] = round(statistics.median(end - began for began, end, _, _ in ends), 1)
        del seen["killed_ms"], seen["until_ms"]
    completed = sum(status in ("succeeded", "degraded") for _, _, status, _ in load.ends)
    share = completed / len(load.ends)
    held = (
        share >= MIN_COMPLETED
        and all(seen["completed"] >= MIN_COMPLETED for seen in faults)
        and all((seen["opened_after_ms"] or 1e9) <= MAX_OPEN_MS for seen in faults)
        and all((seen["closed_after_ms"] or 1e9) <= MAX_CLOSE_MS for seen in faults)
        and not spilled["steps_that_failed"]
    )
    runs = {"all": len(load.ends), "completed": round(share, 5)}
    return {"runs": runs, "faults": faults, "drafter": spilled, "held": held}


def _written(folder: Path, content: dict[str, Any]) -> Path:
    config = folder / "hocket.yaml"
    config.write_text(yaml.safe_dump(content))
    return config


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_DRAFTS = """
SELECT backend, status, count(*) AS calls FROM hocket.usage
WHERE model = 'drafter' AND started_at BETWEEN to_timestamp($1) AND to_timestamp($2)
GROUP BY 1, 2 ORDER BY 1, 2
"""
_FAILED_DRAFTS = "SELECT count(*) FROM hocket.step WHERE key = 'draft' AND state <> 'succeeded'"

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inflight", type=int, default=8)
    parser.add_argument("--down-s", type=float, default=4.0)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(uvloop.run(main(parser.parse_args())))
