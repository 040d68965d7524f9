"""A backup is restored into an empty database and an empty NATS, and nowhere else."""

import errno
import os
import stat
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hocket.cli.backups import folder as backups
from hocket.cli.backups import tables
from hocket.cli.backups.errors import (
    BackupFolderTaken,
    BackupFolderUnusable,
    BackupIncomplete,
    BackupUnreadable,
    TargetNotEmpty,
)
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.cloudevents import task_identity
from hocket.kit.nats.protocol import headers_of
from hocket.kit.nats.streams import ensure_streams, stream_configs
from hocket.kit.postgres import migrations
from hocket.kit.postgres.database import DatabaseUnavailable
from hocket.ledger.upkeep import day_partitions
from hocket.schemas import subjects
from integration.servers.test_nats_cluster import Servers, leader

TASK = "hocket.task.acme.report"
TRIGGERS = "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal AND tgenabled = 'O'"
CONTENT = """
INSERT INTO hocket.content (call_id, tenant, model, kept, prompt, answer, started_at, kept_at)
VALUES ($1, 't', 'm', 'full', '{}', '{}', $2, $2)
"""
USAGE = """
INSERT INTO hocket.usage (call_id, tenant, model, backend, status, started_at, latency_ms)
VALUES ($1, 't', 'm', 'b', 'ok', $2, 1)
"""
RUN = """
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,
                        accepted_at, deadline_at, finished_at)
VALUES ($1, 0, 't', 'p', 1, 'succeeded', 'standard', '{}', $2, $2, $2)
"""
STEP = """
INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at)
VALUES ($1, 'a', 'a', 'python', 'leaf', 'succeeded', 1, $2)
"""
DAYS = (0, 3, 40)
"""How long ago calls were made that the ledger has, and whose content is kept."""


async def kept_for_days(source: asyncpg.Connection) -> None:
    """Write calls, with their content in partitions that are not those of a new schema."""
    for days in DAYS:
        day = datetime.now(UTC).date() - timedelta(days=days)
        await day_partitions._make(source, "content", day)
        at = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
        await source.execute(USAGE, f"c{days}", at)
        await source.execute(CONTENT, f"c{days}", at)


async def ran_for_days(source: asyncpg.Connection) -> None:
    """Write runs, with their steps in tables that are not those of a new schema."""
    for days in (0, 1, 2):
        at = datetime.now(UTC).replace(hour=0, minute=1) - timedelta(days=days)
        await source.execute(RUN, f"r{days}", at)
        await source.execute(STEP, f"r{days}", at)
    assert await source.fetchval("SELECT count(*) FROM ONLY hocket.step") == 0


async def test_only_its_owner_can_read_a_backup_even_in_a_folder_that_was_there(
    nats_url: str, database_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    folder.mkdir(mode=0o755)
    bus = await Bus.connect(nats_url, name="test")
    before = os.umask(0)
    try:
        await ensure_streams(bus)
        await backups.take(folder, nats_url=nats_url, database_url=database_url)
    finally:
        os.umask(before)
        await bus.close()
    modes = {file: stat.S_IMODE(file.stat().st_mode) for file in folder.rglob("*")}
    assert {mode for file, mode in modes.items() if file.is_dir()} == {0o700}
    assert {mode for file, mode in modes.items() if file.is_file()} == {0o600}
    assert {"nats", "postgres", backups.MANIFEST} == {file.name for file in folder.iterdir()}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


async def test_what_a_backup_holds_is_there_again_after_it_is_restored(
    servers: EmbeddedServers, nats_url: str, database_url: str, tmp_path: Path
) -> None:
    source = await asyncpg.connect(database_url)
    bus = await Bus.connect(nats_url, name="test")
    await source.execute("CREATE DATABASE restored")
    try:
        await ensure_streams(bus)
        headers = {"Hocket-Class": "batch"}
        await bus.publish(TASK, b'{"n": 1}', msg_id="one", headers=headers)
        await source.execute(
            "INSERT INTO retrieval.collection (tenant, name) VALUES ('acme', 'letters')"
        )
        await kept_for_days(source)
        await ran_for_days(source)
        urls = {"nats_url": nats_url, "database_url": database_url}
        manifest = await backups.take(tmp_path / "backup", **urls)
        assert manifest["messages"][subjects.TASKS] == 1
        assert manifest["tables"]["retrieval.collection"] >= 1
        with pytest.raises(BackupFolderTaken):
            await backups.take(tmp_path / "backup", **urls)
        empty = {"nats_url": nats_url, "database_url": servers.postgres.url_of("restored")}
        with pytest.raises(TargetNotEmpty, match="streams"):
            await backups.put_back(tmp_path / "backup", **empty, replicas=1)
        for stream in (subjects.TASKS, subjects.USAGE, subjects.DLQ):
            await bus.api(f"STREAM.DELETE.{stream}", {}, timeout_ms=5_000)
        with pytest.raises(TargetNotEmpty, match="schema"):
            await backups.put_back(tmp_path / "backup", **urls, replicas=1)
        await backups.put_back(tmp_path / "backup", **empty, replicas=1)
        target = await asyncpg.connect(empty["database_url"])
        try:
            restored = {**manifest["tables"], "hocket.restoration": 1}
            assert await tables.counted(target) == restored
            assert await tables.counted(source) == manifest["tables"]
            row = await target.fetchrow("SELECT * FROM hocket.restoration")
            assert row["backup_began_at"].isoformat() == manifest["began_at"]
            assert await target.fetchval(TRIGGERS) == await source.fetchval(TRIGGERS) > 0
            assert await target.fetchval("SELECT count(*) FROM hocket.step") == 3
            spans = "SELECT suffix, from_at, to_at FROM hocket.step_days ORDER BY from_at"
            assert await target.fetch(spans) == await source.fetch(spans)
            await target.execute(RUN, "later", datetime.now(UTC))
            await target.execute(STEP, "later", datetime.now(UTC))  # goes where the others are
            assert await target.fetchval("SELECT count(*) FROM ONLY hocket.step") == 0
            new = "INSERT INTO retrieval.collection (tenant, name) VALUES ('acme', 'bills')"
            await target.execute(new)  # its number follows those that were restored
        finally:
            await target.close()
        wanted = {"seq": 1, "next_by_subj": ">"}
        kept = await bus.api(f"STREAM.MSG.GET.{subjects.TASKS}", wanted, timeout_ms=5_000)
        assert kept["message"]["subject"] == TASK
        headers = headers_of(b64decode(kept["message"]["hdrs"]))
        assert task_identity(headers, 0, 0) == ("one", True)  # it is known by the id that it had
        assert await migrations.current(empty["database_url"]) == migrations.head()
    finally:
        await source.execute("DELETE FROM retrieval.collection WHERE name = 'letters'")
        await bus.close()
        await source.execute("DROP DATABASE restored WITH (FORCE)")
        await source.close()


async def test_a_nats_whose_logs_hold_messages_is_not_empty(
    servers: EmbeddedServers, nats_url: str, database_url: str, tmp_path: Path
) -> None:
    bus = await Bus.connect(nats_url, name="test")
    source = await asyncpg.connect(database_url)
    await source.execute("CREATE DATABASE lost")
    try:
        await backups.take(tmp_path / "backup", nats_url=nats_url, database_url=database_url)
        await ensure_streams(bus)
        await bus.publish(subjects.log(0, "accepted"), b"{}", msg_id="of a lost run")
        empty = {"nats_url": nats_url, "database_url": servers.postgres.url_of("lost")}
        with pytest.raises(TargetNotEmpty, match="streams"):
            await backups.put_back(tmp_path / "backup", **empty, replicas=1)
        assert await migrations.current(empty["database_url"]) is None
    finally:
        await bus.close()
        await source.execute("DROP DATABASE lost WITH (FORCE)")
        await source.close()


async def test_a_backup_that_is_not_whole_changes_nothing(
    nats_url: str, database_url: str, tmp_path: Path
) -> None:
    urls = {"nats_url": nats_url, "database_url": database_url}
    await backups.take(tmp_path / "backup", **urls)
    (tmp_path / "backup" / "nats" / "TASKS.jsonl").write_text("changed")
    with pytest.raises(BackupUnreadable, match=r"TASKS\.jsonl"):
        await backups.put_back(tmp_path / "backup", **urls, replicas=1)
    (tmp_path / "backup" / "manifest.json").unlink()
    with pytest.raises(BackupUnreadable, match="No such file"):
        await backups.put_back(tmp_path / "backup", **urls, replicas=1)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), BackupFolderUnusable),
        (ConnectionResetError("it was reset"), DatabaseUnavailable),
        (asyncpg.ConnectionDoesNotExistError("it was closed"), DatabaseUnavailable),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
async def test_a_backup_that_breaks_off_says_whether_its_folder_or_postgres_is_the_cause(
    nats_url: str,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    expected: type[Exception],
) -> None:
    async def copy_out(_connection: asyncpg.Connection, _folder: Path) -> dict[str, Any]:
        raise error

    monkeypatch.setattr(tables, "copy_out", copy_out)
    with pytest.raises(expected, match=r"No space|was reset|was closed"):
        await backups.take(tmp_path / "backup", nats_url=nats_url, database_url=database_url)
    assert not (tmp_path / "backup" / "manifest.json").exists()


async def test_a_restored_database_without_all_rows_is_not_said_to_be_as_it_was(
    servers: EmbeddedServers, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error said that nothing was changed."""

    async def counted(_connection: asyncpg.Connection) -> dict[str, int]:
        return {}

    source = await asyncpg.connect(database_url)
    await source.execute("CREATE DATABASE incomplete")
    urls = {"nats_url": servers.nats_url, "database_url": database_url}
    try:
        await backups.take(tmp_path / "backup", **urls)
        monkeypatch.setattr(tables, "counted", counted)
        urls["database_url"] = servers.postgres.url_of("incomplete")
        with pytest.raises(BackupIncomplete, match=r"hocket\.run, .* drop it"):
            await backups.put_back(tmp_path / "backup", **urls, replicas=1)
    finally:
        await source.execute("DROP DATABASE incomplete WITH (FORCE)")
        await source.close()


async def test_a_restore_that_postgres_ends_says_so_and_what_to_do_with_the_database(
    servers: EmbeddedServers, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def copy_in(*_: object) -> None:
        raise asyncpg.DiskFullError("could not extend file: No space left on device")

    source = await asyncpg.connect(database_url)
    await source.execute("CREATE DATABASE full_disk")
    urls = {"nats_url": servers.nats_url, "database_url": database_url}
    try:
        await backups.take(tmp_path / "backup", **urls)
        monkeypatch.setattr(tables, "copy_in", copy_in)
        urls["database_url"] = servers.postgres.url_of("full_disk")
        with pytest.raises(DatabaseUnavailable, match=r"No space .*drop this database"):
            await backups.put_back(tmp_path / "backup", **urls, replicas=1)
    finally:
        await source.execute("DROP DATABASE full_disk WITH (FORCE)")
        await source.close()


async def test_a_backup_of_one_nats_server_is_restored_on_three(
    servers: EmbeddedServers, nats_url: str, database_url: str, tmp_path: Path
) -> None:
    old = await Bus.connect(nats_url, name="test")
    await ensure_streams(old)
    await old.publish(TASK, b'{"n": 1}', msg_id="one")
    await old.close()
    await backups.take(tmp_path / "backup", nats_url=nats_url, database_url=database_url)
    source = await asyncpg.connect(database_url)
    await source.execute("CREATE DATABASE moved")
    three = Servers(tmp_path)
    try:
        for number in range(3):
            await three.start(number)
        url = ",".join(three.urls)
        await leader(url)
        empty = {"nats_url": url, "database_url": servers.postgres.url_of("moved")}
        await backups.put_back(tmp_path / "backup", **empty, replicas=3)
        new = await Bus.connect(url, name="test")
        for name in (one["name"] for one in stream_configs()):
            found = await new.api(f"STREAM.INFO.{name}", {}, timeout_ms=5_000)
            held = found["state"]["messages"]
            assert (found["config"]["num_replicas"], held) == (3, int(name == subjects.TASKS))
        await new.close()
    finally:
        await three.stop()
        await source.execute("DROP DATABASE moved WITH (FORCE)")
        await source.close()
