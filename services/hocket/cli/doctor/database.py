"""The database checks of `hocket doctor`: release, settings, pgvector, migrations, poolers, standbys,
retention, vector indexes, restores."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import asyncpg

from hocket.cli.doctor import replication
from hocket.cli.doctor.certificates import Certificate, peer_certificate, shown
from hocket.cli.doctor.clocks import ClockReading
from hocket.cli.doctor.findings import Finding, Verdict, listed
from hocket.cli.doctor.server_settings import server_settings
from hocket.kit.postgres import restorations, vector_indexes
from hocket.kit.postgres.database import said
from hocket.kit.postgres.errors import STATEMENT_ERRORS
from hocket.kit.postgres.pooler import Pooling, pooling_of
from hocket.kit.postgres.requirements import OLDEST_VERSION

TIMEOUT_S = 5.0
RESTORE_TOLD = timedelta(days=7)
CURES = (
    (
        asyncpg.InsufficientPrivilegeError,
        "Name the login that owns Hocket's schema in DATABASE_URL, or grant this one access to it.",
    ),
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        "Correct the user and the password in DATABASE_URL, or the server's pg_hba.conf.",
    ),
    (asyncpg.InvalidCatalogNameError, "Create the database, or correct DATABASE_URL."),
)
"""What to do about errors of a server that runs."""


@dataclass(slots=True)
class Database:
    """The findings about the database, and what other checks need: the number of partitions (None
    without the schema of this release), certificates, and the time it reports."""

    findings: list[Finding] = field(default_factory=list)
    partitions: int | None = None
    certificates: list[Certificate] = field(default_factory=list)
    readings: list[ClockReading] = field(default_factory=list)


async def look_at_database(url: str, found: Database) -> None:
    """Run all checks of the database; if it cannot be reached, that is a finding."""
    try:
        found.findings += await replication.servers(url)
        async with connected(url) as connection:
            found.findings.append(_postgres_version(connection))
            found.findings.append(await server_settings(connection))
            found.certificates += shown("postgres", peer_certificate(_transport(connection)))
            found.findings += await _pooler(url)
            found.readings.append(await _clock(connection))
            expected = bool(replication.places_of(url))
            found.findings += await replication.standbys(connection, expected=expected)
            found.findings.append(await _pgvector(connection))
            found.findings += await _schema(url, connection, found)
    except STATEMENT_ERRORS as error:
        found.findings.append(Finding("postgres", Verdict.FAILED, said(error), _cure(error)))


def _cure(error: Exception) -> str:
    for kind, cure in CURES:
        if isinstance(error, kind):
            return cure
    return "Start the server, or correct DATABASE_URL."


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """Connect to the database; raises one of STATEMENT_ERRORS."""
    connection = await asyncpg.connect(url, timeout=TIMEOUT_S, command_timeout=TIMEOUT_S)
    try:
        yield connection
    finally:
        await connection.close(timeout=TIMEOUT_S)


def _transport(connection: Any) -> object:
    return getattr(connection, "_transport", None)  # asyncpg has no public name for it


async def _clock(connection: Any) -> ClockReading:
    asked_s = time.time()
    said_s = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
    return ClockReading("postgres", said_s, asked_s, time.time())


async def _pooler(url: str) -> list[Finding]:
    pooling = await pooling_of(lambda: asyncpg.connect(url, timeout=TIMEOUT_S))
    if pooling is Pooling.NONE:
        return []
    if pooling is Pooling.SESSION:
        found = "a pooler is in front of Postgres; sessions are not shared"
        return [Finding("pooler", Verdict.OK, found)]
    found = "a pooler shares sessions between clients across transactions"
    cure = "Set pool_mode = session for this database: docs/how-to/postgres.md#pgbouncer"
    return [Finding("pooler", Verdict.FAILED, found, cure)]


def _postgres_version(connection: Any) -> Finding:
    version = connection.get_server_version()
    found = f"{version.major}.{version.minor}"
    if version.major * 10_000 >= OLDEST_VERSION:
        return Finding("postgres", Verdict.OK, found)
    return Finding("postgres", Verdict.FAILED, found, "Use Postgres 15 or later.")


async def _pgvector(connection: Any) -> Finding:
    row = await connection.fetchrow(
        "SELECT default_version, installed_version FROM pg_available_extensions"
        " WHERE name = 'vector'"
    )
    if row is None:
        cure = "Install pgvector on the server: docs/how-to/postgres.md."
        return Finding("pgvector", Verdict.FAILED, "not available", cure)
    made = row["installed_version"]
    return Finding("pgvector", Verdict.OK, made or f"{row['default_version']}, not yet in use")


async def _schema(url: str, connection: Any, found: Database) -> list[Finding]:
    from hocket.kit.postgres.migrations import current, head, is_at_least

    at, newest = await current(url), head()
    if at is None or not is_at_least(at, newest):
        told, cure = (
            f"at {at or 'nothing'}; the newest is {newest}",
            "Run hocket migrate, or hocket up.",
        )
        return [Finding("migrations", Verdict.FAILED, told, cure)]
    found.partitions = await connection.fetchval("SELECT count(*) FROM hocket.partition")
    return [
        _migrations(at, newest),
        await _retention(connection),
        *await _vector_indexes(connection),
        *await _restored(connection),
    ]


def _migrations(at: str, newest: str) -> Finding:
    """Report a schema that this release can use."""
    if at == newest:
        return Finding("migrations", Verdict.OK, f"at {at}")
    told = f"at {at}, which is of a later release; the newest that this one knows is {newest}"
    cure = "Upgrade this release, unless you rolled back to it: docs/how-to/upgrade.md."
    return Finding("migrations", Verdict.NOTE, told, cure)


async def _vector_indexes(connection: Any) -> list[Finding]:
    """Report collections whose vectors have no index, and indexes of deleted collections, unless
    somebody is working on them."""
    found = await vector_indexes.faults(connection, unattended=True, timeout_s=TIMEOUT_S)
    needed = [one for one in found if one.dimension is not None]
    left = [one for one in found if one.dimension is None]
    told = [f"{listed(needed)}: without one, searches compare every vector"] if needed else []
    told += [f"{listed(left)}: of deleted collections or former models"] if left else []
    if not told:
        return []
    return [Finding("vector indexes", Verdict.NOTE, "; ".join(told), "Run hocket index repair.")]


async def _restored(connection: Any) -> list[Finding]:
    """Report what may be missing after a restore; only for some days, because it will not come back."""
    restored = await restorations.last(connection, timeout_s=TIMEOUT_S, within=RESTORE_TOLD)
    if restored is None:
        return []
    found = f"at {restored.restored_at}, from a backup of {restored.backup_at}"
    cure = "Submit tasks accepted in between again, with their idempotency keys."
    return [Finding("restored", Verdict.NOTE, found, cure)]


async def _retention(connection: Any) -> Finding:
    """Report the retention settings, and whether old data is actually being deleted."""
    rows = await connection.fetch(
        "SELECT kind, days, deleted, last_pass_at < now() - interval '1 day' AS late"
        " FROM hocket.retention ORDER BY kind"
    )
    if not rows:
        return Finding("retention", Verdict.NOTE, "no pass yet", "The ledger deletes expired data.")
    found = ", ".join(f"{row['kind']} {row['days']} d ({row['deleted']} deleted)" for row in rows)
    if late := ", ".join(row["kind"] for row in rows if row["late"]):
        cure = (
            "If no ledger runs, start one: python -m hocket.ledger; otherwise its log says why"
            " (retention_of_kind_failed, retention_took_too_long); see docs/how-to/retention.md"
        )
        told = f"{found}; no pass within the last day: {late}"
        return Finding("retention", Verdict.NOTE, told, cure)
    return Finding("retention", Verdict.OK, found)
