"""Measure how cancelling many runs with one request affects others, and check that no run is missed.

Uses its own platform in a temporary folder (coordinator, worker, REST) with two tenants. `parking` has
parked runs that wait for a signal. `default` submits runs of agent6 at a steady rate and requests the
list of its runs from REST; both are measured from the time at which they were due. This load is
measured alternately alone, for as long as the previous cancellation took and at least `--quiet-s`, and
beside one request that cancels all parked runs; each round parks `--runs` new ones.

Then a smaller cancellation is started and REST is killed when it is half done: the next process must
continue where it stopped. Every run of every round must have been cancelled and its end published once,
progress must never go backwards, the audit must hold each request once, and the load's runs must have
succeeded; otherwise no figure is printed and the exit code is 1. It is also 1 if p99 beside a
cancellation exceeds p99 alone by more than the factor MOST_SLOWER.

    .venv/bin/python -m bench.resilience.bulk_cancel --runs 100000 --rounds 3
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import nats
import structlog
from nats.aio.client import Client

from bench.support.load import TENANT, WORKLOADS, Load, RunsMissing, check
from bench.support.machine import machine_text
from bench.support.memory import memory_mib
from bench.support.places import HANDLERS
from hocket.cli.local.platform import Platform
from hocket.schemas import subjects
from hocket.schemas.rest import MAX_PAGE

PARKING = "parking"
WAITING = "waiting"
WAITING_SPEC = {
    "pipeline": WAITING,
    "slo_ms": 7 * 24 * 3_600_000,
    "nodes": {"go": {"type": "signal", "signal": "go", "wait_ms": 6 * 24 * 3_600_000}},
}
OTHERS = "agent6"
BATCH = 500
AHEAD = 5_000
"""Maximum number of published runs that are not yet in Postgres."""
BOUND_S = 3_600.0
WARM = 200
"""Warm-up runs of the other tenant before anything is measured."""
MOST_SLOWER = 1.20
LOOK_S = 0.2
SERVICES = ("coordinator", "worker", "admin")


@dataclass
class Figures:
    """Latencies of the other tenant in milliseconds, and durations of the cancellations."""

    runs_ms: dict[str, list[float]] = field(default_factory=lambda: {"alone": [], "beside": []})
    lists_ms: dict[str, list[float]] = field(default_factory=lambda: {"alone": [], "beside": []})
    cancel_s: list[float] = field(default_factory=list)
    rest_grew_mib: list[float] = field(default_factory=list)
    resumed_s: float = 0.0


class Steady:
    """Calls something at a steady rate, however long each call takes."""

    def __init__(self, per_s: float, call: Callable[[], Awaitable[Any]]) -> None:
        self._every_s = 1 / per_s
        self._call = call

    async def until(self, ended: Awaitable[Any]) -> list[float]:
        """Continue until `ended` is done; return the time from when each call was due to its end, in
        milliseconds."""
        ending = asyncio.ensure_future(ended)
        took_ms: list[float] = []
        due_s = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            while not ending.done():
                group.create_task(self._one(due_s, took_ms))
                due_s += self._every_s
                await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        await ending
        return took_ms

    async def _one(self, due_s: float, took_ms: list[float]) -> None:
        await self._call()
        took_ms.append(1_000 * (time.perf_counter() - due_s))


class Rig:
    """A platform with its clients, the number of parked runs, and the operations on them."""

    def __init__(
        self,
        platform: Platform,
        client: Client,
        database: "asyncpg.Connection[asyncpg.Record]",
        session: aiohttp.ClientSession,
    ) -> None:
        self.platform = platform
        self.load = Load(client, OTHERS)
        self.parked = 0
        self.operations: dict[str, int] = {}
        """The number of runs that each operation was to cancel."""
        self._client = client
        self._database = database
        self._session = session
        self._api = platform.api(PARKING)

    async def park(self, count: int) -> None:
        """Publish `count` tasks, and wait until their runs are parked."""
        jetstream = self._client.jetstream(timeout=60, publish_async_max_pending=2 * BATCH)
        subject = subjects.task(PARKING, WAITING)
        before = self.parked
        for first in range(0, count, BATCH):
            number = min(BATCH, count - first)
            stored = [await jetstream.publish_async(subject, b"{}") for _ in range(number)]
            await asyncio.gather(*stored)
            await self._until("true", before + first + number - AHEAD)
        self.parked += count
        await self._until("finished_at IS NOT NULL OR parked_until IS NOT NULL", self.parked)

    async def _until(self, what: str, count: int) -> None:
        query = f"SELECT count(*) FROM hocket.run WHERE tenant = $1 AND ({what})"
        while await self._database.fetchval(query, PARKING) < count:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)

    async def cancel(self, count: int) -> str:
        """Request the cancellation of all parked runs; return the operation's id."""
        change = {"action": "cancel", "filter": {"pipeline": WAITING}, "reason": "bench"}
        begun = await asyncio.to_thread(self._api.post, "/v1/bulk/operations", change)
        if begun["matching"] != count:
            raise RunsMissing(f"{count} runs are parked, {begun['matching']} are meant")
        self.operations[begun["operation_id"]] = count
        return str(begun["operation_id"])

    async def done(self, operation_id: str, enough: int | None = None) -> dict[str, Any]:
        """Watch an operation until it is done and its runs have ended, or until it has changed `enough`
        runs. Raises RunsMissing if its progress goes backwards."""
        seen: list[int] = []
        while True:
            shown = await self._show(operation_id)
            if shown is not None:
                if seen and shown["changed"] < seen[-1]:
                    raise RunsMissing(f"{operation_id} went back to {shown['changed']}")
                seen.append(shown["changed"])
                if shown["state"] == "done" or (enough is not None and seen[-1] >= enough):
                    break
            await asyncio.sleep(LOOK_S)
        if enough is None:
            await self._until("status = 'cancelled'", self.parked)
        return shown

    async def _show(self, operation_id: str) -> dict[str, Any] | None:
        """Return an operation, or None while REST is down."""
        url = f"{self.platform.api_url}/v1/bulk/operations/{operation_id}"
        try:
            async with self._session.get(url, headers={"X-Hocket-Tenant": PARKING}) as reply:
                return dict(await reply.json()) if reply.status == 200 else None
        except (aiohttp.ClientError, OSError):
            return None

    async def list_runs(self) -> None:
        """Request a page of the runs of `default`, as a console does."""
        async with self._session.get(f"{self.platform.api_url}/v1/runs?limit=50") as reply:
            page = await reply.json()
            if reply.status != 200 or not page["runs"]:
                raise RunsMissing(f"the list of runs: {reply.status}")

    async def check(self) -> None:
        """Raise RunsMissing unless runs, ends, audit and the load's steps are complete."""
        rows = await self._database.fetch(
            "SELECT status, count(*) FROM hocket.run WHERE tenant = $1 GROUP BY 1", PARKING
        )
        if (found := dict(map(tuple, rows))) != {"cancelled": self.parked}:
            raise RunsMissing(f"{self.parked} runs were parked, Postgres has {found}")
        await self._check_ends()
        await self._check_audit()
        steps = WORKLOADS[OTHERS].steps
        await check(self.platform.database_url, OTHERS, self.load.published, steps)

    async def _check_ends(self) -> None:
        told: Counter[str] = Counter()
        subscription = await self._client.jetstream().subscribe(
            subjects.event(PARKING, WAITING, "run-finished"), ordered_consumer=True
        )
        while len(told) < self.parked:
            message = await subscription.next_msg(timeout=60)
            told[(message.headers or {})["ce-subject"]] += 1
        if max(told.values()) > 1:
            raise RunsMissing("an end was told twice")

    async def _check_audit(self) -> None:
        api = self.platform.api()
        page = await asyncio.to_thread(api.get, "/v1/audit", limit=MAX_PAGE)
        found = Counter(
            (entry["target"].removeprefix("bulk:"), entry["after"]["matching"])
            for entry in page["entries"]
            if entry["action"] == "runs.bulk_cancel"
        )
        if found != Counter(self.operations.items()):
            raise RunsMissing(f"the audit has {found}, asked was {self.operations}")


async def main(arguments: argparse.Namespace) -> int:
    """Park, cancel, kill, check, print; return the exit code."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    print(machine_text(), file=sys.stderr)
    env = {"HOCKET_HANDLERS": "handlers", "PYTHONPATH": HANDLERS}
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        async with (
            Platform(Path(folder) / "data", services=SERVICES, env=env) as platform,
            asyncio.timeout(BOUND_S),
            aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {platform.api_key}"}
            ) as session,
        ):
            others = WORKLOADS[OTHERS].pipeline(OTHERS)
            for tenant, spec in ((TENANT, others), (PARKING, WAITING_SPEC)):
                await asyncio.to_thread(platform.api(tenant).post, "/v1/pipelines", spec)
            client = await nats.connect(platform.nats_url)
            database = await asyncpg.connect(platform.database_url)
            rig = Rig(platform, client, database, session)
            await rig.load.start()
            figures = await _measured(rig, arguments)
            await rig.check()
            await database.close()
            await client.close()
    return _told(figures, arguments)


async def _measured(rig: Rig, arguments: argparse.Namespace) -> Figures:
    figures = Figures()
    await rig.load.run(WARM, 8, os.getpid())
    quiet_s = arguments.quiet_s
    for number in range(arguments.rounds):
        await rig.park(arguments.runs)
        for kind in ("alone", "beside") if number % 2 == 0 else ("beside", "alone"):
            before = memory_mib(rig.platform)["admin"]
            began_s = time.perf_counter()
            ended = _cancelled(rig, arguments.runs) if kind == "beside" else asyncio.sleep(quiet_s)
            await _beside(rig, ended, figures, kind, arguments)
            if kind == "beside":
                quiet_s = max(quiet_s, time.perf_counter() - began_s)
                figures.cancel_s.append(time.perf_counter() - began_s)
                figures.rest_grew_mib.append(memory_mib(rig.platform)["admin"] - before)
    await rig.park(arguments.kill_runs)
    operation_id = await rig.cancel(arguments.kill_runs)
    await rig.done(operation_id, arguments.kill_runs // 2)
    began_s = time.perf_counter()
    await rig.platform.kill("admin")
    await rig.done(operation_id)
    figures.resumed_s = time.perf_counter() - began_s
    return figures


async def _cancelled(rig: Rig, count: int) -> None:
    shown = await rig.done(await rig.cancel(count))
    if (shown["changed"], shown["skipped"]) != (count, 0):
        raise RunsMissing(f"{count} runs were meant: {shown}")


async def _beside(
    rig: Rig,
    ended: Awaitable[Any],
    figures: Figures,
    kind: str,
    arguments: argparse.Namespace,
) -> None:
    """Measure the other tenant's load until `ended` is done."""
    ending = asyncio.ensure_future(ended)
    runs_ms, lists_ms = await asyncio.gather(
        Steady(arguments.runs_per_s, rig.load.one).until(ending),
        Steady(arguments.lists_per_s, rig.list_runs).until(ending),
    )
    figures.runs_ms[kind] += runs_ms
    figures.lists_ms[kind] += lists_ms
    for what, found in (("runs", runs_ms), ("lists", lists_ms)):
        print(f"{what} {kind}: {_summary(found)}", file=sys.stderr, flush=True)


def _told(figures: Figures, arguments: argparse.Namespace) -> int:
    """Print the figures; return 1 if others were slowed too much, otherwise 0."""
    code = 0
    for what, found in (("runs", figures.runs_ms), ("lists", figures.lists_ms)):
        shown = {kind: _summary(took_ms) for kind, took_ms in found.items()}
        slower = shown["beside"]["p99_ms"] / shown["alone"]["p99_ms"]
        code |= slower > MOST_SLOWER
        print(json.dumps({"others": what, **shown, "p99_times": round(slower, 2)}), flush=True)
    told = {
        "cancelled": arguments.runs,
        "took_s": [round(one, 1) for one in figures.cancel_s],
        "rest_grew_mib": [round(one, 1) for one in figures.rest_grew_mib],
        "resumed": arguments.kill_runs,
        "resumed_after_s": round(figures.resumed_s, 1),
    }
    print(json.dumps(told), flush=True)
    return int(code)


def _summary(took_ms: list[float]) -> Mapping[str, float]:
    ordered = sorted(took_ms)
    return {
        "count": len(ordered),
        "p50_ms": round(statistics.median(ordered), 1),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)], 1),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100_000, help="cancelled by one request")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kill-runs", type=int, default=10_000)
    parser.add_argument("--runs-per-s", type=float, default=15.0)
    parser.add_argument("--quiet-s", type=float, default=20.0, help="alone, at least")
    parser.add_argument("--lists-per-s", type=float, default=15.0)
    try:
        sys.exit(asyncio.run(main(parser.parse_args())))
    except* RunsMissing as errors:
        sys.exit(f"bulk_cancel: {errors.exceptions[0]}")
