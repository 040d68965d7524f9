"""`/v1/types`: the existing node types."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from hocket.admin.context import Ctx
from hocket.admin.node_types import reads
from hocket.admin.pages import DEFAULT_PAGE, Limit
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission
from hocket.schemas.rest import NodeTypeDetail, NodeTypeList
from hocket.schemas.subjects import MAX_TYPE_CHARS

router = APIRouter(tags=["node types"])

TypeName = Annotated[str, Path(max_length=MAX_TYPE_CHARS, pattern=r"^[A-Za-z0-9_.-]+$")]


@router.get("/v1/types")
@needs(Permission.PIPELINES_READ)
async def list_types(
    context: Ctx,
    _caller: CallerDep,
    after: Annotated[str, Query(max_length=63, pattern=r"^[A-Za-z0-9_.-]*$")] = "",
    limit: Limit = DEFAULT_PAGE,
) -> NodeTypeList:
    """List the node types that workers run or used to run, with their queues; `after` is `next` of the
    previous page."""
    return reads.list_types(context.node_types, after, limit)


@router.get("/v1/types/{name}")
@needs(Permission.PIPELINES_READ)
async def show_type(name: TypeName, context: Ctx, _caller: CallerDep) -> NodeTypeDetail:
    """Show a node type with the JSON Schemas of its config, input and output."""
    return reads.show_type(context.node_types, name)
