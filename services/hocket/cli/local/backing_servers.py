"""The NATS and Postgres servers of a platform: the user's own, or embedded ones."""

import asyncio
from importlib import import_module
from pathlib import Path

from hocket.kit.embedded import EmbeddedServers
from hocket.kit.embedded.folder_lock import FolderLock
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.kit.process.settings import read
from hocket.schemas.access.nats_table import ACCESS_USER

PLATFORM_LOCK_FILE = "platform.lock"
"""A lock of its own: whoever gives a platform its servers may run them in the same folder."""


class BackingServers:
    """The servers behind a platform. A server without a URL is embedded in `data_dir`. `replicas`, from
    the environment, is the number of replicas of a stream in a NATS cluster."""

    def __init__(
        self,
        data_dir: Path,
        *,
        nats_url: str | None,
        database_url: str | None,
        nats_port: int,
        replicas: str | None,
    ) -> None:
        self._data_dir = data_dir
        self._given_nats, self._given_database = nats_url, database_url
        self._nats_port = nats_port
        self._replicas = replicas
        self._embedded: EmbeddedServers | None = None
        self._lock: FolderLock | None = None

    @property
    def are_embedded(self) -> bool:
        """Whether at least one of them is embedded and running."""
        return self._embedded is not None

    @property
    def embedded(self) -> EmbeddedServers:
        """The embedded servers; only valid if at least one is embedded."""
        assert self._embedded is not None, "both servers are the user's own, or nothing runs yet"
        return self._embedded

    @property
    def nats_url(self) -> str:
        """The URL for NATS clients."""
        return self._given_nats or self.embedded.nats_url

    def nats_url_of(self, user: str) -> str:
        """Return the URL with which one of our processes connects; for the user's own server, all use
        the same."""
        return self._given_nats or self.embedded.nats.url_of(user)

    @property
    def nats_access(self) -> tuple[str, str] | None:
        """The URL and the secret needed to decide which keys may connect. None if NATS is the user's own
        server, which defines its users itself."""
        if self._given_nats:
            return None
        nats = self.embedded.nats
        return nats.url_of(ACCESS_USER), nats.access_seed

    @property
    def nats_url_file(self) -> Path | None:
        """The file with the embedded server's URL and password; None if NATS is the user's own."""
        return None if self._given_nats else self.embedded.nats.url_file

    @property
    def database_url(self) -> str:
        """The URL of the platform's database."""
        return self._given_database or self.embedded.database_url

    @property
    def stream_replicas(self) -> int:
        """The number of replicas of streams and buckets; 1 for the embedded server."""
        if self._given_nats is None:
            return 1
        named = self._replicas
        return read(**({} if named is None else {"stream_replicas": named})).stream_replicas

    async def start(self) -> None:
        """Hold the data folder for this platform, and start the embedded servers, which hold it for
        themselves. Raises the errors in `kit/embedded/errors.py`, most notably DataFolderInUse."""
        lock = FolderLock(self._data_dir, PLATFORM_LOCK_FILE)
        lock.acquire()
        self._lock = lock
        if self._given_nats and self._given_database:
            return
        servers = EmbeddedServers(
            self._data_dir,
            nats=not self._given_nats,
            postgres=not self._given_database,
            nats_port=self._nats_port,
        )
        try:
            await servers.__aenter__()
        except BaseException:
            self._release()
            raise
        self._embedded = servers

    async def migrate(self) -> None:
        """Migrate the database to the current schema."""
        await import_module("hocket.kit.postgres.migrations").migrate(self.database_url)

    async def make_streams(self) -> None:
        """Create missing streams."""
        bus = await Bus.connect(self.nats_url, name="hocket-up")
        try:
            await ensure_streams(bus, replicas=self.stream_replicas)
        finally:
            await bus.close()

    async def stop(self) -> None:
        """Stop the embedded servers, and release the data folder."""
        if self._embedded is not None:
            servers, self._embedded = self._embedded, None
            await servers.__aexit__(None, None, None)
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


async def import_migrations() -> None:
    """Import the migrations, which takes a second, in a thread while the servers start."""
    await asyncio.to_thread(_import_migrations)


def _import_migrations() -> None:
    import_module("hocket.kit.postgres.migrations")
    import_module("alembic.command")
    import_module("sqlalchemy.dialects.postgresql")
