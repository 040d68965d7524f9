"""`/v1/pipelines/{name}/...`: which version runs take, what changed between two, archive and delete."""

from itertools import islice
from typing import Annotated

import asyncpg
from fastapi import APIRouter, Path, Query, Response

from hocket.admin.context import Ctx
from hocket.admin.pipelines import canaries, reads, releases
from hocket.admin.pipelines import release_store as store
from hocket.admin.pipelines.version_diff import changes
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
)
from hocket.schemas.rest import Token

Name = Annotated[Token, Path(description="The name of a pipeline, one in its tenant.")]
Before = Annotated[VersionNumber, Query(description="The version before.")]
After = Annotated[
    VersionNumber | None, Query(description="The version after; the newest without it.")
]

router = APIRouter(prefix="/v1/pipelines/{name}", tags=["pipelines"], route_class=PlainJsonRoute)


@router.get("/diff")
@needs(Permission.PIPELINES_READ)
async def diff_pipeline(
    name: Name, context: Ctx, caller: CallerDep, before: Before, after: After = None
) -> PipelineDiff:
    """Show in what two versions of a pipeline differ, field by field; at most 1,000 places."""
    former = await reads.version_of(context.pool, caller.tenant, name, before)
    later = await reads.version_of(context.pool, caller.tenant, name, after)
    found = list(islice(changes(former.spec, later.spec), MAX_CHANGES + 1))
    return PipelineDiff(
        pipeline=name,
        before=former.version,
        after=later.version,
        changes=tuple(found[:MAX_CHANGES]),
        truncated=len(found) > MAX_CHANGES,
    )


@router.get("/release")
@needs(Permission.PIPELINES_READ)
async def show_release(
    name: Name, response: Response, context: Ctx, caller: CallerDep
) -> PipelineRelease:
    """Show which version runs take that name none, and the canary, if there is one."""
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
    """Let runs that name no version take this one, from the next second on; versions that are applied
    later wait until they are activated. Without a version, the newest is active, as at first. It ends a
    canary. Runs that are under way go on with their version."""
    row = await releases.activate(context, caller, name, body.version, if_match)
    return _shown(response, row)


@router.post("/rollback")
@needs(Permission.PIPELINES_RELEASE)
async def roll_back_pipeline(
    name: Name, response: Response, context: Ctx, caller: CallerDep, if_match: IfMatch = None
) -> PipelineRelease:
    """Activate the version that was active before, otherwise the one before the active one. It ends a
    canary."""
    return _shown(response, await releases.roll_back(context, caller, name, if_match))


@router.get("/canary")
@needs(Permission.PIPELINES_READ)
async def show_canary(name: Name, context: Ctx, caller: CallerDep) -> CanaryReport:
    """Show how the runs of a canary ended, beside those of the active version."""
    row = await store.find(context.pool, caller.tenant, name)
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
    """Let a share of the runs that name no version take this one, and judge it by how they end: it is
    ended by itself where more of them fail. The other runs go on with the active version. Activate it
    to let all runs take it."""
    return _shown(response, await releases.put_canary(context, caller, name, body, if_match))


@router.delete("/canary")
@needs(Permission.PIPELINES_RELEASE)
async def end_canary(
    name: Name, response: Response, context: Ctx, caller: CallerDep, if_match: IfMatch = None
) -> PipelineRelease:
    """End a canary: all runs take the active version."""
    return _shown(response, await releases.end_canary(context, caller, name, if_match))


@router.post("/archive")
@needs(Permission.PIPELINES_RELEASE)
async def archive_pipeline(
    name: Name, response: Response, context: Ctx, caller: CallerDep, if_match: IfMatch = None
) -> PipelineRelease:
    """Let a pipeline take no new runs, and leave it out of lists. Runs that are under way go on."""
    row = await releases.archive(context, caller, name, if_match, archived=True)
    return _shown(response, row)


@router.post("/unarchive")
@needs(Permission.PIPELINES_RELEASE)
async def unarchive_pipeline(
    name: Name, response: Response, context: Ctx, caller: CallerDep, if_match: IfMatch = None
) -> PipelineRelease:
    """Let an archived pipeline take new runs again."""
    row = await releases.archive(context, caller, name, if_match, archived=False)
    return _shown(response, row)


@router.delete("", status_code=204)
@needs(Permission.PIPELINES_APPLY)
async def delete_pipeline(
    name: Name, context: Ctx, caller: CallerDep, if_match: IfMatch = None
) -> None:
    """Delete an archived pipeline with all its versions, where no run of it is stored."""
    await releases.delete(context, caller, name, if_match)


def _shown(response: Response, row: asyncpg.Record) -> PipelineRelease:
    response.headers[ETAG] = etag(row["revision"])
    return store.shown(row)
