"""The table of bulk operations: the progress of each, and which process works on it.

An operation is processed by the holder of its lease; once the lease expires, another process takes over.
Its position and its counts are written together, page by page.
"""

import json
from collections.abc import Mapping
from typing import Any

import asyncpg

from hocket.admin.pages import FAR_FUTURE, cursor, parse_cursor
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.kit.postgres.lookups import rows_of_runs
from hocket.schemas.administration.bulk import BulkOperation, BulkOperationList
from hocket.schemas.errors import ErrorClass, HocketError

LEASE_S = 30

COLUMNS = """operation_id, tenant, action, state, filter, reason, matching, changed, skipped,
       place, created_by, created_at, finished_at"""

INSERT = f"""
INSERT INTO hocket.bulk_operation (operation_id, tenant, action, filter, reason, matching, created_by,
    created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (operation_id) DO NOTHING
RETURNING {COLUMNS}
"""
"""Store an operation. `created_at` is when its runs were counted: no later one is changed."""

CLAIM = f"""
UPDATE hocket.bulk_operation
SET owner = $1, leased_until = clock_timestamp() + make_interval(secs => $2)
WHERE operation_id = (
    SELECT b.operation_id FROM hocket.bulk_operation b
    WHERE b.state = 'running' AND b.leased_until <= clock_timestamp()
    ORDER BY (
        SELECT max(o.leased_until) FROM hocket.bulk_operation o
        WHERE o.tenant = b.tenant AND o.state = 'running'
    ), b.leased_until, b.created_at LIMIT 1
    FOR UPDATE SKIP LOCKED
)
RETURNING {COLUMNS}
"""
"""Claim an operation that nobody works on, from the tenant whose turn was longest ago."""

ADVANCE = f"""
UPDATE hocket.bulk_operation
SET changed = changed + $3, skipped = skipped + $4, place = $5,
    leased_until = now() + make_interval(secs => $6),
    state = CASE WHEN $7 AND state = 'running' THEN 'done' ELSE state END,
    finished_at = CASE WHEN $7 AND state = 'running' THEN now() ELSE finished_at END
WHERE operation_id = $1 AND owner = $2
RETURNING {COLUMNS}
"""
"""Write the outcome of a page if this process still holds the operation."""

RENEW = """
UPDATE hocket.bulk_operation SET leased_until = clock_timestamp() + make_interval(secs => $3)
WHERE operation_id = $1 AND owner = $2
"""
"""Keep the lease during a page whose runs take long to end."""

RELEASE = """
UPDATE hocket.bulk_operation SET leased_until = clock_timestamp()
WHERE operation_id = $1 AND owner = $2
"""
"""Release the lease, so that another process or another tenant's operation can proceed at once."""

STOP = f"""
UPDATE hocket.bulk_operation SET state = 'stopped', finished_at = now()
WHERE tenant = $1 AND operation_id = $2 AND state = 'running'
RETURNING {COLUMNS}
"""

OPEN = f"SELECT EXISTS (SELECT {rows_of_runs('hocket.run')} WHERE finished_at IS NULL)"
"""Whether any of the given runs has not ended."""
FIND = f"SELECT {COLUMNS} FROM hocket.bulk_operation WHERE tenant = $1 AND operation_id = $2"

LATEST = f"""
SELECT {COLUMNS} FROM hocket.bulk_operation
WHERE tenant = $1 AND (created_at, operation_id) < ($2, $3)
ORDER BY created_at DESC, operation_id DESC LIMIT $4
"""


class BulkOperationUnknown(HocketError):
    """There is no bulk operation `{operation_id}`. `hocket runs bulk-show` and `GET
    /v1/bulk/operations` show those that exist."""

    code = "bulk_operation_unknown"
    error_class = ErrorClass.INVALID


class BulkOperationEnded(HocketError):
    """The bulk operation `{operation_id}` has ended ({state}). It can no longer be changed."""

    code = "bulk_operation_ended"
    error_class = ErrorClass.INVALID


async def find(pool: Pool, tenant: str, operation_id: str) -> BulkOperation:
    """Return an operation, or raise BulkOperationUnknown."""
    row = await pool.fetchrow(FIND, tenant, operation_id, timeout=QUERY_TIMEOUT_S)
    if row is None:
        raise BulkOperationUnknown(operation_id=operation_id)
    return shown(row)


async def stop(connection: Any, tenant: str, operation_id: str) -> BulkOperation:
    """Stop an operation where it is; raise BulkOperationUnknown or BulkOperationEnded."""
    row = await connection.fetchrow(STOP, tenant, operation_id, timeout=QUERY_TIMEOUT_S)
    if row is None:
        ended = await find(connection, tenant, operation_id)
        raise BulkOperationEnded(operation_id=operation_id, state=ended.state)
    return shown(row)


async def list_latest(pool: Pool, tenant: str, after: str | None, limit: int) -> BulkOperationList:
    """Return a page of operations, the latest first."""
    before = (FAR_FUTURE, "") if after is None else parse_cursor(after)
    rows = await pool.fetch(LATEST, tenant, *before, limit + 1, timeout=QUERY_TIMEOUT_S)
    page = rows[:limit]
    last = page[-1] if len(rows) > limit else None
    more = None if last is None else cursor(last["created_at"], last["operation_id"])
    return BulkOperationList(operations=tuple(shown(row) for row in page), next=more)


def shown(row: asyncpg.Record) -> BulkOperation:
    """Return what callers see of an operation. If it has found more runs than were counted, these match
    as well."""
    found = max(row["matching"], row["changed"] + row["skipped"])
    told: Mapping[str, Any] = {**row, "matching": found}
    own = {name: told[name] for name in BulkOperation.model_fields if name != "filter"}
    return BulkOperation(**own, filter=json.loads(told["filter"]))
