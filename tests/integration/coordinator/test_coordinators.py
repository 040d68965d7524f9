"""Several coordinator processes over real servers: who owns what, and that nothing is lost or told twice
when one is killed, stopped, stands still, or joins while runs are under way.

The workers' own journal says which steps were executed, the stream EVENTS which ends were told.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import nats
import pytest

from hocket.cli.local.platform import Platform
from hocket.cli.local.processes import get, health_url
from hocket.schemas import ids, subjects
from support.places import HANDLERS

BOUND_S = 90
PARTITIONS = 4
NAMES = ("coordinator", "coordinator-2", "coordinator-3")
PAUSE_S = 0.02
CHILD = {
    "pipeline": "child",
    "slo_ms": 300_000,
    "nodes": {"only": {"type": "python", "handler": "coordinator_handlers:noted",
                       "with": {"key": "{{ input.key }}", "step": "only"}}},
}  # fmt: skip
PARENT = {
    "pipeline": "parent",
    "slo_ms": 300_000,
    "nodes": {
        "first": {"type": "python", "handler": "coordinator_handlers:noted",
                  "with": {"key": "{{ input.key }}", "step": "first"}},
        "sub": {"type": "pipeline", "pipeline": "child", "needs": ["first"],
                "with": {"key": "{{ input.key }}"}},
        "last": {"type": "python", "handler": "coordinator_handlers:noted", "needs": ["sub"],
                 "with": {"key": "{{ input.key }}", "step": "last"}},
    },
}  # fmt: skip
STEPS = ("first", "only", "last")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    # not under pytest's own folder: another pytest closes that one to Postgres' account
    path = Path(tempfile.mkdtemp(prefix="hocket-"))
    (path / "journal").touch()
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
async def platform(folder: Path) -> AsyncIterator[Platform]:
    environment = {
        "COORDINATOR_JOURNAL": str(folder / "journal"),
        "HOCKET_HANDLERS": "coordinator_handlers",
        "PYTHONPATH": HANDLERS,
        "HOCKET_PARTITIONS": str(PARTITIONS),
    }
    services = ("coordinator", "worker", "admin")
    async with Platform(
        folder / "data", coordinators=3, services=services, env=environment
    ) as running:
        api = running.api()
        await asyncio.to_thread(api.post, "/v1/pipelines", CHILD)
        await asyncio.to_thread(api.post, "/v1/pipelines", PARENT)
        yield running


class Load:
    """Tasks published one after the other, until it is asked to stop."""

    def __init__(self, platform: Platform, name: str) -> None:
        self.keys: list[str] = []
        self._platform = platform
        self._name = name
        self._stopping = asyncio.Event()

    @property
    def run_ids(self) -> list[str]:
        return [ids.run_id("default", key) for key in self.keys]

    async def run(self) -> None:
        client = await nats.connect(self._platform.nats_url)
        jetstream = client.jetstream()
        while not self._stopping.is_set():
            key = f"{self._name}-{len(self.keys)}"
            await jetstream.publish(
                subjects.task("default", "parent"),
                f'{{"key": "{key}"}}'.encode(),
                headers={"Hocket-Idempotency-Key": key},
            )
            self.keys.append(key)
            await asyncio.sleep(PAUSE_S)
        await client.close()

    def stop(self) -> None:
        self._stopping.set()


@asynccontextmanager
async def loaded(platform: Platform, name: str) -> AsyncIterator[Load]:
    """Publish tasks during the block; afterwards every one of them must have come to one good end."""
    load = Load(platform, name)
    publishing = asyncio.create_task(load.run())
    try:
        yield load
    finally:
        load.stop()
        await publishing
    await check(platform, load)


async def check(platform: Platform, load: Load) -> None:
    run_ids = load.run_ids
    connection = await asyncpg.connect(platform.database_url)
    async with asyncio.timeout(BOUND_S):
        while True:
            rows = await connection.fetch(
                "SELECT status, count(*) FROM hocket.run WHERE run_id = ANY($1) GROUP BY status",
                run_ids,
            )
            ends = {row["status"]: row["count"] for row in rows}
            if sum(n for status, n in ends.items() if status != "running") == len(run_ids):
                break
            await asyncio.sleep(PAUSE_S)
    await connection.close()
    assert ends == {"succeeded": len(run_ids)}
    told = await told_of(platform, set(run_ids))
    assert told == Counter(run_ids), "an end was told twice, or not at all"
    text = await asyncio.to_thread((platform.data_dir.parent / "journal").read_text)
    executed = {tuple(line.split()) for line in text.splitlines()}
    missing = {(key, step) for key in load.keys for step in STEPS} - executed
    assert not missing, "a step was not executed"


async def told_of(platform: Platform, run_ids: set[str]) -> Counter[str]:
    """Return how often the end of each run stands in EVENTS, once all are there."""
    client = await nats.connect(platform.nats_url)
    told: Counter[str] = Counter()
    subscription = await client.jetstream().subscribe(
        subjects.event("default", "parent", "run-finished"), ordered_consumer=True
    )
    async with asyncio.timeout(BOUND_S):
        while set(told) != run_ids:
            message = await subscription.next_msg(timeout=BOUND_S)
            run_id = (message.headers or {})["ce-subject"]
            if run_id in run_ids:
                told[run_id] += 1
    await client.close()
    return told


async def owners(platform: Platform) -> dict[int, str]:
    connection = await asyncpg.connect(platform.database_url)
    rows = await connection.fetch("SELECT partition, owner FROM hocket.partition")
    await connection.close()
    return {row["partition"]: row["owner"] for row in rows}


async def shares(platform: Platform) -> list[int]:
    """Return how many partitions each coordinator says that it reads, least first."""
    found = []
    for name in NAMES:
        url = health_url(platform.data_dir / "run", platform.process(name).pid)
        _, body = await get(url, "/metrics") if url else (0, b"")
        lines = [
            one for one in body.decode().splitlines() if one.startswith("hocket_partitions_owned ")
        ]
        found.append(int(float(lines[0].split()[1])) if lines else 0)
    return sorted(found)


async def until(platform: Platform, holds: Callable[[dict[int, str]], bool]) -> dict[int, str]:
    async with asyncio.timeout(BOUND_S):
        while not holds(found := await owners(platform)):  # noqa: ASYNC110 (other processes)
            await asyncio.sleep(PAUSE_S)
    return found


async def balanced(platform: Platform) -> None:
    """Wait until all partitions are shared out fairly again."""
    async with asyncio.timeout(BOUND_S):
        while await shares(platform) != [1, 1, 2]:  # noqa: ASYNC110 (other processes)
            await asyncio.sleep(PAUSE_S)


def owned_by(name: str, found: dict[int, str]) -> set[int]:
    return {number for number, owner in found.items() if owner == name}


async def some_runs(load: Load, more: int = 20) -> None:
    """Wait until so many more tasks were published."""
    goal = len(load.keys) + more
    async with asyncio.timeout(BOUND_S):
        while len(load.keys) < goal:  # noqa: ASYNC110 (paced by the load)
            await asyncio.sleep(PAUSE_S)


async def test_the_partitions_are_shared_out_fairly(platform: Platform) -> None:
    await balanced(platform)
    assert set((await owners(platform)).values()) == set(NAMES)


@pytest.mark.timeout(2 * BOUND_S)
async def test_nothing_is_lost_when_coordinators_are_killed_one_after_the_other(
    platform: Platform,
) -> None:
    await balanced(platform)
    async with loaded(platform, "killed") as load:
        for name in NAMES:
            await some_runs(load)
            await platform.kill(name)
            await platform.wait_ready()
        await some_runs(load)
    await balanced(platform)


@pytest.mark.timeout(2 * BOUND_S)
async def test_what_a_dead_coordinator_owned_is_taken_by_the_others(platform: Platform) -> None:
    await balanced(platform)
    process = platform.process("coordinator-3")
    async with loaded(platform, "dead") as load:
        await some_runs(load)
        await process.kill(restart=False)
        await until(platform, lambda found: not owned_by("coordinator-3", found))
        await some_runs(load)
        await process.start()
        await balanced(platform)
        await some_runs(load)


@pytest.mark.timeout(2 * BOUND_S)
async def test_one_that_is_asked_to_stop_hands_over_and_one_that_joins_gets_its_share(
    platform: Platform,
) -> None:
    await balanced(platform)
    process = platform.process("coordinator-2")
    async with loaded(platform, "stopped") as load:
        await some_runs(load)
        await process.stop()
        found = await until(platform, lambda found: not owned_by("coordinator-2", found))
        assert set(found.values()) == {"coordinator", "coordinator-3"}
        await some_runs(load)
        await process.start()
        await balanced(platform)
        await some_runs(load)


@pytest.mark.timeout(2 * BOUND_S)
async def test_one_that_stood_still_is_fenced_and_its_other_work_goes_on(
    platform: Platform,
) -> None:
    await balanced(platform)
    pid = platform.process("coordinator").pid
    async with loaded(platform, "still") as load:
        await some_runs(load)
        os.kill(pid, signal.SIGSTOP)
        try:
            await until(platform, lambda found: not owned_by("coordinator", found))
            await some_runs(load)
        finally:
            os.kill(pid, signal.SIGCONT)
        await balanced(platform)
        await some_runs(load)
    assert platform.process("coordinator").pid == pid, "it went on"


async def test_another_number_of_partitions_is_refused(platform: Platform) -> None:
    environment = {
        **os.environ,
        "DATABASE_URL": platform.database_url,
        "NATS_URL": platform.nats_url,
        "HOCKET_PARTITIONS": str(PARTITIONS + 1),
        "HOCKET_DATA_DIR": str(platform.data_dir),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hocket.coordinator",
        env=environment,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await asyncio.wait_for(process.communicate(), BOUND_S)
    assert process.returncode == 1
    assert "set HOCKET_PARTITIONS=4" in output.decode()
