"""A backup: a folder with the tables, the messages, and a manifest of its contents.

Messages are copied before the tables: a task whose publisher got an acknowledgement is then in at least
one of them. If it is in both, it is still one run, because its id is the same.

Only its owner may read the files, even in a folder of others: they hold secrets and prompts."""

# ruff: noqa: ASYNC240  # nothing else runs in this loop

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import asyncpg
import structlog

from hocket.cli.backups import messages, tables
from hocket.cli.backups.errors import (
    BackupFolderTaken,
    BackupFolderUnusable,
    BackupIncomplete,
    BackupUnreadable,
    TargetNotEmpty,
)
from hocket.cli.remote.database import or_unavailable
from hocket.cli.remote.messaging import connected_bus
from hocket.kit.embedded.secret_files import write_private
from hocket.kit.nats.streams import ensure_streams
from hocket.kit.postgres import migrations, restorations, vector_indexes
from hocket.kit.postgres.database import DatabaseUnavailable, connected, said
from hocket.kit.postgres.errors import AWAY
from hocket.schemas.errors import HocketError

MANIFEST = "manifest.json"
CHUNK_BYTES = 1024 * 1024
CONNECT_TIMEOUT_S = 5.0

log = structlog.get_logger(__name__)


async def take(folder: Path, *, nats_url: str, database_url: str) -> dict[str, Any]:
    """Take a backup into an empty or new folder; return its manifest. Raises BackupFolderUnusable,
    BusUnavailable, and what `or_unavailable` raises."""
    _open_folder(folder)
    began = datetime.now(UTC)
    async with connected_bus(nats_url, "hocket backup") as bus:
        await _check_tables(database_url)  # before a file is written
        with _writing(folder):
            counts = await messages.copy_out(bus, folder / "nats")
    copied = await _copied_tables(database_url, folder)
    manifest = {
        "hocket": version("hocket"),
        "revision": await or_unavailable(migrations.current(database_url)),
        "began_at": began.isoformat(),
        "ended_at": datetime.now(UTC).isoformat(),
        "messages": counts,
        **copied,
        "sha256": {
            str(file.relative_to(folder)): _digest(file) for file in sorted(folder.rglob("*.*"))
        },
    }
    with _writing(folder):
        # at last: a folder without it is not a backup
        write_private(folder / MANIFEST, json.dumps(manifest, indent=1))
    return manifest


async def _check_tables(database_url: str) -> None:
    connection = await connected(database_url, CONNECT_TIMEOUT_S)
    try:
        await or_unavailable(tables.check(connection))
    finally:
        connection.terminate()


async def _copied_tables(database_url: str, folder: Path) -> dict[str, Any]:
    connection = await connected(database_url, CONNECT_TIMEOUT_S)

    async def copied() -> dict[str, Any]:
        with _writing(folder):
            return await tables.copy_out(connection, folder / "postgres")

    try:
        return await or_unavailable(copied())
    finally:
        connection.terminate()


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Name the folder if it cannot be written; errors of connections pass."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise BackupFolderUnusable(folder=folder, reason=reason) from error


async def put_back(
    folder: Path, *, nats_url: str, database_url: str, replicas: int
) -> dict[str, Any]:
    """Restore a backup into an empty database and an empty NATS, and verify that everything has arrived;
    return its manifest."""
    manifest = read(folder)
    async with connected_bus(nats_url, "hocket restore") as bus:
        if await messages.messages_in(bus):
            raise TargetNotEmpty(what="the streams of this NATS server contain messages")
        await _fill_database(database_url, folder, manifest)
        await ensure_streams(bus, replicas=replicas)
        await messages.copy_in(bus, folder / "nats")
    await _index_vectors(database_url)
    return manifest


async def _index_vectors(database_url: str) -> None:
    """Build the vector indexes of collections, of which a backup has none. If that fails, everything
    else is restored nonetheless, and searches work without them."""
    try:
        connection = await connected(database_url, CONNECT_TIMEOUT_S)
        try:
            await vector_indexes.repair(connection)
        finally:
            connection.terminate()
    except (HocketError, *AWAY, asyncpg.PostgresError) as error:
        log.warning("vector_indexes_missing", error=said(error), cure="run `hocket index repair`")


async def _fill_database(database_url: str, folder: Path, manifest: dict[str, Any]) -> None:
    """Restore the tables into an empty database."""
    await (await connected(database_url, CONNECT_TIMEOUT_S)).close()
    if await migrations.current(database_url) is not None:
        raise TargetNotEmpty(what="this database already has Hocket's schema")
    await migrations.migrate(database_url)
    connection = await connected(database_url, CONNECT_TIMEOUT_S)
    try:
        await tables.copy_in(connection, folder / "postgres", manifest)
        found = await tables.counted(connection)
        if wrong := {t for t, n in manifest["tables"].items() if found.get(t) != n}:
            raise BackupIncomplete(folder=folder, tables=", ".join(sorted(wrong)))
        began_at = datetime.fromisoformat(manifest["began_at"])
        await restorations.note(connection, backup_began_at=began_at, release=manifest["hocket"])
    except (*AWAY, asyncpg.PostgresError) as error:
        cure = "before you restore again, drop this database, which has the schema by now"
        raise DatabaseUnavailable(reason=f"{said(error)}; {cure}") from error
    finally:
        connection.terminate()


def read(folder: Path) -> dict[str, Any]:
    """Return the manifest of a backup of this release, after checking that its files are complete and
    intact."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        broken = [
            name for name, digest in manifest["sha256"].items() if _digest(folder / name) != digest
        ]
        misfit = _misfit(manifest)
    except OSError as error:
        name = Path(error.filename or folder).name
        raise BackupUnreadable(folder=folder, reason=f"{name}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{MANIFEST} was not written by `hocket backup`"
        raise BackupUnreadable(folder=folder, reason=reason) from error
    if broken:
        raise BackupUnreadable(folder=folder, reason=f"{', '.join(broken)} was changed")
    if misfit is not None:
        raise BackupUnreadable(folder=folder, reason=misfit)
    return manifest


def _misfit(manifest: dict[str, Any]) -> str | None:
    """Return why this release cannot restore a backup, None if it can."""
    if (revision := manifest["revision"]) != migrations.head():
        reason = f"it has schema {revision}, but this release has {migrations.head()}"
        return f"{reason}: restore with {manifest['hocket']}"
    if (unknown := tables.unknown_in(manifest)) is not None:
        return f"{MANIFEST} has {unknown}, which this release does not know"
    return None


def _open_folder(folder: Path) -> None:
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise BackupFolderTaken(folder=folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BackupFolderUnusable(folder=folder, reason=error.strerror or str(error)) from error


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while chunk := content.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
