"""Pipeline versions: written once, numbered from 1 without gaps, never changed."""

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import asyncpg

from hocket.admin.pipelines import reads
from hocket.admin.pipelines.awaited_names import AwaitedNames, awaited_by
from hocket.admin.pipelines.reads import ActiveVersion
from hocket.admin.pipelines.settling import RELEASE_FOR_S, left_s, settle
from hocket.admin.pipelines.version_diff import as_read
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.kit.access import audit_log
from hocket.kit.access.audit_log import Action, Actor
from hocket.kit.process import clock
from hocket.schemas.errors import (
    ErrorClass,
    HocketError,
    InvalidInput,
    PipelineArchived,
    PipelineUnknown,
)
from hocket.schemas.pipeline.plan import Plan, check_input, compile_pipeline
from hocket.schemas.rest import RunSubmission

MAX_PIPELINES = 10_000
"""The maximum number of pipelines of a tenant."""
MAX_VERSIONS = 10_000
"""The maximum number of versions of a pipeline: they are kept for ever, since runs refer to them."""
PLANS_KEPT = 256
"""Compiled versions kept in memory to check the input of tasks, of all tenants."""
MAX_TRIES = 100
"""How often numbering a version is retried while others are applied concurrently."""

LATEST = """
SELECT version, spec_hash,
       CASE WHEN spec_hash = $3 THEN coalesce(document, spec::text) END AS document,
       extract(epoch FROM clock_timestamp() - created_at)::double precision AS since_s
FROM hocket.pipeline
WHERE tenant = $1 AND name = $2
ORDER BY version DESC
LIMIT 1
"""
"""The latest version, the hash of its spec, the spec itself if it has a given hash (which neither the
order of keys changes nor what jsonb made of a number), and how long ago it was applied."""

DELETED = """
SELECT last_version, extract(epoch FROM clock_timestamp() - changed_at)::double precision AS since_s
FROM hocket.pipeline_release
WHERE tenant = $1 AND name = $2
"""
"""The last version number of a deleted pipeline, and how long ago it was deleted."""

CHOSEN = """
SELECT active_version IS NOT NULL OR archived_at IS NOT NULL
FROM hocket.pipeline_release
WHERE tenant = $1 AND name = $2
FOR SHARE
"""
"""Whether runs do without the newest version, which stays so until the transaction ends."""

COUNT_NAMES = "SELECT count(DISTINCT name) FROM hocket.pipeline WHERE tenant = $1"
"""How many pipelines a tenant has."""

ADD_VERSION = """
INSERT INTO hocket.pipeline
    (tenant, name, version, spec, document, spec_hash, created_by, created_at)
VALUES ($1, $2, $3, $4::text::jsonb, $4::text, $5, $6, clock_timestamp())
ON CONFLICT (tenant, name, version) DO NOTHING
RETURNING version
"""
"""Adds a version, unless its number is taken."""


class TooManyPipelines(HocketError):
    """There are already {limit} {what}, which is the limit. Apply changes to an existing pipeline, and
    pass what varies as input."""

    code = "too_many_pipelines"
    error_class = ErrorClass.INVALID


class PipelineBusy(HocketError):
    """Too many versions of `{pipeline}` are applied at once. Apply yours again."""

    code = "pipeline_busy"
    error_class = ErrorClass.UNAVAILABLE


@dataclass(frozen=True, slots=True)
class _Former:
    """What there is of a pipeline before a version is applied: its latest version, the hash of its spec
    (None if it is deleted), its spec if it has the hash of the new one, and how long ago that changed
    (None if there is nothing)."""

    version: int = 0
    spec_hash: str | None = None
    since_s: float | None = None
    document: str | None = None


async def apply(pool: Pool, tenant: str, plan: Plan, actor: Actor) -> tuple[int, bool]:
    """Write the plan's pipeline as the next version, unless the latest version is identical, including
    the order of its keys. If runs take that version, they do when this returns.

    Return the version and whether it is new.
    """
    async with pool.acquire(timeout=QUERY_TIMEOUT_S) as connection:
        version, is_new, settle_s = await _apply(connection, tenant, plan, actor)
    await settle(settle_s)
    return version, is_new


async def _apply(
    connection: asyncpg.Connection, tenant: str, plan: Plan, actor: Actor
) -> tuple[int, bool, float]:
    """Return what `apply` does, and how long runs may still take the former version."""
    name = plan.pipeline.pipeline
    spec = json.dumps(plan.pipeline.model_dump(mode="json", by_alias=True))
    for _ in range(MAX_TRIES):
        former = await _former(connection, tenant, name, plan.spec_hash)
        if former.document is not None and await asyncio.to_thread(_is_same, spec, former.document):
            return former.version, False, left_s(former.since_s) if former.version > 1 else 0.0
        version = former.version + 1
        if version > MAX_VERSIONS:
            raise TooManyPipelines(what=f"versions of `{name}`", limit=MAX_VERSIONS)
        if former.spec_hash is None:
            names = await connection.fetchval(COUNT_NAMES, tenant, timeout=QUERY_TIMEOUT_S)
            if names >= MAX_PIPELINES:
                raise TooManyPipelines(what="pipelines", limit=MAX_PIPELINES)
        async with connection.transaction():
            chosen = await connection.fetchval(CHOSEN, tenant, name, timeout=QUERY_TIMEOUT_S)
            added = await connection.fetchval(
                ADD_VERSION, tenant, name, version, spec, plan.spec_hash, actor.name,
                timeout=QUERY_TIMEOUT_S,
            )  # fmt: skip
            if added is not None:
                before = None if former.spec_hash is None else {"spec": former.spec_hash}
                written = hashlib.sha256(spec.encode()).hexdigest()
                after = {"version": version, "spec": plan.spec_hash, "document": written}
                done = Action("pipelines.apply", f"pipeline:{name}", tenant, before, after)
                await audit_log.record(connection, actor, done)
        if added is None:
            continue
        if former.spec_hash is None:
            return version, True, left_s(former.since_s)
        return version, True, 0.0 if chosen else left_s(0.0)
    raise PipelineBusy(pipeline=name)


async def _former(
    connection: asyncpg.Connection, tenant: str, name: str, spec_hash: str
) -> _Former:
    latest = await connection.fetchrow(LATEST, tenant, name, spec_hash, timeout=QUERY_TIMEOUT_S)
    if latest is not None:
        return _Former(
            latest["version"], latest["spec_hash"], latest["since_s"], latest["document"]
        )
    deleted = await connection.fetchrow(DELETED, tenant, name, timeout=QUERY_TIMEOUT_S)
    if deleted is None or deleted["last_version"] is None:
        return _Former()
    return _Former(deleted["last_version"], None, deleted["since_s"])


def _is_same(spec: str, former: str) -> bool:
    """Tell whether a spec is the same as a former one, which may be written in another way: by a release
    with other fields, or by Postgres."""
    return spec == former or spec == json.dumps(as_read(json.loads(former)))


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class KeptByTenant(Generic[K, V]):
    """What was used last, at most `limit` values. If there are more, the tenant with the most of them
    loses the one that it has not used for longest, so that no tenant displaces what others use."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[str, OrderedDict[K, V]] = OrderedDict()
        self._count = 0

    def get(self, tenant: str, key: K) -> V | None:
        """Return a value that is used now, or None."""
        of_tenant = self._kept.get(tenant)
        if of_tenant is None or key not in of_tenant:
            return None
        self._kept.move_to_end(tenant)
        of_tenant.move_to_end(key)
        return of_tenant[key]

    def put(self, tenant: str, key: K, value: V) -> None:
        """Keep a value that is used now."""
        self.drop(tenant, key)
        self._kept.setdefault(tenant, OrderedDict())[key] = value
        self._kept.move_to_end(tenant)
        self._count += 1
        if self._count > self._limit:
            most = max(self._kept, key=lambda name: len(self._kept[name]))
            self.drop(most, next(iter(self._kept[most])))

    def drop(self, tenant: str, key: K) -> None:
        """Keep a value no longer, if it is kept."""
        of_tenant = self._kept.get(tenant)
        if of_tenant is None or key not in of_tenant:
            return
        del of_tenant[key]
        self._count -= 1
        if not of_tenant:
            del self._kept[tenant]


class _Kept(NamedTuple):
    """The plan of a version, and what its runs can wait for."""

    plan: Plan
    awaited: AwaitedNames


class Plans:
    """A cache of the plans of recently used versions; versions never change, so no plan is stale. A
    version is compiled once for all who ask for it meanwhile."""

    def __init__(self) -> None:
        self._kept: KeptByTenant[tuple[str, int], _Kept] = KeptByTenant(PLANS_KEPT)
        self._active: KeptByTenant[str, tuple[ActiveVersion, float]] = KeptByTenant(PLANS_KEPT)
        self._compiling: dict[tuple[str, str, int], asyncio.Task[_Kept]] = {}

    async def plan_of(
        self, pool: Pool, tenant: str, name: str, version: int | None
    ) -> tuple[int, Plan]:
        """Return version and plan of a pipeline (for None, of the version that runs use), or raise
        PipelineUnknown."""
        number = version or (await self._read_active(pool, tenant, name)).version
        return number, (await self._found(pool, tenant, name, number)).plan

    async def awaited_by(self, pool: Pool, tenant: str, name: str, version: int) -> AwaitedNames:
        """Return what the runs of a version can wait for, or raise PipelineUnknown."""
        return (await self._found(pool, tenant, name, version)).awaited

    async def _found(self, pool: Pool, tenant: str, name: str, number: int) -> _Kept:
        kept = self._kept.get(tenant, (name, number))
        return kept or await self._compiled(pool, tenant, name, number)

    async def _compiled(self, pool: Pool, tenant: str, name: str, number: int) -> _Kept:
        key = (tenant, name, number)
        task = self._compiling.get(key)
        if task is None:
            task = asyncio.create_task(self._compile(pool, *key), name="plan")
            task.add_done_callback(lambda done: self._settle(key, done))
            self._compiling[key] = task
        return await asyncio.shield(task)

    async def _compile(self, pool: Pool, tenant: str, name: str, number: int) -> _Kept:
        detail = await reads.version_of(pool, tenant, name, number)
        plan = await asyncio.to_thread(compile_pipeline, detail.spec, applied=True)
        kept = _Kept(plan, awaited_by(plan))
        self._kept.put(tenant, (name, number), kept)
        return kept

    def _settle(self, key: tuple[str, str, int], done: "asyncio.Task[_Kept]") -> None:
        del self._compiling[key]
        if not done.cancelled():
            done.exception()  # all who asked may have gone

    async def check(self, pool: Pool, tenant: str, task: RunSubmission) -> None:
        """Raise InvalidInput if a task's input does not fit its pipeline, PipelineUnknown if there is no
        such pipeline, PipelineArchived if it accepts no runs. The active version is cached for
        RELEASE_FOR_S, but a task is never refused on the basis of a stale entry."""
        believed = self._believed(tenant, task.pipeline)
        if believed is not None and not believed.is_archived:
            try:
                await self._check_by(believed, pool, tenant, task)
            except InvalidInput:
                if task.version:
                    raise
            else:
                return
        await self._check_by(
            await self._read_active(pool, tenant, task.pipeline), pool, tenant, task
        )

    async def _check_by(
        self, active: ActiveVersion, pool: Pool, tenant: str, task: RunSubmission
    ) -> None:
        if active.is_archived:
            raise PipelineArchived(tenant=tenant, pipeline=task.pipeline)
        version = task.version or active.version
        _, plan = await self.plan_of(pool, tenant, task.pipeline, version)
        check_input(plan, task.input)

    def forget(self, tenant: str, name: str) -> None:
        """Drop the cached active version after it was changed here."""
        self._active.drop(tenant, name)

    def _believed(self, tenant: str, name: str) -> ActiveVersion | None:
        active, until_s = self._active.get(tenant, name) or (None, 0.0)
        return active if clock.monotonic_ms() / 1000 < until_s else None

    async def _read_active(self, pool: Pool, tenant: str, name: str) -> ActiveVersion:
        read_s = clock.monotonic_ms() / 1000
        active = await reads.active_version(pool, tenant, name)
        if active is None:
            self._active.drop(tenant, name)
            raise PipelineUnknown(pipeline=name, tenant=tenant)
        self._active.put(tenant, name, (active, read_s + RELEASE_FOR_S))
        return active
