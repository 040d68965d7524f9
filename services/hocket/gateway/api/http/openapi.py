"""The OpenAPI document of the HTTP door."""

from functools import cache
from importlib.metadata import version
from typing import Any

from pydantic.json_schema import models_json_schema
from pydantic_core import to_json

from hocket.gateway.api.http import identity
from hocket.gateway.api.http.bodies import BODIES
from hocket.gateway.core.calls.body_fields import FUNCTION_KEYS, KNOWN_FIELDS
from hocket.gateway.core.protocols.openai_api import CHAT, COMPLETIONS, EMBEDDINGS
from hocket.gateway.core.protocols.responses.request import PASSED_FIELDS, RESPONSES

_SUMMARIES = {
    CHAT: "Chat completion; with `stream`, as server-sent events",
    COMPLETIONS: "Legacy completion; with `stream`, as server-sent events",
    EMBEDDINGS: "Embeddings",
    RESPONSES: "Response; with `stream`, as server-sent events",
}
_REFUSALS = {
    "400": "The request is not valid; `error.param` names the field.",
    "401": "The key is missing or not valid.",
    "403": "The key is not valid for this model or tenant, or the request comes from a web page "
    "of another origin.",
    "404": "The model does not exist.",
    "405": "The path does not accept this method.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is not `application/json` in UTF-8.",
    "421": "`Host` is not a name of this server.",
    "429": "Too many calls, or a budget is exhausted; see `retry-after`.",
    "499": "The call was cancelled.",
    "500": "A function or the gateway failed.",
    "502": "A backend failed.",
    "503": "No backend can take the call now; see `retry-after`.",
    "504": "The call timed out.",
}


@cache
def document_json() -> bytes:
    """Return the document as JSON."""
    return to_json(document())


@cache
def document() -> dict[str, Any]:
    """Return the document."""
    models, schemas = models_json_schema(
        [(model, "validation") for model in BODIES.values()],
        ref_template="#/components/schemas/{model}",
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hocket gateway",
            "version": version("hocket"),
            "summary": "OpenAI's API for the models of the routing table.",
        },
        "servers": [{"url": "/v1"}],
        "security": [{"key": []}, {"header": []}],
        "paths": {
            **{
                f"/{path}": _call(path, models[(model, "validation")])
                for path, model in BODIES.items()
            },
            "/models": {"get": _get("The models that the caller may use", "List")},
            "/models/{model}": {
                "parameters": [
                    {
                        "name": "model",
                        "in": "path",
                        "required": True,
                        "schema": {"type": "string", "minLength": 1},
                    }
                ],
                "get": _get("A model", "Model"),
            },
        },
        "components": {
            "schemas": {**_bodies(schemas["$defs"]), "Value": _VALUE, **_ANSWERS},
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            },
        },
    }


def _bodies(found: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of requests; bodies have only fields that every backend gets."""
    schemas: dict[str, Any] = _without_nul(found)
    for path, model in BODIES.items():
        body = schemas[model.__name__]
        passed = PASSED_FIELDS if path == RESPONSES else KNOWN_FIELDS
        known = sorted(passed - body["properties"].keys())
        body["patternProperties"] = {f"^({'|'.join(known)})$": _ANY}
        body["additionalProperties"] = _ONLY_NULL
    tools = schemas[BODIES[CHAT].__name__]["properties"]["tools"]["anyOf"]
    next(one for one in tools if one["type"] == "array")["items"] = _TOOL
    return schemas


def _without_nul(schema: Any) -> Any:
    """Return a request schema in which no string and no key contains U+0000."""
    if isinstance(schema, list):
        return [_without_nul(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _without_nul(part) for name, part in schema.items()}
    if found.get("type") == "string" and "pattern" not in found:
        found["pattern"] = _NO_NUL
    if found.get("additionalProperties") is True:
        found["additionalProperties"] = _ANY
        found["propertyNames"] = {"pattern": _NO_NUL}
    return found


def _call(path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "application/json": {"schema": {"$ref": "#/components/schemas/Answer"}}
    }
    if path != EMBEDDINGS:
        answer["text/event-stream"] = {"schema": _EVENT}
    return {
        "post": {
            "operationId": path.replace("/", "_"),
            "summary": _SUMMARIES[path],
            "parameters": [_header(name) for name in identity.HEADERS],
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": {"200": {"description": "The response.", "content": answer}, **_refused()},
        }
    }


def _header(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": identity.HEADERS[name],
        "schema": identity.schema(name),
    }


def _get(summary: str, schema: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {
        "operationId": f"get_{schema.lower()}",
        "summary": summary,
        "parameters": [_header(identity.TENANT)],
        "responses": {
            "200": {"description": "The model exists.", "content": content},
            **_refused(),
        },
    }


def _refused() -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {status: {"description": text, "content": content} for status, text in _REFUSALS.items()}


_EVENT: dict[str, Any] = {
    "type": "object",
    "description": "Each event as JSON: a chunk, an error, or `[DONE]`; for a response, its own events.",
    "required": ["data"],
    "properties": {"data": {"type": "string"}},
}
_NO_NUL = r"^[^\u0000]*$"
_ANY: dict[str, Any] = {"$ref": "#/components/schemas/Value"}
_ONLY_NULL: dict[str, Any] = {
    "type": "null",
    "description": "Other fields are refused, unless listed in `pass_fields` of a backend.",
}
_TOOL: dict[str, Any] = {
    "type": "object",
    "description": "A function; tools that the provider runs require `pass_fields` of a backend.",
    "properties": {
        "type": {"const": "function"},
        **dict.fromkeys(sorted(FUNCTION_KEYS - {"type"}), _ANY),
    },
    "additionalProperties": False,
}
_VALUE: dict[str, Any] = {
    "description": "Any JSON value without the character U+0000, at most 64 levels deep.",
    "anyOf": [
        {"type": ["number", "boolean", "null"]},
        {"type": "string", "pattern": _NO_NUL},
        {"type": "array", "items": _ANY},
        {
            "type": "object",
            "propertyNames": {"pattern": _NO_NUL},
            "additionalProperties": _ANY,
        },
    ],
}
_NAMED = {"type": "object", "required": ["id", "object"]}
_ANSWERS: dict[str, Any] = {
    "Answer": {"type": "object", "description": "As in OpenAI's API."},
    "Model": {**_NAMED, "properties": {"id": {"type": "string"}, "object": {"const": "model"}}},
    "List": {
        "type": "object",
        "required": ["object", "data"],
        "properties": {
            "object": {"const": "list"},
            "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}},
        },
    },
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "code"],
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "param": {"type": ["string", "null"]},
                    "code": {"type": "string"},
                    "hocket": {"type": "object", "description": "The typed error."},
                },
            }
        },
    },
}
