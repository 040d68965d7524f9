"""A platform under load that suffers one shortage after another, and the results of each.

The platform is on a small disk if a play needs one; another platform has only its Postgres on a small
disk. The platform must report that it is unwell while the shortage lasts (`Played.said`), end runs that
were accepted afterwards within ROOM_S, lose nothing that was accepted, and book every call.
"""

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from exhaustion.load import PIPELINE, SPEC, TENANT, Load, all_ended, ended_since, violations
from exhaustion.shortages import (
    DiskFull,
    NatsConnections,
    PostgresConnections,
    PostgresDiskFull,
    ProcessLimit,
    Shortage,
)
from exhaustion.small_disk import SmallDisk
from hocket.cli.local.platform import Platform
from hocket.cli.local.processes import get, health_url
from support.places import PACKAGES

DATA, POSTGRES = "data", "postgres"
"""What is on a small disk: everything that the platform stores, or only its Postgres (tables and WAL).
x"""
DISK_MIB = 256
MIN_FREE_MIB = 40
LOW_BYTES = 32 * 1024 * 1024
WARM_S = 1.0
ROOM_S = 10.0
BOUND_S = 90.0
SAMPLE_S = 0.5


@dataclass
class Played:
    """The results of a play."""

    name: str
    accepted: int = 0
    accepted_meanwhile: int = 0
    first_end_after_s: float | None = None
    caught_up_after_s: float = 0.0
    said: dict[str, list[str]] = field(default_factory=dict)
    """By process: the components that it reported as unwell."""
    refused: dict[str, Any] = field(default_factory=dict)
    """REST's answer to a task while the disk was low."""
    health: str = ""
    violations: list[str] = field(default_factory=list)

    def as_json(self) -> str:
        return json.dumps(asdict(self))


PLAYS: dict[str, Callable[[Platform, Mapping[str, SmallDisk]], Shortage]] = {
    "disk-low": lambda _, disks: DiskFull(disks[DATA], LOW_BYTES),
    "disk-full": lambda _, disks: DiskFull(disks[DATA]),
    "postgres-disk-full": lambda platform, disks: PostgresDiskFull(platform, disks[POSTGRES]),
    "postgres-connections": lambda platform, _: PostgresConnections(platform),
    "nats-connections": lambda platform, _: NatsConnections(platform),
    "handles": lambda platform, _: ProcessLimit(platform, "handles"),
    "memory": lambda platform, _: ProcessLimit(platform, "memory"),
}
ON_A_DISK = {"disk-low": DATA, "disk-full": DATA, "postgres-disk-full": POSTGRES}


async def play(names: Sequence[str], *, seconds: float, rate: float) -> AsyncIterator[Played]:
    """Play shortages one after another, each for `seconds`."""
    alone = [name for name in names if ON_A_DISK.get(name) == POSTGRES]
    for together in ([name for name in names if name not in alone], alone):
        if together:
            async for played in _on_one_platform(together, seconds, rate):
                yield played


async def _on_one_platform(
    names: Sequence[str], seconds: float, rate: float
) -> AsyncIterator[Played]:
    folder = Path(tempfile.mkdtemp(prefix="hkt-"))
    config = folder / "hocket.yaml"
    models = {"mute": {"backends": [{"function": "exhaustion.models:answer"}]}}
    config.write_text(yaml.safe_dump({"models": models, "workers": {"ack_wait_s": 2}}))
    place = folder / "disk"
    place.mkdir()
    disks = _disks(place, {ON_A_DISK[name] for name in names if name in ON_A_DISK})
    min_free_mib = MIN_FREE_MIB if DATA in disks else 0
    env = {"PYTHONPATH": PACKAGES, "HOCKET_MIN_FREE_DISK_MIB": str(min_free_mib)}
    async with Platform(place / "d", env=env, config=config) as platform:
        await asyncio.to_thread(platform.api(TENANT).post, "/v1/pipelines", SPEC)
        for number, name in enumerate(names):
            load = Load(platform, rate, prefix=f"{name}-{number}")
            await load.open()
            publishing = asyncio.create_task(load.run())
            try:
                played = await _played(name, platform, PLAYS[name](platform, disks), load, seconds)
                await _settle(platform, load, publishing, played)
            finally:
                publishing.cancel()
                await load.close()
            yield played
    for disk in reversed(disks.values()):
        disk.remove()
    await asyncio.to_thread(shutil.rmtree, folder)


async def _settle(
    platform: Platform, load: Load, publishing: asyncio.Task[None], played: Played
) -> None:
    load.stop()
    began_s = time.monotonic()
    try:
        async with asyncio.timeout(BOUND_S):
            await publishing
            await all_ended(platform, load)
    except TimeoutError:
        played.violations.append(f"not everything had ended after {BOUND_S:g} s")
    played.caught_up_after_s = round(time.monotonic() - began_s, 1)
    played.accepted = len(load.accepted)
    played.violations += await violations(platform, load)


async def _played(
    name: str, platform: Platform, shortage: Shortage, load: Load, seconds: float
) -> Played:
    played = Played(name)
    async with asyncio.timeout(BOUND_S):
        await ended_since(platform, load, time.monotonic())
    await asyncio.sleep(WARM_S)
    before = len(load.accepted)
    await shortage.take()
    try:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            await _note(platform, played)
            await asyncio.sleep(SAMPLE_S)
    finally:
        played.accepted_meanwhile = len(load.accepted) - before
        await shortage.give()
    room_s = time.monotonic()
    try:
        async with asyncio.timeout(BOUND_S):
            played.first_end_after_s = round(await ended_since(platform, load, room_s), 2)
    except TimeoutError:
        played.violations.append(f"no run ended within {BOUND_S:g} s of room")
    return played


async def _note(platform: Platform, played: Played) -> None:
    """Record what the processes and the REST API report."""
    for name, process in platform.processes.items():
        url = health_url(platform.data_dir / "run", process.pid)
        status, body = await get(url, "/readyz") if url else (0, b"")
        if status in (200, 503):
            for part, state in json.loads(body)["components"].items():
                if not state["ok"] or state["detail"].startswith("pausing"):
                    said = played.said.setdefault(name, [])
                    text = f"{part}: {state['detail']}"
                    if part not in {line.partition(":")[0] for line in said}:
                        said.append(text)
    try:
        async with aiohttp.ClientSession(
            platform.api_url,
            timeout=aiohttp.ClientTimeout(total=2),
            headers={"Authorization": f"Bearer {platform.api_key}"},
        ) as client:
            async with client.get("/v1/health") as answer:
                health = await answer.json()
            unwell = {part["name"]: part["detail"] for part in health["parts"] if not part["ok"]}
            if unwell and not played.health:
                played.health = json.dumps(unwell)
            task = {"pipeline": PIPELINE, "input": {"n": 1}}
            async with client.post("/v1/runs", json=task) as answer:
                if answer.status == 503 and not played.refused:
                    code = (await answer.json())["error"]["code"]
                    after = answer.headers.get("Retry-After")
                    played.refused = {"code": code, "retry_after": after}
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError):
        return  # the API itself lacks a resource


def _disks(place: Path, wanted: Set[str]) -> dict[str, SmallDisk]:
    """Create the small disks that the plays need, while their folders are still empty."""
    disks = {}
    if DATA in wanted:
        disks[DATA] = SmallDisk(place, DISK_MIB)
    if POSTGRES in wanted:
        folder = place / "d" / "postgres"
        folder.mkdir(parents=True)
        disks[POSTGRES] = SmallDisk(folder, DISK_MIB)
    return disks
