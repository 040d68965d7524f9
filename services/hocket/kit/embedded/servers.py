"""The embedded servers of one data folder, started and stopped together.

They own the data folder: `lock`, `nats/` and `postgres/`. Only one process uses a folder at a time;
servers of different folders can run at the same time, each with ports of its own. What was stored is
available again after the next start.
"""

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Self

from hocket.kit.embedded.errors import ServerStopped
from hocket.kit.embedded.folder_lock import FolderLock
from hocket.kit.embedded.nats import NatsServer
from hocket.kit.embedded.postgres import PostgresServer
from hocket.kit.embedded.server import SupervisedServer


class EmbeddedServers:
    """NATS and Postgres in `data_dir`, running inside `async with`.

    Omit one with `nats=False` or `postgres=False` if the user has a server of their own. NATS listens on
    `nats_port` if that is given and free, otherwise on a port that is stored in the folder. Raises the
    errors in errors.py, most notably `DataFolderInUse` and `ServerNotReady`.
    """

    def __init__(
        self, data_dir: Path, *, nats: bool = True, postgres: bool = True, nats_port: int = 0
    ) -> None:
        self.data_dir = data_dir.expanduser().absolute()
        self._lock = FolderLock(self.data_dir)
        self._nats = NatsServer(self.data_dir / "nats", port=nats_port) if nats else None
        self._postgres = PostgresServer(self.data_dir / "postgres") if postgres else None

    @property
    def nats(self) -> NatsServer:
        """The NATS server, for its pid, store folder, `kill`, `stop` and `start`."""
        if self._nats is None:
            raise ServerStopped(server=NatsServer.name)
        return self._nats

    @property
    def postgres(self) -> PostgresServer:
        """The Postgres server, for its pid, `kill`, `stop` and `start`."""
        if self._postgres is None:
            raise ServerStopped(server=PostgresServer.name)
        return self._postgres

    @property
    def nats_url(self) -> str:
        """The URL for NATS clients, with user and password."""
        return self.nats.url

    @property
    def database_url(self) -> str:
        """The URL of the database `hocket`, for asyncpg and, with a driver added, SQLAlchemy."""
        return self.postgres.url

    async def __aenter__(self) -> Self:
        self._lock.acquire()
        try:
            await self._start_all()
        except BaseException:
            await self._stop_all()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stop_all()

    async def _start_all(self) -> None:
        results = await asyncio.gather(
            *(server.start() for server in self._servers()), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _stop_all(self) -> None:
        try:
            await asyncio.gather(*(server.stop() for server in self._servers()))
        finally:
            self._lock.release()

    def _servers(self) -> list[SupervisedServer]:
        return [server for server in (self._nats, self._postgres) if server is not None]
