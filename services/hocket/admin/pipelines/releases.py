"""Changes of the version used by runs that name none; each is written in one transaction with its audit
row.

One version is active, and a share of the runs may use another, the canary. Activating a version ends the
canary; so does a rollback, which activates the previously active version. An archived pipeline accepts
no new runs; it can be deleted once none of its runs is stored. A change is answered when no process
takes the former version any more (see `settling`).
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import asyncpg

from hocket.admin.context import Context
from hocket.admin.pipelines import release_store as store
from hocket.admin.pipelines.settling import left_s, settle
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.etags import check_match
from hocket.admin.requests.identity import Caller
from hocket.kit.access import audit_log
from hocket.kit.access.audit_log import Action, Actor
from hocket.schemas.administration.releases import CanaryBody
from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput, PipelineArchived


class NothingToRollBack(HocketError):
    """There is no version of `{pipeline}` before version {version}, and none was active before. Name
    one: `hocket pipeline activate {pipeline} VERSION`."""

    code = "nothing_to_roll_back"
    error_class = ErrorClass.INVALID


class NoCanary(HocketError):
    """The pipeline `{pipeline}` has no canary. Start one: `hocket pipeline canary {pipeline}
    VERSION`."""

    code = "no_canary"
    error_class = ErrorClass.INVALID


class PipelineInUse(HocketError):
    """The pipeline `{pipeline}` cannot be deleted: {reason}"""

    code = "pipeline_in_use"
    error_class = ErrorClass.INVALID


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The release settings of a pipeline."""

    active: int | None
    former: int | None
    canary: int | None = None
    share: float | None = None
    rule: Mapping[str, Any] | None = None
    archived_at: datetime | None = None

    @classmethod
    def of(cls, row: asyncpg.Record) -> "_Chosen":
        """Return the settings of a row, without its canary."""
        return cls(row["active_version"], row["former_version"], archived_at=row["archived_at"])

    def told(self) -> dict[str, Any]:
        """Return it in the form written to the audit."""
        return {
            "active_version": self.active,
            "canary_version": self.canary,
            "canary_share": self.share,
            "archived": self.archived_at is not None,
        }


async def activate(
    context: Context, caller: Caller, name: str, version: int | None, if_match: str | None
) -> asyncpg.Record:
    """Make a version active; without one, the newest. Raises PipelineUnknown, PipelineArchived,
    InvalidInput and PreconditionFailed."""
    async with _changing(context, caller, name, if_match) as (connection, row):
        if version is not None:
            await store.check_version(connection, caller.tenant, row, version)
        wanted = version or row["newest"]
        former = row["former_version"] if wanted == row["active"] else row["active"]
        chosen = _Chosen(version, former)
        return await _choose(connection, caller, row, "pipelines.activate", chosen)


async def roll_back(
    context: Context, caller: Caller, name: str, if_match: str | None
) -> asyncpg.Record:
    """Activate the previously active version, or else the one numbered before the active one. Raises the
    same as `activate`, and NothingToRollBack."""
    async with _changing(context, caller, name, if_match) as (connection, row):
        wanted = row["former_version"] or await connection.fetchval(
            store.BEFORE, caller.tenant, name, row["active"], timeout=QUERY_TIMEOUT_S
        )
        if wanted is None:
            raise NothingToRollBack(pipeline=name, version=row["active"])
        chosen = _Chosen(wanted, row["active"])
        return await _choose(connection, caller, row, "pipelines.rollback", chosen)


async def put_canary(
    context: Context, caller: Caller, name: str, body: CanaryBody, if_match: str | None
) -> asyncpg.Record:
    """Let a share of the runs use a version, and pin the version that the others use. Raises the same as
    `activate`."""
    async with _changing(context, caller, name, if_match) as (connection, row):
        await store.check_version(connection, caller.tenant, row, body.version)
        if body.version == row["active"]:
            raise InvalidInput(
                field="version",
                reason=f"all runs already use version {body.version}",
                cure=f"First activate the version that the others should use: `hocket pipeline "
                f"activate {name} VERSION`.",
            )
        rule = body.model_dump(include={"min_runs", "max_failure_rise", "only_by_hand"})
        chosen = _Chosen(row["active"], row["former_version"], body.version, body.share, rule)
        return await _choose(connection, caller, row, "pipelines.canary", chosen)


async def end_canary(
    context: Context, caller: Caller, name: str, if_match: str | None
) -> asyncpg.Record:
    """Let all runs use the active version. Raises NoCanary as well."""
    async with _changing(context, caller, name, if_match) as (connection, row):
        if row["canary_version"] is None:
            raise NoCanary(pipeline=name)
        return await _choose(connection, caller, row, "pipelines.end_canary", _Chosen.of(row))


async def archive(
    context: Context, caller: Caller, name: str, if_match: str | None, *, archived: bool
) -> asyncpg.Record:
    """Archive or unarchive a pipeline; nothing changes if it already is in that state."""
    async with _changing(context, caller, name, if_match, open_only=False) as (connection, row):
        if (row["archived_at"] is not None) == archived:
            return row
        archived_at = context.now() if archived else None
        chosen = replace(_Chosen.of(row), archived_at=archived_at)
        done = "pipelines.archive" if archived else "pipelines.unarchive"
        return await _choose(connection, caller, row, done, chosen)


async def delete(context: Context, caller: Caller, name: str, if_match: str | None) -> None:
    """Delete an archived pipeline with its versions. Raises PipelineInUse if it is not archived, or runs
    of it are stored."""
    async with _changing(context, caller, name, if_match, open_only=False) as (connection, row):
        if row["archived_at"] is None:
            reason = f"it is not archived. Archive it first: `hocket pipeline archive {name}`."
            raise PipelineInUse(pipeline=name, reason=reason)
        values = (caller.tenant, name)
        if await connection.fetchval(store.IN_USE, *values, timeout=QUERY_TIMEOUT_S):
            reason = "runs of it are stored. Delete it when retention has deleted them."
            raise PipelineInUse(pipeline=name, reason=reason)
        # versions are applied without this lock: the last one may be newer than `row` says
        last = await connection.fetchval(store.DELETE_VERSIONS, *values, timeout=QUERY_TIMEOUT_S)
        await connection.execute(store.DELETE_DURATIONS, *values, timeout=QUERY_TIMEOUT_S)
        await connection.execute(store.BURY, *values, last, caller.name)
        before = {"versions": last}
        done = Action("pipelines.delete", f"pipeline:{name}", caller.tenant, before)
        await audit_log.record(connection, caller.actor, done)


async def end_worse(
    context: Context, tenant: str, row: asyncpg.Record, found: Mapping[str, Any], actor: Actor
) -> bool:
    """End the canary judged in `found` unless it has changed since; return whether it was ended."""
    async with (
        context.pool.acquire(timeout=QUERY_TIMEOUT_S) as connection,
        connection.transaction(),
    ):
        present = await store.locked(connection, tenant, row["name"])
        if present["revision"] != row["revision"]:
            return False
        await _write(connection, tenant, present, _Chosen.of(present), actor)
        told = {"canary_version": row["canary_version"], **found}
        target = f"pipeline:{row['name']}"
        done = Action("pipelines.canary_worse", target, tenant, told, _Chosen.of(present).told())
        await audit_log.record(connection, actor, done)
    context.plans.forget(tenant, row["name"])
    return True


@asynccontextmanager
async def _changing(
    context: Context, caller: Caller, name: str, if_match: str | None, *, open_only: bool = True
) -> AsyncIterator[tuple[asyncpg.Connection, asyncpg.Record]]:
    """Yield a transaction and the release, locked for the duration of the block. If other versions are
    taken afterwards, wait until all processes take them."""
    async with (
        context.pool.acquire(timeout=QUERY_TIMEOUT_S) as connection,
        connection.transaction(),
    ):
        row = await store.locked(connection, caller.tenant, name)
        check_match(if_match, row["revision"])
        if open_only and row["archived_at"] is not None:
            raise PipelineArchived(tenant=caller.tenant, pipeline=name)
        yield connection, row
        after = await connection.fetchrow(store.FIND, caller.tenant, name, timeout=QUERY_TIMEOUT_S)
    context.plans.forget(caller.tenant, name)
    is_deleted = after["newest"] is None
    is_changed = not is_deleted and _taken(after) != _taken(row)
    await settle(left_s(0.0 if is_changed else row["since_s"]))


def _taken(row: asyncpg.Record) -> tuple[object, ...]:
    """Return what decides which versions runs take, if any."""
    is_archived = row["archived_at"] is not None
    return row["active"], row["canary_version"], row["canary_share"], is_archived


async def _choose(
    connection: asyncpg.Connection,
    caller: Caller,
    row: asyncpg.Record,
    done: str,
    chosen: _Chosen,
) -> asyncpg.Record:
    await _write(connection, caller.tenant, row, chosen, caller.actor)
    before = replace(
        _Chosen.of(row), canary=row["canary_version"], share=row["canary_share"]
    ).told()
    action = Action(done, f"pipeline:{row['name']}", caller.tenant, before, chosen.told())
    await audit_log.record(connection, caller.actor, action)
    return await store.find(connection, caller.tenant, row["name"])


async def _write(
    connection: asyncpg.Connection,
    tenant: str,
    row: asyncpg.Record,
    chosen: _Chosen,
    actor: Actor,
) -> None:
    rule = None if chosen.rule is None else json.dumps(chosen.rule)
    await connection.execute(
        store.CHOOSE,
        tenant,
        row["name"],
        chosen.active,
        chosen.former,
        chosen.canary,
        chosen.share,
        rule,
        chosen.archived_at,
        actor.name,
        timeout=QUERY_TIMEOUT_S,
    )
