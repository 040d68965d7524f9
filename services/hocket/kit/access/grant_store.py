"""Grants in Postgres: reads them, and replaces them in one transaction with their row in the audit."""

from dataclasses import dataclass

import asyncpg

from hocket.kit.access import audit_log
from hocket.kit.access.audit_log import Action, Actor
from hocket.kit.access.key_store import Pool
from hocket.schemas.access.grants import EVERYTHING, Grants
from hocket.schemas.access.key_messages import GrantsRow

QUERY_TIMEOUT_S = 2.5
PAGE = 20
"""Rows of one page."""
PAGE_CHARS = 256 * 1024
"""The size of a page as JSON. A single row has up to seven lists of 500 names and may be larger, but
still fits into a message."""

READ = "SELECT revision, grants FROM hocket.tenant_grants WHERE tenant = $1"
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('hocket.tenant_grants ' || $1, 0))"
"""An advisory lock, because a tenant may not have a row yet that could be locked."""
CHANGED = f"""
SELECT tenant, grants, change FROM hocket.tenant_grants WHERE change > $1 ORDER BY change LIMIT {PAGE}
"""
WRITE = """
INSERT INTO hocket.tenant_grants (tenant, grants, change)
VALUES ($1, $2, nextval('hocket.tenant_grants_change'))
ON CONFLICT (tenant) DO UPDATE
SET grants = excluded.grants, change = excluded.change, revision = tenant_grants.revision + 1,
    updated_at = clock_timestamp()
RETURNING revision
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """The grants of a tenant and their revision, which is 0 if none were ever set."""

    grants: Grants = EVERYTHING
    revision: int = 0


async def read(pool: Pool, tenant: str) -> Stored:
    """Return a tenant's grants."""
    return _stored(await pool.fetchrow(READ, tenant, timeout=QUERY_TIMEOUT_S))


async def changed(pool: Pool, after: int) -> list[GrantsRow]:
    """Return a page of the grants that changed after a change number, the earliest first."""
    rows = await pool.fetch(CHANGED, after, timeout=QUERY_TIMEOUT_S)
    found: list[GrantsRow] = []
    chars = 0
    for row in rows:
        chars += len(row["grants"])
        if found and chars > PAGE_CHARS:
            break
        grants = Grants.model_validate_json(row["grants"])
        found.append(GrantsRow(tenant=row["tenant"], grants=grants, change=row["change"]))
    return found


async def locked(connection: asyncpg.Connection, tenant: str) -> Stored:
    """Lock and return a tenant's grants, inside a transaction that may replace them."""
    await connection.execute(LOCK, tenant, timeout=QUERY_TIMEOUT_S)
    return _stored(await connection.fetchrow(READ, tenant, timeout=QUERY_TIMEOUT_S))


async def replace(
    connection: asyncpg.Connection, tenant: str, before: Stored, grants: Grants, actor: Actor
) -> Stored:
    """Replace a tenant's grants in the current transaction. The audit row is written first: it lets only
    one transaction write at a time, so that changes are numbered in the order of their commits."""
    done = Action(
        "grants.set",
        f"tenant:{tenant}",
        tenant,
        before=before.grants.model_dump(mode="json", exclude_none=True),
        after=grants.model_dump(mode="json", exclude_none=True),
    )
    await audit_log.record(connection, actor, done)
    text = grants.model_dump_json(exclude_none=True)
    revision = await connection.fetchval(WRITE, tenant, text, timeout=QUERY_TIMEOUT_S)
    return Stored(grants, revision)


def _stored(row: asyncpg.Record | None) -> Stored:
    if row is None:
        return Stored()
    return Stored(Grants.model_validate_json(row["grants"]), row["revision"])
