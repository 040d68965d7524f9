"""Measure many clients that each follow a run on one API process, and check that none misses events.

Uses one platform. `--clients` runs are started that wait for a signal; each has its own client on
`/v1/runs/{run_id}/events`. Every second client drops its connection after DROP_AFTER events and
reconnects with the last `id` it received. `--slow` further clients follow the whole list and read
nothing. Then every run gets its signal and executes its steps. The bench also subscribes to the
coordinators' events on NATS: each client must have received the same changes of steps, in the same
order, each exactly once, and then the end of its run. Printed are the number of clients that did not;
the delay from hearing a change on NATS until its client had it (for clients that stay connected); and
the memory of the API process before, with all clients, and after they have left.

    .venv/bin/python -m bench.reading.live_clients --clients 1000
"""

import argparse
import asyncio
import json
import socket
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import nats
import uvloop
from nats.aio.msg import Msg

from bench.support.load import CONNECT_TIMEOUT_S, TENANT
from bench.support.machine import machine_text
from bench.support.memory import memory_mib
from bench.support.processes import percentile
from hocket.cli.local.platform import Platform
from hocket.schemas import subjects
from hocket.schemas.run_changes import KIND

PIPELINE = "live"
STEPS = 6
DROP_AFTER = 3
AT_ONCE = 64
"""Concurrent requests while the bench starts runs and sends signals."""
QUIET_S = 2.0
"""After this long without a change, every client has received everything."""
BOUND_S = 300.0
TOO_MANY = 429
ECHO = "hocket.workers.builtin:echo"

Change = tuple[str, str, int]
"""Step, state, attempt."""


def pipeline() -> dict[str, Any]:
    """Return a chain of steps behind a signal."""
    nodes: dict[str, Any] = {"go": {"type": "signal", "signal": "go", "wait_ms": 900_000}}
    before = "go"
    for number in range(STEPS):
        nodes[f"s{number}"] = {"type": "python", "handler": ECHO, "needs": [before]}
        before = f"s{number}"
    return {"pipeline": PIPELINE, "slo_ms": 1_200_000, "nodes": nodes}


class Told:
    """The changes that coordinators have published, by run, and when each was heard."""

    def __init__(self) -> None:
        self.changes: defaultdict[str, list[Change]] = defaultdict(list)
        self.heard_s: dict[tuple[str, Change], float] = {}
        self.last_s = time.monotonic()

    async def hear(self, msg: Msg) -> None:
        """Record the changes of a message."""
        self.last_s = now = time.monotonic()
        for run in json.loads(msg.data)["runs"]:
            for step in run.get("steps", ()):
                change = (step["step"], step["state"], step["attempt"])
                self.changes[run["run_id"]].append(change)
                self.heard_s.setdefault((run["run_id"], change), now)

    async def until_quiet(self) -> None:
        """Wait until nothing has been heard for QUIET_S."""
        while True:
            left_s = self.last_s + QUIET_S - time.monotonic()
            if left_s <= 0:
                return
            await asyncio.sleep(left_s)


class Client:
    """A client that follows one run."""

    def __init__(self, run_id: str, *, drops: bool) -> None:
        self.run_id = run_id
        self.drops = drops
        self.changes: list[Change] = []
        self.delays_s: list[float] = []
        self.connections = self.refused = 0
        self.end: str | None = None
        self.placed = asyncio.Event()
        """Set once it has received everything that happened before it connected."""
        self._place = ""

    async def follow(self, session: aiohttp.ClientSession, told: Told) -> None:
        """Follow the run to its end."""
        while self.end is None:
            self.connections += 1
            headers = {"Last-Event-ID": self._place} if self._place else {}
            async with session.get(f"/v1/runs/{self.run_id}/events", headers=headers) as answer:
                if answer.status == TOO_MANY:  # clients that left are still counted for a moment
                    self.refused += 1
                    await asyncio.sleep(float(answer.headers["Retry-After"]))
                    continue
                answer.raise_for_status()
                await self._read(answer, told)

    async def _read(self, answer: aiohttp.ClientResponse, told: Told) -> None:
        name, data, count, is_placed = "", "", 0, False
        async for raw in answer.content:
            key, _, value = raw.decode().rstrip("\n").partition(": ")
            if key == "id":
                self._place, is_placed = value, True
            elif key == "event":
                name = value
            elif key == "data":
                data = value
            elif not key:
                if data:
                    self._take(name, json.loads(data), told)
                    count += self.placed.is_set()
                elif self._place:
                    self.placed.set()
                if self.end is not None or (self.drops and count >= DROP_AFTER and is_placed):
                    return  # between messages, because all changes of one message share an id
                name, data, is_placed = "", "", False

    def _take(self, name: str, data: dict[str, Any], told: Told) -> None:
        if name == "run":
            self.end = data["status"]
        elif name == "step":
            change = (data["step"], data["state"], data["attempt"])
            self.changes.append(change)
            if (heard_s := told.heard_s.get((self.run_id, change))) is not None:
                self.delays_s.append(max(0.0, time.monotonic() - heard_s))
        else:
            self.end = name


async def main(arguments: argparse.Namespace) -> None:
    """Measure, and print a line of JSON."""
    print(machine_text(), file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        async with Platform(Path(folder), log_level="warning") as platform:
            bus = await nats.connect(platform.nats_url, connect_timeout=CONNECT_TIMEOUT_S)
            told = Told()
            await bus.subscribe(subjects.event(TENANT, PIPELINE, KIND), cb=told.hear)
            async with session(platform) as api, asyncio.timeout(BOUND_S):
                await posted(api, "/v1/pipelines", pipeline())
                print(json.dumps(await measured(platform, api, told, arguments)), flush=True)
            await bus.close()


async def measured(
    platform: Platform, api: aiohttp.ClientSession, told: Told, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Return the measurements."""
    before_mib = api_mib(platform)
    bodies = [{"pipeline": PIPELINE, "input": {"n": n}} for n in range(arguments.clients)]
    begun = await all_of([posted(api, "/v1/runs", body) for body in bodies])
    clients = [Client(run["run_id"], drops=n % 2 == 0) for n, run in enumerate(begun)]
    following = [asyncio.create_task(client.follow(api, told)) for client in clients]
    async with unread_lists(platform, arguments.slow):
        placed = asyncio.gather(*(client.placed.wait() for client in clients))
        await asyncio.wait({placed, *following}, return_when=asyncio.FIRST_COMPLETED)
        for ended in [one for one in following if one.done()]:
            ended.result()
        await placed
        await told.until_quiet()
        for client in clients:
            client.changes.clear()
            client.delays_s.clear()
        told.changes.clear()
        began_s = time.monotonic()
        signal = {"name": "go"}
        sent = [posted(api, f"/v1/runs/{client.run_id}/signals", signal) for client in clients]
        await all_of(sent)
        await asyncio.gather(*following)
        took_s = time.monotonic() - began_s
        with_mib = api_mib(platform)
    await asyncio.sleep(QUIET_S)
    missed = [client for client in clients if client.changes != told.changes[client.run_id]]
    for client in missed[:3]:
        print(client.run_id, client.changes, told.changes[client.run_id], file=sys.stderr)
    delays_s = sorted(delay for one in clients if not one.drops for delay in one.delays_s)
    return {
        "clients": len(clients),
        "slow": arguments.slow,
        "changes": sum(len(client.changes) for client in clients),
        "connections": sum(client.connections for client in clients),
        "connections_refused_at_first": sum(client.refused for client in clients),
        "clients_that_missed_or_doubled": len(missed),
        "runs_without_their_end": sum(client.end != "succeeded" for client in clients),
        "took_s": round(took_s, 1),
        "delay_p50_ms": round(1000 * percentile(delays_s, 0.5), 1),
        "delay_p95_ms": round(1000 * percentile(delays_s, 0.95), 1),
        "api_mib": [before_mib, with_mib, api_mib(platform)],
    }


@asynccontextmanager
async def session(platform: Platform) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(
        platform.api_url,
        headers={"Authorization": f"Bearer {platform.api_key}"},
        timeout=aiohttp.ClientTimeout(total=None),
        connector=aiohttp.TCPConnector(limit=0),
    ) as made:
        yield made


@asynccontextmanager
async def unread_lists(platform: Platform, count: int) -> AsyncIterator[None]:
    """Keep clients connected that follow all runs and never read."""
    place = urlsplit(platform.api_url)
    sockets = []
    for _ in range(count):
        one = socket.create_connection((place.hostname or "", place.port or 80))
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        key = f"Authorization: Bearer {platform.api_key}"
        one.sendall(f"GET /v1/runs/events HTTP/1.1\r\nHost: x\r\n{key}\r\n\r\n".encode())
        sockets.append(one)
    try:
        yield
    finally:
        for one in sockets:
            one.close()


async def posted(api: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> dict[str, Any]:
    async with api.post(path, json=body) as answer:
        answer.raise_for_status()
        return dict(await answer.json())


async def all_of(requests: list[Any]) -> list[Any]:
    """Await requests, AT_ONCE at a time."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(request: Any) -> Any:
        async with room:
            return await request

    return await asyncio.gather(*map(one, requests))


def api_mib(platform: Platform) -> float:
    return round(memory_mib(platform)["admin"], 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--slow", type=int, default=10)
    uvloop.run(main(parser.parse_args()))
