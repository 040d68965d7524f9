"""Data folders of platforms that have been started before: a Postgres cluster with our schema.

Making one takes two seconds of CPU time. Platforms of tests start with a copy of one that was made for
this process. The first start itself is tested by the tests of commands, which start platforms as users
do.
"""

import asyncio
import atexit
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from hocket.cli.local.backing_servers import BackingServers, import_migrations
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.postgres.migrations import migrate

COPIED = ("cluster", "password")


class Clusters:
    """The cluster that is copied, created on first use."""

    def __init__(self) -> None:
        self._making = asyncio.Lock()
        self._made: Path | None = None

    async def copy_to(self, folder: Path) -> None:
        """Copy it into the folder of a server that has not been started yet."""
        async with self._making:
            if self._made is None:
                self._made = await self._make()
        await asyncio.to_thread(_copy, self._made / "postgres", folder)

    async def _make(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="hkt-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        await import_migrations()  # the platform does so beside us: both must begin with the same
        async with EmbeddedServers(folder, nats=False) as servers:
            await migrate(servers.database_url)
        return folder


def _copy(made: Path, folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True)
    subprocess.run(["cp", "-a", *(made / part for part in COPIED), folder], check=True)


def copy_clusters(patch: pytest.MonkeyPatch) -> None:
    """Let the platforms of this process start with such a copy, unless their folder has a cluster."""
    usual, clusters = BackingServers.start, Clusters()

    async def start(servers: BackingServers) -> None:
        folder = servers._data_dir / "postgres"
        if not servers._given_database and not folder.exists():
            await clusters.copy_to(folder)
        await usual(servers)

    patch.setattr(BackingServers, "start", start)
