"""Brings the schema of Postgres to this release, with Alembic.

Many processes may call `migrate` at once: the lock on the table of revisions lets one of them work, and
the others then find it done. The first time, that table does not exist, so an advisory lock is used.

The previous release may keep running during a migration. So each revision has a transaction of its own,
and first locks those tables that are written all the time which it names (`migrating/locks.py`). It
waits for a lock for LOCK_TIMEOUT_MS; then it lets the others go on for a while, and tries again. An
empty database gets all revisions in one transaction.

A newer schema is left as it is: this release can run on the next release's schema, so that one can roll
back to it (docs/how-to/upgrade.md). The revisions are in the folder `migrations/` of the checkout, or in
the installed package.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import asyncpg
import structlog

from hocket.kit.postgres import requirements
from hocket.kit.postgres.database import SESSION
from hocket.kit.postgres.migrating import indexes, locks
from hocket.kit.postgres.migrating.holders import Holders
from hocket.schemas.errors import ErrorClass, HocketError

REVISIONS = "public.hocket_revision"
LOCK = f"LOCK TABLE {REVISIONS} IN SHARE ROW EXCLUSIVE MODE"
"""Only logins that may write the table can take this lock, so no login for reports can hold it."""
FIRST_LOCK = "SELECT pg_advisory_xact_lock(7306411)"
LOCK_TIMEOUT_MS = 500
"""How long others may have to wait because a revision waits for its locks."""
LOCK_WAIT_S = 60
"""How long this process waits for another one that migrates."""
TRIES = 60
"""For each revision; together with the pauses these take about five minutes."""
PAUSE_S = 0.5
"""Pause after a try that failed because of a lock; it grows by this much each time, up to
MAX_PAUSE_S."""
MAX_PAUSE_S = 5.0
SAY_AFTER = frozenset((2, *range(5, TRIES, 5)))
"""The numbers of the tries after which the log says who is in the way."""
_NO_TIME_LIMITS = """
SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name IN
    ('statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout', 'lock_timeout')
"""
POLL_S = 0.1
SCHEMA = "schema"
"""The component of a process's health that is not well while it waits for its schema."""
REVISION_DIGITS = 4


log = structlog.get_logger(__name__)


class SchemaNotReady(HocketError):
    """Postgres is at schema {found}, but this release needs {wanted}. Run `hocket migrate`, or wait
    for the process that is migrating it."""

    code = "schema_not_ready"
    error_class = ErrorClass.UNAVAILABLE


class MigrationFailed(HocketError):
    """The schema cannot be brought to this release: {reason}. The revision that failed changed nothing;
    those before it are done, and `hocket migrate` goes on from there. See docs/how-to/postgres.md."""

    code = "migration_failed"


class MigrationBlocked(MigrationFailed):
    """The schema cannot be brought to this release now: after {tries} tries there is still a lock in the
    way ({reason}), held by {holders}. {cure}, and run `hocket migrate` again: it goes on from where it
    is."""

    code = "migration_blocked"
    error_class = ErrorClass.UNAVAILABLE


async def migrate(database_url: str, revision: str = "head") -> None:
    """Bring the database to a revision (the newest by default). Raises DatabaseUnfit if the database
    lacks something, and DatabaseRefused, DatabaseUnavailable, SessionsShared, MigrationFailed and
    MigrationBlocked."""
    await requirements.check(database_url)
    # imported here: only the process that migrates pays for SQLAlchemy and Alembic (0.7 s)
    from alembic.util import CommandError
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    engine = create_async_engine(  # asyncpg parses the URL: SQLAlchemy does not know `sslmode`
        "postgresql+asyncpg://",
        async_creator=lambda: _connected(database_url),
        poolclass=NullPool,
    )
    failures = (
        DBAPIError,
        CommandError,
        ValueError,
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
    )
    tries, holders = 0, Holders()
    try:
        while True:
            try:
                if await _step(engine, database_url, revision, holders if tries else None):
                    return
                tries, holders = 0, Holders()
            except failures as error:
                tries += 1
                _give_up_or_say(error, tries, holders)
                await asyncio.sleep(min(PAUSE_S * tries, MAX_PAUSE_S))
    finally:
        await engine.dispose()


async def _connected(database_url: str) -> asyncpg.Connection:
    """Open a session without the time limits that the database sets for others."""
    connection = await asyncpg.connect(database_url, server_settings=SESSION)
    await connection.execute(_NO_TIME_LIMITS)
    return connection


async def _step(engine: Any, database_url: str, revision: str, holders: Holders | None) -> bool:
    """Run one revision in a transaction of its own; return whether it was the last one. `holders` notes
    who is in the way."""
    async with engine.connect() as connection:
        if holders is None:
            return await _run_one(connection, database_url, revision)
        asked = await connection.exec_driver_sql("SELECT pg_catalog.pg_backend_pid()")
        async with holders.watching(database_url, asked.scalar_one()):
            return await _run_one(connection, database_url, revision)


async def _run_one(connection: Any, database_url: str, revision: str) -> bool:
    plan: _Plan | None = await connection.run_sync(_begin, revision)
    if plan is None:
        return True
    if plan.indexes:  # the lock on the table of revisions keeps others from building them, too
        # after a SELECT its snapshot stays open until the next statement, and the build waits for it
        await connection.exec_driver_sql(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")
        await indexes.build_concurrently(
            database_url, plan.indexes, lambda: _connected(database_url)
        )
    await connection.run_sync(_apply, plan)
    await connection.commit()
    log.info("schema_migrated", revision=plan.target)
    return plan.is_last


def _give_up_or_say(error: Exception, tries: int, holders: Holders) -> None:
    """Raise MigrationFailed, or MigrationBlocked after the last try; before that, say who is in the
    way."""
    reason = str(getattr(error, "orig", None) or error).partition("\n")[0]
    if not locks.met_a_lock(error):
        raise MigrationFailed(reason=reason) from error
    if tries >= TRIES:
        who = str(holders) or "nobody who could be seen"
        raise MigrationBlocked(
            tries=tries, reason=reason, holders=who, cure=holders.cure
        ) from error
    say = log.warning if tries in SAY_AFTER else log.info
    say("migration_tried_again", reason=reason, tries=tries, holders=str(holders) or None)


async def current(database_url: str) -> str | None:
    """Return the revision that the database is at, None before the first migration."""
    connection = await asyncpg.connect(database_url, timeout=5)
    try:
        found = await connection.fetchval("SELECT to_regclass('public.hocket_revision')")
        if found is None:
            return None
        revision: str | None = await connection.fetchval(
            "SELECT version_num FROM public.hocket_revision"
        )
        return revision
    finally:
        await connection.close()


def head() -> str:
    """Return the newest revision of this release."""
    return _numbers()[-1]


def _numbers() -> list[str]:
    """Return all revisions of this release; the numbers in the file names order them."""
    files_of_revisions = (folder() / "versions").glob("[0-9]*.py")
    return sorted(file.name[:REVISION_DIGITS] for file in files_of_revisions)


async def wait_current(
    database_url: str, timeout_ms: float, report: Callable[[str, bool, str], None] | None = None
) -> None:
    """Wait until the database is at this release's revision or a later one, or raise SchemaNotReady.
    Meanwhile `report` gets the reason, for the health of the process."""
    wanted = head()
    waits: SchemaNotReady | None = None
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    while waits is None or loop.time() < deadline:
        found = await _found(database_url)
        if is_at_least(found, wanted):
            if waits is not None and report is not None:
                report(SCHEMA, True, "")
            return
        if waits is None:
            log.warning("schema_not_ready", found=found, wanted=wanted)
        waits = SchemaNotReady(found=found, wanted=wanted)
        if report is not None:
            report(SCHEMA, False, str(waits))
        await asyncio.sleep(POLL_S)
    raise waits


async def _found(database_url: str) -> str | None:
    """Return the revision that the database is at, or why that is not known."""
    try:
        return await current(database_url)
    except (
        OSError,
        asyncpg.PostgresError,
        asyncpg.InternalClientError,
        TimeoutError,
    ) as error:
        return f"unknown ({error})"


def is_at_least(found: str | None, wanted: str) -> bool:
    """Tell whether a revision is the wanted one or a later one; their numbers order them."""
    return found is not None and found.isdigit() and found >= wanted


def folder() -> Path:
    """Return the folder of the revisions."""
    packaged = Path(str(files("hocket.kit"))) / "_migrations"
    return packaged if packaged.exists() else Path(__file__).parents[4] / "migrations"


def run_sql(name: str) -> None:
    """Run the statements of `migrations/sql/NAME` in the transaction of the revision that calls this."""
    from alembic import op

    text = (folder() / "sql" / name).read_text()
    # on the driver's own connection: a file holds many statements, and colons that are not parameters
    dbapi: Any = op.get_bind().connection.dbapi_connection
    dbapi.run_async(lambda driver: driver.execute(text))


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one transaction does: the revision that it leads to, and what that needs before."""

    target: str
    locks: Mapping[str, str]
    indexes: Sequence[str] = ()
    is_last: bool = True


def _begin(connection: Any, revision: str) -> _Plan | None:
    """Keep other processes from migrating, and return what is next; None if nothing is."""
    from alembic.script import ScriptDirectory
    from sqlalchemy import text

    connection.execute(text(f"SET lock_timeout = {LOCK_WAIT_S * 1000}"))
    known = connection.execute(text(f"SELECT to_regclass('{REVISIONS}')")).scalar()
    connection.execute(text(FIRST_LOCK if known is None else LOCK))
    connection.execute(text(f"SET lock_timeout = {LOCK_TIMEOUT_MS}"))
    if _is_down(revision):
        return _Plan(revision, locks.EVERYTHING)
    found = known and connection.execute(text(f"SELECT version_num FROM {REVISIONS}")).scalar()
    if found is None:
        return _Plan(revision, {})
    last = head() if revision == "head" else revision
    if is_at_least(found, last):
        return None
    script = ScriptDirectory.from_config(_config())
    script.get_revisions((found, last))  # raises CommandError if there is no such one
    target = next(number for number in _numbers() if number > found)
    module = script.get_revision(target).module
    return _Plan(target, locks.locks_of(module), indexes.indexes_of(module), target == last)


def _apply(connection: Any, plan: _Plan) -> None:
    from alembic import command

    locks.lock_tables(connection, plan.locks, LOCK_TIMEOUT_MS)
    config = _config()
    config.attributes["connection"] = connection
    (command.downgrade if _is_down(plan.target) else command.upgrade)(config, plan.target)


def _is_down(revision: str) -> bool:
    return revision == "base" or revision.startswith("-")


def _config() -> Any:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(folder()))
    return config
