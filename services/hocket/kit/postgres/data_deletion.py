"""Permanently deletes the data of one tenant, or of the tenant's tasks with a label, and logs it.

Runs in flight are not deleted under their coordinator: they must be cancelled first. Each statement
deletes at most MAX_ROWS rows, in a transaction of its own, so that nobody waits for the whole deletion;
if it is interrupted, running it again finishes it. The audit gets a row when it begins, and one with the
numbers when it is done.

Counting reads everything, which may take longer than a request lasts. A request must not count before it
deletes, or it would never delete anything.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg
import structlog

from hocket.kit.access import audit_log
from hocket.kit.access.audit_log import Action, Actor
from hocket.kit.postgres import vector_indexes
from hocket.kit.postgres.rollup_tables import REPORTS
from hocket.kit.postgres.session_cleanup import given_up
from hocket.kit.postgres.vector_indexes import VectorIndexesNotBuilt
from hocket.schemas.errors import ErrorClass, HocketError

MAX_RUNS = 200
"""Runs that are deleted together."""
MAX_ROWS = 2_000
"""Rows that one statement deletes."""
TIMEOUT_S = 60.0
INDEX_LIMIT_S = 10.0
"""How long the vector indexes of deleted collections may take to go: they wait for transactions that
read collections, such as a backup. The data is gone without that."""
RESET_TIMEOUT_S = 5.0
"""How long the session may take to give up its permission to delete before its connection is closed."""


log = structlog.get_logger(__name__)


class DataInUse(HocketError):
    """{runs} runs of it are in flight. Cancel them (`hocket runs cancel`), or wait until they end,
    then delete again. {deleted}"""

    code = "data_in_use"
    error_class = ErrorClass.INVALID


@dataclass(frozen=True, slots=True)
class Selection:
    """All data of a tenant; with a label (key and value), only that of its tasks with this label."""

    tenant: str
    label: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        """The target in the audit."""
        if self.label is None:
            return f"tenant:{self.tenant}"
        return f"label:{self.label[0]}={self.label[1]}"

    @property
    def labels(self) -> str | None:
        """The label as a JSON object, as it is stored in columns."""
        return None if self.label is None else json.dumps(dict([self.label]))


_SELECTED = "tenant = $1 AND ($2::jsonb IS NULL OR labels @> $2::jsonb)"
_STILL_ENDED = """(ARRAY(
    SELECT r.run_id FROM hocket.run r
    WHERE r.run_id = ANY ($2::text[]) AND r.finished_at IS NOT NULL
))"""
"""Of the runs to be deleted, those that have still ended: a rejected one begins anew if its task comes
again."""
_OF_RUNS = f"tenant = $1 AND run_id = ANY {_STILL_ENDED}"
_OF_TENANT = "tenant = $1"

_FIRINGS = f"""
UPDATE hocket.schedule_firing SET over = true
WHERE tenant = $1 AND NOT over AND run_id = ANY {_STILL_ENDED}
"""
"""A schedule would take a run that is gone for one that is not in the database yet."""
_IN_FLIGHT = f"""
SELECT count(*) FROM hocket.run r
WHERE r.finished_at IS NULL AND r.tenant = $1
  AND ($2::jsonb IS NULL OR r.labels @> $2::jsonb OR EXISTS (
      SELECT FROM hocket.run o WHERE o.run_id = r.facts #>> '{{origin,run_id}}' AND o.{_SELECTED}))
"""
"""The selected runs in flight, and those in flight that repeat a selected run."""
_ENDED = f"""
SELECT run_id FROM hocket.run WHERE {_SELECTED} AND finished_at IS NOT NULL LIMIT {MAX_RUNS}
"""

_OF_STEPS = ("hocket.step", "hocket.attempt")
"""Tables whose rows never outlive their runs."""
_TIMES = {
    "hocket.content": "kept_at",
    "hocket.log_line": "kept_at",
    "hocket.usage": "started_at",
    "hocket.kept_charge": "finished_at",
    "hocket.open_call": "started_at",
    "hocket.refused_call": "refused_at",
    "hocket.webhook_delivery": "created_at",
    "hocket.step_cache": "filled_at",
    "hocket.flow_place": "accepted_at",
    "hocket.flow_start": "at",
}
"""When a row of the other tables was written."""


def _column_of_run(table: str) -> str:
    return "filled_run" if table == "hocket.step_cache" else "run_id"


def _of_present(table: str) -> str:
    """Return the condition for rows of a run that is kept. Rows under its id from before it, but for the
    clock of a gateway, are of a deleted run whose idempotency key was used again."""
    clock = "interval '0'" if table == "hocket.kept_charge" else "interval '1 day'"
    return f"""EXISTS (
        SELECT FROM hocket.run own
        WHERE own.run_id = {table}.{_column_of_run(table)} AND own.tenant = $1
          AND {table}.{_TIMES[table]} >= own.accepted_at - {clock})"""


_WITH_RUNS = {
    "steps": "hocket.step",
    "attempts": "hocket.attempt",
    "content": "hocket.content",
    "log_lines": "hocket.log_line",
    "calls": "hocket.usage",
    "charges": "hocket.kept_charge",
    "open_calls": "hocket.open_call",
    "refused_calls": "hocket.refused_call",
    "webhook_deliveries": "hocket.webhook_delivery",
    "cached_outputs": "hocket.step_cache",
    "flow_places": "hocket.flow_place",
    "flow_starts": "hocket.flow_start",
}
"""The tables of what is deleted before its runs, by the name shown to people."""
_LABELED = ("hocket.usage", "hocket.kept_charge")
"""Tables of them with labels in their rows, of which some may belong to no run that is kept."""


def _of_ended(table: str) -> str:
    """Return the condition for what is deleted before its runs. Of a deleted run with the same id, only
    rows with labels tell whose they are, and are left to these."""
    if table in _OF_STEPS:
        return f"$1 <> '' AND run_id = ANY {_STILL_ENDED}"
    of_runs = f"tenant = $1 AND {_column_of_run(table)} = ANY {_STILL_ENDED}"
    return f"{of_runs} AND {_of_present(table)}" if table in _LABELED else of_runs


_GONE_RUNS = f"""
SELECT run_id FROM hocket.usage
WHERE {_SELECTED} AND call_id NOT LIKE 'http:%' AND run_id IS NOT NULL
  AND NOT {_of_present("hocket.usage")}
UNION
SELECT run_id FROM hocket.kept_charge WHERE {_SELECTED} AND NOT {_of_present("hocket.kept_charge")}
"""
"""Runs with a label that retention has deleted, by what they spent: some of their rows are kept longer.
A call of the HTTP door may have its label from elsewhere."""


def _of_gone(table: str) -> str:
    """Return the condition for rows of runs with a label that retention has deleted."""
    of_runs = f"tenant = $1 AND {_column_of_run(table)} IN ({_GONE_RUNS})"
    return f"{of_runs} AND NOT {_of_present(table)}"


_REQUEST_OF_CALL = "(:t[0-9]{1,2})?(:r[0-9]{1,3})?(:h)?(#[0-9a-f]{16})?$"
"""What tells the requests of a call apart in the ledger: the turn of another gateway, a repeat, a hedge,
and the hash of one whose id another request has. Content has the id of the call itself."""
_OF_NO_RUN = "(call_id LIKE 'http:%' OR run_id IS NULL)"
"""Calls that may belong to no run."""
_CONTENT_OF_CALLS = f"""
tenant = $1 AND call_id IN (
    SELECT call_id FROM hocket.usage WHERE {_SELECTED} AND {_OF_NO_RUN}
    UNION ALL
    SELECT regexp_replace(call_id, '{_REQUEST_OF_CALL}', '') FROM hocket.usage
    WHERE {_SELECTED} AND {_OF_NO_RUN}
)
"""
"""Prompts and answers of the HTTP door's calls. Other runs with the same id have calls of the same ids,
so that those of steps are found by their runs."""
_WITH_TENANT = {
    "content": ("hocket.content", _OF_TENANT),
    "log_lines": ("hocket.log_line", _OF_TENANT),
    "calls": ("hocket.usage", _OF_TENANT),
    "charges": ("hocket.kept_charge", _OF_TENANT),
    "open_calls": ("hocket.open_call", _OF_TENANT),
    "refused_calls": ("hocket.refused_call", _OF_TENANT),
    "prices": ("hocket.price", _OF_TENANT),
    "cached_outputs": ("hocket.step_cache", _OF_TENANT),
    "blobs": ("hocket.tenant_blob", _OF_TENANT),
    "durations": ("hocket.duration", _OF_TENANT),
    "forecasts": ("hocket.outlook", _OF_TENANT),
    "collections": ("retrieval.collection", _OF_TENANT),
    "pipelines": ("hocket.pipeline", _OF_TENANT),
    "webhook_deliveries": ("hocket.webhook_delivery", _OF_TENANT),
    "webhooks": ("hocket.webhook", _OF_TENANT),
    "schedule_firings": ("hocket.schedule_firing", _OF_TENANT),
    "schedules": ("hocket.schedule", _OF_TENANT),
    "bulk_operations": ("hocket.bulk_operation", _OF_TENANT),
    "flow_places": ("hocket.flow_place", _OF_TENANT),
    "flow_starts": ("hocket.flow_start", _OF_TENANT),
    "flow_pipelines": ("hocket.flow_pipeline", _OF_TENANT),
}
"""What a tenant has besides runs."""
_OF_COLLECTIONS = ("retrieval.chunk", "retrieval.document")
_OF_TENANTS_COLLECTIONS = """
collection_id IN (SELECT collection_id FROM retrieval.collection WHERE tenant = $1)
"""
_PIPELINES = f"""
WITH gone AS (
    DELETE FROM hocket.pipeline WHERE tenant = $1 AND ctid = ANY (ARRAY(
        SELECT ctid FROM hocket.pipeline WHERE tenant = $1 LIMIT {MAX_ROWS}
    ))
    RETURNING tenant, name, version
), buried AS (
    INSERT INTO hocket.pipeline_release AS r (tenant, name, last_version)
    SELECT tenant, name, max(version) FROM gone GROUP BY tenant, name
    ON CONFLICT (tenant, name) DO UPDATE
    SET last_version = greatest(r.last_version, excluded.last_version), active_version = NULL,
        former_version = NULL, canary_version = NULL, canary_share = NULL, canary_since = NULL,
        canary_rule = NULL, archived_at = NULL, changed_at = now(), changed_by = '',
        revision = r.revision + 1
)
SELECT count(*) FROM gone
"""
"""Deletes versions of pipelines, and returns how many. What remains of a pipeline is the number of its
last version: processes remember versions by number, so a number must not come to mean another one."""
_MAY_DELETE = "SET hocket.deletes = 'on'"
"""Lets the session delete rows from the daily tables of steps and attempts (migration 0051)."""
_MAY_NOT_DELETE = "RESET hocket.deletes"
LEGACY_TENANT = "default"
_LEGACY_BLOBS = {"blobs": ("hocket.blob", f"$1 = '{LEGACY_TENANT}'")}
"""Blobs that are older than tenants belong to `default`."""


async def counted(connection: asyncpg.Connection, selection: Selection) -> dict[str, int]:
    """Return how many rows of each kind would be deleted, and how many runs are in flight."""
    values = (selection.tenant, selection.labels)
    found = {"in_flight": await _number(connection, _IN_FLIGHT, *values)}
    runs = f"SELECT count(*) FROM hocket.run WHERE {_SELECTED}"
    found["runs"] = await _number(connection, runs, *values)
    for name, table in _WITH_RUNS.items():
        if selection.label is not None or name not in _WITH_TENANT:
            rows = f"SELECT count(*) FROM {table} WHERE {_of_selected(table)}"
            found[name] = await _number(connection, rows, *values)
    if selection.label is None:
        for name, (table, which) in _of_tenant(selection.tenant):
            rows = f"SELECT count(*) FROM {table} WHERE {which}"
            found[name] = found.get(name, 0) + await _number(connection, rows, selection.tenant)
    return found


def _of_selected(table: str) -> str:
    """Return the condition for rows that are deleted with the runs of a selection, or by a label."""
    column, runs = _column_of_run(table), f"SELECT run_id FROM hocket.run WHERE {_SELECTED}"
    if table in _OF_STEPS:
        return f"{column} IN ({runs})"
    if table in _LABELED:
        # calls of the HTTP door that name a run outside Hocket have labels of their own, and charges
        # stay when retention deletes their runs
        return f"tenant = $1 AND ({column} IN ({runs}) AND {_of_present(table)} OR {_SELECTED})"
    which = f"""
        tenant = $1 AND {column} IN ({runs} UNION ALL ({_GONE_RUNS}))
        AND ({column} IN ({runs}) OR NOT {_of_present(table)})"""
    return f"{which} OR {_CONTENT_OF_CALLS}" if table == "hocket.content" else which


async def deleted(
    connection: asyncpg.Connection,
    selection: Selection,
    actor: Actor,
    gone: dict[str, int] | None = None,
    *,
    count: bool = True,
) -> dict[str, int]:
    """Delete the selection, and return how many rows of each kind were deleted; `gone` is updated in the
    meantime. With `count`, the audit is told beforehand what was found. Raises DataInUse."""
    gone = {} if gone is None else gone
    values = (selection.tenant, selection.labels)
    if open_runs := await _number(connection, _IN_FLIGHT, *values):
        raise DataInUse(runs=open_runs, deleted="Nothing was deleted.")
    found = {"found": await counted(connection, selection)} if count else None
    await _log(connection, actor, selection, "data.delete", found)
    gone.update(dict.fromkeys(_kinds(selection), 0))
    async with given_up(connection, _MAY_NOT_DELETE, timeout_s=RESET_TIMEOUT_S):
        await connection.execute(_MAY_DELETE, timeout=TIMEOUT_S)
        await _without_selected(connection, selection, gone)
    await _log(connection, actor, selection, "data.deleted", {"deleted": gone})
    return gone


async def _without_selected(
    connection: asyncpg.Connection, selection: Selection, gone: dict[str, int]
) -> None:
    """Delete everything of a selection; count it in `gone`. Raises DataInUse."""
    values = (selection.tenant, selection.labels)
    await _without_ended_runs(connection, selection, gone)
    # deleting runs may have taken minutes, and others may have begun: what they need must not go
    if begun := await _number(connection, _IN_FLIGHT, *values):
        raise DataInUse(runs=begun, deleted="Only runs that had ended were deleted.")
    if selection.label is not None:
        await _without_gone_runs(connection, selection, gone)
    gone["content"] += await _emptied(connection, "hocket.content", _CONTENT_OF_CALLS, *values)
    for name, table in _WITH_RUNS.items():
        if table in _LABELED:
            gone[name] += await _emptied(connection, table, _SELECTED, *values)
    if selection.label is None:
        for table in _OF_COLLECTIONS:  # one collection may have more than goes at once
            await _emptied(connection, table, _OF_TENANTS_COLLECTIONS, selection.tenant)
        for name, (table, which) in _of_tenant(selection.tenant):
            if name == "pipelines":
                gone[name] += await _without_pipelines(connection, selection.tenant)
            else:
                gone[name] += await _emptied(connection, table, which, selection.tenant)
        for report in REPORTS:  # for a label, the ledger rolls up again within minutes
            await _emptied(connection, f"hocket.rollup_{report}", _OF_TENANT, selection.tenant)
        await _without_vector_indexes(connection)


async def _without_vector_indexes(connection: asyncpg.Connection) -> None:
    """Drop the vector indexes of deleted collections; if that takes too long, `hocket doctor` reports
    them."""
    try:
        await vector_indexes.repair(connection, only_left_over=True, limit_s=INDEX_LIMIT_S)
    except VectorIndexesNotBuilt as error:
        log.warning("vector_indexes_left", error=str(error))


async def _without_ended_runs(
    connection: asyncpg.Connection, selection: Selection, gone: dict[str, int]
) -> None:
    """Delete the runs of a selection that have ended, with what they have; count it in `gone`."""
    values = (selection.tenant, selection.labels)
    while rows := await connection.fetch(_ENDED, *values, timeout=TIMEOUT_S):
        ids = [row["run_id"] for row in rows]
        await connection.execute(_FIRINGS, selection.tenant, ids, timeout=TIMEOUT_S)
        for name, table in _WITH_RUNS.items():
            which = _of_ended(table)
            gone[name] += await _emptied(connection, table, which, selection.tenant, ids)
        gone["runs"] += await _emptied(connection, "hocket.run", _OF_RUNS, selection.tenant, ids)


async def _without_gone_runs(
    connection: asyncpg.Connection, selection: Selection, gone: dict[str, int]
) -> None:
    """Delete what is left of runs that retention has deleted, except for the calls and charges by which
    they are found; count it in `gone`."""
    values = (selection.tenant, selection.labels)
    for name, table in _WITH_RUNS.items():
        if table not in (*_OF_STEPS, *_LABELED):
            gone[name] += await _emptied(connection, table, _of_gone(table), *values)


def _kinds(selection: Selection) -> Sequence[str]:
    """Return the kinds of rows that are deleted, by the names shown to people."""
    return ("runs", *_WITH_RUNS, *(_WITH_TENANT if selection.label is None else ()))


def _of_tenant(tenant: str) -> Sequence[tuple[str, tuple[str, str]]]:
    older = _LEGACY_BLOBS if tenant == LEGACY_TENANT else {}
    return (*_WITH_TENANT.items(), *older.items())


async def _emptied(connection: asyncpg.Connection, table: str, which: str, *values: object) -> int:
    """Delete the rows of a table that match `which`, in batches; return how many were deleted."""
    some = f"SELECT ctid FROM {table} WHERE {which} LIMIT {MAX_ROWS}"
    statement = f"DELETE FROM {table} WHERE ctid = ANY (ARRAY({some})) AND {which}"
    gone = 0
    while True:
        status = await connection.execute(statement, *values, timeout=TIMEOUT_S)
        number = int(status.rsplit(" ", 1)[1])
        gone += number
        if number < MAX_ROWS:
            return gone


async def _without_pipelines(connection: asyncpg.Connection, tenant: str) -> int:
    """Delete a tenant's pipelines, in batches; return how many versions there were."""
    gone = 0
    while number := await _number(connection, _PIPELINES, tenant):
        gone += number
    return gone


async def _number(connection: asyncpg.Connection, asked: str, *values: object) -> int:
    return int(await connection.fetchval(asked, *values, timeout=TIMEOUT_S))


async def _log(
    connection: asyncpg.Connection,
    actor: Actor,
    selection: Selection,
    action: str,
    after: Mapping[str, object] | None,
) -> None:
    async with connection.transaction():
        done = Action(action, selection.name, selection.tenant, after=after)
        await audit_log.record(connection, actor, done)
