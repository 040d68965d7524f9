"""Faults of a cluster: leaders are killed, one server is cut off, one loses its disk."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from deploy.cluster.link import Link
from deploy.cluster.nats_cluster import NatsCluster
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable

SERVERS = 3
APART = 2
"""The server whose connections pass through proxies."""
KILL_EVERY_S = 30.0
MIDDLE_S = KILL_EVERY_S / 2
APART_S = 10.0
HEALTHY_S = 60.0
API_TIMEOUT_MS = 3_000


@dataclass
class Faults:
    """Injects faults, and records when they happened."""

    cluster: NatsCluster
    links: Sequence[Link]
    bus: Bus
    kills: list[float] = field(default_factory=list)
    """When a leader was killed (wall clock)."""
    others: list[str] = field(default_factory=list)
    """What else happened."""

    async def happen(self, seconds: float) -> None:
        """Kill a leader every KILL_EVERY_S; after the first kill cut one server off, after the second
        wipe one server's disk."""
        between = {1: self._cut_off, 2: self._wipe}
        until = time.monotonic() + seconds - KILL_EVERY_S / 2
        while time.monotonic() < until:
            began = time.monotonic()
            await self._kill()
            await asyncio.sleep(max(0.0, began + MIDDLE_S - time.monotonic()))
            if what := between.get(len(self.kills)):
                await what()
            await asyncio.sleep(max(0.0, began + KILL_EVERY_S - time.monotonic()))

    async def _kill(self) -> None:
        await healthy(self.bus)
        number = await _leader(self.bus)
        self.kills.append(time.time())
        await asyncio.to_thread(self.cluster.restart, number)

    async def _cut_off(self) -> None:
        await healthy(self.bus)
        for link in self.links:
            link.cut()
        await asyncio.sleep(APART_S)
        held = [link for link in self.links if link.held]
        for link in self.links:
            link.heal()
        if held:
            took_s = await healthy(self.bus)
            what = (
                f"n{APART} cut off for {APART_S:g} s: {len(held)} links had something to pass on, "
            )
            self.others.append(f"{what}whole again {took_s:.1f} s later")

    async def _wipe(self) -> None:
        await healthy(self.bus)
        number = (await _leader(self.bus) + 1) % SERVERS
        await asyncio.to_thread(self.cluster.restart, number, wiped=True)
        took_s = await healthy(self.bus)
        self.others.append(f"disk of n{number} wiped, whole again {took_s:.1f} s later")


async def _leader(bus: Bus) -> int:
    """Return the number of the server that leads LOG, once there is one."""
    while True:
        try:
            found = await bus.api("STREAM.INFO.LOG", {}, timeout_ms=API_TIMEOUT_MS)
        except BusUnavailable:
            found = {}
        if name := found.get("cluster", {}).get("leader"):
            return int(name[1:])
        await asyncio.sleep(0.2)


async def healthy(bus: Bus) -> float:
    """Wait until every stream has all its replicas, as required before another server is stopped;
    return how long that took."""
    began = time.monotonic()
    while time.monotonic() < began + HEALTHY_S:
        try:
            answer = await bus.api("STREAM.LIST", {}, timeout_ms=API_TIMEOUT_MS)
        except BusUnavailable:
            answer = {}
        found = answer.get("streams") or []
        if found and all(_is_whole(one.get("cluster", {})) for one in found):
            return time.monotonic() - began
        await asyncio.sleep(0.3)
    raise AssertionError(f"the cluster was not whole again after {HEALTHY_S:g} s")


def _is_whole(cluster: dict[str, Any]) -> bool:
    others = cluster.get("replicas", [])
    return (
        bool(cluster.get("leader"))
        and len(others) == SERVERS - 1
        and all(one["current"] and not one.get("offline") for one in others)
    )
