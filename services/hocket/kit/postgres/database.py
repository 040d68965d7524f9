"""Connections to Postgres: asyncpg pools for the hot paths, and a check whether it answers.

A server that hangs, or that vanished silently, must not block its clients for ever: a statement has a
time limit, and so has returning its connection to the pool. What was sent on such a connection may still
be executed when the server resumes.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import structlog

from hocket.kit.postgres.errors import AWAY, OF_SCHEMA, SchemaDiffers
from hocket.kit.postgres.pooler import check_sessions
from hocket.kit.postgres.session_cleanup import closed_on_failure
from hocket.schemas.errors import ErrorClass, HocketError

CONNECT_TIMEOUT_S = 30.0
ATTEMPT_TIMEOUT_S = 5.0
STATEMENT_TIMEOUT_S = 60.0
RETRY_WAIT_S = 0.2
SAY_AFTER_S = 2.5
"""How long a server may be silent while a pool opens before this is first logged."""
REPORT_S = 10.0
"""Minimum time between two warnings that Postgres cannot be reached."""
RELEASE_TIMEOUT_S = 5.0
"""How long the cancellation of an abandoned statement may take before its connection is closed."""
SESSION = {"timezone": "UTC", "datestyle": "ISO, MDY"}
"""The settings of our sessions on which days and written times depend, whatever the server's are. Each
pooler lets clients set them, because drivers of other languages always do."""
PULSE_EVERY_S = 3.0
PULSE_TIMEOUT_S = 5.0
PULSE = "database"
"""The component of a process's health that says whether Postgres answers."""


log = structlog.get_logger(__name__)


class DatabaseUnavailable(HocketError):
    """Postgres did not answer ({reason}). Check that it runs and that DATABASE_URL is right:
    `hocket doctor`."""

    code = "database_unavailable"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class StatementTooSlow(HocketError):
    """Postgres did not finish this in time ({reason}): there is too much to read, or it is busy. Ask for
    less (fewer days, one pipeline, a smaller page), or read the views of schema `report` with SQL, which
    may take longer (docs/how-to/report-logins.md). `hocket doctor` says whether Postgres answers."""

    code = "database_unavailable"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


TOO_SLOW = (TimeoutError, asyncpg.QueryCanceledError)
"""What is raised if a statement takes longer than it may."""


class Pool(asyncpg.Pool):  # type: ignore[misc]  # asyncpg has no types
    """A pool that does not wait for a hung server to take a connection back."""

    async def release(self, connection: Any, *, timeout: float | None = None) -> None:
        await super().release(connection, timeout=timeout or RELEASE_TIMEOUT_S)


async def connect_pool(
    url: str, *, size: int, name: str, timeout_s: float = CONNECT_TIMEOUT_S
) -> asyncpg.Pool:
    """Return a pool of at most `size` connections, or raise DatabaseUnavailable after `timeout_s`.
    Raises SessionsShared if a pooler shares sessions between clients."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    reported = -REPORT_S
    silent = loop.call_later(SAY_AFTER_S, _say_waiting, name)
    while True:
        try:
            pool = await Pool(
                url,
                min_size=1,
                max_size=size,
                max_queries=50_000,
                max_inactive_connection_lifetime=300.0,
                loop=None,
                connection_class=asyncpg.Connection,
                record_class=asyncpg.Record,
                timeout=ATTEMPT_TIMEOUT_S,
                command_timeout=STATEMENT_TIMEOUT_S,
                server_settings={"application_name": f"hocket {name}", **SESSION},
                reset=_keep,
            )
            silent.cancel()
            await _check_sessions(pool, url)
            return pool
        except asyncpg.ClientConfigurationError as error:  # the URL is at fault: waiting is no cure
            silent.cancel()
            raise DatabaseUnavailable(reason=said(error)) from error
        except (
            *AWAY,
            asyncpg.InvalidAuthorizationSpecificationError,
            asyncpg.InvalidCatalogNameError,
            asyncpg.TargetServerAttributeNotMatched,  # none of several hosts is the primary now
        ) as error:
            silent.cancel()
            if loop.time() > reported + REPORT_S:
                reported = loop.time()
                log.warning("database_unreachable", pool=name, error=said(error))
            if loop.time() > deadline:
                raise DatabaseUnavailable(reason=said(error)) from error
            await asyncio.sleep(RETRY_WAIT_S)


async def connected(url: str, timeout_s: float = ATTEMPT_TIMEOUT_S) -> asyncpg.Connection:
    """Open a single connection, at the first try; raise DatabaseUnavailable."""
    try:
        return await asyncpg.connect(url, timeout=timeout_s, server_settings=SESSION)
    except (*AWAY, asyncpg.PostgresError, ValueError) as error:
        raise DatabaseUnavailable(reason=said(error)) from error


async def _check_sessions(pool: asyncpg.Pool, url: str) -> None:
    """Close the pool and raise SessionsShared if it does not have its sessions to itself."""
    try:
        async with pool.acquire() as connection:
            await check_sessions(
                connection, lambda: asyncpg.connect(url, timeout=ATTEMPT_TIMEOUT_S)
            )
    except BaseException:
        pool.terminate()
        raise


async def monitor_database(pool: asyncpg.Pool, report: Callable[[str, bool, str], None]) -> None:
    """Check every PULSE_EVERY_S whether Postgres answers, and report it; runs until it is cancelled."""
    while True:
        try:
            await _ask(pool)
        except Exception as error:  # whatever it is, the next round tries again
            report(PULSE, False, str(error) or f"no answer in {PULSE_TIMEOUT_S:g} s")
        else:
            report(PULSE, True, "")
        await asyncio.sleep(PULSE_EVERY_S)


async def _ask(pool: asyncpg.Pool) -> None:
    async with asyncio.timeout(PULSE_TIMEOUT_S):
        connection = await pool.acquire()
    try:
        async with closed_on_failure(connection), asyncio.timeout(PULSE_TIMEOUT_S):
            await connection.execute("SELECT 1")
    finally:
        await pool.release(connection)


def _say_waiting(name: str) -> None:
    log.warning("database_unreachable", pool=name, error=f"no answer within {SAY_AFTER_S:g} s")


def said(error: BaseException) -> str:
    """Return an error's message, or what it is if it has none."""
    if isinstance(error, TimeoutError):
        return str(error) or "no answer in time"
    return str(error) or type(error).__name__


def unavailable(error: BaseException) -> HocketError:
    """Return what a client is told about a failure that is not the client's: SchemaDiffers,
    StatementTooSlow or DatabaseUnavailable."""
    if isinstance(error, OF_SCHEMA):
        return SchemaDiffers(reason=said(error))
    # an address that does not answer is a TimeoutError, too
    too_slow = isinstance(error, TOO_SLOW) and getattr(error, "errno", None) is None
    return (StatementTooSlow if too_slow else DatabaseUnavailable)(reason=said(error))


async def _keep(_connection: asyncpg.Connection) -> None:
    """Leave a session as it is: our sessions keep no settings, listeners or locks beyond a transaction
    (what does is given up before: `session_cleanup.py`), and the usual reset costs a round trip after
    each use. (An open transaction has been rolled back before this is called.)"""
