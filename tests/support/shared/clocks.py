"""A test's clock in the place of Postgres's."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any


def database_clock(now: Callable[[], datetime]) -> Callable[[Any], Awaitable[datetime]]:
    """Return what reads a test's clock as if it were that of Postgres."""

    async def read(_connection: Any) -> datetime:
        return now()

    return read
