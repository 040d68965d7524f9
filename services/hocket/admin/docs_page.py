"""The OpenAPI document, and the page at /docs: Swagger UI over it, with scripts and styles from the
package `fastapi-offline`, so that it works offline and third parties learn nothing of its visitors.

These are the same for everybody, so each is built once and sent from memory.
"""

import asyncio
import json
from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files
from mimetypes import guess_type

from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hocket.admin.requests.permissions import public

DOCUMENT = "/openapi.json"
PAGE = "/docs"
ASSETS = ("swagger-ui-bundle.js", "swagger-ui.css", "favicon.png")
MAX_AGE_S = 86_400
PART_BYTES = 65_536
"""Size of the pieces sent; a caller that does not read holds no more than one of them in memory."""


def add_docs_page(app: FastAPI) -> None:
    """Serve the document, the page and its parts, each at its own path."""

    @cache
    def document() -> bytes:
        return json.dumps(app.openapi(), ensure_ascii=False, separators=(",", ":")).encode()

    _add(app, DOCUMENT, "application/json", document)
    app.add_route(PAGE, _page, methods=["GET"], include_in_schema=False)
    for name in ASSETS:
        kind = guess_type(name)[0] or "application/octet-stream"
        _add(app, f"{PAGE}/{name}", kind, partial(_asset, name), max_age_s=MAX_AGE_S)


def _add(
    app: FastAPI, path: str, media_type: str, content: Callable[[], bytes], max_age_s: int = 0
) -> None:
    headers = {"Cache-Control": f"max-age={max_age_s}"} if max_age_s else None

    @public
    async def answer(_request: Request) -> Response:
        return _Prepared(content(), headers=headers, media_type=media_type)

    app.add_route(path, answer, methods=["GET"], include_in_schema=False)


@public
async def _page(request: Request) -> Response:
    root = request.scope.get("root_path", "")
    script, style, icon = (f"{root}{PAGE}/{name}" for name in ASSETS)
    return get_swagger_ui_html(
        openapi_url=f"{root}{DOCUMENT}",
        title="Hocket's REST API",
        swagger_js_url=script,
        swagger_css_url=style,
        swagger_favicon_url=icon,
    )


@cache
def _asset(name: str) -> bytes:
    return (files("fastapi_offline") / "static" / name).read_bytes()


class _Prepared(Response):
    """An answer from memory, sent as fast as it is read."""

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        for place in range(0, len(self.body), PART_BYTES):
            part = bytes(self.body[place : place + PART_BYTES])
            more = place + PART_BYTES < len(self.body)
            await send({"type": "http.response.body", "body": part, "more_body": more})
            await asyncio.sleep(0)
