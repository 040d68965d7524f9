"""What can be read about pipelines."""

import json

from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.schemas.errors import InvalidInput, PipelineUnknown
from hocket.schemas.rest import MAX_PAGE, PipelineDetail, PipelineSummary

LATEST_VERSION = "SELECT max(version) FROM hocket.pipeline WHERE tenant = $1 AND name = $2"
"""The number of the latest version."""

LATEST_OF_ALL = """
SELECT DISTINCT ON (name)
       name, version, spec ->> 'description' AS description, spec ->> 'class' AS priority,
       (spec ->> 'slo_ms')::double precision AS slo_ms,
       (SELECT count(*) FROM jsonb_object_keys(spec -> 'nodes')) AS nodes,
       created_at
FROM hocket.pipeline
WHERE tenant = $1 AND name > $2
ORDER BY name, version DESC
LIMIT $3
"""
"""The latest version of each pipeline of a tenant, by name."""

ONE_VERSION = """
SELECT name, version, spec, spec_hash, created_at, created_by
FROM hocket.pipeline
WHERE tenant = $1 AND name = $2 AND version = $3
"""
"""One version with its spec."""

VERSIONS = """
SELECT version FROM hocket.pipeline
WHERE tenant = $1 AND name = $2
ORDER BY version DESC
LIMIT $3
"""
"""The version numbers of a pipeline, the latest first."""

UNKNOWN_NAMES = """
SELECT name FROM unnest($2::text[]) AS wanted (name)
WHERE NOT EXISTS (SELECT FROM hocket.pipeline p WHERE p.tenant = $1 AND p.name = wanted.name)
"""
"""Which of these names are not pipelines of the tenant."""


async def latest_version(pool: Pool, tenant: str, name: str) -> int | None:
    """Return the number of the latest version; None where there is no such pipeline."""
    found: int | None = await pool.fetchval(LATEST_VERSION, tenant, name, timeout=QUERY_TIMEOUT_S)
    return found


async def list_pipelines(
    pool: Pool, tenant: str, after: str, limit: int
) -> tuple[PipelineSummary, ...]:
    """Return the latest version of each pipeline, by name."""
    rows = await pool.fetch(LATEST_OF_ALL, tenant, after, limit, timeout=QUERY_TIMEOUT_S)
    return tuple(
        PipelineSummary(
            pipeline=row["name"],
            version=row["version"],
            description=row["description"] or "",
            priority=row["priority"],
            slo_ms=row["slo_ms"],
            nodes=row["nodes"],
            created_at=row["created_at"],
        )
        for row in rows
    )


async def version_of(pool: Pool, tenant: str, name: str, version: int | None) -> PipelineDetail:
    """Return one version (the latest for None), or raise PipelineUnknown or InvalidInput."""
    versions = await pool.fetch(VERSIONS, tenant, name, MAX_PAGE, timeout=QUERY_TIMEOUT_S)
    if not versions:
        raise PipelineUnknown(pipeline=name, tenant=tenant)
    numbers = tuple(row["version"] for row in versions)
    row = await pool.fetchrow(
        ONE_VERSION, tenant, name, version or numbers[0], timeout=QUERY_TIMEOUT_S
    )
    if row is None:
        raise InvalidInput(
            field="version",
            reason=f"pipeline `{name}` has no version {version}",
            cure=f"The latest is {numbers[0]}.",
        )
    return PipelineDetail(
        pipeline=row["name"],
        version=row["version"],
        versions=numbers,
        spec=json.loads(row["spec"]),
        spec_hash=row["spec_hash"],
        created_at=row["created_at"],
        created_by=row["created_by"],
    )


async def unknown_names(pool: Pool, tenant: str, names: list[str]) -> list[str]:
    """Return which of these names are not pipelines of the tenant."""
    if not names:
        return []
    rows = await pool.fetch(UNKNOWN_NAMES, tenant, names, timeout=QUERY_TIMEOUT_S)
    return [row["name"] for row in rows]
