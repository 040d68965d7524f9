"""`/v1/pipelines/{name}/...`: which version runs use, what changed between two versions, archive and
delete."""

import asyncio
from itertools import islice
from typing import Annotated, Any

import asyncpg
from fastapi import APIRouter, Path, Query, Response

from hocket.admin.context import Ctx
from hocket.admin.pipelines import canaries, reads, releases
from hocket.admin.pipelines import release_store as store
from hocket.admin.pipelines.version_diff import differences
from hocket.admin.requests.etags import ETAG, IfMatch, etag
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.json_bodies import PlainJsonRoute
from hocket.admin.requests.parameters import VersionNumber
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.releases import (
    MAX_CHANGES,
    ActivateBody,
    CanaryBody,
    CanaryReport,
    PipelineDiff,
    PipelineRelease,
    VersionChange,
)
from hocket.schemas.rest import Token

Name = Annotated[Token, Path(description="Name of the pipeline, unique in its tenant.")]
Before = Annotated[VersionNumber, Query(description="Version to compare from.")]
After = Annotated[
    VersionNumber | None, Query(description="Version to compare with; defaults to the newest.")
]

router = APIRouter(prefix="/v1/pipelines/{name}", tags=["pipelines"], route_class=PlainJsonRoute)


@router.get("/diff")
@needs(Permission.PIPELINES_READ)
async def diff_pipeline(
    name: Name, context: Ctx, caller: CallerDep, before: Before, after: After = None
) -> PipelineDiff:
    """Show the differences between two versions of a pipeline, field by field; at most 1,000 places. If
    an object's keys are in another order, it is `changed` with `order`, and the keys that both have. The
    order is not compared with a version that this release cannot read."""
    former = await reads.version_of(context.pool, caller.tenant, name, before)
    later = await reads.version_of(context.pool, caller.tenant, name, after)
    found = await asyncio.to_thread(_differences, former.spec, later.spec)
    return PipelineDiff(
        pipeline=name,
        before=former.version,
        after=later.version,
        changes=tuple(found[:MAX_CHANGES]),
        truncated=len(found) > MAX_CHANGES,
    )


def _differences(former: dict[str, Any], later: dict[str, Any]) -> list[VersionChange]:
    """Return the first differences, one more than are shown."""
    return list(islice(differences(former, later), MAX_CHANGES + 1))


@router.get("/release")
@needs(Permission.PIPELINES_READ)
async def show_release(
    name: Name, response: Response, context: Ctx, caller: CallerDep
) -> PipelineRelease:
    """Show which version is used by runs that do not name one, and the canary, if there is one."""
    return _shown(response, await store.find(context.pool, caller.tenant, name))


@router.post("/activate")
@needs(Permission.PIPELINES_RELEASE)
async def activate_pipeline(
    name: Name,
    body: ActivateBody,
    response: Response,
    context: Ctx,
    caller: CallerDep,
    if_match: IfMatch = None,
) -> PipelineRelease:
    """Activate a version: runs that do not name a version use it once this is answered, and versions
    applied later are not used until they are activated. Without a version, the newest is always active,
    which is the initial state. Ends a canary. Runs in progress keep their version."""
    row = await releases.activate(context, caller, name, body.version, if_match)
    return _shown(response, row)


@router.post("/rollback")
@needs(Permission.PIPELINES_RELEASE)
async def roll_back_pipeline(
    name: Name, response: Response, context: Ctx, caller: CallerDep, if_match: IfMatch = None
) -> PipelineRelease:
    """Activate the previously active version or, if there is none, the one before the active one. Ends a
    canary."""
    return _shown(response, await releases.roll_back(context, caller, name, if_match))


@router.get("/canary")
@needs(Permission.PIPELINES_READ)
async def show_canary(name: Name, context: Ctx, caller: CallerDep) -> CanaryReport:
    """Compare how runs of the canary ended with runs of the active version."""
    row = await store.find(context.pool, caller.tenant, name)
    async with context.long_reads.place(caller.tenant):
        return await canaries.report(context.pool, caller.tenant, row)


@router.put("/canary")
@needs(Permission.PIPELINES_RELEASE)
async def put_canary(
    name: Name,
    body: CanaryBody,
    response: Response,
    context: Ctx,
    caller: CallerDep,
    if_match: IfMatch = None,
) -> PipelineRelease:
    """Start a canary: a share of the runs that do not name a version use this one, and it is judged
    by how they end. It ends automatically if more of them fail. The other runs keep using the active
    version. To make all runs use the canary's version, activate it."""
    return _shown(response, await releases.put_canary(context, caller, name, body, if_match))


@router.delete("/canary")
@needs(Permission.PIPELINES_RELEASE)
async def end_canary(
    name: Name, response: Response, context: Ctx, caller: CallerDep, if_match: IfMatch = None
) -> PipelineRelease:
    """End a canary: all runs use the active version."""
    return _shown(response, await releases.end_canary(context, caller, name, if_match))


@router.post("/archive")
@needs(Permission.PIPELINES_RELEASE)
async def archive_pipeline(
    name: Name, response: Response, context: Ctx, caller: CallerDep, if_match: IfMatch = None
) -> PipelineRelease:
    """Archive a pipeline: it accepts no new runs and is left out of lists. Runs in progress continue."""
    row = await releases.archive(context, caller, name, if_match, archived=True)
    return _shown(response, row)


@router.post("/unarchive")
@needs(Permission.PIPELINES_RELEASE)
async def unarchive_pipeline(
    name: Name, response: Response, context: Ctx, caller: CallerDep, if_match: IfMatch = None
) -> PipelineRelease:
    """Unarchive a pipeline, so that it accepts new runs again."""
    row = await releases.archive(context, caller, name, if_match, archived=False)
    return _shown(response, row)


@router.delete("", status_code=204)
@needs(Permission.PIPELINES_APPLY)
async def delete_pipeline(
    name: Name, context: Ctx, caller: CallerDep, if_match: IfMatch = None
) -> None:
    """Delete an archived pipeline with all its versions. It must have no stored runs."""
    await releases.delete(context, caller, name, if_match)


def _shown(response: Response, row: asyncpg.Record) -> PipelineRelease:
    response.headers[ETAG] = etag(row["revision"])
    return store.shown(row)
