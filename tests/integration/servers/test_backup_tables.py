"""A backup's tables, copied while the platform goes on."""

import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hocket.cli.backups import folder as backups
from hocket.cli.backups import tables
from hocket.cli.backups.errors import BackupUnreadable, PartitionsLeft, TablesUnknown
from hocket.cli.backups.known_tables import KNOWN
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.postgres import migrations
from hocket.kit.postgres.database import connected
from hocket.ledger.upkeep import usage_partitions

DAY = datetime(2026, 1, 5, tzinfo=UTC)
CALL = """
INSERT INTO hocket.usage (call_id, tenant, model, backend, status, started_at, recorded_at, latency_ms)
VALUES ($1, 't', 'm', 'b', 'ok', $2, $2, 1)
"""
CALLS = "SELECT call_id FROM hocket.usage"
PENDING = "SELECT EXISTS (SELECT FROM pg_inherits WHERE inhdetachpending)"


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


@pytest.fixture
async def target(
    connection: asyncpg.Connection, servers: EmbeddedServers, database_template: str
) -> AsyncIterator[asyncpg.Connection]:
    """A session with a database that has only the schema."""
    await connection.execute(f"CREATE DATABASE filled_again TEMPLATE {database_template}")
    opened = await connected(servers.postgres.url_of("filled_again"))
    yield opened
    opened.terminate()
    await connection.execute("DROP DATABASE filled_again WITH (FORCE)")


async def test_a_day_that_retention_would_drop_meanwhile_stays_until_it_is_copied(
    connection: asyncpg.Connection,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await connection.execute("UPDATE hocket.step_days SET to_at = $1 WHERE suffix = ''", DAY)
    suffix = await connection.fetchval(
        "SELECT hocket.make_step_days($1, $2)", DAY, DAY + timedelta(days=1)
    )
    janitor = await asyncpg.connect(database_url, server_settings={"lock_timeout": "100ms"})
    drop = f"DROP TABLE hocket.step_{suffix}, hocket.attempt_{suffix}"
    copy, refused = asyncpg.Connection.copy_from_query, []

    async def copied(own: asyncpg.Connection, *query: Any, **how: Any) -> str:
        if not refused:
            with pytest.raises(asyncpg.LockNotAvailableError) as told:
                await janitor.execute(drop)
            refused.append(told.value)
        return str(await copy(own, *query, **how))

    monkeypatch.setattr(asyncpg.Connection, "copy_from_query", copied)
    try:
        found = await tables.copy_out(connection, tmp_path / "postgres")
        await janitor.execute(drop)
    finally:
        await janitor.close()
    assert refused
    assert f"hocket.step_{suffix}" in found["tables"]


async def test_a_partition_that_was_detached_and_not_dropped_yet_is_restored_as_such(
    connection: asyncpg.Connection, target: asyncpg.Connection, database_url: str, tmp_path: Path
) -> None:
    """The backup had it, and the restore missed its rows in the new schema."""
    for row in await connection.fetch("SELECT name FROM hocket.usage_partition"):
        await connection.execute(f"DROP TABLE hocket.{row['name']}")
    for number in range(3):
        begin = DAY + timedelta(days=number)
        make = "SELECT hocket.make_usage_partition($1, $2)"
        await connection.execute(make, begin, begin + timedelta(days=1))
        await connection.execute(CALL, f"c{number}", begin)
    gone, going = f"usage_{DAY:%Y%m%d}", f"usage_{DAY + timedelta(days=1):%Y%m%d}"
    detach = "ALTER TABLE hocket.usage DETACH PARTITION hocket.{} CONCURRENTLY"
    await connection.execute(detach.format(gone))
    reader = await asyncpg.connect(database_url)
    async with reader.transaction():
        await reader.fetch(CALLS)
        await connection.execute("SET lock_timeout = '100ms'")
        with pytest.raises(asyncpg.LockNotAvailableError):  # it waits for readers, and is ended
            await connection.execute(detach.format(going))
    await reader.close()
    assert await connection.fetchval(PENDING)

    copied = await tables.copy_out(connection, tmp_path / "postgres")
    await tables.copy_in(target, tmp_path / "postgres", json.loads(json.dumps(copied)))

    assert await tables.counted(target) == copied["tables"]
    assert [copied["tables"][f"hocket.{name}"] for name in ("usage", gone, going)] == [1, 1, 1]
    assert [row["call_id"] for row in await target.fetch(CALLS)] == ["c2"]
    await target.execute("DELETE FROM hocket.stale_day")
    assert await usage_partitions._finish(target, DAY + timedelta(days=9)) == 2
    noted = {row["day"] for row in await target.fetch("SELECT day FROM hocket.stale_day")}
    assert noted == {DAY.date(), DAY.date() + timedelta(days=1)}


async def test_a_database_with_dates_of_another_style_and_zone_is_restored(
    connection: asyncpg.Connection, target: asyncpg.Connection, database_url: str, tmp_path: Path
) -> None:
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE {name} SET datestyle = 'SQL, DMY'")
    await connection.execute(f"ALTER DATABASE {name} SET timezone = 'Asia/Kolkata'")
    await connection.execute("SELECT hocket.cover_steps(clock_timestamp())")
    source = await connected(database_url)
    try:
        copied = await tables.copy_out(source, tmp_path / "postgres")
        assert tables.unknown_in(copied) is None
        await tables.copy_in(target, tmp_path / "postgres", copied)
        for kept in ("hocket.usage_partition", "hocket.step_days"):
            spans = f"SELECT from_at, to_at FROM {kept} ORDER BY from_at"
            assert await target.fetch(spans) == await source.fetch(spans) != []
    finally:
        await source.close()


async def test_a_table_that_a_restore_could_not_fill_is_refused(
    connection: asyncpg.Connection, tmp_path: Path
) -> None:
    await connection.execute('CREATE TABLE hocket."of-mine" (id integer)')
    with pytest.raises(TablesUnknown, match=r"knows no table hocket\.of-mine\. Move"):
        await tables.copy_out(connection, tmp_path / "postgres")
    await connection.execute('DROP TABLE hocket."of-mine"')
    copied = await tables.copy_out(connection, tmp_path / "again")
    assert {name for name in copied["tables"] if not re.search(r"_\d{8}$", name)} == KNOWN


async def test_what_a_restore_could_not_fill_is_told_before_a_file_is_written(
    connection: asyncpg.Connection, nats_url: str, database_url: str, tmp_path: Path
) -> None:
    """Else the folder could not be used again."""
    urls = {"nats_url": nats_url, "database_url": database_url}
    await connection.execute("CREATE TABLE hocket.of_mine (id integer)")
    with pytest.raises(TablesUnknown):
        await backups.take(tmp_path / "backup", **urls)
    await connection.execute("DROP TABLE hocket.of_mine")
    await backups.take(tmp_path / "backup", **urls)


async def test_rows_of_the_ledger_in_a_partition_of_an_earlier_release_are_not_said_to_be_unknown(
    connection: asyncpg.Connection, tmp_path: Path
) -> None:
    """It was advised to drop them. The ledger does that, and notes their days."""
    await connection.execute("CREATE TABLE hocket.usage_20260101 (LIKE hocket.usage INCLUDING ALL)")
    await connection.execute("ALTER TABLE hocket.usage_20260101 DROP COLUMN labels CASCADE")
    with pytest.raises(PartitionsLeft, match=r"with hocket\.usage_20260101, .* next pass"):
        await tables.copy_out(connection, tmp_path / "postgres")
    await usage_partitions._finish(connection, DAY)
    await tables.copy_out(connection, tmp_path / "again")


async def test_tables_that_begin_later_than_the_day_in_their_names_are_restored(
    connection: asyncpg.Connection, target: asyncpg.Connection, tmp_path: Path
) -> None:
    """Those before them ended within a day, and got its rest."""
    await connection.execute("UPDATE hocket.step_days SET to_at = $1 WHERE suffix = ''", DAY)
    days = (DAY, DAY + timedelta(days=1), DAY + timedelta(days=7))
    suffix = await connection.fetchval("SELECT hocket.make_step_days($1, $2)", days[0], days[2])
    later = "UPDATE hocket.step_days SET from_at = $1 WHERE suffix = $2"
    await connection.execute(later, days[1], suffix)
    copied = await tables.copy_out(connection, tmp_path / "postgres")
    await tables.copy_in(target, tmp_path / "postgres", json.loads(json.dumps(copied)))
    spans = "SELECT suffix, from_at, to_at FROM hocket.step_days ORDER BY from_at"
    assert await target.fetch(spans) == await connection.fetch(spans)
    assert await target.fetchval("SELECT hocket.cover_steps($1)", days[1]) == suffix


async def test_a_backup_without_a_list_of_detached_partitions_is_restored(
    connection: asyncpg.Connection, target: asyncpg.Connection, tmp_path: Path
) -> None:
    copied = await tables.copy_out(connection, tmp_path / "postgres")
    del copied["detached"]
    await tables.copy_in(target, tmp_path / "postgres", copied)
    assert await tables.counted(target) == copied["tables"]


def test_a_backup_of_another_release_is_named_whatever_it_has(tmp_path: Path) -> None:
    """Its odd dates were named, and a release that knew them would not have helped."""
    odd = {
        "schema": "hocket",
        "name": "usage_20260105",
        "parent": "hocket.usage",
        "bound": "FOR VALUES FROM ('05/01/2026 00:00:00 UTC') TO (MAXVALUE)",
    }
    manifest = {"revision": "0069", "hocket": "0.1.0", "partitions": [odd], "sha256": {}}
    (tmp_path / backups.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(BackupUnreadable, match=r"it has schema 0069, .* restore with 0\.1\.0"):
        backups.read(tmp_path)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"partitions": [{"bound": "FOR VALUES FROM ('05/01/2026 UTC') TO (MAXVALUE)"}]}, "bound"),
        ({"partitions": [{"bound": "DEFAULT", "name": "a; b"}]}, "table"),
        ({"detached": [{"name": "a b"}]}, "table"),
        ({"step_days": [{"from_at": "05/01/2026 UTC", "to_at": "infinity"}]}, "time"),
    ],
    ids=["bound", "name of a partition", "name of a former partition", "time"],
)
def test_a_manifest_that_a_restore_does_not_know_is_refused_before_anything_is_changed(
    tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    place = {"schema": "hocket", "name": "usage_20260105", "parent": "hocket.usage"}
    manifest = {kind: [place | one for one in given] for kind, given in changed.items()}
    of_today = {"revision": migrations.head(), "sha256": {}}
    (tmp_path / backups.MANIFEST).write_text(json.dumps({**manifest, **of_today}))
    with pytest.raises(BackupUnreadable, match=f"manifest.json has the {named} `.*Nothing was"):
        backups.read(tmp_path)
