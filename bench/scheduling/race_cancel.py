"""Measure how fast the losers of a race are stopped: their handlers, and their calls at the model's
server.

Uses its own platform in a temporary folder (embedded NATS and Postgres, coordinator, worker, gateway,
ledger, REST), and in this process an HTTP server that the gateway calls as a model. Each run is a race
of three `python` nodes that call a model: one call is answered after 20 ms, the other two never. After
the first has won, each loser's handler records when it is cancelled, and the server records when the
handler's connection is closed. Both are compared with the race's end in the log of events,
`finished_at` of its step: the time at which NATS stored the winner's result, before the coordinator saw
it, so the figures include the decision and the whole path.

At the end nothing may be left over: no occupied worker slot, no call in the gateway, no connection at
the server; and the ledger must have every call, with those of the losers as `speculation`. Otherwise
the exit code is 1. Prints one line of JSON: milliseconds, and the number of measurements. With
`--inflight` races overlap.

    .venv/bin/python -m bench.scheduling.race_cancel --races 200
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import asyncpg
import structlog
import yaml
from aiohttp import web

from bench.support.places import HANDLERS
from hocket.cli.local.platform import Platform
from hocket.cli.local.processes import health_url
from hocket.cli.remote.api import Api

FAST_S = 0.02
NEVER_S = 60.0
WAIT_MS = 20_000
SETTLE_S = 10.0
POLL_S = 0.02
WARMUP = 10
BRANCHES = ("fast", "slow", "slower")
CALL = {"type": "python", "handler": "handlers:call_model"}
PIPELINE = {
    "pipeline": "race",
    "slo_ms": 30_000,
    "nodes": {
        "r": {
            "type": "race",
            "branches": {name: CALL | {"with": {"model": name}} for name in BRANCHES},
        }
    },
}


class RaceWrong(Exception):
    """A race did not end as it should, or something of it was left."""


class ModelServer:
    """Answers the model `fast` after a moment and no other model; records when a caller disconnects."""

    def __init__(self) -> None:
        self.open = 0
        self.closed_at_ms: dict[tuple[str, str], float] = {}

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        model, run_id = body["model"], body["messages"][-1]["content"]
        self.open += 1
        try:
            await asyncio.sleep(FAST_S if model == "fast" else NEVER_S)
        except asyncio.CancelledError:
            self.closed_at_ms[run_id, model] = time.time() * 1000
            raise
        finally:
            self.open -= 1
        message = {"role": "assistant", "content": "done"}
        usage = {"prompt_tokens": 10, "completion_tokens": 1}
        return web.json_response({"choices": [{"message": message}], "usage": usage})

    async def start(self) -> tuple[web.AppRunner, str]:
        """Serve on a free port; return the runner that stops it, and the address."""
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.answer)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/v1"


async def main(arguments: argparse.Namespace) -> None:
    """Start a platform and the server, run the races, check and print."""
    server = ModelServer()
    runner, base_url = await server.start()
    try:
        with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
            await measure(Path(folder), server, base_url, arguments)
    finally:
        await runner.cleanup()


async def measure(
    folder: Path, server: ModelServer, base_url: str, arguments: argparse.Namespace
) -> None:
    """Run the races on a platform in a folder."""
    backend = {
        "base_url": base_url,
        "prices": {"request_usd": "0.01"},
        "limit": 64,
        "stops_on_disconnect": True,
    }
    models = {name: {"backends": [backend | {"model": name}]} for name in BRANCHES}
    config, journal = folder / "hocket.yaml", folder / "journal"
    config.write_text(yaml.safe_dump({"models": models}), "utf-8")
    env = {"HOCKET_HANDLERS": "handlers", "PYTHONPATH": HANDLERS, "WORKFLOW_JOURNAL": str(journal)}
    async with Platform(
        folder / "d", env=env, worker_types=("python",), config=config, log_level="warning"
    ) as platform:
        api = platform.api()
        await asyncio.to_thread(api.post, "/v1/pipelines", PIPELINE)
        await races(api, WARMUP, 1)
        run_ids = await races(api, arguments.races, arguments.inflight)
        await settled(platform, server)
        connection = await asyncpg.connect(platform.database_url)
        try:
            await check(connection, arguments.races + WARMUP)
            won_at_ms = await ends(connection, run_ids)
        finally:
            await connection.close()
        handlers_ms, upstream_ms = [], []
        stopped_at_ms = journalled(journal)
        for run_id in run_ids:
            for loser in BRANCHES[1:]:
                won = won_at_ms[run_id]
                handlers_ms.append(stopped_at_ms[run_id, loser] - won)
                upstream_ms.append(server.closed_at_ms[run_id, loser] - won)
    result = {
        "races": arguments.races,
        "inflight": arguments.inflight,
        "handlers_ms": spread(handlers_ms),
        "upstream_ms": spread(upstream_ms),
    }
    print(json.dumps(result), flush=True)


async def races(api: Api, count: int, inflight: int) -> list[str]:
    """Run `count` races, `inflight` at a time; return the ids of their runs."""
    run_ids: list[str] = []
    left = iter(range(count))

    async def one_after_the_other() -> None:
        for _ in left:
            body = {"pipeline": "race", "input": {}, "wait_ms": WAIT_MS}
            end = await asyncio.to_thread(api.post, "/v1/runs", body)
            if end.get("status") != "succeeded" or end["output"] != "done":
                raise RaceWrong(f"a race ended so: {end}")
            run_ids.append(end["run_id"])

    await asyncio.gather(*(one_after_the_other() for _ in range(inflight)))
    return run_ids


async def settled(platform: Platform, server: ModelServer) -> None:
    """Wait until nothing of any race is left; raise RaceWrong if something stays."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        left = {
            "connections": server.open,
            "slots": (await metrics(platform, "worker"))['hocket_worker_running{type="python"}'],
            "calls": (await metrics(platform, "gateway"))["hocket_gateway_in_flight"],
        }
        if not any(left.values()):
            return
        if time.monotonic() > deadline:
            raise RaceWrong(f"after {SETTLE_S} s there is still {left}")
        await asyncio.sleep(POLL_S)


async def metrics(platform: Platform, name: str) -> Mapping[str, float]:
    """Return the metrics of a process."""
    pid = platform.process(name).pid
    url = health_url(platform.data_dir / "run", pid) if pid else None
    if url is None:
        raise RaceWrong(f"{name} does not say how it is")

    def read() -> str:
        with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    text = await asyncio.to_thread(read)
    lines = [line.rpartition(" ") for line in text.splitlines() if line[:1] != "#"]
    return {key: float(value) for key, _, value in lines}


async def check(connection: asyncpg.Connection, races: int) -> None:
    """Raise RaceWrong unless the ledger has each call once, and those of the losers as speculation."""
    wanted = {("fast", "call", "ok"): races}
    wanted |= {(loser, "speculation", "cancelled"): races for loser in BRANCHES[1:]}
    deadline = time.monotonic() + SETTLE_S
    while True:
        rows = await connection.fetch(_KINDS)
        found = {(row["model"], row["kind"], row["status"]): row["calls"] for row in rows}
        if found == wanted:
            return
        if time.monotonic() > deadline:
            raise RaceWrong(f"the ledger has {found} and not {wanted}")
        await asyncio.sleep(POLL_S)


async def ends(connection: asyncpg.Connection, run_ids: Sequence[str]) -> dict[str, float]:
    """Return when each run's race was won (epoch ms)."""
    rows = await connection.fetch(_ENDS, run_ids)
    return {row["run_id"]: row["at_ms"] for row in rows}


def journalled(journal: Path) -> dict[tuple[str, str], float]:
    """Return when the handlers of losers were cancelled, by run and branch (epoch ms)."""
    lines = map(json.loads, journal.read_text("utf-8").splitlines())
    return {(run_id, branch): at_s * 1000 for run_id, branch, _, at_s in lines}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the distribution of measured times."""
    ordered = sorted(values)
    places = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    found = {name: ordered[int(len(ordered) * place)] for name, place in places.items()}
    return {
        name: round(value, 2)
        for name, value in ({"min": ordered[0]} | found | {"max": ordered[-1]}).items()
    } | {"count": len(ordered)}


_KINDS = "SELECT model, kind, status, count(*) AS calls FROM report.usage GROUP BY 1, 2, 3"
_ENDS = """
SELECT run_id, (extract(epoch FROM finished_at) * 1000)::double precision AS at_ms
FROM hocket.step WHERE key = 'r' AND run_id = ANY($1::text[])
"""

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--races", type=int, default=200)
    parser.add_argument("--inflight", type=int, default=1)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    print(f"load {os.getloadavg()[0]:.2f} before the start", file=sys.stderr)
    try:
        asyncio.run(main(parser.parse_args()))
    except RaceWrong as error:
        print(f"no figure: {error}", file=sys.stderr)
        sys.exit(1)
