"""`make upgrade-test`: a rolling upgrade from the previous release under load.

The previous release runs on real servers, with certificates and users for NATS. Its processes are
rolled to the present tree one by one, restarted there, given certificates of another authority, and
rolled back, while runs continue; a worker is told to stop during a 55 s step. No run may fail, and the
model's own meter must show one paid answer for each."""

import argparse
import asyncio
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import structlog
import yaml

from deploy.cluster.nats_cluster import GivenServers, NatsCluster
from deploy.releases import (
    BOOK_LATER,
    PRESENT,
    Release,
    RolledProcess,
    built,
    previous_commit,
)
from hocket.cli.local.process_plan import PlannedProcess, ProcessPlan
from hocket.cli.remote.api import Api
from hocket.emulator.configuration import parse
from hocket.emulator.running import running
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.embedded.ports import LOOPBACK, remembered_port
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import ids, subjects
from hocket.schemas.access.nats_table import OWNER
from hocket.schemas.errors import HocketError

TENANT = "default"
RATE = 20.0
OF_REST = 10
"""One of this many tasks is submitted over REST instead."""
AROUND_S = 3.0
"""How long the load continues before and after each part."""
BOUND_S = 180.0
LATER_S = 15.0
LONG_S = 55.0
STOP_INTO_S = 5.0
DRAIN_S = 10.0
"""How long a worker continues its steps after it is told to stop (`workers.drain_s`)."""
NUMBERS = {"coordinator": 2, "worker": 2, "gateway": 2}
ORDER = ("coordinator", "gateway", "ledger", "admin", "worker")
"""The order given in docs/how-to/backup.md; the way back is in reverse."""
ECHO = {"type": "python", "handler": "hocket.workers.builtin:echo", "with": {"n": "{{ input.n }}"}}
ASK = {
    "type": "llm",
    "model": "metered",
    "max_tokens": 8,
    "prompt": "{{ input.n }}?",
    "with": {"n": "{{ input.n }}"},
}
SLEEP = {"type": "python", "handler": "hocket.workers.builtin:sleep", "with": {"seconds": LONG_S}}
ENGINE = {
    "model": "metered",
    "prefill_tokens_per_s": 1e6,
    "decode_tokens_per_s": 40,
    "journal_entries": 1_000_000,
}
PIPELINES: tuple[dict[str, Any], ...] = (
    {
        "pipeline": "rolled",
        "slo_ms": 600_000,
        "nodes": {
            "first": ECHO,
            "ask": {**ASK, "needs": ["first"]},
            "last": {**ECHO, "needs": ["ask"]},
        },
    },
    {
        "pipeline": "long",
        "slo_ms": 600_000,
        "nodes": {"ask": ASK, "sleep": {**SLEEP, "needs": ["ask"], "timeout_ms": 120_000}},
    },
)


class Load:
    """Tasks at a fixed rate, each under its own key and repeated until it is accepted."""

    def __init__(self, bus: Bus, api: Api) -> None:
        self.accepted: set[str] = set()
        self._bus, self._api = bus, api
        self._number = 0
        self._open: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        began = time.monotonic()
        while not self._stopping.is_set():
            self.give("rolled", over_rest=self._number % OF_REST == 0)
            due_s = max(0.001, began + self._number / RATE - time.monotonic())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), due_s)
        await asyncio.gather(*self._open)

    def stop(self) -> None:
        self._stopping.set()

    def give(self, pipeline: str, *, over_rest: bool = False) -> str:
        """Start to submit one task; return the id that its run will have."""
        key = f"upgrade-{self._number}"
        given = {"n": self._number}
        self._number += 1
        task = asyncio.create_task((self._rest if over_rest else self._nats)(pipeline, key, given))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        return ids.run_id(TENANT, key)

    async def _nats(self, pipeline: str, key: str, given: dict[str, int]) -> None:
        headers, body = {"Hocket-Idempotency-Key": key}, b'{"n": %d}' % given["n"]
        until = time.monotonic() + BOUND_S
        while True:
            try:
                await self._bus.publish(subjects.task(TENANT, pipeline), body, headers=headers)
                break
            except BusUnavailable:
                assert time.monotonic() < until, "NATS did not come back"
                await asyncio.sleep(0.2)
        self.accepted.add(ids.run_id(TENANT, key))

    async def _rest(self, pipeline: str, key: str, given: dict[str, int]) -> None:
        body = {"pipeline": pipeline, "input": given, "idempotency_key": key}
        until = time.monotonic() + BOUND_S
        while True:
            try:
                answer = await asyncio.to_thread(self._api.post, "/v1/runs", body)
            except HocketError:  # its only process is being replaced
                assert time.monotonic() < until, "REST did not come back"
                await asyncio.sleep(0.2)
            else:
                self.accepted.add(answer["run_id"])
                return


class Play:
    """Processes, the load on them, and the results of both."""

    def __init__(self, processes: dict[str, RolledProcess], load: Load, meter: "Meter") -> None:
        self._processes = processes
        self._load = load
        self._meter = meter

    async def roll(self, release: Release, kinds: Iterable[str]) -> None:
        """Replace all processes by those of a release, one after another."""
        longest = 0.0
        for kind in kinds:
            for name, process in self._processes.items():
                if name.partition("-")[0] == kind:
                    longest = max(longest, await process.roll(release))
        await asyncio.sleep(AROUND_S)
        print(f"rolled to {release.name}: the slowest took {longest:.1f} s to end", end="")
        print(f"; {self._meter.paid_twice} paid twice so far", flush=True)

    async def stop_during_long_step(self) -> str:
        """Replace every worker while a step of 55 s runs in one of them; return the id of its run."""
        run_id = self._load.give("long")
        async with asyncio.timeout(BOUND_S):
            while not self._meter.paid(run_id):  # the step before it  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await asyncio.sleep(STOP_INTO_S)
        await self.roll(PRESENT, ("worker",))
        return run_id

    async def rotate(self, cluster: NatsCluster) -> None:
        """Give servers and clients certificates of another authority. Processes that start afterwards
        connect with the new ones; the old ones are rejected."""
        for part in (
            cluster.trust_another_authority,
            cluster.show_its_certificates,
            cluster.trust_it_alone,
        ):
            await asyncio.to_thread(part)
            await asyncio.sleep(AROUND_S)
        print("certificates of another authority", end="")
        print(f"; {self._meter.paid_twice} paid twice so far", flush=True)


class Meter:
    """The model's own meter: what it was asked, and what it counted."""

    def __init__(self, entries: Callable[[], list[dict[str, Any]]]) -> None:
        self._entries = entries

    def paid(self, run_id: str) -> list[dict[str, Any]]:
        """Return a run's answers that used tokens."""
        return [one for one in self._paid() if one["request_id"].startswith(run_id)]

    def faults(self, runs: set[str]) -> list[str]:
        """Return what was paid for twice, never, or for no run."""
        counts = self._counts()
        faults = [f"{run} was paid {counts[run]} times" for run in runs if counts[run] != 1]
        return faults + [f"{run} was paid and is no run" for run in counts.keys() - runs]

    @property
    def paid_twice(self) -> int:
        """The number of runs that were paid for more than once."""
        return sum(count > 1 for count in self._counts().values())

    def _counts(self) -> Counter[str]:
        return Counter(one["request_id"].partition(":")[0] for one in self._paid())

    def _paid(self) -> list[dict[str, Any]]:
        return [one for one in self._entries() if one["completion_tokens"]]


UNBOOKED = """
    SELECT count(*) FROM hocket.run
    WHERE run_id NOT IN (SELECT run_id FROM hocket.usage WHERE kind = 'call' AND run_id IS NOT NULL)
"""
NOT_ENDED = """
    SELECT count(*) FROM unnest($1::text[]) AS accepted(run_id) LEFT JOIN hocket.run USING (run_id)
    WHERE finished_at IS NULL
"""
"""An accepted task may still wait in TASKS, without a row."""


async def none_left(
    connection: asyncpg.Connection, query: str, *values: object, bound_s: float
) -> int:
    """Wait until a query counts nothing, or time is up; return its count."""
    until = time.monotonic() + bound_s
    while (count := int(await connection.fetchval(query, *values))) and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.5)
    return count


async def booked_faults(
    connection: asyncpg.Connection, ledger: RolledProcess, previous: str
) -> list[str]:
    """Wait until each run's call is booked, and return what is wrong. Calls that wait for a newer
    ledger, which is allowed for BOOK_LATER alone, get one."""
    waits = previous in BOOK_LATER
    count = await none_left(connection, UNBOOKED, bound_s=LATER_S if waits else BOUND_S)
    if count and waits:
        print(f"{count} calls waited for the newer ledger, which runs again", flush=True)
        await ledger.roll(PRESENT)
        count = await none_left(connection, UNBOOKED, bound_s=BOUND_S)
    rows = await connection.fetch(
        "SELECT run_id, count(*) FROM hocket.usage WHERE kind = 'call' "
        "GROUP BY run_id HAVING count(*) > 1"
    )
    faults = [f"{row[0]} was booked {row[1]} times" for row in rows]
    return [*faults, f"{count} runs have no call in the ledger"] if count else faults


async def run_faults(
    connection: asyncpg.Connection, accepted: set[str], long_run: str
) -> list[str]:
    """Wait until all runs have ended; return what is wrong with them."""
    await none_left(connection, NOT_ENDED, list(accepted), bound_s=BOUND_S)
    rows = await connection.fetch(
        "SELECT run_id, status, error, "
        "extract(epoch FROM finished_at - accepted_at)::float AS took_s FROM hocket.run"
    )
    by_run = {row["run_id"]: row for row in rows}
    faults = [f"{run} was accepted and is lost" for run in accepted - by_run.keys()]
    faults += [f"{run} was never accepted" for run in by_run.keys() - accepted]
    faults += [
        f"{run} is {row['status']}: {row['error']}"
        for run, row in by_run.items()
        if row["status"] != "succeeded"
    ]
    took_s = by_run[long_run]["took_s"] if long_run in by_run else None
    print(f"the run with a step of {LONG_S:g} s took {took_s or 0:.1f} s", flush=True)
    if (took_s or 0) < LONG_S + STOP_INTO_S + DRAIN_S:
        faults.append(f"its step was not interrupted: {took_s} s")
    return faults


@dataclass(frozen=True)
class Rolled:
    """A platform with two processes of each kind, which can be started from any release."""

    processes: dict[str, RolledProcess]
    bus: Bus
    connection: asyncpg.Connection
    api: Api
    meter: Meter
    database_url: str


@asynccontextmanager
async def rolled_platform(
    folder: Path, cluster: NatsCluster, release: Release
) -> AsyncIterator[Rolled]:
    """Start all processes of a release on these NATS servers, with the pipelines applied."""
    async with (
        EmbeddedServers(folder / "servers", nats=False) as servers,
        running(parse({"engines": [{"port": 0, "profile": ENGINE}]})) as (engine,),
    ):
        (folder / "platform" / "run").mkdir(parents=True)
        given = GivenServers(folder / "platform", cluster, servers.database_url)
        release.hocket("migrate", DATABASE_URL=servers.database_url)
        api_key = f"hk_{secrets.token_hex(6)}_{secrets.token_hex(32)}"
        port = remembered_port(folder / "api.port")
        plan = ProcessPlan(
            services=ORDER,
            numbers=NUMBERS,
            worker_types=(),
            handlers=(),
            extra_env={"HOCKET_ADMIN_KEY": api_key},
            inline_gateway=False,
            config=_configured(folder, f"{engine.url}/v1"),
            log_level="info",
        )
        planned = plan.processes(
            folder / "platform",
            given,
            host=LOOPBACK,
            api_port=port,
            gateway_port=remembered_port(folder / "gateway.port"),
        )
        processes = {
            one.name: RolledProcess(_with_port(one, folder), folder / "platform") for one in planned
        }
        bus = await Bus.connect(cluster.url_of(OWNER), name="play")
        connection = await asyncpg.connect(servers.database_url)
        try:
            await asyncio.gather(*(one.start(release) for one in processes.values()))
            api = Api(f"http://{LOOPBACK}:{port}", TENANT, api_key)
            for pipeline in PIPELINES:
                await asyncio.to_thread(api.post, "/v1/pipelines", pipeline)
            meter = Meter(engine.engine.journal.entries)
            yield Rolled(processes, bus, connection, api, meter, servers.database_url)
        finally:
            await connection.close()
            await bus.close()
            for process in processes.values():
                await process.kill()


async def played(folder: Path, previous: Release, commit: str) -> tuple[int, list[str]]:
    """Play everything; return the number of runs, and what does not hold."""
    cluster = NatsCluster(folder / "nats", servers=1)
    try:
        async with rolled_platform(folder, cluster, previous) as platform:
            load = Load(platform.bus, platform.api)
            loading = asyncio.create_task(load.run())
            await asyncio.sleep(AROUND_S)
            play = Play(platform.processes, load, platform.meter)
            migrate = partial(PRESENT.hocket, "migrate", DATABASE_URL=platform.database_url)
            await asyncio.to_thread(migrate)
            await asyncio.sleep(AROUND_S)
            waiting = await platform.bus.api("STREAM.INFO.USAGE", {}, timeout_ms=10_000)
            print(f"{waiting['state']['messages']} records wait for a newer ledger", flush=True)
            await play.roll(PRESENT, ORDER)
            long_run = await play.stop_during_long_step()
            await play.roll(PRESENT, ORDER)
            await play.rotate(cluster)
            await play.roll(previous, reversed(ORDER))
            load.stop()
            await loading
            connection = platform.connection
            faults = await run_faults(connection, load.accepted, long_run)
            faults += platform.meter.faults(load.accepted)
            faults += await booked_faults(connection, platform.processes["ledger"], commit)
            return len(load.accepted), faults
    finally:
        cluster.stop()


def _with_port(planned: PlannedProcess, folder: Path) -> PlannedProcess:
    """Give a second gateway its own HTTP port."""
    if not planned.name.startswith("gateway-"):
        return planned
    port = str(remembered_port(folder / f"{planned.name}.port"))
    return replace(planned, env={**planned.env, "HOCKET_GATEWAY_PORT": port})


def _configured(folder: Path, model_url: str) -> Path:
    prices = {"input_usd_per_mtok": "1", "output_usd_per_mtok": "2"}
    backend = {"base_url": model_url, "model": "metered", "prices": prices}
    path = folder / "hocket.yaml"
    path.write_text(yaml.safe_dump({"models": {"metered": {"backends": [backend]}}}))
    return path


async def main() -> None:
    parser = argparse.ArgumentParser(prog="make upgrade-test")
    parser.add_argument("--commit", default=previous_commit(), help="the release before")
    parser.add_argument("--folder", type=Path, help="where its environment is kept")
    asked = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with tempfile.TemporaryDirectory(prefix="hocket-upgrade-") as name:
        folder = Path(name)
        previous = await asyncio.to_thread(
            built, (asked.folder or folder / "previous").absolute(), asked.commit
        )
        print(f"the release before is {previous.name}", flush=True)
        began = time.monotonic()
        runs, faults = await played(folder, previous, asked.commit)
        took_s = time.monotonic() - began
    print(f"{runs} runs in {took_s:.0f} s, {len(faults)} faults")
    if faults:
        sys.exit("FAILED:\n" + "\n".join(faults[:20]))


if __name__ == "__main__":
    asyncio.run(main())
