"""Answers that are compressed for browsers that take that: scripts, styles and timelines.

Pages are not: they have the token of their session's forms beside text that others may choose, and the
length of both compressed together would tell the token bit by bit.
"""

import gzip
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

LEVEL = 6
MIN_BYTES = 500
"""Below them compression gains nothing."""


def compressed_response(
    request: Request,
    body: bytes,
    headers: Mapping[str, str],
    *,
    media_type: str,
    compressed: bytes | None = None,
) -> Response:
    """Answer with `body`, as gzip where the request takes it; `compressed` is that, made before."""
    headers = {**headers, "Vary": "Accept-Encoding"}
    if len(body) >= MIN_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, LEVEL) if compressed is None else compressed
        headers["Content-Encoding"] = "gzip"
    return Response(body, media_type=media_type, headers=headers)
