"""A migration beside a platform that goes on: which locks it takes, how long, and who is in its way."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text

from hocket.kit.postgres import migrations, requirements
from hocket.kit.postgres.migrating import locks

READS = "SELECT count(*) FROM hocket.run"
LONGEST_WAIT_S = 4.0
"""For a statement behind a migration, on a slow machine. A migration waited 5 s for each lock before."""
BOUND_S = 20.0
TAKEN = """
SELECT split_part(relname, '_', 1), mode FROM pg_locks JOIN pg_class c ON c.oid = relation
WHERE pg_locks.pid = pg_backend_pid() AND c.relnamespace = 'hocket'::regnamespace AND c.relkind = 'r'
  AND c.relname ~ '^(partition|run|step|attempt)(_[0-9]{8})?$'
"""
VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('hocket.run_by_test')"
RANK = {mode: number for number, mode in enumerate(locks.MODES)}
BLOCKING = {(table, mode) for table in locks.BUSY_TABLES for mode in locks.MODES}
INDEX = """indexes = (
    "CREATE INDEX CONCURRENTLY run_by_test ON hocket.run (tenant) WHERE facts = '{\\"a:b\\": 1}'::jsonb",
)
"""


class Releases:
    """A copy of this release's revisions, to which further ones can be added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, statement: str, declared: str = "") -> str:
        """Add a revision with a statement and with these declarations; return its number."""
        last = migrations.head()
        number = f"{int(last) + 1:04}"
        (self.folder / "versions" / number).with_suffix(".py").write_text(
            "from alembic import op\n"
            f"revision = {number!r}\ndown_revision = {last!r}\n{declared}\n"
            f"def upgrade():\n    op.execute({statement!r})\n\n\ndef downgrade():\n    pass\n"
        )
        return number


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Releases:
    """The revisions of this release and of those after it."""
    folder = tmp_path / "migrations"
    shutil.copytree(migrations.folder(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(migrations, "folder", lambda: folder)
    return Releases(folder)


@pytest.fixture
async def reader(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A session that has read runs and keeps its transaction open, as `pg_dump` does."""
    connection = await asyncpg.connect(
        database_url, server_settings={"application_name": "nightly report"}
    )
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    await connection.fetchval(READS)
    yield connection
    await connection.close()


@pytest.mark.parametrize(
    ("statement", "declared"),
    [
        ("CREATE TABLE hocket.of_test (x integer)", "locks = {}"),
        ("CREATE INDEX ON hocket.run (version)", "locks = {'run': 'SHARE'}"),
    ],
    ids=["touches no busy table", "stops writers alone"],
)
async def test_a_revision_that_stops_no_readers_waits_for_none(
    database_url: str, reader: asyncpg.Connection, releases: Releases, statement: str, declared: str
) -> None:
    wanted = releases.add(statement, declared)
    async with asyncio.timeout(BOUND_S):
        await migrations.migrate(database_url)
    assert await migrations.current(database_url) == wanted
    assert await reader.fetchval(READS) == 0, "it reads on"


async def test_what_waits_for_a_reader_stops_others_shortly_and_names_the_reader(
    database_url: str,
    reader: asyncpg.Connection,
    releases: Releases,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(migrations, "TRIES", 4)
    before = await migrations.current(database_url)
    wanted = releases.add("CREATE TABLE hocket.of_test (x integer)")  # it does not name its locks
    pid = await reader.fetchval("SELECT pg_backend_pid()")
    longest_s, reading = await _longest_read(database_url)
    try:
        with pytest.raises(migrations.MigrationBlocked) as blocked:
            await migrations.migrate(database_url)
    finally:
        reading.cancel()
        await asyncio.wait({reading})
    assert len(longest_s) > 10
    assert max(longest_s) < LONGEST_WAIT_S
    said = str(blocked.value)
    for part in (f"session {pid} ", "user `hocket`", "`nightly report`", "idle in transaction"):
        assert part in said
    assert f"pg_terminate_backend({pid})" in said
    assert await migrations.current(database_url) == before
    await reader.execute("COMMIT")
    await migrations.migrate(database_url)
    assert await migrations.current(database_url) == wanted


async def _longest_read(database_url: str) -> tuple[list[float], asyncio.Task[None]]:
    """Read runs again and again; return how long each of it took, and the task that reads."""
    took: list[float] = []
    connection = await asyncpg.connect(database_url)

    async def read() -> None:
        try:
            while True:
                began = time.monotonic()
                await connection.fetchval(READS)
                took.append(time.monotonic() - began)
                await asyncio.sleep(0.02)
        finally:
            connection.terminate()

    return took, asyncio.create_task(read())


async def test_each_revision_is_a_transaction_of_its_own(
    database_url: str, releases: Releases
) -> None:
    done = releases.add("CREATE TABLE hocket.of_test (x integer)", "locks = {}")
    releases.add("SELECT 1 / 0", "locks = {}")
    with pytest.raises(migrations.MigrationFailed, match="division by zero"):
        await migrations.migrate(database_url)
    assert await migrations.current(database_url) == done


async def test_every_revision_names_the_locks_that_it_takes(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that it takes in passing would not be taken in the order of writers."""
    taken: dict[str, set[tuple[str, str]]] = {}
    named: dict[str, dict[str, str]] = {}
    apply = migrations._apply

    def observed(connection: Any, plan: Any) -> None:
        apply(connection, plan)
        taken[plan.target] = {
            (table, _words(mode)) for table, mode in connection.execute(text(TAKEN))
        }
        named[plan.target] = dict(plan.locks)

    await migrations.migrate(database_url, "base")
    await migrations.migrate(database_url, "0001")
    monkeypatch.setattr(migrations, "_apply", observed)
    monkeypatch.setattr(locks, "lock_tables", lambda *_: None)
    await migrations.migrate(database_url)
    assert len(taken) > 60
    missing = [
        (number, table, mode)
        for number, found in taken.items()
        for table, mode in found & BLOCKING
        if RANK[mode] > RANK.get(named[number].get(table, ""), -1)
    ]
    assert missing == []


def _words(mode: str) -> str:
    """`AccessExclusiveLock` as it is written in SQL."""
    parts = "".join(f" {letter}" if letter.isupper() else letter for letter in mode).split()
    return " ".join(parts[:-1]).upper()


async def test_an_index_is_built_while_others_write(database_url: str, releases: Releases) -> None:
    wanted = releases.add("SELECT 1", f"locks = {{}}\n{INDEX}")
    owner, writer, other = [await asyncpg.connect(database_url) for _ in range(3)]
    try:
        await writer.execute("BEGIN; LOCK TABLE hocket.run IN ROW EXCLUSIVE MODE")
        migrating = asyncio.create_task(migrations.migrate(database_url))
        async with asyncio.timeout(BOUND_S):
            while await owner.fetchval(VALID) is None:
                assert not migrating.done(), "nobody builds it"
                await asyncio.sleep(0.02)
            await other.execute("BEGIN; LOCK TABLE hocket.run IN ROW EXCLUSIVE MODE; COMMIT")
            assert await owner.fetchval(VALID) is False, "it waits for the first writer"
            await writer.execute("COMMIT")
            await migrating
        assert await owner.fetchval(VALID) is True
        assert await migrations.current(database_url) == wanted
    finally:
        for connection in (owner, writer, other):
            await connection.close()


async def test_what_an_interrupted_build_left_is_built_anew(
    database_url: str, releases: Releases
) -> None:
    releases.add("SELECT 1", f"locks = {{}}\n{INDEX}")
    owner = await asyncpg.connect(database_url)
    try:
        await owner.execute("CREATE INDEX run_by_test ON hocket.run (version)")
        await owner.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'hocket.run_by_test'::regclass"
        )
        await migrations.migrate(database_url)
        assert await owner.fetchval(VALID) is True
        made = await owner.fetchval("SELECT pg_get_indexdef('hocket.run_by_test'::regclass)")
        assert "(tenant)" in made
    finally:
        await owner.close()


async def test_an_empty_database_gets_the_indexes_too(
    database_url: str, releases: Releases
) -> None:
    wanted = releases.add("SELECT 1", f"locks = {{}}\n{INDEX}")
    await migrations.migrate(database_url, "base")
    await migrations.migrate(database_url)
    assert await migrations.current(database_url) == wanted
    owner = await asyncpg.connect(database_url)
    assert await owner.fetchval(VALID) is True
    await owner.close()


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("indexes = ('CREATE INDEX a ON hocket.run (tenant)',)", "CONCURRENTLY"),
        ("indexes = ('CREATE INDEX CONCURRENTLY a ON hocket.step (tenant)',)", "has children"),
        ("locks = {'run': 'ACCESS SHARE'}", "which there is not"),
    ],
)
async def test_a_declaration_that_cannot_be_followed_is_told(
    database_url: str, releases: Releases, declared: str, said: str
) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute("SELECT hocket.cover_steps(now())")
    await connection.close()
    releases.add("SELECT 1", declared)
    with pytest.raises(migrations.MigrationFailed, match=said):
        await migrations.migrate(database_url)


async def test_the_databases_time_limits_do_not_end_a_migration(
    database_url: str, releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "LEAST_TIMEOUT_MS", 1)  # a minute would take the test as long
    wanted = releases.add("SELECT pg_sleep(1)", "locks = {}")
    name = database_url.rpartition("/")[2]
    owner = await asyncpg.connect(database_url)
    for limit in requirements.TIMEOUTS:
        await owner.execute(f"ALTER DATABASE {name} SET {limit} = '500ms'")
    await owner.close()
    await migrations.migrate(database_url)
    assert await migrations.current(database_url) == wanted
