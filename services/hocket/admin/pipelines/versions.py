"""Pipeline versions: written once, numbered from 1 without gaps, never changed."""

import asyncio
import json
from collections import OrderedDict

from hocket.admin.pipelines import reads
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.kit.access import audit_log
from hocket.kit.access.audit_log import Action, Actor
from hocket.schemas.errors import ErrorClass, HocketError, PipelineUnknown
from hocket.schemas.pipeline.plan import Plan, compile_pipeline

MAX_PIPELINES = 10_000
"""Pipelines of a tenant."""
MAX_VERSIONS = 10_000
"""Versions of a pipeline: they are kept for ever, since runs name them."""
PLANS_KEPT = 256
"""Compiled versions kept in memory to check the input of tasks."""

MAX_TRIES = 100
"""How often a version is numbered, where others number theirs at the same time."""

LATEST_HASH = """
SELECT version, spec_hash FROM hocket.pipeline
WHERE tenant = $1 AND name = $2
ORDER BY version DESC
LIMIT 1
"""
"""The latest version and what it says."""

COUNT_NAMES = "SELECT count(DISTINCT name) FROM hocket.pipeline WHERE tenant = $1"
"""How many pipelines a tenant has."""

ADD_VERSION = """
INSERT INTO hocket.pipeline (tenant, name, version, spec, spec_hash, created_by)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant, name, version) DO NOTHING
RETURNING version
"""
"""One more version, unless another has its number."""


class TooManyPipelines(HocketError):
    """There are {limit} {what} already, which is the limit. Apply changes to a pipeline that is there,
    and give what varies as input."""

    code = "too_many_pipelines"
    error_class = ErrorClass.INVALID


class PipelineBusy(HocketError):
    """Too many versions of `{pipeline}` are applied at once. Apply yours again."""

    code = "pipeline_busy"
    error_class = ErrorClass.UNAVAILABLE


async def apply(pool: Pool, tenant: str, plan: Plan, actor: Actor) -> tuple[int, bool]:
    """Write the plan's pipeline as the next version, unless the latest one says the same.

    Return the version and whether it is new.
    """
    name = plan.pipeline.pipeline
    spec = json.dumps(plan.pipeline.model_dump(mode="json", by_alias=True))
    async with pool.acquire(timeout=QUERY_TIMEOUT_S) as connection:
        for _ in range(MAX_TRIES):
            latest = await connection.fetchrow(LATEST_HASH, tenant, name, timeout=QUERY_TIMEOUT_S)
            if latest is not None and latest["spec_hash"] == plan.spec_hash:
                return latest["version"], False
            version = (latest["version"] if latest is not None else 0) + 1
            if version > MAX_VERSIONS:
                raise TooManyPipelines(what=f"versions of `{name}`", limit=MAX_VERSIONS)
            if version == 1:
                names = await connection.fetchval(COUNT_NAMES, tenant, timeout=QUERY_TIMEOUT_S)
                if names >= MAX_PIPELINES:
                    raise TooManyPipelines(what="pipelines", limit=MAX_PIPELINES)
            async with connection.transaction():
                added = await connection.fetchval(
                    ADD_VERSION, tenant, name, version, spec, plan.spec_hash, actor.name,
                    timeout=QUERY_TIMEOUT_S,
                )  # fmt: skip
                if added is not None:
                    before = None if latest is None else {"spec": latest["spec_hash"]}
                    after = {"version": version, "spec": plan.spec_hash}
                    done = Action("pipelines.apply", f"pipeline:{name}", tenant, before, after)
                    await audit_log.record(connection, actor, done)
                    return version, True
    raise PipelineBusy(pipeline=name)


class Plans:
    """The plans of the versions that were asked for last; versions do not change, so none is stale."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, int], Plan] = OrderedDict()

    async def plan_of(
        self, pool: Pool, tenant: str, name: str, version: int | None
    ) -> tuple[int, Plan]:
        """Return version and plan of a pipeline (the latest for None), or raise PipelineUnknown."""
        number = version or await reads.latest_version(pool, tenant, name)
        if number is None:
            raise PipelineUnknown(pipeline=name, tenant=tenant)
        key = (tenant, name, number)
        plan = self._kept.get(key)
        if plan is None:
            detail = await reads.version_of(pool, tenant, name, number)
            plan = await asyncio.to_thread(compile_pipeline, detail.spec, applied=True)
            self._kept[key] = plan
            if len(self._kept) > PLANS_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return number, plan
