"""`/v1/pipelines`: apply, validate and read pipelines."""

import json
from functools import cache
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from hocket.admin.context import Context, Ctx
from hocket.admin.pages import DEFAULT_PAGE, Limit
from hocket.admin.pipelines import reads
from hocket.admin.pipelines.known_models import UNCHECKED, known_models
from hocket.admin.pipelines.versions import apply
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.parameters import Switch, VersionNumber
from hocket.admin.requests.permissions import needs
from hocket.kit.access import grant_store
from hocket.schemas.access.grants import check_grants
from hocket.schemas.access.roles import Permission
from hocket.schemas.pipeline.handlers import check_handlers
from hocket.schemas.pipeline.plan import Plan
from hocket.schemas.pipeline.spec import PipelineNode, pipeline_schema
from hocket.schemas.rest import (
    PipelineApplied,
    PipelineDetail,
    PipelineList,
    PipelineValid,
    Token,
)

DOCUMENT = {
    "requestBody": {
        "required": True,
        "description": "Pipeline in JSON or YAML.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "application/yaml": {"schema": {"type": "string"}},
        },
    }
}

router = APIRouter(tags=["pipelines"])


@router.post(
    "/v1/pipelines",
    openapi_extra=DOCUMENT,
    status_code=201,
    responses={
        200: {
            "model": PipelineApplied,
            "description": "The spec is identical to the latest version.",
        }
    },
)
@needs(Permission.PIPELINES_APPLY)
async def apply_pipeline(
    request: Request, response: Response, context: Ctx, caller: CallerDep
) -> PipelineApplied:
    """Apply a pipeline: a spec that differs from the latest version, if only in the order of keys,
    becomes the next version (201); an identical spec returns the latest version (200)."""
    plan, warnings = await _checked(request, context, caller.tenant)
    version, created = await apply(context.pool, caller.tenant, plan, caller.actor)
    context.plans.forget(caller.tenant, plan.pipeline.pipeline)
    warnings += await reads.not_taken(context.pool, caller.tenant, plan.pipeline.pipeline, version)
    if not created:
        response.status_code = 200
    return PipelineApplied(
        pipeline=plan.pipeline.pipeline, version=version, created=created, warnings=warnings
    )


@router.post("/v1/pipelines/validate", openapi_extra=DOCUMENT)
@needs(Permission.PIPELINES_CHECK)
async def validate_pipeline(request: Request, context: Ctx, caller: CallerDep) -> PipelineValid:
    """Check a pipeline as `POST /v1/pipelines` does, without storing it."""
    plan, warnings = await _checked(request, context, caller.tenant)
    return PipelineValid(
        pipeline=plan.pipeline.pipeline, nodes=len(plan.by_path), warnings=warnings
    )


@router.get("/v1/pipelines")
@needs(Permission.PIPELINES_READ)
async def list_pipelines(
    context: Ctx,
    caller: CallerDep,
    after: Annotated[str, Query(max_length=63, pattern=r"^[A-Za-z0-9_-]*$")] = "",
    limit: Limit = DEFAULT_PAGE,
    archived: Annotated[Switch, Query(description="List archived pipelines instead.")] = False,
) -> PipelineList:
    """List the latest version of each pipeline, by name; `after` is the last name of the previous page.
    Archived pipelines are listed separately."""
    return PipelineList(
        pipelines=await reads.list_pipelines(
            context.pool, caller.tenant, after, limit, archived=archived
        )
    )


@router.get("/v1/pipelines/{name}")
@needs(Permission.PIPELINES_READ)
async def show_pipeline(
    name: Token,
    context: Ctx,
    caller: CallerDep,
    version: VersionNumber | None = None,
) -> PipelineDetail:
    """Show one version of a pipeline with its spec; by default, the latest."""
    return await reads.version_of(context.pool, caller.tenant, name, version)


@router.get("/v1/schemas/pipeline", response_model=dict[str, Any])
@needs(Permission.PIPELINES_READ)
async def show_schema() -> Response:
    """Return the JSON Schema of a pipeline, for editors."""
    return Response(_schema(), media_type="application/json")


@cache
def _schema() -> bytes:
    """Return the schema as JSON, built once: building it takes as long as 20 other requests."""
    return json.dumps(pipeline_schema(), separators=(",", ":")).encode()


async def _checked(request: Request, context: Context, tenant: str) -> tuple[Plan, tuple[str, ...]]:
    media_type, body = request.headers.get("content-type", ""), await request.body()
    models = await known_models(context.bus)
    plan, unserved = await context.compiler.compile(
        tenant, media_type, body, models, context.node_types
    )
    if context.handlers is not None:
        check_handlers(plan.pipeline, context.handlers)
    granted = await grant_store.read(context.pool, tenant)
    check_grants(plan.pipeline, granted.grants, tenant)
    warnings = unserved if models is not None else [*unserved, UNCHECKED]
    warnings += [
        f"There is no pipeline `{name}` yet; runs will fail at the step that starts it."
        for name in await reads.unknown_names(context.pool, tenant, _pipelines_in(plan))
    ]
    return plan, tuple(warnings)


def _pipelines_in(plan: Plan) -> list[str]:
    own = plan.pipeline.pipeline
    nodes = (node_plan.node for node_plan in plan.by_path.values())
    named = {node.pipeline for node in nodes if isinstance(node, PipelineNode)}
    return sorted(named - {own})
