"""Flow control by key over four coordinators, on real NATS and Postgres: the limits hold, nobody is
forgotten, and nothing is left behind, also where coordinators are killed at every point between a slot
that is taken and a run that starts.

The workers' own journal says when which run was under way.
"""

import asyncio
import json
import shutil
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hocket.cli.local.platform import Platform
from support.places import FLOW_FAULTS

BOUND_S = 120
PAUSE_S = 0.05
POINTS = (
    "written",
    "taken",
    *(pytest.param(later, marks=pytest.mark.long) for later in ("told", "committed")),
)
KILLS = 3


def pipeline(name: str, flow: dict[str, Any]) -> dict[str, Any]:
    given = {"key": "{{ input.key }}", "name": "{{ input.name }}", "ms": "{{ input.ms }}"}
    node = {"type": "python", "handler": "flow_handlers:held", "with": given, "timeout_ms": 120_000}
    return {"pipeline": name, "slo_ms": 300_000, "flow": flow, "nodes": {"only": node}}


KEY = "{{ input.key }}"
PIPELINES = (
    pipeline("pairs", {"concurrency": {"limit": 2, "key": KEY}}),
    pipeline("single", {"concurrency": {"limit": 1, "key": KEY}}),
    pipeline("throttled", {"throttle": {"limit": 3, "per_s": 2, "key": KEY}}),
    pipeline("limited", {"rate_limit": {"limit": 2, "per_s": 60, "key": KEY}}),
    pipeline("skipping", {"singleton": {"mode": "skip", "key": KEY}}),
    pipeline("replacing", {"singleton": {"mode": "cancel", "key": KEY}}),
    pipeline("debounced", {"debounce": {"wait_s": 1, "key": KEY}}),
)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    # not under pytest's own folder: another pytest closes that one to Postgres' account
    path = Path(tempfile.mkdtemp(prefix="hocket-"))
    (path / "journal").touch()
    (path / "faults").mkdir()
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
async def platform(folder: Path) -> AsyncIterator[Platform]:
    environment = {
        "FLOW_JOURNAL": str(folder / "journal"),
        "FLOW_FAULTS": str(folder / "faults"),
        "HOCKET_HANDLERS": "flow_handlers",
        "PYTHONPATH": FLOW_FAULTS,
        "HOCKET_PARTITIONS": "8",
    }
    services = ("coordinator", "worker", "admin")
    async with Platform(
        folder / "data", coordinators=4, services=services, env=environment
    ) as running:
        for document in PIPELINES:
            await asyncio.to_thread(running.api().post, "/v1/pipelines", document)
        yield running


class Runs:
    """Runs that a test submits, and what became of them."""

    def __init__(self, platform: Platform, pipeline: str) -> None:
        self._platform = platform
        self._pipeline = pipeline
        self.ids: list[str] = []

    async def submit(self, key: str, name: str, *, ms: float) -> str:
        body = {"pipeline": self._pipeline, "input": {"key": key, "name": name, "ms": ms}}
        posted = await asyncio.to_thread(self._platform.api().post, "/v1/runs", body)
        self.ids.append(posted["run_id"])
        return self.ids[-1]

    async def rows(self) -> dict[str, asyncpg.Record]:
        connection = await asyncpg.connect(self._platform.database_url)
        rows = await connection.fetch(
            "SELECT run_id, status, input, error, accepted_at, finished_at FROM hocket.run "
            "WHERE run_id = ANY ($1)",
            self.ids,
        )
        await connection.close()
        return {row["run_id"]: row for row in rows}

    async def accepted(self) -> None:
        async with asyncio.timeout(BOUND_S):
            while len(await self.rows()) < len(self.ids):  # noqa: ASYNC110 (other processes)
                await asyncio.sleep(PAUSE_S)

    async def ended(self) -> dict[str, asyncpg.Record]:
        async with asyncio.timeout(BOUND_S):
            while True:
                rows = await self.rows()
                done = [row for row in rows.values() if row["finished_at"] is not None]
                if len(done) == len(self.ids):
                    return rows
                await asyncio.sleep(PAUSE_S)

    async def outcomes(self) -> dict[str, tuple[str, str | None]]:
        """Return by name how each ended, and the code of its error."""
        found = {}
        for row in (await self.ended()).values():
            error = None if row["error"] is None else json.loads(row["error"])["code"]
            found[name_of(row)] = (row["status"], error)
        return found


def name_of(row: asyncpg.Record) -> str:
    name: str = json.loads(row["input"])["name"]
    return name


def intervals(folder: Path, prefix: str) -> dict[str, dict[str, tuple[int, int]]]:
    """Return by key and run from when to when it was under way, of the keys with a prefix."""
    found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for line in (folder / "journal").read_text().splitlines():
        at_ns, key, name, _ = line.split()
        if key.startswith(prefix):
            found[key][name].append(int(at_ns))
    return {
        key: {name: (min(times), max(times)) for name, times in runs.items()}
        for key, runs in found.items()
    }


def most_at_once(runs: dict[str, tuple[int, int]]) -> int:
    changes = sorted(change for begin, end in runs.values() for change in ((begin, 1), (end, -1)))
    most = count = 0
    for _, step in changes:
        count += step
        most = max(most, count)
    return most


async def places_left(platform: Platform) -> int:
    connection = await asyncpg.connect(platform.database_url)
    left: int = await connection.fetchval("SELECT count(*) FROM hocket.flow_place")
    await connection.close()
    return left


@pytest.mark.timeout(2 * BOUND_S)
async def test_no_more_runs_of_a_key_than_its_limit_run_at_once(
    platform: Platform, folder: Path
) -> None:
    runs = Runs(platform, "pairs")
    for n in range(8):
        for key in ("plain-a", "plain-b", "plain-c"):
            await runs.submit(key, f"{n}", ms=100)
    outcomes = {row["status"] for row in (await runs.ended()).values()}
    assert outcomes == {"succeeded"}
    found = intervals(folder, "plain-")
    assert {key: most_at_once(runs) for key, runs in found.items()} == dict.fromkeys(
        ("plain-a", "plain-b", "plain-c"), 2
    )
    assert all(len(runs) == 8 for runs in found.values())
    assert await places_left(platform) == 0


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.timeout(2 * BOUND_S)
async def test_limits_hold_and_no_run_is_lost_where_coordinators_die(
    point: str, platform: Platform, folder: Path
) -> None:
    pairs, single = Runs(platform, "pairs"), Runs(platform, "single")
    await single.submit(f"{point}-one", "first", ms=1)
    await underway(folder, f"{point}-one")
    for n in range(6):
        for key in ("a", "b"):
            await pairs.submit(f"{point}-pair-{key}", f"{n}", ms=120)
        await single.submit(f"{point}-one", f"{n}", ms=120)
    await pairs.accepted()
    await single.accepted()
    await asyncio.to_thread((folder / f"{point}-one").touch)
    armed = [folder / "faults" / f"{point}-{n}" for n in range(KILLS)]
    for fault in armed:
        await asyncio.to_thread(fault.touch)
    outcomes = {row["status"] for row in (await pairs.ended()).values()}
    ended = await single.ended()
    assert outcomes | {row["status"] for row in ended.values()} == {"succeeded"}
    assert [fault for fault in armed if fault.exists()] == [], "as many have died"
    found = intervals(folder, f"{point}-")
    assert max(most_at_once(found[f"{point}-pair-{key}"]) for key in ("a", "b")) <= 2
    one = found[f"{point}-one"]
    assert most_at_once(one) == 1
    accepted = sorted(ended.values(), key=lambda row: (row["accepted_at"], row["run_id"]))
    assert sorted(one, key=lambda name: one[name]) == [name_of(row) for row in accepted]
    assert {key: len(runs) for key, runs in found.items()} == {
        f"{point}-pair-a": 6,
        f"{point}-pair-b": 6,
        f"{point}-one": 7,
    }
    assert await places_left(platform) == 0


async def test_a_throttle_lets_no_more_start_within_its_period(
    platform: Platform, folder: Path
) -> None:
    runs = Runs(platform, "throttled")
    async with starts_kept(platform):
        for n in range(7):
            await runs.submit("throttle-a", f"{n}", ms=1)
        assert {row["status"] for row in (await runs.ended()).values()} == {"succeeded"}
        starts = await started(platform, "throttled")
    assert len(starts) == 7
    # the period is measured where it is decided, to the microsecond
    assert all(later - earlier >= 2.0 for earlier, later in zip(starts, starts[3:], strict=False))


KEEP_STARTS = """
CREATE TABLE public.start_kept AS TABLE hocket.flow_start WITH NO DATA;
CREATE FUNCTION public.keep_start() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO public.start_kept SELECT NEW.*; RETURN NULL; END $$;
GRANT INSERT ON public.start_kept TO PUBLIC;
CREATE TRIGGER keep_start AFTER INSERT ON hocket.flow_start
    FOR EACH ROW EXECUTE FUNCTION public.keep_start();
"""
FORGET_STARTS = "DROP FUNCTION public.keep_start() CASCADE; DROP TABLE public.start_kept"


@asynccontextmanager
async def starts_kept(platform: Platform) -> AsyncIterator[None]:
    """Keep when runs were let start; the platform deletes it once the period is over."""
    connection = await asyncpg.connect(platform.database_url)
    await connection.execute(KEEP_STARTS)
    try:
        yield
    finally:
        await connection.execute(FORGET_STARTS)
        await connection.close()


async def started(platform: Platform, pipeline: str) -> list[float]:
    """Return when runs of a pipeline were let start, in seconds, as far as that is kept."""
    connection = await asyncpg.connect(platform.database_url)
    rows = await connection.fetch(
        "SELECT extract(epoch FROM at)::double precision AS at FROM public.start_kept "
        "WHERE pipeline = $1 ORDER BY at",
        pipeline,
    )
    await connection.close()
    return [row["at"] for row in rows]


async def test_a_rate_ends_what_is_too_much_at_once(platform: Platform) -> None:
    runs = Runs(platform, "limited")
    for n in range(4):
        await runs.submit("rate-a", f"{n}", ms=1)
    await runs.submit("rate-b", "other", ms=1)
    outcomes = await runs.outcomes()
    assert sorted(outcomes.values(), key=str) == [
        ("cancelled", "flow_rate_limited"),
        ("cancelled", "flow_rate_limited"),
        ("succeeded", None),
        ("succeeded", None),
        ("succeeded", None),
    ]
    assert outcomes["other"] == ("succeeded", None)


async def test_a_singleton_skips_what_comes_meanwhile(platform: Platform, folder: Path) -> None:
    runs = Runs(platform, "skipping")
    await runs.submit("skip-a", "first", ms=1)
    await underway(folder, "skip-a")
    skipped = await runs.submit("skip-a", "second", ms=1)
    async with asyncio.timeout(BOUND_S):
        while True:
            row = (await runs.rows()).get(skipped)
            if row is not None and row["finished_at"] is not None:
                break
            await asyncio.sleep(PAUSE_S)
    await asyncio.to_thread((folder / "skip-a").touch)
    assert await runs.outcomes() == {
        "first": ("succeeded", None),
        "second": ("cancelled", "flow_singleton_skipped"),
    }


async def test_a_singleton_replaces_who_is_under_way(platform: Platform, folder: Path) -> None:
    runs = Runs(platform, "replacing")
    await runs.submit("replace-a", "first", ms=1)
    await underway(folder, "replace-a")
    await runs.submit("replace-a", "second", ms=1)
    assert await runs.outcomes() == {
        "first": ("cancelled", "cancelled"),
        "second": ("succeeded", None),
    }


async def test_a_debounce_starts_the_last_one(platform: Platform, folder: Path) -> None:
    runs = Runs(platform, "debounced")
    for n in range(3):
        await runs.submit("debounce-a", f"{n}", ms=1)
    rows = await runs.ended()
    last = max(rows.values(), key=lambda row: (row["accepted_at"], row["run_id"]))
    outcomes = await runs.outcomes()
    assert outcomes.pop(name_of(last)) == ("succeeded", None)
    assert set(outcomes.values()) == {("cancelled", "flow_debounced")}
    assert (last["finished_at"] - last["accepted_at"]).total_seconds() >= 1.0


async def test_a_run_that_is_cancelled_while_it_waits_gives_its_place_up(
    platform: Platform, folder: Path
) -> None:
    runs = Runs(platform, "single")
    await runs.submit("cancel-a", "first", ms=1)
    await underway(folder, "cancel-a")
    waiting = await runs.submit("cancel-a", "second", ms=1)
    await runs.accepted()  # they wait in the order in which they are accepted
    await runs.submit("cancel-a", "third", ms=1)
    await runs.accepted()
    api = platform.api()
    shown = await asyncio.to_thread(api.get, "/v1/flow/runs", run=waiting)
    assert [(one["state"], one["position"], one["key"]) for one in shown["runs"]] == [
        ("waiting", 1, "cancel-a")
    ]
    (queue,) = (await asyncio.to_thread(api.get, "/v1/flow", pipeline="single"))["queues"]
    assert (queue["kind"], queue["held"], queue["waiting"]) == ("concurrency", 1, 2)
    await asyncio.to_thread(api.post, f"/v1/runs/{waiting}/cancel", {"reason": "enough"})
    await asyncio.to_thread((folder / "cancel-a").touch)
    outcomes = await runs.outcomes()
    assert outcomes["second"] == ("cancelled", "cancelled")
    assert outcomes["third"] == ("succeeded", None)
    assert "second" not in intervals(folder, "cancel-")["cancel-a"]
    assert await places_left(platform) == 0


async def underway(folder: Path, key: str) -> None:
    """Wait until a run of a key began its work."""
    async with asyncio.timeout(BOUND_S):
        while key not in intervals(folder, key):  # noqa: ASYNC110 (other processes)
            await asyncio.sleep(PAUSE_S)
