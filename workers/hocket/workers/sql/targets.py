"""The databases that queries may run on, by name: their connections, and the walls around a query.

Whatever the guard let through runs read-only: on Postgres in a READ ONLY transaction with a statement
timeout (and a role, where one is set), on SQLite on a connection opened `mode=ro` with `query_only`.
On other dialects the guard and the database user's own rights are all there is. Async drivers run in
the loop; others in THREADS threads.
"""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import Connection, Engine, TextClause, create_engine, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import QueuePool

from hocket.workers.sql.errors import SqlRefused, TargetInvalid, TargetUnknown
from hocket.workers.sql.guard import DIALECTS, TablePattern, parse_pattern

POOL_SIZE = 8
POOL_TIMEOUT_S = 10
CONNECT_TIMEOUT_S = 10
THREADS = 8
PROGRESS_STEPS = 10_000
"""SQLite instructions between two looks at the clock: well under a millisecond."""
_DIALECTS = {"postgresql": "postgres", "sqlite": "sqlite", "mysql": "mysql", "duckdb": "duckdb"}


class TargetSettings(BaseModel):
    """One entry of the section `databases:`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    tables: tuple[str, ...] = ()
    """What queries may read: `schema.table` or `schema.*`; nothing without it."""
    functions: tuple[str, ...] = ()
    """Functions of the database's own that only compute from their arguments."""
    role: str | None = Field(None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Postgres: `SET LOCAL ROLE` before every query."""
    default_schema: str | None = None
    max_rows: int = Field(10_000, ge=1, le=100_000)


@dataclass(frozen=True, slots=True)
class Answer:
    """Raw rows with the names of their columns."""

    columns: tuple[str, ...]
    rows: list[Sequence[Any]]


class Target:
    """A database that queries run on."""

    def __init__(self, name: str, settings: TargetSettings) -> None:
        self.name = name
        self.settings = settings
        url = _url(name, settings.url)
        backend = url.get_backend_name()
        if backend not in _DIALECTS:
            raise TargetInvalid(
                database=name,
                reason=f"`{backend}` is not a dialect that the guard knows",
                cure=f"Use one of: {', '.join(_DIALECTS)}.",
            )
        self.dialect = _DIALECTS[backend]
        assert self.dialect in DIALECTS
        for pattern in settings.tables:
            _pattern(name, pattern, self.dialect)
        self._async: AsyncEngine | None = None
        self._sync: Engine | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._make_engine(url)

    async def fetch(
        self, statement: TextClause, params: Mapping[str, Any], *, timeout_ms: float, max_rows: int
    ) -> Answer:
        """Run a statement and return at most `max_rows` rows; the driver's errors pass through."""
        if self._async is not None:
            return await self._fetch_async(statement, params, timeout_ms, max_rows)
        return await self._fetch_in_thread(statement, params, timeout_ms, max_rows)

    async def close(self) -> None:
        """Close every connection."""
        if self._async is not None:
            await self._async.dispose()
        if self._sync is not None:
            self._sync.dispose()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _make_engine(self, url: URL) -> None:
        limits: dict[str, Any] = {
            "pool_size": POOL_SIZE,
            "max_overflow": 0,
            "pool_timeout": POOL_TIMEOUT_S,
            "pool_pre_ping": True,
        }
        if self.dialect == "postgres" and url.drivername in ("postgresql", "postgresql+asyncpg"):
            arguments = {"timeout": CONNECT_TIMEOUT_S}
            self._async = create_async_engine(
                url.set(drivername="postgresql+asyncpg"), connect_args=arguments, **limits
            )
            return
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=f"sql-{self.name}")
        if self.dialect == "sqlite":
            file = url.database or ""
            connect = partial(
                sqlite3.connect, f"file:{file}?mode=ro", uri=True, check_same_thread=False
            )
            self._sync = create_engine("sqlite://", creator=connect, poolclass=QueuePool, **limits)
        else:
            self._sync = create_engine(url, **limits)

    async def _fetch_async(
        self, statement: TextClause, params: Mapping[str, Any], timeout_ms: float, max_rows: int
    ) -> Answer:
        assert self._async is not None
        async with self._async.connect() as connection, connection.begin() as transaction:
            await connection.exec_driver_sql("SET TRANSACTION READ ONLY")
            await connection.exec_driver_sql(
                f"SET LOCAL statement_timeout = {max(1, int(timeout_ms))}"
            )
            if self.settings.role is not None:
                await connection.exec_driver_sql(f'SET LOCAL ROLE "{self.settings.role}"')
            result = await connection.execute(statement, dict(params))
            answer = Answer(tuple(result.keys()), list(result.fetchmany(max_rows)))
            await transaction.rollback()
        return answer

    async def _fetch_in_thread(
        self, statement: TextClause, params: Mapping[str, Any], timeout_ms: float, max_rows: int
    ) -> Answer:
        assert self._sync is not None
        interrupt: list[Any] = []
        deadline_s = monotonic() + timeout_ms / 1000

        def run() -> Answer:
            assert self._sync is not None
            with self._sync.connect() as connection:
                _wall_in(connection, deadline_s, interrupt)
                result = connection.execute(statement, dict(params))
                return Answer(tuple(result.keys()), list(result.fetchmany(max_rows)))

        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, run)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            for stop in interrupt:
                stop()
            running.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise


class Targets:
    """The configured databases; connections are made when they are first needed."""

    def __init__(self, section: Mapping[str, Any]) -> None:
        self._settings = {name: _settings(name, value) for name, value in section.items()}
        self._targets: dict[str, Target] = {}

    def get(self, name: str) -> Target:
        """Return a database, or raise TargetUnknown."""
        if name not in self._settings:
            known = ", ".join(sorted(self._settings)) or "(none)"
            raise TargetUnknown(database=name, known=known)
        if name not in self._targets:
            self._targets[name] = Target(name, self._settings[name])
        return self._targets[name]

    async def close(self) -> None:
        """Close every connection of every database."""
        for target in self._targets.values():
            await target.close()


def _wall_in(connection: Connection, deadline_s: float, interrupt: list[Any]) -> None:
    if connection.dialect.name != "sqlite":
        return
    raw: Any = connection.connection.driver_connection
    raw.execute("PRAGMA query_only = ON")
    raw.set_progress_handler(lambda: int(monotonic() > deadline_s), PROGRESS_STEPS)
    interrupt.append(raw.interrupt)


def _settings(name: str, value: Any) -> TargetSettings:
    try:
        return TargetSettings.model_validate({"url": value} if isinstance(value, str) else value)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in fault["loc"]) or "entry"
        raise TargetInvalid(
            database=name,
            reason=f"`{field}`: {fault['msg']}",
            cure="Give `url`, and optionally `tables`, `role`, `functions`, `max_rows`.",
        ) from None


def _url(name: str, text: str) -> URL:
    try:
        url = make_url(text)
        if url.drivername != "postgresql":  # its driver here is asyncpg
            url.get_dialect()
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise TargetInvalid(
            database=name, reason=str(error), cure="Give a SQLAlchemy URL with an installed driver."
        ) from None
    return url


def _pattern(name: str, text: str, dialect: str) -> TablePattern:
    try:
        return parse_pattern(text, dialect)
    except SqlRefused as error:
        raise TargetInvalid(database=name, reason=str(error), cure="") from None
