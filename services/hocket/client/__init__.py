"""A typed client of the REST API: `Hocket`, and `AsyncHocket` for asyncio."""

from hocket.client.async_client import AsyncHocket
from hocket.client.errors import (
    AnswerUnreadable,
    ApiUnreachable,
    RequestRefused,
    RunNotSucceeded,
)
from hocket.client.sync_client import Hocket

__all__ = [
    "AnswerUnreadable",
    "ApiUnreachable",
    "AsyncHocket",
    "Hocket",
    "RequestRefused",
    "RunNotSucceeded",
]
