"""The OpenAPI document: what FastAPI derives from the endpoints, plus what it cannot know.

Added here are the error answers that the middlewares may give to any request, each as a problem (RFC
9457), and links from an answer to the requests that it makes possible.
"""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from hocket.admin.requests.errors import PROBLEM_TYPE
from hocket.admin.requests.permissions import EXTENSION
from hocket.schemas.administration.live import LiveEnd, RunNotice
from hocket.schemas.pipeline.spec import pipeline_schema
from hocket.schemas.rest import ErrorReply, RunResult, StepDetail

Json = dict[str, Any]

REFUSALS = {
    400: "The request's address, `Host` or body cannot be read.",
    401: "The key is missing or not valid.",
    403: "The key lacks a permission or belongs to another tenant, or the request comes from "
    "a web page of another origin.",
    404: "Not found.",
    421: "`Host` is not a name of this server.",
    422: "The request is not valid; `field` names the place and `cure` says what to do.",
    429: "Too many requests, or the platform is overloaded; try again after `Retry-After`.",
    503: "A part of the platform is unavailable; try again after `Retry-After`.",
}
"""Of every operation."""
REFUSALS_OF_WRITES = {
    402: "The budget does not allow it.",
    409: "The request conflicts with the current state.",
    412: "`If-Match` or `If-None-Match` does not hold: the resource has changed.",
    413: "The body is too large.",
    415: "The body is not of an accepted `Content-Type`, or is compressed.",
    504: "The operation timed out.",
}
WRITES = frozenset({"post", "put", "patch", "delete"})
METHODS = WRITES | {"get"}
PROBLEM = {
    "content": {PROBLEM_TYPE: {"schema": {"$ref": f"#/components/schemas/{ErrorReply.__name__}"}}}
}
PIPELINE = "Pipeline"
RUN_ID = "run_id"
RUN_LINKS = {
    "show_run": "GET",
    "list_steps": "GET",
    "show_cost": "GET",
    "cancel_run": "POST",
    "signal_run": "POST",
    "retry_run": "POST",
    "rerun_run": "POST",
}


def document(app: FastAPI) -> Json:
    """Return the document of an app; it is built once."""
    if app.openapi_schema is None:
        found = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            routes=app.routes,
        )
        _add_problem(found)
        _add_pipeline(found)
        _add_events(found)
        _add_permissions(app, found)
        for method, operation in _operations(found):
            _add_refusals(method, operation)
            _drop_null(operation)
        _add_links(found)
        app.openapi_schema = found
    return app.openapi_schema


def _add_permissions(app: FastAPI, found: Json) -> None:
    """Add the permissions that each operation requires of a key."""
    found["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "A key: `hk_<id>_<secret>`."},
        "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
    }
    found["security"] = [{"bearer": []}, {"header": []}]
    for operation in app.state.operations:
        for method in operation.methods & {name.upper() for name in METHODS}:
            if described := found["paths"].get(operation.template, {}).get(method.lower()):
                described[EXTENSION] = list(operation.needs)


def _operations(found: Json) -> Iterator[tuple[str, Json]]:
    for item in found["paths"].values():
        yield from item.items()


def _add_problem(found: Json) -> None:
    schemas = found["components"]["schemas"]
    schema = ErrorReply.model_json_schema(
        mode="serialization", ref_template="#/components/schemas/{model}"
    )
    schemas |= schema.pop("$defs", {})
    schemas[ErrorReply.__name__] = schema
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)


def _add_refusals(method: str, operation: Json) -> None:
    told = REFUSALS | (REFUSALS_OF_WRITES if method in WRITES else {})
    responses = operation["responses"]
    for status, text in told.items():
        responses[str(status)] = {"description": text, **PROBLEM}
    operation["responses"] = dict(sorted(responses.items()))


def _add_pipeline(found: Json) -> None:
    """Describe the top level of a pipeline file; the schema of nodes is at `/v1/schemas/pipeline`."""
    whole = pipeline_schema()
    node = {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}}
    own = {name: whole["properties"][name] for name in ("pipeline", "description", "slo_ms")}
    found["components"]["schemas"][PIPELINE] = {
        "type": "object",
        "description": "A pipeline. The full JSON Schema is at `GET /v1/schemas/pipeline`.",
        "required": ["pipeline", "nodes"],
        "properties": {
            **own,
            "nodes": {"type": "object", "minProperties": 1, "additionalProperties": node},
        },
    }
    for path in ("/v1/pipelines", "/v1/pipelines/validate"):
        for media in found["paths"][path]["post"]["requestBody"]["content"].values():
            media["schema"] = {"$ref": f"#/components/schemas/{PIPELINE}"}


def _add_events(found: Json) -> None:
    """Add the schema of each event in streams, in the form of OpenAPI 3.2."""
    _add_stream(found, "/v1/runs/{run_id}/events", {"step": StepDetail, "run": RunResult})
    _add_stream(found, "/v1/runs/events", {"run": RunNotice})


def _add_stream(found: Json, path: str, kinds: dict[str, type[BaseModel]]) -> None:
    schemas = found["components"]["schemas"]
    kinds = kinds | dict.fromkeys(("lagged", "reset"), LiveEnd)
    for model in kinds.values():
        schema = model.model_json_schema(
            mode="serialization", ref_template="#/components/schemas/{model}"
        )
        schemas |= schema.pop("$defs", {})
        schemas.setdefault(model.__name__, schema)
    data = [{"$ref": f"#/components/schemas/{name}"} for name in _names(kinds)]
    event = {
        "type": "object",
        "required": ["event", "data"],
        "properties": {
            "event": {"enum": list(kinds)},
            "id": {"type": "string"},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {"anyOf": data},
            },
        },
    }
    answer = found["paths"][path]["get"]["responses"]["200"]
    answer["content"]["text/event-stream"]["schema"] = event


def _names(kinds: dict[str, type[BaseModel]]) -> list[str]:
    return list(dict.fromkeys(model.__name__ for model in kinds.values()))


def _drop_null(operation: Json) -> None:
    """Remove `null` from the types of optional parameters: they are left out, never sent as null."""
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
        if len(kinds) == 1:
            del schema["anyOf"]
            schema |= kinds[0]
        if schema.get("default", "") is None:
            del schema["default"]


def _add_links(found: Json) -> None:
    by_id = {operation["operationId"]: operation for _, operation in _operations(found)}
    for source in ("submit_run", "retry_run", "rerun_run"):
        for status in ("200", "202"):
            by_id[source]["responses"][status]["links"] = {
                name: {"operationId": name, "parameters": {RUN_ID: f"$response.body#/{RUN_ID}"}}
                for name in RUN_LINKS
            }
    for status in ("200", "201"):
        by_id["apply_pipeline"]["responses"][status]["links"] = {
            "show_pipeline": {
                "operationId": "show_pipeline",
                "parameters": {"name": "$response.body#/pipeline"},
            },
            "submit_run": {
                "operationId": "submit_run",
                "requestBody": {"pipeline": "$response.body#/pipeline"},
            },
        }
