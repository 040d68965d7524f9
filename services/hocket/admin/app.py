"""The API as an ASGI application: its routers, its errors, its limits."""

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from hocket.admin.body_limit import BodyLimit
from hocket.admin.calls.endpoints import router as calls
from hocket.admin.context import Context
from hocket.admin.costs.endpoints import router as costs
from hocket.admin.dead_letters.endpoints import router as dead_letters
from hocket.admin.errors import add_error_handlers
from hocket.admin.experiments.endpoints import router as experiments
from hocket.admin.health.endpoints import router as health
from hocket.admin.metrics import RequestMetrics
from hocket.admin.pipelines.endpoints import router as pipelines
from hocket.admin.runs.endpoints import router as runs
from hocket.schemas.rest import ErrorReply

MAX_BODY_BYTES = 1_048_576
"""Bytes in one request; larger values travel by reference."""

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorReply, "description": text}
    for status, text in {
        404: "There is no such thing.",
        409: "It does not fit what is there.",
        413: "The body is too large.",
        422: "The request is not valid; the error names the field and the cure.",
        503: "A part of the platform is away; try again.",
    }.items()
}


def make_app(context: Context, registry: CollectorRegistry) -> FastAPI:
    """Return the application over these connections; its metrics go to `registry`."""
    app = FastAPI(
        title="Hocket",
        version=version("hocket"),
        summary="Submit and read runs, apply pipelines, read costs.",
        responses=ERRORS,
    )
    app.state.context = context
    for router in (runs, pipelines, costs, calls, experiments, dead_letters, health):
        app.include_router(router)
    add_error_handlers(app)
    app.add_middleware(BodyLimit, limit_bytes=MAX_BODY_BYTES)
    app.add_middleware(RequestMetrics, registry=registry)
    return app
