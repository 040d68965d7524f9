"""Users of the platform under chaos: they publish tasks, send signals, cancel, and listen.

A task counts as accepted once NATS has acknowledged it. A publish without an answer is repeated under
the same key, as a user would do. Signals and cancellations are sent until the run has ended: it is up
to the user to repeat one that NATS lost with the tail of a log.
"""

import asyncio
import json
import random
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field

import asyncpg
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from chaos.pipelines import PIPELINES, STARTED
from hocket.cli.local.platform import Platform
from hocket.schemas import ids, subjects
from hocket.schemas.errors import HocketError

TENANT = "default"
CUSTOMERS = 3
LABEL = "customer"
PACE_S = 0.25
PUBLISH_TIMEOUT_S = 2.0
PERSON_PACE_S = 0.5
TRIES = 60


@dataclass(frozen=True)
class Task:
    """An accepted task."""

    key: str
    pipeline: str
    n: int

    @property
    def customer(self) -> str:
        """The label of the customer to be charged."""
        return f"c{self.n % CUSTOMERS}"

    @property
    def run_id(self) -> str:
        """The id of its run."""
        return ids.run_id(TENANT, self.key)


@dataclass
class Heard:
    """What listeners heard. They may hear a message twice, if its publisher posted it again."""

    ends: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    """By run: (message id, status) of each end heard."""
    rejected: list[str] = field(default_factory=list)


class Load:
    """The users. `publish` runs until it is told to stop, `tend` until it is cancelled."""

    def __init__(self, platform: Platform, seed: int) -> None:
        self.tasks: list[Task] = []
        self.heard = Heard()
        self._platform = platform
        self._dice = random.Random(f"load-{seed}")
        self._seed = seed
        self._client: Client | None = None

    async def listen(self) -> None:
        """Listen to the public facts from now on, across outages."""
        self._client = await nats.connect(
            self._platform.nats_url,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.05,
            error_cb=_quiet,
            ping_interval=1,
        )
        await self._client.subscribe(subjects.EVENT_FILTER, cb=self._hear)

    @property
    def client(self) -> Client:
        """The listener's connection."""
        assert self._client is not None, "listen first"
        return self._client

    async def waiting(self) -> int:
        """Return the number of messages that are still in the work queues."""
        jetstream = self.client.jetstream(timeout=PUBLISH_TIMEOUT_S)
        queues = (subjects.TASKS, subjects.STEPS, subjects.USAGE)
        try:
            return sum([(await jetstream.stream_info(name)).state.messages for name in queues])
        except (nats.errors.Error, nats.js.errors.Error):
            return 1

    async def close(self) -> None:
        """Stop listening."""
        await self.client.close()

    async def publish(self, stopping: asyncio.Event) -> None:
        """Publish tasks at a steady pace."""
        number = 0
        while not stopping.is_set():
            pipeline = STARTED[number % len(STARTED)]
            task = Task(f"chaos-{self._seed}-{number}", pipeline, self._dice.randrange(1_000))
            await self._published(task)
            number += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), PACE_S)

    async def tend(self) -> None:
        """Send signals to runs that wait for them, and cancellations; runs until cancelled."""
        api = self._platform.api(TENANT)
        done: set[str] = set()
        while True:
            for task in list(self.tasks):
                mixed = PIPELINES[task.pipeline]
                if task.run_id in done or not (mixed.signal or mixed.cancelled):
                    continue
                path = f"/v1/runs/{task.run_id}"
                with suppress(HocketError):
                    run = await asyncio.to_thread(api.get, path)
                    if run["status"] != "running":
                        done.add(task.run_id)
                    elif mixed.cancelled:
                        await asyncio.to_thread(api.post, f"{path}/cancel", {"reason": "chaos"})
                    else:
                        body = {"name": mixed.signal, "payload": {"approved": True}}
                        await asyncio.to_thread(api.post, f"{path}/signals", body)
            await asyncio.sleep(PERSON_PACE_S)

    async def _published(self, task: Task) -> None:
        for _ in range(TRIES):
            try:
                await self.client.jetstream(timeout=PUBLISH_TIMEOUT_S).publish(
                    subjects.task(TENANT, task.pipeline),
                    b'{"n": %d}' % task.n,
                    headers={
                        "Hocket-Idempotency-Key": task.key,
                        "Hocket-Labels": f"{LABEL}={task.customer}",
                    },
                )
            except (nats.errors.Error, nats.js.errors.Error):
                await asyncio.sleep(PACE_S)
            else:
                self.tasks.append(task)
                return
        raise AssertionError(f"NATS took no task in {TRIES} tries")

    async def _hear(self, message: Msg) -> None:
        headers = message.headers or {}
        body = json.loads(message.data)
        if message.subject.endswith(".run-finished"):
            told = (headers.get("Nats-Msg-Id", ""), str(body["status"]))
            self.heard.ends[str(body["run_id"])].append(told)
        elif message.subject.endswith(".task-rejected"):
            self.heard.rejected.append(message.data.decode())


async def _quiet(error: Exception) -> None:
    """Ignore the error: outages are expected here."""


async def connected(platform: Platform) -> "asyncpg.Connection[asyncpg.Record]":
    """Connect to the database, retrying until an outage is over."""
    for _ in range(TRIES):
        try:
            return await asyncpg.connect(platform.database_url, timeout=5)
        except (OSError, asyncpg.PostgresError):
            await asyncio.sleep(PERSON_PACE_S)
    raise AssertionError("Postgres did not come back")
