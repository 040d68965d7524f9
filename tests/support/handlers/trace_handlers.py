"""A handler that logs, with structlog and with the standard library, and a model that logs."""

import logging
from typing import Any

import structlog

from hocket.schemas.messages import CallRequest, Completion


async def tell(given: dict[str, Any]) -> dict[str, Any]:
    """Log two lines, and fail if asked to."""
    structlog.get_logger().info("told_by_handler", word=given["word"])
    logging.getLogger("library").warning("told by a library: %s", given["word"])
    if given.get("fails"):
        raise ValueError("it was asked to fail")
    return given


async def think(request: CallRequest) -> Completion:
    """Log a line and answer."""
    structlog.get_logger().info("told_by_model", word="model")
    return Completion(text="ok", input_tokens=1, output_tokens=1, finish_reason="stop")
