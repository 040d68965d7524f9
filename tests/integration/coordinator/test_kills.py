"""`kill -9` in the middle of runs, on the real processes and servers: every run still ends, once, and
the ledger has one row per call that the model's own journal knows."""

import asyncio
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import nats
import pytest
import yaml
from nats.js.errors import NotFoundError

from hocket.cli.local.platform import Platform
from hocket.schemas import ids, subjects
from support.places import HANDLERS

RUNS = 8
KILLS = 4
ENDS_WITHIN_S = 60
SEED = 20
PIPELINE = {
    "pipeline": "faulty",
    "slo_ms": 120_000,
    "nodes": {
        "a": {"type": "python", "handler": "fault_handlers:slow", "with": {"n": "{{ input.n }}"}},
        "ask": {"type": "llm", "model": "probe", "prompt": "?", "needs": ["a"]},
        "left": {"type": "python", "handler": "fault_handlers:slow", "needs": ["ask"]},
        "right": {"type": "python", "handler": "fault_handlers:slow", "needs": ["ask"]},
        "again": {"type": "llm", "model": "probe", "prompt": "!", "needs": ["left", "right"]},
    },
    "output": "{{ nodes.again.output.text }}",
}


@pytest.fixture(scope="module")
def journal() -> Iterator[Path]:
    # not under pytest's own folder: another pytest closes that one to Postgres' account
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    path = folder / "calls"
    path.touch()
    yield path
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
async def platform(journal: Path) -> AsyncIterator[Platform]:
    config = journal.parent / "hocket.yaml"
    models = {"probe": {"backends": [{"function": "fault_handlers:complete"}]}}
    config.write_text(yaml.safe_dump({"models": models, "workers": {"ack_wait_s": 2}}))
    environment = {
        "FAULT_JOURNAL": str(journal),
        "HOCKET_HANDLERS": "fault_handlers",
        "PYTHONPATH": HANDLERS,
    }
    async with Platform(journal.parent / "data", env=environment, config=config) as running:
        api = running.api()
        await asyncio.to_thread(api.post, "/v1/pipelines", PIPELINE)
        yield running


async def kill(platform: Platform, target: str) -> None:
    if target in ("nats", "postgres"):
        server = getattr(platform.servers, target)
        await server.kill()
        await server.wait_ready()
    else:
        await platform.kill(target)


async def publish(platform: Platform, keys: list[str]) -> None:
    client = await nats.connect(platform.nats_url)
    for n, key in enumerate(keys):
        await client.jetstream().publish(
            subjects.task("default", "faulty"),
            b'{"n": %d}' % n,
            headers={"Hocket-Idempotency-Key": key},
        )
    await client.close()


async def ends(platform: Platform, run_ids: list[str]) -> dict[str, str]:
    """Wait until every run has ended in Postgres, and return how."""
    found: dict[str, str] = {}
    async with asyncio.timeout(ENDS_WITHIN_S):
        while len(found) < len(run_ids):
            try:
                connection = await asyncpg.connect(platform.database_url, timeout=2)
            except (OSError, asyncpg.PostgresError):
                await asyncio.sleep(0.1)
                continue
            rows = await connection.fetch(
                "SELECT run_id, status FROM hocket.run WHERE run_id = ANY($1) AND status <> 'running'",
                run_ids,
            )
            await connection.close()
            found = {row["run_id"]: row["status"] for row in rows}
            await asyncio.sleep(0.05)
    return found


async def events_of(platform: Platform) -> list[tuple[int, str]]:
    """Return where the end of which run stands in EVENTS, once per telling."""
    client = await nats.connect(platform.nats_url)
    jetstream = client.jetstream()
    info = await jetstream.stream_info(subjects.EVENTS)
    told = []
    for seq in range(max(1, info.state.first_seq), info.state.last_seq + 1):
        try:
            message = await jetstream.get_msg(subjects.EVENTS, seq)
        except NotFoundError:
            continue  # a gap
        if (message.subject or "").endswith(".run-finished"):
            told.append((seq, (message.headers or {})["ce-subject"]))
    await client.close()
    return told


async def calls_of(
    platform: Platform, journal: Path, found: dict[str, str]
) -> tuple[list[str], list[str]]:
    """Return the calls that the model counted and those that the ledger has, sorted, once they are the
    same or a bound is reached: a step that was delivered twice may call when its run has ended."""
    metered: list[str] = []
    booked: list[str] = []
    for _ in range(200):
        connection = await asyncpg.connect(platform.database_url, timeout=5)
        rows = await connection.fetch("SELECT call_id FROM hocket.usage")
        await connection.close()
        lines = await asyncio.to_thread(journal.read_text)
        metered = sorted(call for call in lines.split() if call.split(":")[0] in found)
        booked = sorted(r["call_id"] for r in rows if r["call_id"].split(":")[0] in found)
        if set(metered) == {call.partition("#")[0] for call in booked}:
            break
        await asyncio.sleep(0.1)
    return metered, booked


@pytest.mark.parametrize(
    "target",
    [
        "coordinator",
        "worker",
        "nats",
        *(pytest.param(rare, marks=pytest.mark.long) for rare in ("gateway", "ledger", "postgres")),
    ],
)
@pytest.mark.timeout(ENDS_WITHIN_S * 2)
async def test_runs_survive_the_kill_of(target: str, platform: Platform, journal: Path) -> None:
    dice = random.Random(f"{SEED}{target}")
    run_ids: list[str] = []
    for kill_number in range(KILLS):
        keys = [f"{target}-{kill_number}-{n}" for n in range(RUNS)]
        run_ids += [ids.run_id("default", key) for key in keys]
        await publish(platform, keys)
        await asyncio.sleep(dice.uniform(0.0, 0.35))  # the moment of the fault is the experiment
        await kill(platform, target)
        await platform.wait_ready()
    found = await ends(platform, run_ids)
    assert found == dict.fromkeys(run_ids, "succeeded")
    told = [run_id for _, run_id in await events_of(platform) if run_id in found]
    assert len(told) == len(set(told)), "a run's end was told twice"
    metered, booked = await calls_of(platform, journal, found)
    if target != "gateway":
        assert len(booked) == len(set(booked))
        assert booked == metered
        return
    # a call that died with its gateway is made again under its id: the second one is booked, and the
    # first one, too, where it had ended, in a row with the same id (docs/reference/costs.md)
    rows = Counter(call.partition("#")[0] for call in booked)
    assert rows.keys() == set(metered)
    assert rows <= Counter(metered)


@pytest.mark.timeout(ENDS_WITHIN_S * 2)
async def test_an_end_that_the_server_lost_when_it_crashed_is_told_again(
    platform: Platform,
) -> None:
    keys = [f"lost-{n}" for n in range(RUNS)]
    run_ids = {ids.run_id("default", key) for key in keys}
    await publish(platform, keys)
    await ends(platform, sorted(run_ids))
    told = await told_of(platform, run_ids)
    client = await nats.connect(platform.nats_url)
    for seq in told.values():
        await client.jetstream().delete_msg(subjects.EVENTS, seq)
    await client.close()
    await platform.servers.nats.stop()  # with it goes what it remembers of message ids
    await platform.servers.nats.start()
    again = await told_of(platform, run_ids)
    assert min(again.values()) > max(told.values())


async def told_of(platform: Platform, run_ids: set[str]) -> dict[str, int]:
    """Wait until the end of every run stands in EVENTS, and return where."""
    async with asyncio.timeout(ENDS_WITHIN_S):
        while True:
            told = {run_id: seq for seq, run_id in await events_of(platform) if run_id in run_ids}
            if told.keys() == run_ids:
                return told
            await asyncio.sleep(0.1)
