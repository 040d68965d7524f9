"""Take Postgres or NATS away for a minute under load, and measure losses, memory, health and recovery.

Uses its own platform in a temporary folder (2 coordinators, worker, gateway, ledger, REST) and a load
of tasks at a fixed rate; each run has two `python` steps with a model call between them. Each part of
the bench takes one server away: frozen (SIGSTOP to it and all its sessions, so that connections stay
open and nothing responds) or killed (SIGKILL, and restarted when the time is over). Every SAMPLE_S the
memory of every process is printed, with the components that each `/readyz` reports as unwell.

A task counts as accepted when NATS has acknowledged it; a publish without an answer is repeated with
the same key. At the end of each part every accepted task must have one run that succeeded, each end
must be in EVENTS exactly once, and the ledger must have one row for each run's model call; otherwise
the exit code is 1.

    .venv/bin/python -m bench.resilience.outage --away 60 --rate 40
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import nats
import structlog
import yaml
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.support.memory import Curve, children
from bench.support.places import HANDLERS
from hocket.cli.local.platform import Platform
from hocket.cli.local.processes import get, health_url
from hocket.schemas import subjects

TENANT = "default"
PIPELINE = "outage"
STEP = {"type": "python", "handler": "handlers:pass_along", "with": {"n": "{{ input.n }}"}}
ASK = {
    "type": "llm",
    "model": "mute",
    "prompt": "{{ input.n }}?",
    "with": {"n": "{{ input.n }}"},
    "needs": ["a"],
    "retry": {
        "max_attempts": 20, "backoff_ms": 500, "max_backoff_ms": 5_000, "on": ["unavailable"]
    },
}  # fmt: skip
SPEC = {
    "pipeline": PIPELINE,
    "slo_ms": 3_600_000,
    "nodes": {"a": STEP, "b": ASK, "c": STEP | {"needs": ["b"]}},
}
PARTS = (("postgres", "freeze"), ("postgres", "kill"), ("nats", "freeze"), ("nats", "kill"))
PUBLISH_TIMEOUT_S = 2.0
WARM_S = 20.0
SAMPLE_S = 5.0
BOUND_S = 300.0


class RunsMissing(Exception):
    """Something that was accepted is not there, or not as it should be."""


class Load:
    """Publishes tasks at a fixed rate and hears the ends of their runs."""

    def __init__(self, url: str, rate: float) -> None:
        self.accepted = 0
        self.ended_at_s: list[float] = []
        self._url = url
        self._rate = rate
        self._stopping = asyncio.Event()
        self._publishing: set[asyncio.Task[None]] = set()
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        assert self._client is not None, "open it first"
        return self._client

    async def open(self) -> None:
        """Connect, and listen for ends from now on."""
        self._client = await nats.connect(
            self._url, max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=_quiet,
            ping_interval=5,
        )  # fmt: skip
        await self._client.subscribe(subjects.EVENT_FILTER, cb=self._hear)

    async def run(self) -> None:
        """Publish until `stop` is called; return when every task is accepted."""
        began_s, number = time.monotonic(), 0
        while not self._stopping.is_set():
            task = asyncio.create_task(self._publish(number))
            self._publishing.add(task)
            task.add_done_callback(self._publishing.discard)
            number += 1
            due_s = began_s + number / self._rate
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    self._stopping.wait(), max(0.0, due_s - time.monotonic()) or 0.001
                )
        await asyncio.gather(*self._publishing)

    def stop(self) -> None:
        self._stopping.set()

    async def _publish(self, number: int) -> None:
        jetstream = self.client.jetstream(timeout=PUBLISH_TIMEOUT_S)
        headers = {"Hocket-Idempotency-Key": f"k{number}"}
        body = b'{"n": %d}' % number
        while True:
            try:
                await jetstream.publish(subjects.task(TENANT, PIPELINE), body, headers=headers)
            except (nats.errors.Error, nats.js.errors.Error):
                await asyncio.sleep(PUBLISH_TIMEOUT_S)
            else:
                self.accepted += 1
                return

    async def _hear(self, message: Msg) -> None:
        if message.subject.endswith(".run-finished"):
            self.ended_at_s.append(time.monotonic())


async def _quiet(error: Exception) -> None:
    """Ignore the error: outages are expected here."""


async def main(arguments: argparse.Namespace) -> None:
    """Run each part on a fresh platform and print one line of JSON for it."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    for server, how in PARTS:
        if arguments.only in ("", server, f"{server}-{how}"):
            figures = await _part(server, how, arguments.away, arguments.rate)
            print(json.dumps(figures), flush=True)


async def _part(server: str, how: str, away_s: float, rate: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        config = Path(folder) / "hocket.yaml"
        models = {"mute": {"backends": [{"function": "mute_model:answer"}]}}
        config.write_text(yaml.safe_dump({"models": models}))
        async with Platform(
            Path(folder) / "data",
            coordinators=2,
            env={"HOCKET_HANDLERS": "handlers", "PYTHONPATH": HANDLERS},
            config=config,
        ) as platform:
            api = platform.api(TENANT)
            await asyncio.to_thread(api.post, "/v1/pipelines", SPEC)
            load = Load(platform.nats_url, rate)
            await load.open()
            publishing = asyncio.create_task(load.run())
            try:
                return await _watched(platform, load, server, how, away_s, publishing)
            finally:
                publishing.cancel()
                await load.client.close()


async def _watched(
    platform: Platform, load: Load, server: str, how: str, away_s: float,
    publishing: asyncio.Task[None],
) -> dict[str, Any]:  # fmt: skip
    said: dict[str, set[str]] = defaultdict(set)
    curve = Curve(platform)
    await _sampled(platform, curve, WARM_S, said)
    before, warm = curve.samples[-1], len(curve.samples)
    quiet = {name for name in said if said[name]}
    away = asyncio.create_task(_take_away(platform, server, how, away_s))
    await _sampled(platform, curve, away_s, said)
    await away
    back_s = time.monotonic()
    await _sampled(platform, curve, SAMPLE_S, defaultdict(set))
    load.stop()
    async with asyncio.timeout(BOUND_S):
        await publishing
        await _all_ended(platform, load.accepted)
    caught_up_s = time.monotonic() - back_s
    await _sampled(platform, curve, 2 * SAMPLE_S, defaultdict(set))
    await _check(platform, load)
    first_s = next((at_s - back_s for at_s in load.ended_at_s if at_s > back_s), None)
    during = sum(1 for at_s in load.ended_at_s if back_s - away_s + 1 < at_s < back_s)
    return {
        "server": server,
        "how": how,
        "away_s": away_s,
        "tasks": load.accepted,
        "ended_meanwhile": during,
        "first_end_after_s": None if first_s is None else round(first_s, 2),
        "caught_up_after_s": round(caught_up_s, 1),
        "said_unwell_before": sorted(quiet),
        "said_unwell": {name: sorted(parts) for name, parts in sorted(said.items())},
        "mib_before": {name: round(mib, 1) for name, mib in sorted(before.items())},
        "mib_peak": curve.peak(warm),
        "mib_after": {name: round(mib, 1) for name, mib in sorted(curve.samples[-1].items())},
    }


async def _take_away(platform: Platform, name: str, how: str, away_s: float) -> None:
    server = getattr(platform.servers, name)
    if how == "kill":
        await server.stop(timeout_s=0.0)
        await asyncio.sleep(away_s)
        await server.start()
        return
    pids = [server.pid, *children(server.pid)]
    _signal(pids, signal.SIGSTOP)
    try:
        await asyncio.sleep(away_s)
    finally:
        _signal(pids, signal.SIGCONT)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


async def _sampled(
    platform: Platform, curve: Curve, for_s: float, said: dict[str, set[str]]
) -> None:
    until_s = time.monotonic() + for_s
    while time.monotonic() < until_s:
        await asyncio.sleep(min(SAMPLE_S, max(0.0, until_s - time.monotonic())))
        unwell = await _unwell(platform)
        for name, parts in unwell.items():
            said[name] |= parts
        curve.sample(json.dumps({name: sorted(parts) for name, parts in unwell.items()}))


async def _unwell(platform: Platform) -> dict[str, set[str]]:
    """Return the components that each process reports as unwell."""
    found: dict[str, set[str]] = {}
    for name, process in platform.processes.items():
        url = health_url(platform.data_dir / "run", process.pid)
        status, body = await get(url, "/readyz") if url else (0, b"")
        if status == 503:
            parts = json.loads(body)["components"]
            found[name] = {part for part, state in parts.items() if not state["ok"]}
        elif status != 200:
            found[name] = {"no answer"}
    return found


async def _all_ended(platform: Platform, accepted: int) -> None:
    connection = await asyncpg.connect(platform.database_url, timeout=30)
    query = "SELECT count(*) FROM hocket.run WHERE finished_at IS NOT NULL"
    while await connection.fetchval(query) < accepted:  # noqa: ASYNC110
        await asyncio.sleep(0.25)
    await connection.close()


async def _check(platform: Platform, load: Load) -> None:
    connection = await asyncpg.connect(platform.database_url)
    async with asyncio.timeout(BOUND_S):  # the ledger may still be writing
        rows = "SELECT count(*), count(DISTINCT run_id) FROM hocket.usage WHERE kind = 'call'"
        while (booked := tuple(await connection.fetchrow(rows)))[1] < load.accepted:  # noqa: ASYNC110
            await asyncio.sleep(0.25)
    found = await connection.fetch("SELECT status, count(*) FROM hocket.run GROUP BY status")
    await connection.close()
    statuses = {row["status"]: row["count"] for row in found}
    if statuses != {"succeeded": load.accepted}:
        raise RunsMissing(f"{load.accepted} were accepted, Postgres has {statuses}")
    if booked[1] != load.accepted:
        raise RunsMissing(f"the ledger has calls of {booked[1]} runs of {load.accepted}")
    told: Counter[str] = Counter()
    subscription = await load.client.jetstream().subscribe(
        subjects.event(TENANT, PIPELINE, "run-finished"), ordered_consumer=True
    )
    async with asyncio.timeout(BOUND_S):
        while len(told) < load.accepted:
            message = await subscription.next_msg(timeout=BOUND_S)
            told[(message.headers or {})["ce-subject"]] += 1
    if max(told.values()) > 1:
        raise RunsMissing("an end was told twice")
    print(
        f"checked: {load.accepted} runs succeeded, each end told once, "
        f"{booked[0]} calls of {booked[1]} runs in the ledger",
        file=sys.stderr,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--away", type=float, default=60.0, help="seconds")
    parser.add_argument("--rate", type=float, default=40.0, help="tasks a second")
    parser.add_argument("--only", default="", help="`postgres`, `nats`, or `postgres-freeze` ...")
    try:
        asyncio.run(main(parser.parse_args()))
    except RunsMissing as error:
        sys.exit(f"outage: {error}")
