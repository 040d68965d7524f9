"""Measure how long a NATS cluster has no leader after a server stops, as seen by an independent client.

Uses three servers without any part of Hocket, streams with three replicas, and plain `nats-py`.
Messages pass through three streams, as a run's messages pass through TASKS, LOG and STEPS: relays read
them from the durable consumer of one stream and publish them to the next. Requests that are not
answered are repeated after RETRY_S. A trial ends the server that leads the first stream (`kill -9`, or
SIGTERM, so that it hands its leaderships over), starts it again, and measures

- publish: the longest wait for the acknowledgement of a message published to the first stream after
  that,
- through: the longest time from such a publish until the message was read from the last stream.

This is the lower bound for `make cluster-test`: how long a client of such streams waits for the servers
alone.

    .venv/bin/python -m bench.resilience.election --trials 20
    .venv/bin/python -m bench.resilience.election --trials 20 --signal TERM
"""

import argparse
import asyncio
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import StreamConfig

from bench.support.processes import BenchFailed, free_port
from hocket.kit.embedded.nats import nats_program
from hocket.kit.process.task_stop import stop_tasks

SERVERS = 3
STREAMS = ("FIRST", "SECOND", "THIRD")
DURABLE = "reader"
EVERY_S = 0.05
RETRY_S = 0.25
ACK_WAIT_S = 2
"""A message that is not acknowledged is redelivered after this long."""
BEFORE_S = 2.0
AFTER_S = 12.0
"""NATS holds an election after 4 to 9 s of silence; each follower draws its own time."""
WHOLE_S = 60.0
LINE_S = 6.0
"""The goal for a run during a change of leader."""

AWAY = (nats.errors.Error, nats.js.errors.Error, TimeoutError)
"""The client's errors when no server answers."""


class Cluster:
    """Three servers, each a process with its own folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = [free_port() for _ in range(SERVERS)]
        routes = [free_port() for _ in range(SERVERS)]
        others = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
        for number in range(SERVERS):
            (folder / f"n{number}.conf").write_text(
                f"server_name: n{number}\nlisten: 127.0.0.1:{self._ports[number]}\n"
                f'jetstream {{ store_dir: "{folder}/n{number}" }}\n'
                f"cluster {{ name: c, listen: 127.0.0.1:{routes[number]}, routes: [{others}] }}\n"
            )
        self._processes: dict[int, asyncio.subprocess.Process] = {}

    @property
    def urls(self) -> list[str]:
        return [f"nats://127.0.0.1:{port}" for port in self._ports]

    async def start(self, number: int) -> None:
        config = self._folder / f"n{number}.conf"
        quiet = asyncio.subprocess.DEVNULL
        self._processes[number] = await asyncio.create_subprocess_exec(
            nats_program(), "-c", config, stderr=quiet
        )

    async def end(self, number: int, how: signal.Signals) -> None:
        self._processes[number].send_signal(how)
        await self._processes[number].wait()

    async def stop(self) -> None:
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


class Flow:
    """Messages through all streams: when each was published, acknowledged and read."""

    def __init__(self, jetstream: JetStreamContext) -> None:
        self._jetstream = jetstream
        self._name = uuid4().hex
        self.published: dict[int, float] = {}
        self.acknowledged: dict[int, float] = {}
        self.read: dict[int, float] = {}
        self.waiting: set[asyncio.Task[None]] = set()

    async def publish(self) -> None:
        """Publish every EVERY_S, forever."""
        while True:
            number = len(self.published)
            self.published[number] = time.monotonic()
            task = asyncio.create_task(self._publish(number))
            self.waiting.add(task)
            task.add_done_callback(self.waiting.discard)
            await asyncio.sleep(EVERY_S)

    async def _publish(self, number: int) -> None:
        await self._until_stored(STREAMS[0], number)
        self.acknowledged[number] = time.monotonic()

    async def _until_stored(self, stream: str, number: int) -> None:
        headers = {"Nats-Msg-Id": f"{self._name}-{number}"}
        while True:
            try:
                await self._jetstream.publish(
                    stream.lower(),
                    f"{self._name} {number}".encode(),
                    headers=headers,
                    timeout=RETRY_S,
                )
            except AWAY:
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def relay(self, number: int) -> None:
        """Pass messages from one stream to the next, forever; record those read from the last."""
        if number + 1 < len(STREAMS):
            await self._take(STREAMS[number], partial(self._until_stored, STREAMS[number + 1]))
        else:
            await self._take(STREAMS[number], self._was_read)

    async def _was_read(self, number: int) -> None:
        self.read.setdefault(number, time.monotonic())

    async def _take(self, stream: str, handle: Callable[[int], Awaitable[None]]) -> None:
        while True:
            with suppress(*AWAY):
                pull = await self._jetstream.pull_subscribe_bind(DURABLE, stream)
                try:
                    for one in await pull.fetch(64, timeout=RETRY_S):
                        name, number = one.data.decode().split()
                        if name == self._name:  # not from an earlier trial
                            await handle(int(number))
                        await one.ack()
                finally:
                    await pull.unsubscribe()

    def waits(self, since: float, done: dict[int, float]) -> list[float]:
        """Return how long each message waited that was published in the AFTER_S / 2 seconds from
        `since`."""
        numbers = [n for n, at in self.published.items() if since <= at < since + AFTER_S / 2]
        if missing := [n for n in numbers if n not in done]:
            raise BenchFailed(f"{len(missing)} messages did not get there in {AFTER_S:g} s")
        return [done[n] - self.published[n] for n in numbers]


async def _whole(client: Client) -> int:
    """Wait until all replicas of all streams are current; return the server that leads the first
    stream."""
    jetstream = client.jetstream(timeout=2)
    until = time.monotonic() + WHOLE_S
    while time.monotonic() < until:
        with suppress(*AWAY):
            clusters = [(await jetstream.stream_info(name)).cluster for name in STREAMS]
            clusters += [(await jetstream.consumer_info(name, DURABLE)).cluster for name in STREAMS]
            if all(_is_whole(one) for one in clusters):
                assert clusters[0] is not None
                return int((clusters[0].leader or "n0")[1:])
        await asyncio.sleep(0.3)
    raise BenchFailed(f"the cluster was not whole after {WHOLE_S:g} s")


def _is_whole(cluster: Any) -> bool:
    if cluster is None or not cluster.leader or len(cluster.replicas or ()) < SERVERS - 1:
        return False
    return all(one.current and not one.offline for one in cluster.replicas)


async def _quiet(error: Exception) -> None:
    """Ignore the error: lost connections are expected here."""


async def _made(client: Client) -> None:
    """Create the streams and their consumers, once the servers know each other."""
    jetstream = client.jetstream(timeout=5)
    until = time.monotonic() + WHOLE_S
    for name in STREAMS:
        while True:
            try:
                config = StreamConfig(name, subjects=[name.lower()], num_replicas=SERVERS)
                await jetstream.add_stream(config)
                await jetstream.add_consumer(name, durable_name=DURABLE, ack_wait=ACK_WAIT_S)
            except AWAY:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(RETRY_S)
            else:
                break


async def _trial(cluster: Cluster, how: signal.Signals) -> tuple[float, float]:
    """End the leader of the first stream while messages flow; the client is connected only to the other
    servers. Return the longest waits."""
    async with connected(cluster.urls) as client:
        await _made(client)
        leader = await _whole(client)
    others = [url for number, url in enumerate(cluster.urls) if number != leader]
    async with connected(others) as client:
        flow = Flow(client.jetstream(timeout=RETRY_S))
        flowing = [asyncio.create_task(flow.publish())]
        flowing += [asyncio.create_task(flow.relay(number)) for number in range(len(STREAMS))]
        try:
            await asyncio.sleep(BEFORE_S)
            ended = time.monotonic()
            await cluster.end(leader, how)
            await cluster.start(leader)
            await asyncio.sleep(AFTER_S)
            return max(flow.waits(ended, flow.acknowledged)), max(flow.waits(ended, flow.read))
        finally:
            await stop_tasks([*flowing, *flow.waiting])


@asynccontextmanager
async def connected(urls: list[str]) -> AsyncIterator[Client]:
    client = await nats.connect(urls, max_reconnect_attempts=-1, error_cb=_quiet)
    try:
        yield client
    finally:
        await client.close()


async def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.resilience.election")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--signal", choices=("KILL", "TERM"), default="KILL")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hocket-election-") as name:
        cluster = Cluster(Path(name))
        try:
            for number in range(SERVERS):
                await cluster.start(number)
            how = signal.Signals[f"SIG{given.signal}"]
            found = []
            for number in range(1, given.trials + 1):
                publish_s, through_s = await _trial(cluster, how)
                found.append((publish_s, through_s))
                print(
                    f"  {number}: publish {publish_s:.2f} s, through {through_s:.2f} s", flush=True
                )
        except BenchFailed as failed:
            sys.exit(f"FAILED: {failed}")
        finally:
            await cluster.stop()
    line: dict[str, Any] = {"bench": "election", "signal": given.signal, "trials": len(found)}
    for what, waits in zip(("publish", "through"), zip(*found, strict=True), strict=True):
        line[f"{what}_p50_s"] = round(statistics.median(waits), 2)
        line[f"{what}_largest_s"] = round(max(waits), 2)
        line[f"{what}_beyond_{LINE_S:g}_s"] = sum(wait > LINE_S for wait in waits)
    print(json.dumps(line))


if __name__ == "__main__":
    asyncio.run(main())
