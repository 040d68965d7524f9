"""Serves the console's scripts and styles."""

from starlette.requests import Request
from starlette.responses import Response

from hocket.admin.console.assets import assets
from hocket.admin.console.compression import compressed_response
from hocket.admin.console.error_pages import refusal
from hocket.admin.requests.permissions import public
from hocket.admin.requests.request_rules import NoSuchAddress
from hocket.schemas.checks.plain_json import shown_text

FOREVER = "public, max-age=31536000, immutable"


@public
async def serve_asset(request: Request) -> Response:
    """Serve a file; an outdated digest gets a 404."""
    asset = assets().get(request.path_params["name"])
    if asset is None or asset.digest != request.path_params["digest"]:
        error = NoSuchAddress(path=shown_text(request.url.path, 100))
        return refusal(request.scope, error)
    headers = {"Cache-Control": FOREVER, "X-Content-Type-Options": "nosniff"}
    return compressed_response(
        request, asset.body, headers, media_type=asset.media_type, compressed=asset.compressed
    )
