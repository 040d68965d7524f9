"""Reads pipelines for the API."""

import json
from typing import NamedTuple

from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.schemas.errors import InvalidInput, PipelineUnknown
from hocket.schemas.rest import MAX_PAGE, PipelineDetail, PipelineSummary

ACTIVE = """
SELECT coalesce(r.active_version, p.newest) AS version, r.archived_at IS NOT NULL AS is_archived
FROM (SELECT max(version) AS newest FROM hocket.pipeline WHERE tenant = $1 AND name = $2) p
LEFT JOIN hocket.pipeline_release r ON r.tenant = $1 AND r.name = $2
WHERE p.newest IS NOT NULL
"""
"""The version used by runs that name none, and whether the pipeline accepts runs at all."""

LATEST_OF_ALL = """
SELECT DISTINCT ON (name)
       name, version, coalesce(r.active_version, version) AS active_version, r.archived_at,
       spec ->> 'description' AS description, spec ->> 'class' AS priority,
       (spec ->> 'slo_ms')::double precision AS slo_ms,
       (SELECT count(*) FROM jsonb_object_keys(spec -> 'nodes')) AS nodes,
       created_at
FROM hocket.pipeline
LEFT JOIN hocket.pipeline_release r USING (tenant, name)
WHERE tenant = $1 AND name > $2 AND (r.archived_at IS NOT NULL) = $4
ORDER BY name, version DESC
LIMIT $3
"""
"""The latest version of each pipeline of a tenant, sorted by name."""

ONE_VERSION = """
SELECT name, version, coalesce(document, spec::text) AS spec, spec_hash, created_at, created_by
FROM hocket.pipeline
WHERE tenant = $1 AND name = $2 AND version = $3
"""
"""One version with its spec, as it was written."""

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


class ActiveVersion(NamedTuple):
    """The version used by a pipeline's runs that name none, and whether the pipeline accepts runs at
    all."""

    version: int
    is_archived: bool


async def active_version(pool: Pool, tenant: str, name: str) -> ActiveVersion | None:
    """Return which version runs use, or None if there is no such pipeline."""
    row = await pool.fetchrow(ACTIVE, tenant, name, timeout=QUERY_TIMEOUT_S)
    return None if row is None else ActiveVersion(*row.values())


async def not_taken(pool: Pool, tenant: str, name: str, version: int) -> tuple[str, ...]:
    """Return warnings if runs will not use the version that was just applied."""
    found = await active_version(pool, tenant, name)
    if found is None or (found.version == version and not found.is_archived):
        return ()
    if found.is_archived:
        return (f"`{name}` is archived and accepts no runs; `hocket pipeline unarchive {name}`.",)
    cure = f"`hocket pipeline activate {name} {version}` makes them use this one."
    return (f"Runs use version {found.version}, which is activated; {cure}",)


async def list_pipelines(
    pool: Pool, tenant: str, after: str, limit: int, *, archived: bool = False
) -> tuple[PipelineSummary, ...]:
    """Return the latest version of each pipeline, sorted by name: either of the archived ones or of the
    others."""
    values = (tenant, after, limit, archived)
    rows = await pool.fetch(LATEST_OF_ALL, *values, timeout=QUERY_TIMEOUT_S)
    return tuple(
        PipelineSummary(
            pipeline=row["name"],
            version=row["version"],
            active_version=row["active_version"],
            archived_at=row["archived_at"],
            description=row["description"] or "",
            priority=row["priority"],
            slo_ms=row["slo_ms"],
            nodes=row["nodes"],
            created_at=row["created_at"],
        )
        for row in rows
    )


async def version_of(pool: Pool, tenant: str, name: str, version: int | None) -> PipelineDetail:
    """Return one version (for None the latest), or raise PipelineUnknown or InvalidInput."""
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
