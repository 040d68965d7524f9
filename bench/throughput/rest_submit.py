"""Measure how many runs per second REST accepts: one by one, and many per request, in alternation.

Uses its own platform (embedded NATS and Postgres, one REST process, one coordinator unless
`--rest-only`), and submits runs of a pipeline that waits for a signal, over `--connections` connections
that stay open. Prints one line of JSON per round: runs accepted per second (answered, and therefore on
disk in NATS), and the CPU time of each process per run, with this client as `bench`. A round begins
when all earlier runs are parked, because otherwise they would be started and parked at the same time.
At the end Postgres is asked for every run; if some are missing, the exit code is 1. Everything shares
the machine: report its load with the figures.

    .venv/bin/python -m bench.throughput.rest_submit --runs 6000 --bulk-runs 20000 --rounds 3
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import uvloop

from bench.support.machine import cpu_s
from hocket.cli.local.platform import Platform

PIPELINE = {
    "pipeline": "wait",
    "slo_ms": 3_600_000,
    "nodes": {"go": {"type": "signal", "signal": "go"}},
}
TASK = {"pipeline": "wait", "input": {"text": "x" * 189}}
STORED_WITHIN_S = 300.0
COUNT = "SELECT count(*) FROM hocket.run WHERE pipeline = 'wait'"
PARKED = f"{COUNT} AND parked_until IS NOT NULL"


class SubmissionRefused(Exception):
    """REST did not take what it was sent."""


class Client:
    """Sends one request after another over a connection that stays open, at minimal cost."""

    def __init__(self, url: str, key: str) -> None:
        place = urlsplit(url)
        self._host, self._port, self._key = place.hostname, place.port, key

    async def send(self, path: str, body: bytes, times: int) -> int:
        """Send a body `times` times; return the number of runs accepted. Raises SubmissionRefused."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"Authorization: Bearer {self._key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()
        taken = 0
        try:
            for _ in range(times):
                writer.write(head + body)
                taken += await _taken(reader)
        finally:
            writer.close()
        return taken


async def _taken(reader: asyncio.StreamReader) -> int:
    """Read an answer; return the number of runs that it accepts."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next(
        int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length:")
    )
    answer = json.loads(await reader.readexactly(length))
    if head.split()[1] not in ("200", "202"):
        raise SubmissionRefused(json.dumps(answer)[:500])
    if "runs" not in answer:
        return 1
    return sum(one["run_id"] is not None and one["error"] is None for one in answer["runs"])


async def main(arguments: argparse.Namespace) -> int:
    """Start a platform, submit in alternation, and check that every run was stored."""
    services = ("admin",) if arguments.rest_only else ("admin", "coordinator")
    environment = {"HOCKET_KEY_REQUESTS_PER_S": "1000000"}
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        async with Platform(Path(folder) / "data", services=services, env=environment) as platform:
            api = platform.api()
            await asyncio.to_thread(api.post, "/v1/pipelines", PIPELINE)
            client = Client(platform.api_url, platform.api_key)
            database_url = None if arguments.rest_only else platform.database_url
            taken = await _rounds(client, database_url, arguments)
            return 0 if database_url is None else await _missing(database_url, taken)


async def _rounds(client: Client, database_url: str | None, arguments: argparse.Namespace) -> int:
    one = json.dumps(TASK).encode()
    many = json.dumps({"runs": [TASK] * arguments.batch}).encode()
    rates: dict[str, list[float]] = {"one": [], "bulk": []}
    taken = 0
    for _ in range(arguments.rounds):
        for way, path, body, runs, each in (
            ("one", "/v1/runs", one, arguments.runs, 1),
            ("bulk", "/v1/bulk/runs", many, arguments.bulk_runs, arguments.batch),
        ):
            if database_url is not None and await _missing(database_url, taken, PARKED):
                raise SubmissionRefused("runs of the rounds before were not parked")
            requests = runs // each // arguments.connections
            begun_s, used_s = time.perf_counter(), _used_s()
            counts: Sequence[int] = await asyncio.gather(
                *(client.send(path, body, requests) for _ in range(arguments.connections))
            )
            took_s, now_used_s = time.perf_counter() - begun_s, _used_s()
            done = sum(counts)
            taken += done
            rates[way].append(done / took_s)
            _told(
                way=way,
                runs=done,
                runs_per_s=done / took_s,
                cpu_us_per_run={
                    name: round((used - used_s.get(name, 0.0)) / done * 1e6, 1)
                    for name, used in sorted(now_used_s.items())
                },
                load=os.getloadavg()[0],
            )
    for way, found in rates.items():
        _told(way=way, median_runs_per_s=statistics.median(found), best_runs_per_s=max(found))
    return taken


async def _missing(database_url: str, taken: int, count: str = COUNT) -> int:
    """Wait until all accepted runs are counted; return 1 if some are missing."""
    connection = await asyncpg.connect(database_url)
    until_s = time.monotonic() + STORED_WITHIN_S
    stored = 0
    while stored < taken and time.monotonic() < until_s:
        await asyncio.sleep(0.5)
        stored = await connection.fetchval(count)
    await connection.close()
    if count == COUNT:
        _told(taken=taken, stored=stored)
    return int(stored != taken)


def _used_s() -> dict[str, float]:
    return {**cpu_s(os.getpid()), "bench": time.process_time()}


def _told(**values: object) -> None:
    shown = {k: round(v, 1) if isinstance(v, float) else v for k, v in values.items()}
    print(json.dumps(shown), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=6_000, help="of one round, one by one")
    parser.add_argument("--bulk-runs", type=int, default=20_000, help="of one round, in bulk")
    parser.add_argument("--batch", type=int, default=500, help="runs of one bulk request")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rest-only", action="store_true", help="without a coordinator")
    sys.exit(uvloop.run(main(parser.parse_args())))
