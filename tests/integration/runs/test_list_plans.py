"""By which index Postgres reads a list of runs: of millions, others would take seconds."""

from typing import Any

import pytest

from hocket.admin.runs.reads import LATEST_FIRST, SUMMARY, RunFilter, conditions_of
from hocket.kit.postgres.database import connect_pool

RUNS = """
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,
    accepted_at, deadline_at, finished_at, spent_usd)
SELECT 'r' || left(md5(n::text), 24), 0, 't' || n % 3, 'p', 1, status, 'standard', '{}', at, at,
    CASE WHEN status <> 'running' THEN at END, 0
FROM (SELECT n, now() - interval '1 min' * n AS at,
        CASE WHEN n > 11990 THEN 'running' WHEN n % 20 = 0 THEN 'failed' ELSE 'succeeded' END AS status
      FROM generate_series(1, 12000) n) runs
"""


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (RunFilter(), "run_by_time"),
        (RunFilter(status="running"), "run_running"),
        (RunFilter(status="failed"), "run_by_status"),
    ],
)
@pytest.mark.parametrize("plan", ["force_custom_plan", "force_generic_plan"])
async def test_a_list_is_read_by_its_own_index(
    database_url: str, wanted: RunFilter, index: str, plan: str
) -> None:
    async with (
        await connect_pool(database_url, size=1, name="plans") as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute(RUNS)
        await connection.execute("ANALYZE hocket.run")
        await connection.execute(f"SET LOCAL plan_cache_mode = {plan}")
        values: list[Any] = ["t0"]
        query = SUMMARY + conditions_of(wanted, values) + f"{LATEST_FIRST} 51"
        await connection.execute(f"PREPARE asked AS {query}")
        given = ", ".join(f"'{value}'" for value in values)
        told = await connection.fetch(f"EXPLAIN EXECUTE asked({given})")
    lines = "\n".join(row[0] for row in told)
    assert f"using {index} on run" in lines, lines
