"""Users who publish tasks at a fixed rate, and checks of what became of the accepted ones.

A task is accepted when NATS has acknowledged it; a publish without an answer is repeated under the same
key.
"""

import asyncio
import time
from contextlib import suppress

import asyncpg
import nats
from nats.aio.client import Client

from hocket.cli.local.platform import Platform
from hocket.schemas import ids, subjects

TENANT = "default"
PIPELINE = "exhausted"
ECHO = {"type": "python", "handler": "hocket.workers.builtin:echo", "with": {"n": "{{ input.n }}"}}
RETRY = {
    "max_attempts": 20,
    "backoff_ms": 200,
    "max_backoff_ms": 2_000,
    "on": ["unavailable", "transient", "timeout"],
}
ASK = {
    "type": "llm",
    "model": "mute",
    "prompt": "{{ input.n }}?",
    "with": {"n": "{{ input.n }}"},
    "needs": ["a"],
    "timeout_ms": 15_000,
    "retry": RETRY,
}
SPEC = {
    "pipeline": PIPELINE,
    "slo_ms": 3_600_000,
    "nodes": {"a": {**ECHO, "retry": RETRY}, "b": ASK, "c": {**ECHO, "needs": ["b"]}},
    "output": {"n": "{{ nodes.a.output.n }}"},
}
PUBLISH_TIMEOUT_S = 1.0
MAX_WAITING = 400
"""Maximum number of publishes that wait for an answer."""
LOOK_S = 0.1


class Load:
    """Users of one platform, and the tasks that were accepted from them."""

    def __init__(self, platform: Platform, rate: float, prefix: str) -> None:
        self.accepted: dict[str, float] = {}
        """By run: when its task was acknowledged (monotonic)."""
        self._platform = platform
        self._rate = rate
        self._prefix = prefix
        self._stopping = asyncio.Event()
        self._waiting: set[asyncio.Task[None]] = set()
        self._client: Client | None = None

    async def open(self) -> None:
        """Connect."""
        self._client = await nats.connect(
            self._platform.nats_url,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.1,
            error_cb=_quiet,
            ping_interval=2,
        )

    async def close(self) -> None:
        """Stop publishing, and disconnect."""
        for task in self._waiting:
            task.cancel()
        assert self._client is not None, "it was opened"
        await self._client.close()

    async def run(self) -> None:
        """Publish until `stop` is called; return when everything is accepted."""
        began_s, number = time.monotonic(), 0
        while not self._stopping.is_set():
            if len(self._waiting) < MAX_WAITING:
                task = asyncio.create_task(self._publish(number))
                self._waiting.add(task)
                task.add_done_callback(self._waiting.discard)
                number += 1
            due_s = max(0.001, began_s + number / self._rate - time.monotonic())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), due_s)
        await asyncio.gather(*self._waiting)

    def stop(self) -> None:
        """Stop publishing new tasks."""
        self._stopping.set()

    async def _publish(self, number: int) -> None:
        assert self._client is not None, "it was opened"
        key = f"{self._prefix}-{number}"
        headers = {"Hocket-Idempotency-Key": key}
        while True:
            try:
                await self._client.jetstream(timeout=PUBLISH_TIMEOUT_S).publish(
                    subjects.task(TENANT, PIPELINE), b'{"n": %d}' % number, headers=headers
                )
            except (nats.errors.Error, nats.js.errors.Error):
                await asyncio.sleep(PUBLISH_TIMEOUT_S / 4)
            else:
                self.accepted[ids.run_id(TENANT, key)] = time.monotonic()
                return


async def ended_since(platform: Platform, load: Load, since_s: float) -> float:
    """Wait until a run has ended whose task was accepted after `since_s`; return how long after that it
    was."""
    while True:
        young = [run for run, at_s in load.accepted.items() if at_s > since_s]
        query = "SELECT count(*) FROM hocket.run WHERE run_id = ANY($1) AND finished_at IS NOT NULL"
        if young and await _asked(platform, query, young):
            return time.monotonic() - since_s
        await asyncio.sleep(LOOK_S)


async def all_ended(platform: Platform, load: Load) -> None:
    """Wait until every accepted task has a run that ended, and the ledger has a row for its call."""
    wanted = list(load.accepted)
    ended = "SELECT count(*) FROM hocket.run WHERE run_id = ANY($1) AND finished_at IS NOT NULL"
    booked = """
        SELECT count(DISTINCT run_id) FROM hocket.usage WHERE kind = 'call' AND run_id = ANY($1)
    """
    for query in (ended, booked):
        while (await _asked(platform, query, wanted) or 0) < len(wanted):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)


async def violations(platform: Platform, load: Load) -> list[str]:
    """Return what went wrong with accepted tasks."""
    found = []
    rows = await _rows(platform, "SELECT run_id, status, error FROM hocket.run")
    by_run = {row["run_id"]: row for row in rows}
    for run_id in load.accepted:
        row = by_run.get(run_id)
        if row is None:
            found.append(f"{run_id} was accepted and is lost")
        elif row["status"] != "succeeded":
            found.append(f"{run_id} is {row['status']}: {row['error']}")
    twice = await _rows(
        platform,
        "SELECT call_id FROM hocket.usage WHERE kind = 'call' GROUP BY call_id HAVING count(*) > 1",
    )
    found += [f"call {row['call_id']} was booked twice" for row in twice]
    return found


async def _asked(platform: Platform, query: str, *values: object) -> int | None:
    with suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection = await asyncpg.connect(platform.database_url, timeout=5, command_timeout=5)
        try:
            number: int = await connection.fetchval(query, *values)
            return number
        finally:
            connection.terminate()
    return None


async def _rows(platform: Platform, query: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(platform.database_url, timeout=5, command_timeout=30)
    try:
        rows: list[asyncpg.Record] = await connection.fetch(query)
        return rows
    finally:
        await connection.close()


async def _quiet(_error: Exception) -> None:
    """Ignore the error: trouble is expected here."""
