"""Converts calls for backends and writes their bodies: large ones in a thread, because that takes up to
seconds, in which no other call would go on.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic_core import to_json

from hocket.gateway.backends.large_work import beside
from hocket.gateway.core.calls.request_content import LARGE_TOKENS, tokens
from hocket.gateway.core.protocols.json_parts import written_in_parts
from hocket.schemas.messages import CallRequest

T = TypeVar("T")


def is_large(request: CallRequest) -> bool:
    """Return whether it takes long to convert or to write a call."""
    return tokens(request) >= LARGE_TOKENS


async def converted(request: CallRequest, convert: Callable[[CallRequest], T]) -> T:
    """Return what a function makes of a call, or raise what it raises."""
    return await beside(lambda: convert(request)) if is_large(request) else convert(request)


def encoded(request: CallRequest, body: dict[str, Any]) -> bytes:
    """Return the body for a call as JSON, which has no infinity: 1e400 becomes null."""
    return written_in_parts(body) if is_large(request) else to_json(body, inf_nan_mode="null")
