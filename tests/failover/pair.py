"""A primary of Postgres and its synchronous standby, each in a folder of its own.

What an operator's tool (Patroni, a cloud) does is done here by hand: the primary is killed, the standby
promoted, the lost one made again from a copy of the new primary. A new primary waits for no
standby until it has one, then for each commit."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg

from hocket.kit.embedded.account import Account
from hocket.kit.embedded.ports import LOOPBACK, remembered_port
from hocket.kit.embedded.postgres import PostgresServer, postgres_install

BOUND_S = 60.0
LOOK_S = 0.02
STREAMING = "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')"


class Pair:
    """Two servers; which of them is the primary changes with each `promote`."""

    def __init__(self, folder: Path) -> None:
        self._folders = [folder / "a", folder / "b"]
        self._ports = [remembered_port(folder / f"{name}.port") for name in "ab"]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._primary = 0
        self._account: Account | None = None
        self._password = ""

    @property
    def url(self) -> str:
        """The URL with both servers."""
        hosts = ",".join(f"{LOOPBACK}:{port}" for port in self._ports)
        return f"postgresql://hocket:{self._password}@{hosts}/hocket"

    @property
    def account(self) -> Account | None:
        """Whom the servers run as, where that is not us."""
        return self._account

    @property
    def url_of_primary(self) -> str:
        """The URL of the primary alone."""
        port = self._ports[self._primary]
        return f"postgresql://hocket:{self._password}@{LOOPBACK}:{port}/hocket"

    async def start(self) -> None:
        """Make the primary's data folder, start it, and give it a standby."""
        made = PostgresServer(self._folders[0])
        await made.start()
        self._account, found = made.account, re.search(r":([^:@]+)@", made.url)
        assert found is not None
        self._password = found[1]
        await made.stop()
        self._run(0)
        await (await self._connected(0)).close()
        await self.rebuild()

    def stop(self) -> None:
        """End both."""
        for number in list(self._processes):
            self._kill(number)

    def kill_standby(self) -> None:
        """Kill all processes of the standby; commits wait from then on, until it is made again."""
        self._kill(1 - self._primary)

    def kill_primary(self) -> None:
        """Kill all processes of the primary at once, as a machine that loses its power does."""
        self._kill(self._primary)

    async def promote(self) -> None:
        """Make the standby the primary; returns when it takes what is written."""
        self._primary = 1 - self._primary
        connection = await self._connected(self._primary)
        assert await connection.fetchval("SELECT pg_promote(true, 60)")
        await connection.close()

    async def rebuild(self) -> None:
        """Make the other one a standby, from a copy of the primary; commits wait for it from then on."""
        primary, standby = self._primary, 1 - self._primary
        connection = await self._connected(primary)
        await asyncio.to_thread(self._copy, self._ports[primary], self._folders[standby])
        self._run(standby)
        await connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        await connection.execute("SELECT pg_reload_conf()")
        async with asyncio.timeout(BOUND_S):
            while await connection.fetchval(STREAMING) != 1:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
        await connection.close()

    async def _connected(self, number: int) -> Any:
        url = f"postgresql://hocket:{self._password}@{LOOPBACK}:{self._ports[number]}/hocket"
        until = time.monotonic() + BOUND_S
        while True:
            try:
                return await asyncpg.connect(url, timeout=5)
            except (OSError, asyncpg.CannotConnectNowError, asyncpg.PostgresConnectionError):
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(LOOK_S)

    def _copy(self, port: int, folder: Path) -> None:
        cluster = folder / "cluster"
        shutil.rmtree(cluster, ignore_errors=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if self._account is not None:
            os.chown(folder, *self._account)
        subprocess.run(
            [
                *(postgres_install() / "bin" / "pg_basebackup", "-D", cluster, "-R", "-X", "stream"),
                *("-c", "fast", "-h", LOOPBACK, "-p", str(port), "-U", "hocket", "--no-sync"),
            ],
            env={"PGPASSWORD": self._password, "LC_ALL": "C"},
            check=True, timeout=BOUND_S, **self._as_account(),
        )  # fmt: skip
        with (cluster / "postgresql.auto.conf").open("a") as settings:
            settings.write("synchronous_standby_names = ''\n")

    def _run(self, number: int) -> None:
        command = [
            *(postgres_install() / "bin" / "postgres", "-D", self._folders[number] / "cluster"),
            *("-c", f"port={self._ports[number]}", "-c", "hot_standby=on"),
        ]
        self._processes[number] = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"LC_ALL": "C"},
            **self._as_account(),
        )

    def _kill(self, number: int) -> None:
        process = self._processes.pop(number)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in (process.pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(10)

    def _as_account(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        return {"user": self._account.uid, "group": self._account.gid, "extra_groups": []}
