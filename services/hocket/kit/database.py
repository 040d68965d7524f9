"""Connections to Postgres: asyncpg pools for the hot paths."""

import asyncio

import asyncpg

from hocket.schemas.errors import ErrorClass, HocketError

CONNECT_TIMEOUT_S = 30.0
STATEMENT_TIMEOUT_S = 60.0
RETRY_WAIT_S = 0.2


class DatabaseUnavailable(HocketError):
    """Postgres did not answer ({reason}). Check that it runs and that DATABASE_URL is right:
    `hocket doctor`."""

    code = "database_unavailable"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


async def connect_pool(url: str, *, size: int, name: str) -> asyncpg.Pool:
    """Return a pool of at most `size` connections, or raise DatabaseUnavailable in 30 s."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CONNECT_TIMEOUT_S
    while True:
        try:
            return await asyncpg.create_pool(
                url,
                min_size=1,
                max_size=size,
                timeout=5,
                command_timeout=STATEMENT_TIMEOUT_S,
                server_settings={"application_name": f"hocket {name}"},
                reset=_keep,
            )
        except (
            OSError,
            asyncpg.PostgresConnectionError,
            asyncpg.CannotConnectNowError,
            TimeoutError,
        ) as error:
            if loop.time() > deadline:
                raise DatabaseUnavailable(reason=str(error) or type(error).__name__) from error
            await asyncio.sleep(RETRY_WAIT_S)


async def _keep(_connection: asyncpg.Connection) -> None:
    """Leave a session as it is: ours set, listen to and lock nothing beyond a transaction, and the
    usual reset is a round trip after each query. (An open transaction is rolled back before this.)"""
