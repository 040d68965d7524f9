"""Shorter retention periods of single tenants: their expired rows are deleted one by one, before
the general period ends.

Only periods shorter than the general one have an effect: partitions hold the rows of all tenants,
and are dropped as a whole when the general period is over.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import asyncpg

from hocket.kit.process.setting_types import PeriodName
from hocket.ledger.upkeep import day_partitions, retention
from hocket.ledger.upkeep.retention import Pause, Periods

TIMEOUT_S = 30.0

ENDED = """
SELECT r.run_id FROM hocket.run r
WHERE r.tenant = $1 AND r.accepted_at < $2 AND r.finished_at < $2 AND r.run_id <> ALL ($3::text[])
  AND NOT EXISTS (SELECT FROM hocket.run child WHERE child.parent ->> 'run_id' = r.run_id)
  AND NOT EXISTS (
      SELECT FROM hocket.run above
      WHERE above.run_id = r.parent ->> 'run_id' AND above.finished_at IS NULL
  )
ORDER BY r.accepted_at LIMIT $4
"""
"""A tenant's expired runs that nobody needs."""
_CALLS = """
DELETE FROM hocket.usage u USING (
    SELECT call_id, started_at FROM hocket.usage
    WHERE tenant = $1 AND started_at < $2 AND recorded_at < $2 LIMIT $3
) old
WHERE u.call_id = old.call_id AND u.started_at = old.started_at AND u.tenant = $1 AND u.started_at < $2
"""
_CHARGES = """
DELETE FROM hocket.kept_charge WHERE tenant = $1 AND ctid = ANY (ARRAY(
    SELECT ctid FROM hocket.kept_charge WHERE tenant = $1 AND finished_at < $2 LIMIT $3
))
"""
_KEPT = """
DELETE FROM hocket.{table}
WHERE tenant = $1 AND kept_at < $2 AND (tableoid, ctid) IN (
    SELECT tableoid, ctid FROM hocket.{table} WHERE tenant = $1 AND kept_at < $2 LIMIT $3
)
"""
TenantPeriods = Mapping[str, Mapping[PeriodName, int]]
ROWS: Mapping[PeriodName, tuple[str, ...]] = {
    "usage": (_CALLS, _CHARGES),
    "content": tuple(_KEPT.format(table=table) for table in day_partitions.TABLES),
}
NAMES: Sequence[PeriodName] = ("runs", "usage", "content")


def without_effect(of_tenants: TenantPeriods, general: Periods) -> list[str]:
    """Return the periods (TENANT.KIND) that are not shorter than the general ones."""
    return [
        f"{tenant}.{kind}"
        for tenant, periods in of_tenants.items()
        for kind, days in periods.items()
        if 0 < getattr(general, kind) <= days
    ]


async def delete_old(
    connection: asyncpg.Connection, tenant: str, kind: PeriodName, cutoff: datetime, *, pause: Pause
) -> int:
    """Delete what is older than `cutoff` of one kind for a tenant; return the number of rows."""
    delete = _delete_runs if kind == "runs" else _delete_rows
    return await delete(connection, kind, tenant, cutoff, pause)


async def _delete_runs(
    connection: asyncpg.Connection, _kind: PeriodName, tenant: str, cutoff: datetime, pause: Pause
) -> int:
    in_use = [row[0] for row in await connection.fetch(retention.REPEATED, timeout=TIMEOUT_S)]
    gone = 0
    while True:
        found = await connection.fetch(
            ENDED, tenant, cutoff, in_use, retention.MAX_RUNS, timeout=TIMEOUT_S
        )
        number = await retention.delete_ended(
            connection, [row[0] for row in found], cutoff, rejected=False, pause=pause
        )
        gone += number
        if not number:
            return gone


async def _delete_rows(
    connection: asyncpg.Connection, kind: PeriodName, tenant: str, cutoff: datetime, pause: Pause
) -> int:
    gone = 0
    for delete in ROWS[kind]:
        gone += await retention.delete_rows(
            connection, delete, tenant, cutoff, pause=pause, timeout_s=TIMEOUT_S
        )
    return gone
