"""The existing tenants."""

from hocket.admin.queries import QUERY_TIMEOUT_S, Pool

MAX_TENANTS = 500

TENANTS = """
WITH RECURSIVE running(tenant) AS (
    SELECT min(tenant) FROM hocket.run
    UNION ALL
    SELECT (SELECT min(tenant) FROM hocket.run WHERE tenant > running.tenant)
    FROM running WHERE running.tenant IS NOT NULL
)
(SELECT tenant FROM running WHERE tenant IS NOT NULL LIMIT $1)
UNION SELECT tenant FROM hocket.pipeline
UNION SELECT tenant FROM hocket.api_key WHERE tenant IS NOT NULL
ORDER BY 1 LIMIT $1
"""
"""Tenants with runs, pipelines or keys. The index of runs is probed once per tenant, however many runs
it has."""


async def tenant_names(pool: Pool) -> list[str]:
    """Return the names of the first MAX_TENANTS tenants."""
    rows = await pool.fetch(TENANTS, MAX_TENANTS, timeout=QUERY_TIMEOUT_S)
    return [row["tenant"] for row in rows]
