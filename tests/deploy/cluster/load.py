"""Tasks at a fixed rate, and the durations of their runs."""

import asyncio
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any

import asyncpg

from hocket.kit.nats.bus import Bus

RATE = 20.0
SETTLED_S = 120.0
PIPELINE_NAME = "cluster"


@dataclass
class Load:
    """Tasks for one platform. They have no keys: a task that is stored twice becomes two runs."""

    bus: Bus
    connection: asyncpg.Connection
    given: list[float] = field(default_factory=list)
    """When each task was submitted (wall clock); the index is its number."""
    acknowledged: list[asyncio.Future[Any]] = field(default_factory=list)
    runs: dict[int, list[asyncpg.Record]] = field(default_factory=dict)
    """Runs by task number, as found by `settle`."""

    async def run(self, seconds: float) -> range:
        """Submit tasks for some time; return their numbers."""
        first, began = len(self.given), time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            while len(self.given) - first <= passed * RATE:
                body = json.dumps({"n": len(self.given)}).encode()
                self.given.append(time.time())
                subject = f"hocket.task.default.{PIPELINE_NAME}"
                self.acknowledged.append(self.bus.publish_durable(subject, body))
            await asyncio.sleep(1 / RATE)
        return range(first, len(self.given))

    async def settle(self) -> None:
        """Wait until all tasks are acknowledged and their runs have ended, or until time is up."""
        async with asyncio.timeout(SETTLED_S):
            await asyncio.gather(*self.acknowledged)
        until = time.monotonic() + SETTLED_S
        ended = "SELECT count(*) FROM hocket.run WHERE finished_at IS NOT NULL"
        while (  # noqa: ASYNC110
            await self.connection.fetchval(ended) < len(self.given) and time.monotonic() < until
        ):
            await asyncio.sleep(0.5)
        rows = await self.connection.fetch(
            "SELECT (input->>'n')::int AS n, status, "
            "extract(epoch FROM finished_at)::float AS ended FROM hocket.run"
        )
        for row in rows:
            self.runs.setdefault(row["n"], []).append(row)

    def ended(self, numbers: Iterable[int]) -> list[float]:
        """Return when these tasks' runs ended (wall clock)."""
        return [self.runs[n][0]["ended"] or float("inf") for n in numbers if n in self.runs]

    def took(self, numbers: Iterable[int], percent: int) -> float:
        """Return a percentile of the runs' durations, counted from the submission of the task."""
        found = [n for n in numbers if n in self.runs]
        took_s = [ended - self.given[n] for n, ended in zip(found, self.ended(found), strict=True)]
        return quantiles(took_s, n=100)[percent - 1]

    def given_between(self, from_s: float, to_s: float) -> list[int]:
        """Return the numbers of the tasks that were submitted in a period (wall clock)."""
        return [n for n, given in enumerate(self.given) if from_s <= given < to_s]
