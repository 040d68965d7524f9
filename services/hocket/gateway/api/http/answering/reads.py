"""Handles requests that are not calls: the models, and the description of this API."""

from aiohttp import web

from hocket.gateway.api.http import identity
from hocket.gateway.api.http.answering.model_list import Allows, ModelList
from hocket.gateway.api.http.answering.paths import MAX_SHOWN_CHARS, POSTS, check_query
from hocket.gateway.api.http.answering.replies import JSON, answered
from hocket.gateway.api.http.errors import MethodNotAllowed, PathUnknown
from hocket.gateway.api.http.openapi import document_json
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.config.access import Key
from hocket.schemas.access.roles import Permission
from hocket.schemas.checks.plain_json import shown_text


class HttpReads:
    """Answers read requests."""

    def __init__(self, registry: CallRegistry, allows: Allows) -> None:
        self._models = ModelList(registry, allows)

    def answer(self, request: web.BaseRequest, path: str, key: Key | None) -> web.StreamResponse:
        """Answer a request; raise PathUnknown or MethodNotAllowed if there is nothing to read."""
        if path in POSTS:
            raise MethodNotAllowed(method=request.method, path=request.path, allowed="POST")
        first, _, rest = path.partition("/")
        if first not in ("models", "openapi.json") or (first == "openapi.json" and rest):
            raise PathUnknown(path=shown_text(request.path, MAX_SHOWN_CHARS))
        if request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed(method=request.method, path=request.path, allowed="GET, HEAD")
        check_query(request)
        if first == "openapi.json":
            return web.Response(body=document_json(), headers=JSON)
        if key is not None:
            key.needs(Permission.MODELS_READ)
        tenant = identity.tenant_of(request.headers, key)
        models = self._models.one(rest, key, tenant) if rest else self._models.all(key, tenant)
        return answered(models, {"Cache-Control": "no-store"})  # they are those of the caller
