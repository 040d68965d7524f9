"""Measure what a step that does nothing costs in a worker without its server.

The measurement covers everything from the bytes that NATS sends to the bytes sent to it: the parser, a
worker with one pool (`python`, a function that passes 200 bytes on), its file of held steps, results
and acknowledgements. A NATS that this process simulates delivers steps as a coordinator writes them, in
bundles of `--bundle`, as many as the worker requests, and acknowledges posts. The cost of the simulation
is not counted. A real worker additionally has sockets (`overhead.py`).

Printed are the CPU microseconds per step, the best and the median of all rounds; the machine is shown
on stderr. `--calls` prints how many Python functions a step calls, and which.

    .venv/bin/python -m bench.steps.worker_step --rounds 15 --steps 3000 --bundle 1 4
"""

import argparse
import asyncio
import json
import logging
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, cast

import structlog
import uvloop
from prometheus_client import CollectorRegistry

from bench.steps.coordinator_step import NEVER_S, PlayedClient, Stopwatch
from bench.support.load import BODY, TENANT
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.connection.durable_publisher import DurablePublisher
from hocket.kit.nats.connection.socket_writer import SocketWriter
from hocket.kit.nats.identity import Identity
from hocket.kit.process.limits.gc_tuning import settle
from hocket.schemas.pipeline.handlers import AllowedHandlers
from hocket.workers.nodes.python import PythonNode
from hocket.workers.runtime.execution.metrics import Meters
from hocket.workers.runtime.execution.step_threads import StepThreads
from hocket.workers.runtime.execution.worker import Worker
from hocket.workers.runtime.transport import fetching, pull
from hocket.workers.runtime.transport.held_steps import HeldSteps

SLOTS = 64
STEPS_A_READ = 8
"""How many steps the server sends in one chunk of bytes."""
HANDLER = "bench.support.handlers:pass_along"
SHOWN = 120
"""How many functions `--calls` shows."""


class Client(PlayedClient):
    """A stand-in for nats-py's client."""

    async def subscribe(self, subject: str, **options: object) -> Any:
        """Return a subscription that can be ended."""
        subscription = await super().subscribe(subject, **options)
        subscription.unsubscribe = subscription.drain = _nothing
        return subscription

    async def flush(self, _timeout_s: float = 0) -> None:
        """Do nothing."""


class Played:
    """Simulates NATS and a coordinator: acknowledges posts, and delivers as many steps as the worker
    requests."""

    def __init__(self, client: Client, acks: str, bundle: int) -> None:
        self.to_send = self.under_way = 0
        self._client = client
        self._acks = acks
        self._bundle = bundle
        self._count = self._posts = self._asked = 0
        self._inbox = ""

    def read(self) -> list[bytes]:
        """Return the server's responses to what was written, as one item per read."""
        found: list[bytes] = []
        written, self._client.written = self._client.written, []
        for command in written:
            self._take(command, found)
        chunks = [b"".join(found)] if found else []
        steps = list(self._steps())
        at_once = max(1, STEPS_A_READ // self._bundle)
        firsts = range(0, len(steps), at_once)
        chunks += [b"".join(steps[first : first + at_once]) for first in firsts]
        return chunks

    def _take(self, command: bytes, found: list[bytes]) -> None:
        line, _, rest = command.partition(b"\r\n")
        words = line.decode().split(" ")
        subject, reply = words[1], words[2]
        if subject == "$JS.API.CONSUMER.MSG.NEXT.STEPS.step-python-normal":
            self._inbox, self._asked = reply, self._asked + json.loads(rest)["batch"]
        elif subject.startswith("hocket.log."):
            self._posts += 1
            self.under_way -= max(1, rest.count(b'{"run_id"'))
            body = b'{"stream":"LOG-0", "seq":%d}' % self._posts
            sid = self._client.inboxes[self._acks + ".*"]
            found.append(b"MSG %b %d %d\r\n%b\r\n" % (reply.encode(), sid, len(body), body))

    def _steps(self) -> Iterator[bytes]:
        now_ms = time.time() * 1_000
        while self.to_send > 0 and self._asked > 0:
            self._asked -= 1
            first, *more = [self._step(now_ms) for _ in range(self._bundle)]
            if more:
                first["more"] = more
            yield self._message(first, now_ms)

    def _step(self, now_ms: float) -> dict[str, Any]:
        self.to_send -= 1
        self.under_way += 1
        self._count += 1
        return {
            "run_id": f"r{self._count:024x}",
            "run_deadline_at_ms": round(now_ms + 60_000, 3),
            "tenant": TENANT,
            "pipeline": "agent6",
            "version": 1,
            "priority": "standard",
            "partition": 0,
            "epoch": 1,
            "node": "plan",
            "type": "python",
            "config": {"handler": HANDLER},
            "effects_external": False,
            "step": "plan",
            "attempt": 1,
            "deadline_at_ms": round(now_ms + 59_776.345, 3),
            "timeout_ms": 60_000.0,
            "dispatched_at_ms": round(now_ms, 3),
            "capability": f"{self._count:032x}",
            "journal": True,
            "suspends": True,
            "slack_ms": 59_724.968994140625,
            "held_ms": 0.0,
            "input": BODY,
        }

    def _message(self, step: dict[str, Any], now_ms: float) -> bytes:
        msg_id = f"{step['run_id']}:plan:1:{round(now_ms * 1_000)}:{step['capability']}"
        head = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % msg_id.encode()
        body = json.dumps(step, separators=(",", ":")).encode()
        place = f"{self._count}.{self._count}.{int(now_ms * 1e6)}.0"
        words = f"hocket.step.python.normal {self._client.inboxes[self._inbox]}"
        reply = f"$JS.ACK.STEPS.step-python-normal.1.{place}"
        sizes = f"{len(head)} {len(head) + len(body)}"
        return f"HMSG {words} {reply} {sizes}\r\n".encode() + head + body + b"\r\n"


class Rig:
    """A worker and the simulated server."""

    def __init__(self, folder: Path, bundle: int, watch: Stopwatch) -> None:
        self._watch = watch
        self._client = client = Client()
        writer = SocketWriter(cast(Any, client), prompt=False)
        publisher = DurablePublisher(cast(Any, client), writer, Reporting(), window=4_096)
        connection = argparse.Namespace(
            client=client,
            identity=Identity(),
            on_reconnect=[],
            losses=0,
            checks=[],
            lost_at_ms=0.0,
            reports=Reporting(),
        )
        self._publisher = publisher
        allowed = AllowedHandlers.of([HANDLER])
        self._worker = Worker(
            Bus(cast(Any, connection), writer, publisher, cast(Any, client)),
            {"python": PythonNode(StepThreads(4), allowed)},
            {"python": SLOTS},
            name="host-1234",
            meters=Meters(CollectorRegistry()),
            held=HeldSteps(folder),
        )
        self._played = Played(client, publisher.inbox, bundle)

    async def open(self) -> None:
        """Start the worker."""
        acks = await self._client.subscribe(self._publisher.inbox + ".*")
        self._client.wire.direct[acks._id] = self._publisher.acknowledged
        await self._worker.start()

    async def run(self, steps: int) -> float:
        """Let the worker run steps; return the CPU time in microseconds."""
        played, watch = self._played, self._watch
        played.to_send = steps
        began_us = watch.read_us()
        while played.to_send > 0 or played.under_way:
            watch.plays()
            reads = played.read()
            watch.played()
            for chunk in reads:
                await self._client.wire.parse(chunk)
                await asyncio.sleep(0)
            await asyncio.sleep(0 if reads else 0.001)
        return watch.read_us() - began_us

    async def close(self) -> None:
        """Stop the worker."""
        await self._worker.drain(0.1)


class Calls(Stopwatch):
    """A stopwatch that also counts the Python functions that are called meanwhile, if told to."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.are_counted = False

    def plays(self) -> None:
        """Stop counting."""
        sys.setprofile(None)
        super().plays()

    def played(self) -> None:
        """Go on."""
        super().played()
        if self.are_counted:
            sys.setprofile(self._seen)

    def show(self, steps: int) -> None:
        """Stop counting, and print the counts per step on stderr."""
        sys.setprofile(None)
        print(f"{self.counts.total() / steps:.1f} calls a step", file=sys.stderr)
        for name, count in self.counts.most_common(SHOWN):
            print(f"{count / steps:8.2f} {name}", file=sys.stderr)

    def _seen(self, frame: FrameType, event: str, _arg: object) -> None:
        if event == "call":
            code = frame.f_code
            name = code.co_filename.rpartition("hocket/")[2]
            self.counts[f"{name}:{code.co_firstlineno} {code.co_qualname}"] += 1


async def measured(bundle: int, folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Return the figures for one size of bundles."""
    watch = Calls()
    rig = Rig(folder, bundle, watch)
    await rig.open()
    steps = options.steps - options.steps % bundle
    await rig.run(steps)
    settle()
    took = [await rig.run(steps) / steps for _ in range(options.rounds)]
    if options.calls:
        watch.are_counted = True
        await rig.run(steps)
        watch.are_counted = False
        watch.show(steps)
    await rig.close()
    return {
        "bundle": bundle,
        "us": {"best": round(min(took), 1), "median": round(statistics.median(took), 1)},
    }


async def main(options: argparse.Namespace) -> None:
    """Measure each size of bundles, and print."""
    for bundle in options.bundle:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(await measured(bundle, Path(folder), options)), flush=True)


async def _nothing(*_: object) -> None:
    """Do nothing."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bundle", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument(
        "--calls", action="store_true", help="count the functions of one more round"
    )
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    fetching.ensure_consumers = _nothing  # type: ignore[assignment]
    pull.SILENCE_S = NEVER_S  # a simulated server sends no heartbeats
    uvloop.run(main(parser.parse_args()))
