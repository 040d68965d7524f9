"""Compressed answers for browsers that accept them: scripts, styles and timelines.

Pages are not compressed: they contain the session's form token beside text that others can choose, and
the compressed length of both would reveal the token bit by bit.
"""

import gzip
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

LEVEL = 6
MIN_BYTES = 500
"""Below this size compression gains nothing."""


def compressed_response(
    request: Request,
    body: bytes,
    headers: Mapping[str, str],
    *,
    media_type: str,
    compressed: bytes | None = None,
) -> Response:
    """Answer with `body`, or with `compressed` (the same as gzip, if already made) if the request
    accepts gzip."""
    headers = {**headers, "Vary": "Accept-Encoding"}
    if len(body) >= MIN_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, LEVEL) if compressed is None else compressed
        headers["Content-Encoding"] = "gzip"
    return Response(body, media_type=media_type, headers=headers)
