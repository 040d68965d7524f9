"""The table of releases: which version of a pipeline is used by runs that name none.

If a pipeline has no row, its newest version is active. As long as the newest is, applying a version
changes the active and the former one, but not the row. Each change increments the row's revision, so
that concurrent changes are detected. The row of a deleted pipeline stays: if the pipeline is created
again, its versions must get new numbers, since coordinators cache compiled versions by number.
"""

import json
from typing import Any

import asyncpg

from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.schemas.administration.releases import Canary, PipelineRelease
from hocket.schemas.errors import InvalidInput, PipelineUnknown

COLUMNS = """p.name, p.newest, r.active_version, r.canary_version, r.canary_share,
       r.canary_since, r.canary_rule, r.archived_at, r.changed_at, r.changed_by,
       coalesce(r.revision, 0) AS revision, coalesce(r.active_version, p.newest) AS active,
       CASE WHEN r.active_version IS NULL
                 AND (coalesce(r.revision, 0) = 0 OR p.applied_at > r.changed_at)
            THEN p.lower ELSE r.former_version END AS former_version,
       extract(epoch FROM clock_timestamp() - greatest(
           p.applied_at, CASE WHEN r.revision > 0 THEN r.changed_at END))::double precision AS since_s"""

FIND = f"""
SELECT {COLUMNS}
FROM (SELECT $2::text AS name, max(version) AS newest, max(created_at) AS applied_at,
             nullif(min(version), max(version)) AS lower
      FROM (SELECT version, created_at FROM hocket.pipeline WHERE tenant = $1 AND name = $2
            ORDER BY version DESC LIMIT 2) latest) p
LEFT JOIN hocket.pipeline_release r ON r.tenant = $1 AND r.name = $2
"""

MAKE = """
INSERT INTO hocket.pipeline_release (tenant, name, revision) VALUES ($1, $2, 0)
ON CONFLICT (tenant, name) DO NOTHING
"""
LOCK = "SELECT FROM hocket.pipeline_release WHERE tenant = $1 AND name = $2 FOR UPDATE"

CHOOSE = """
UPDATE hocket.pipeline_release
SET active_version = $3, former_version = $4, canary_version = $5, canary_share = $6,
    canary_since = CASE WHEN $5::integer IS NULL THEN NULL ELSE clock_timestamp() END, canary_rule = $7,
    archived_at = $8, changed_at = clock_timestamp(), changed_by = $9, revision = revision + 1
WHERE tenant = $1 AND name = $2
"""

EXISTS = (
    "SELECT EXISTS (SELECT FROM hocket.pipeline WHERE tenant = $1 AND name = $2 AND version = $3)"
)

BEFORE = "SELECT max(version) FROM hocket.pipeline WHERE tenant = $1 AND name = $2 AND version < $3"

IN_USE = "SELECT EXISTS (SELECT FROM hocket.run WHERE tenant = $1 AND pipeline = $2)"

DELETE_VERSIONS = """
WITH gone AS (DELETE FROM hocket.pipeline WHERE tenant = $1 AND name = $2 RETURNING version)
SELECT max(version) FROM gone
"""
"""Deletes all versions, and returns the number of the last one."""
DELETE_DURATIONS = "DELETE FROM hocket.duration WHERE tenant = $1 AND pipeline = $2"

BURY = """
UPDATE hocket.pipeline_release
SET last_version = greatest(last_version, $3), active_version = NULL, former_version = NULL,
    archived_at = NULL, changed_at = clock_timestamp(), changed_by = $4, revision = revision + 1
WHERE tenant = $1 AND name = $2
"""
"""What remains of a deleted pipeline: the number of its last version."""

CANARIES = """
SELECT tenant, name
FROM (SELECT tenant, name, row_number() OVER (PARTITION BY tenant ORDER BY random()) AS turn
      FROM hocket.pipeline_release
      WHERE canary_version IS NOT NULL AND NOT (canary_rule ->> 'only_by_hand')::boolean) AS running
ORDER BY turn LIMIT $1
"""
"""Canaries to judge, tenants in turn. If there are more, each look takes others of them, so that none
stays unjudged."""


async def find(connection: "Pool | asyncpg.Connection", tenant: str, name: str) -> asyncpg.Record:
    """Return the release of a pipeline, or raise PipelineUnknown."""
    row = await connection.fetchrow(FIND, tenant, name, timeout=QUERY_TIMEOUT_S)
    if row["newest"] is None:
        raise PipelineUnknown(pipeline=name, tenant=tenant)
    return row


async def locked(connection: asyncpg.Connection, tenant: str, name: str) -> asyncpg.Record:
    """Return the release like `find`, and lock it until the transaction ends."""
    row = await find(connection, tenant, name)
    if row["revision"] == 0:
        await connection.execute(MAKE, tenant, name, timeout=QUERY_TIMEOUT_S)
    await connection.execute(LOCK, tenant, name, timeout=QUERY_TIMEOUT_S)
    return await find(connection, tenant, name)


async def check_version(
    connection: asyncpg.Connection, tenant: str, row: asyncpg.Record, version: int
) -> None:
    """Raise InvalidInput if a pipeline has no such version."""
    if not await connection.fetchval(EXISTS, tenant, row["name"], version, timeout=QUERY_TIMEOUT_S):
        raise InvalidInput(
            field="version",
            reason=f"pipeline `{row['name']}` has no version {version}",
            cure=f"The newest is {row['newest']}.",
        )


def shown(row: asyncpg.Record) -> PipelineRelease:
    """Return what callers see of a release."""
    return PipelineRelease(
        pipeline=row["name"],
        newest_version=row["newest"],
        active_version=row["active"],
        pinned=row["active_version"] is not None,
        former_version=row["former_version"],
        canary=canary_of(row),
        archived_at=row["archived_at"],
        changed_at=row["changed_at"],
        changed_by=row["changed_by"],
    )


def canary_of(row: asyncpg.Record) -> Canary | None:
    """Return the canary of a release, if it has one."""
    if row["canary_version"] is None:
        return None
    rule: dict[str, Any] = json.loads(row["canary_rule"])
    return Canary(
        version=row["canary_version"],
        share=row["canary_share"],
        since=row["canary_since"],
        **rule,
    )
