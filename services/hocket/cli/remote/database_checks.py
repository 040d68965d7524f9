"""What `hocket doctor` checks of the database: its release, pgvector, migrations, owners, retention,
restores."""

from datetime import timedelta
from typing import Any

import asyncpg

from hocket.cli.remote.findings import Finding, Verdict
from hocket.cli.remote.target import Target
from hocket.kit.postgres import restorations
from hocket.kit.postgres.database import said
from hocket.kit.postgres.errors import AWAY
from hocket.kit.postgres.requirements import OLDEST_VERSION

TIMEOUT_S = 5.0
RESTORE_TOLD = timedelta(days=7)


async def database(target: Target) -> list[Finding]:
    """Return what is found of the database, nothing where none is known."""
    if target.known_database is None:
        return []
    try:
        connection = await asyncpg.connect(
            target.known_database, timeout=TIMEOUT_S, command_timeout=TIMEOUT_S
        )
    except (*AWAY, asyncpg.PostgresError) as error:
        cure = "Start the server, or correct DATABASE_URL."
        return [Finding("postgres", Verdict.FAILED, said(error), cure)]
    try:
        return [
            _postgres_version(connection),
            await _pgvector(connection),
            *await _migrations(target.known_database, connection),
        ]
    finally:
        await connection.close(timeout=TIMEOUT_S)


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


async def _migrations(url: str, connection: Any) -> list[Finding]:
    from hocket.kit.postgres.migrations import current, head

    at, newest = await current(url), head()
    if at != newest:
        found, cure = f"at {at or 'nothing'}, newest is {newest}", "`hocket up` applies them."
        return [Finding("migrations", Verdict.FAILED, found, cure)]
    row = await connection.fetchrow(
        "SELECT count(*) AS all, count(*) FILTER (WHERE owner <> '') AS owned FROM hocket.partition"
    )
    found = f"{row['owned']} of {row['all']} partitions have an owner"
    taken = row["all"] > 0 and row["owned"] == row["all"]
    return [
        Finding("migrations", Verdict.OK, f"at {at}"),
        await _retention(connection),
        *await _restored(connection),
        Finding("coordinator", Verdict.OK, found)
        if taken
        else Finding("coordinator", Verdict.FAILED, found, "Start: python -m hocket.coordinator"),
    ]


async def _restored(connection: Any) -> list[Finding]:
    """Tell what may be missing after a restore; for some days, for it does not come back."""
    restored = await restorations.last(connection, timeout_s=TIMEOUT_S, within=RESTORE_TOLD)
    if restored is None:
        return []
    found = f"at {restored.restored_at}, from a backup of {restored.backup_at}"
    cure = "Submit tasks that were accepted in between again, with their idempotency keys."
    return [Finding("restored", Verdict.NOTE, found, cure)]


async def _retention(connection: Any) -> Finding:
    """Tell what is deleted when, and whether it is."""
    rows = await connection.fetch(
        "SELECT kind, days, deleted, last_pass_at < now() - interval '1 day' AS late"
        " FROM hocket.retention ORDER BY kind"
    )
    if not rows:
        return Finding("retention", Verdict.NOTE, "no pass yet", "The ledger deletes what is old.")
    found = ", ".join(f"{row['kind']} {row['days']} d ({row['deleted']} gone)" for row in rows)
    if any(row["late"] for row in rows):
        cure = "Start: python -m hocket.ledger; see docs/how-to/retention.md"
        return Finding("retention", Verdict.NOTE, f"{found}; no pass for a day", cure)
    return Finding("retention", Verdict.OK, found)
