"""What the coordinator reads from and writes to Postgres about pipelines: their specs, and how long
their nodes take."""

from collections.abc import Iterable

import asyncpg

from hocket.coordinator.core.time.duration_estimates import Estimate
from hocket.coordinator.storage.pipelines.release import Release


class PipelineStore:
    """The statements that read pipelines, and store the durations of their nodes."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def spec(self, tenant: str, pipeline: str, version: int) -> str | None:
        """Return the spec (JSON text) of a version of a pipeline, as it was written."""
        found: str | None = await self._pool.fetchval(_SPEC, tenant, pipeline, version)
        return found

    async def release(self, tenant: str, pipeline: str) -> Release | None:
        """Return which version a run takes that names none; None if there is no such pipeline."""
        row = await self._pool.fetchrow(_RELEASE, tenant, pipeline)
        return None if row["newest"] is None else Release(*row.values())

    async def durations(self, tenant: str, pipeline: str) -> dict[str, Estimate]:
        """Return how long the nodes of a pipeline took, by node path."""
        rows = await self._pool.fetch(_DURATIONS, tenant, pipeline)
        return {r["path"]: Estimate(r["mean_ms"], r["variance"], r["weight"]) for r in rows}

    async def keep_durations(self, durations: Iterable[tuple[str, str, str, Estimate]]) -> None:
        """Store estimates by (tenant, pipeline, path)."""
        rows = [(t, p, path, e.weight, e.mean_ms, e.variance) for t, p, path, e in durations]
        await self._pool.executemany(_KEEP_DURATION, rows)


_SPEC = """
SELECT coalesce(document, spec::text) FROM hocket.pipeline
WHERE tenant = $1 AND name = $2 AND version = $3
"""
_RELEASE = """
SELECT (SELECT max(version) FROM hocket.pipeline WHERE tenant = $1 AND name = $2) AS newest,
       r.active_version, r.canary_version, coalesce(r.canary_share, 0)::double precision,
       r.archived_at IS NOT NULL
FROM (SELECT) AS one
LEFT JOIN hocket.pipeline_release r ON r.tenant = $1 AND r.name = $2
"""
_DURATIONS = """
SELECT path, weight, mean_ms, variance FROM hocket.duration WHERE tenant = $1 AND pipeline = $2
"""
_KEEP_DURATION = """
INSERT INTO hocket.duration (tenant, pipeline, path, weight, mean_ms, variance)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant, pipeline, path) DO UPDATE
SET weight = excluded.weight, mean_ms = excluded.mean_ms, variance = excluded.variance,
    updated_at = now()
"""
