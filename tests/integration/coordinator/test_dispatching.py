"""The dispatch gate on the real platform: four slots, more work than they can do at once."""

import asyncio
import shutil
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import yaml
from nats.aio.msg import Msg

from hocket.cli.local.platform import Platform
from hocket.cli.local.processes import health_url
from hocket.cli.remote.api import Api
from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.messages import WorkerAnnounced
from support.places import HANDLERS
from support.worker_rig import Rig, eventually

SLOTS = 4
NAP = {"type": "python", "handler": "coordinator_handlers:nap", "with": {"ms": "{{ input.ms }}"}}
ONE = {"pipeline": "one", "nodes": {"n": NAP}, "slo_ms": 600_000}
WIDE = {
    "pipeline": "wide",
    "slo_ms": 600_000,
    "nodes": {
        "m": NAP | {"map": {"over": "range(input.width) | list", "concurrency": 1_000}},
    },
}
BOUND_S = 60.0


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
async def platform(folder: Path) -> AsyncIterator[Platform]:
    config = folder / "hocket.yaml"
    config.write_text(yaml.safe_dump({"node_types": {"python": {"concurrency": SLOTS}}}))
    environment = {
        "HOCKET_HANDLERS": "coordinator_handlers",
        "PYTHONPATH": HANDLERS,
        "DISPATCH_JOURNAL": str(folder / "journal"),
        "HOCKET_PARTITIONS": "2",
    }
    services = ("coordinator", "worker", "admin")
    async with Platform(
        folder / "d", env=environment, services=services, worker_types=("python",), config=config
    ) as running:
        await until_gated(running)
        yield running


async def metrics(platform: Platform) -> dict[str, float]:
    """Return the coordinator's metrics."""
    pid = platform.process("coordinator").pid
    url = health_url(platform.data_dir / "run", pid) if pid else None
    if url is None:
        return {}  # it is starting

    def read() -> str:
        with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    text = await asyncio.to_thread(read)
    lines = [line.rpartition(" ") for line in text.splitlines() if line[:1] != "#"]
    return {name: float(value) for name, _, value in lines}


async def until_gated(platform: Platform) -> None:
    async def gated() -> bool:
        return (await metrics(platform)).get('hocket_steps_window{type="python"}', -1) > 0

    await eventually(gated)


async def apply(platform: Platform, tenant: str, document: dict[str, Any]) -> Api:
    api = platform.api(tenant)
    await asyncio.to_thread(api.post, "/v1/pipelines", document)
    return api


async def submit(api: Api, pipeline: str, **given: Any) -> str:
    body = {"pipeline": pipeline, "input": given}
    return str((await asyncio.to_thread(api.post, "/v1/runs", body))["run_id"])


async def ended(platform: Platform, run_ids: list[str]) -> list[asyncpg.Record]:
    """Wait until runs have ended; return them in the order of their ends."""
    connection = await asyncpg.connect(platform.database_url, timeout=BOUND_S)
    try:
        async with asyncio.timeout(BOUND_S):
            while True:
                rows = await connection.fetch(
                    "SELECT * FROM hocket.run WHERE run_id = ANY($1) AND finished_at IS NOT NULL"
                    " ORDER BY finished_at",
                    run_ids,
                )
                if len(rows) == len(run_ids):
                    return list(rows)
                await asyncio.sleep(0.05)
    finally:
        await connection.close()


async def test_a_tenants_flood_does_not_delay_another_beyond_its_share(platform: Platform) -> None:
    flood = await apply(platform, "flood", ONE)
    other = await apply(platform, "other", ONE)
    theirs = await asyncio.gather(*(submit(flood, "one", ms=150) for _ in range(300)))
    ours = await asyncio.gather(*(submit(other, "one", ms=50) for _ in range(10)))
    rows = await ended(platform, [*theirs, *ours])
    assert {row["status"] for row in rows} == {"succeeded"}
    last = max(place for place, row in enumerate(rows) if row["tenant"] == "other")
    began = next(p for p, row in enumerate(rows) if row["tenant"] == "other")
    # in turns: about as many of the others' as of ours go meanwhile, and not the whole flood
    assert last - began <= 40
    assert last < len(rows) - 100


async def test_a_wide_run_does_not_shut_out_a_small_one(platform: Platform) -> None:
    wide = await apply(platform, "t", WIDE)
    small = await apply(platform, "t", ONE)
    first = await submit(wide, "wide", ms=60, width=400)  # 6 s, five of them with 330 held
    await until_held(platform, 330)
    second = await submit(small, "one", ms=20)
    rows = await ended(platform, [first, second])
    assert [row["run_id"] for row in rows] == [second, first]
    took = rows[0]["finished_at"] - rows[0]["accepted_at"]
    assert took < (rows[1]["finished_at"] - rows[1]["accepted_at"]) / 2


async def test_what_is_held_is_cancelled_without_a_worker_seeing_it(
    platform: Platform, folder: Path
) -> None:
    api = await apply(platform, "t", WIDE)
    run_id = await submit(api, "wide", ms=60_000, width=200)
    await until_held(platform, 150)
    await asyncio.to_thread(api.post, f"/v1/runs/{run_id}/cancel", {"reason": "enough"})
    (row,) = await ended(platform, [run_id])
    assert row["status"] == "cancelled"
    await until_held(platform, 0)
    # the slots are free again, at once
    after = await submit(await apply(platform, "t", ONE), "one", ms=1)
    await ended(platform, [after])
    started = (folder / "journal").read_text().split()
    assert len([name for name in started if name.startswith(run_id)]) <= SLOTS


async def test_held_steps_are_handed_out_again_by_the_next_owner(
    platform: Platform, folder: Path
) -> None:
    api = await apply(platform, "t", WIDE)
    run_id = await submit(api, "wide", ms=50, width=300)
    await until_held(platform, 100)
    await platform.kill("coordinator")
    await platform.wait_ready()
    (row,) = await ended(platform, [run_id])
    assert row["status"] == "succeeded"
    started = (folder / "journal").read_text().split()
    ours = [name for name in started if name.startswith(run_id)]
    assert (len(ours), len(set(ours))) == (300, 300)


async def test_what_waits_says_how_many_slots_it_needs(platform: Platform) -> None:
    wanted = 'hocket_worker_slots_wanted{type="python"}'
    api = await apply(platform, "t", WIDE)
    run_id = await submit(api, "wide", ms=60_000, width=200)
    await until_held(platform, 150)
    assert (await metrics(platform))[wanted] > 0
    await asyncio.to_thread(api.post, f"/v1/runs/{run_id}/cancel", {"reason": "enough"})
    await ended(platform, [run_id])


async def until_held(platform: Platform, count: int) -> None:
    async def held() -> bool:
        found = (await metrics(platform)).get('hocket_steps_held{type="python"}', 0.0)
        return found >= count if count else found == 0

    await eventually(held)


async def test_a_worker_announces_its_slots_when_it_starts_is_asked_and_stops(
    nats_url: str,
) -> None:
    rig = await Rig.open(nats_url)
    listener = await Bus.connect(nats_url, name="listener")
    heard: asyncio.Queue[dict[str, int]] = asyncio.Queue()

    async def hear(message: Msg) -> None:
        await heard.put(WorkerAnnounced.model_validate_json(message.data).slots)

    await listener.subscribe(subjects.WORKER_ANNOUNCED, hear)
    async with asyncio.timeout(BOUND_S), rig.worker(slots=3):
        assert await heard.get() == {"python": 3}
        listener.publish_nowait(subjects.WORKER_ASKED, b"")
        assert await heard.get() == {"python": 3}
    async with asyncio.timeout(BOUND_S):
        while await heard.get() != {}:
            pass
    await listener.close()
    await rig.close()
