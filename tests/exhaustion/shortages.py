"""The shortages: each takes something away from a running platform, and gives it back.

`take` and `give` stay within limits: those of a small disk of their own, a server's limit on
connections, or the limits of single processes. Nothing of the machine itself runs out.
"""

import asyncio
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import asyncpg
import nats
from nats.aio.client import Client

from exhaustion.small_disk import SmallDisk
from hocket.cli.local.platform import Platform

SPARE_HANDLES = 1
SPARE_BYTES = 0
MAX_TAKEN = 2_000
WAL_MIB, MAX_WAL_MIB = 4, 256
WRITE_WAL = f"SELECT pg_logical_emit_message(false, 'x', repeat('x', {WAL_MIB * 1024 * 1024}))"
RESOURCES = {"handles": resource.RLIMIT_NOFILE, "memory": resource.RLIMIT_AS}


class Shortage(Protocol):
    """A resource that can be taken away and given back."""

    async def take(self) -> None:
        """Take it away."""
        ...

    async def give(self) -> None:
        """Give it back."""
        ...


class DiskFull:
    """The disk has no room at all, or only `leave_bytes`."""

    def __init__(self, disk: SmallDisk, leave_bytes: int = 0) -> None:
        self._disk = disk
        self._leave_bytes = leave_bytes
        self._refilling: asyncio.Task[None] | None = None

    async def take(self) -> None:
        self._disk.fill(leave_bytes=self._leave_bytes)
        self._refilling = asyncio.create_task(self._keep_full())

    async def give(self) -> None:
        assert self._refilling is not None, "it was taken"
        self._refilling.cancel()
        self._disk.free()

    async def _keep_full(self) -> None:
        while True:  # also takes what is deleted meanwhile
            await asyncio.sleep(0.2)
            self._disk.fill(leave_bytes=self._leave_bytes)


class PostgresDiskFull(DiskFull):
    """Postgres' disk has no room, neither for tables nor for the next WAL segment: the server panics,
    and cannot start until there is room."""

    def __init__(self, platform: Platform, disk: SmallDisk) -> None:
        super().__init__(disk)
        self._platform = platform

    async def take(self) -> None:
        await super().take()
        with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
            connection = await asyncpg.connect(self._platform.database_url, timeout=5)
            for _ in range(MAX_WAL_MIB // WAL_MIB):  # uses up the segments that already exist
                await connection.execute(WRITE_WAL, timeout=5)


class PostgresConnections:
    """All connections of Postgres are taken by others, including those of the platform."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._held: list[asyncpg.Connection] = []

    async def take(self) -> None:
        await self._fill()
        for _ in range(3):  # also takes those that are freed when the platform's are cut
            await self._held[0].execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name LIKE 'hocket %'"
            )
            await self._fill()

    async def give(self) -> None:
        for connection in self._held:
            connection.terminate()
        self._held.clear()

    async def _fill(self) -> None:
        with suppress(asyncpg.TooManyConnectionsError, OSError, TimeoutError):
            while len(self._held) < MAX_TAKEN:
                self._held.append(await asyncpg.connect(self._platform.database_url, timeout=5))


class NatsConnections:
    """All connections that NATS allows are taken by others; a worker and a gateway are restarted
    meanwhile."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._held: list[Client] = []

    async def take(self) -> None:
        await self._fill()
        for name in ("worker", "gateway"):
            await self._platform.kill(name)
        await self._fill()

    async def give(self) -> None:
        for client in self._held:
            await client.close()
        self._held.clear()

    async def _fill(self) -> None:
        while len(self._held) < MAX_TAKEN:
            client = Client()
            try:
                await client.connect(
                    self._platform.nats_url,
                    allow_reconnect=False,
                    error_cb=_quiet,
                    connect_timeout=2,
                    ping_interval=600,
                )
            except (nats.errors.Error, OSError, TimeoutError):
                with suppress(Exception):
                    await client.close()
                return
            self._held.append(client)


class ProcessLimit:
    """No process of the platform, servers included, gets many more handles or much more memory than it
    has."""

    def __init__(self, platform: Platform, kind: str) -> None:
        self._platform = platform
        self._kind = kind
        self._before: dict[int, tuple[int, int]] = {}

    async def take(self) -> None:
        used: Callable[[int], int] = _handles if self._kind == "handles" else _memory_bytes
        spare = SPARE_HANDLES if self._kind == "handles" else SPARE_BYTES
        for pid in _processes(self._platform):
            with suppress(ProcessLookupError, FileNotFoundError):
                limits = self._before[pid] = resource.prlimit(os.getpid(), RESOURCES[self._kind])
                await _limit(pid, self._kind, used(pid) + spare, limits[1])

    async def give(self) -> None:
        for pid, limits in self._before.items():
            for one in (pid, *_children(pid)):  # new sessions of Postgres have them, too
                with suppress(ProcessLookupError, FileNotFoundError):
                    await _limit(one, self._kind, *limits)


async def _limit(pid: int, kind: str, soft: int, hard: int) -> None:
    """Set the limits of a process, as the user that owns it (Postgres has its own user)."""
    option = {"handles": "--nofile", "memory": "--as"}[kind]
    texts = [
        "unlimited" if limit == resource.RLIM_INFINITY else str(limit) for limit in (soft, hard)
    ]
    owner = await asyncio.to_thread(os.stat, f"/proc/{pid}")
    setting = await asyncio.create_subprocess_exec(
        *("prlimit", f"--pid={pid}", f"{option}={':'.join(texts)}"),
        user=owner.st_uid,
        group=owner.st_gid,
        extra_groups=[],
    )
    await setting.wait()


def _processes(platform: Platform) -> list[int]:
    servers = [platform.servers.nats.pid, platform.servers.postgres.pid]
    return [*servers, *(process.pid for process in platform.processes.values())]


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for each in found for child in each.read_text("ascii").split()]


def _handles(pid: int) -> int:
    return max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))


def _memory_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def _quiet(_error: Exception) -> None:
    """Ignore the error: trouble is expected here."""
