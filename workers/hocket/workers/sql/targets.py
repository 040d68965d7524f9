"""The databases that queries may run on, by name: their connections, and the protections around a query.

Every query that passes the guard still runs read-only. On Postgres it runs in a READ ONLY transaction
with a statement timeout, as a role (if one is set), and with names looked up in `pg_catalog` only, so
that no operator, cast or field reaches a function that somebody else wrote. On SQLite it runs on a
connection opened `mode=ro` with `query_only` and an authorizer that allows only reading. On other
dialects the guard and the database user's own permissions are the only protection. asyncpg runs on the
event loop, other drivers in THREADS threads.

When a caller is cancelled, its statement is stopped: asyncpg asks the server to, SQLite checks a flag.
With other drivers a thread ends when its statement does. The caller of a thread continues only when that
has ended, so that its slot stays taken until then. On Postgres the caller continues at once, and the
statement's place among the connections stays taken (`places`).
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import Connection, Engine, TextClause, create_engine, event, make_url, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool, QueuePool

from hocket.schemas.checks.faults import faults_of
from hocket.workers.sql import postgres, sqlite
from hocket.workers.sql.answers import Answer, read_answer
from hocket.workers.sql.errors import (
    SqlAnswerTooLarge,
    SqlMemoryTaken,
    SqlOutOfMemory,
    SqlRefused,
    TargetInvalid,
    TargetUnknown,
)
from hocket.workers.sql.guard.guard import DIALECTS
from hocket.workers.sql.guard.names import TablePattern, parse_pattern
from hocket.workers.sql.places import Places, Reading
from hocket.workers.sql.sqlite import Interrupter, Lengths, NeedsOurs
from hocket.workers.sql.wire import MAX_ANSWER_BYTES, BoundedWire, TooManyValues

MAX_TOLD = 10
"""The most faults of one entry that are told."""
POOL_SIZE = 8
POOL_TIMEOUT_S = 10
ROWS_AT_ONCE = 100
"""How many rows a driver that is neither asyncpg nor sqlite3 reads ahead."""
CONNECT_TIMEOUT_S = 10
THREADS = 8
PAUSES_S = (0.05, 0.1, 0.2, 0.4)
"""The pauses before an SQLite query that got no memory because of others is retried within its time."""
INTERRUPT_AGAIN_S = 0.1
"""An interrupt has no effect between two statements, so it is repeated."""
_DIALECTS = {
    "postgresql": "postgres",
    "sqlite": "sqlite",
    "mysql": "mysql",
    "mariadb": "mysql",
    "duckdb": "duckdb",
}
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_ASYNCPG_OPTIONS = frozenset(
    {
        "database",
        "gsslib",
        "host",
        "krbsrvname",
        "passfile",
        "password",
        "port",
        "prepared_statement_cache_size",
        "prepared_statement_name_func",
        "service",
        "servicefile",
        "ssl",
        "sslmode",
        "target_session_attrs",
        "user",
    }
)
"""What may follow `?` in a URL for asyncpg; its other arguments are not texts."""

T = TypeVar("T")
SchemaName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[^\x00]+$")]


class TargetSettings(BaseModel):
    """An entry of the section `databases:`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    tables: tuple[str, ...] = ()
    """Tables that queries may read: `schema.table` or `schema.*`; none by default."""
    functions: tuple[str, ...] = ()
    """The database's own functions that queries may use; they must only compute from their arguments."""
    types: tuple[str, ...] = ()
    """Postgres: the database's own types that a cast may name: `state`, `shop.state`."""
    search_path: tuple[SchemaName, ...] = ()
    """Postgres: schemas, besides `pg_catalog`, whose functions, operators and types can be used
    without a schema prefix, such as those of an extension; everything in them must be harmless."""
    role: str | None = Field(None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Postgres: role that every query runs as."""
    default_schema: str | None = None
    tenants: tuple[str, ...] = ("*",)
    """Tenants whose queries may run here; `*` allows all."""
    max_rows: int = Field(10_000, ge=1, le=100_000)


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
        _check_driver(name, url)
        self.dialect = _DIALECTS[backend]
        assert self.dialect in DIALECTS
        for pattern in settings.tables:
            _pattern(name, pattern, self.dialect)
        self._async: AsyncEngine | None = None
        self._places: Places | None = None
        self._sync: Engine | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._make_engine(url)

    async def fetch(
        self, statement: TextClause, params: Mapping[str, Any], *, timeout_ms: float, max_rows: int
    ) -> Answer:
        """Run a statement and return at most `max_rows` rows and MAX_ANSWER_CHARS characters.

        Raises SqlAnswerTooLarge, or the driver's errors."""
        deadline_s = monotonic() + timeout_ms / 1000

        def execute(connection: Connection) -> Answer:
            result = connection.execute(statement, dict(params))
            return read_answer(result, max_rows, self.name)

        if self.dialect != "sqlite":
            return await self.read(execute, timeout_ms=timeout_ms)

        def as_bounded(connection: Connection) -> Answer:
            raw = _raw(connection)
            with sqlite.only_reading(raw, self.settings.tables):
                explain = text(f"EXPLAIN {statement.text}")
                with sqlite.texts_as_bytes(raw):
                    program = connection.execute(explain, dict(params)).all()
                lengths = Lengths.within_steps(program, params.values())
                with sqlite.own_matching(raw, lengths):
                    return execute(connection)

        def with_ours(connection: Connection) -> Answer:
            raw = _raw(connection)
            try:
                with sqlite.only_reading(raw, self.settings.tables):
                    sqlite.match_with_ours(raw)
                    return execute(connection)
            finally:
                connection.invalidate()

        try:
            return await self.read(as_bounded, timeout_ms=timeout_ms)
        except NeedsOurs:
            left_ms = (deadline_s - monotonic()) * 1000
        return await self.read(with_ours, timeout_ms=left_ms)

    async def read(self, work: Callable[[Connection], T], *, timeout_ms: float) -> T:
        """Run `work` on a connection that can only read; nothing it does is committed."""
        deadline_s = monotonic() + timeout_ms / 1000
        if self._places is not None:
            return await self._places.read(partial(self._read_in_loop, work, deadline_s))
        return await self._read_in_thread(work, deadline_s)

    async def close(self) -> None:
        """Close every connection."""
        if self._places is not None:
            await self._places.close()
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
            url, arguments = _for_asyncpg(self.name, url), {"timeout": CONNECT_TIMEOUT_S}
            self._async = create_async_engine(url, connect_args=arguments, **limits)
            event.listen(self._async.sync_engine, "connect", postgres.prepare)
            looking = create_async_engine(url, connect_args=arguments, poolclass=NullPool)
            look = partial(postgres.states_of, looking)
            self._places = Places(self.name, look, size=POOL_SIZE, timeout_s=POOL_TIMEOUT_S)
            return
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=f"sql-{self.name}")
        if self.dialect == "sqlite":
            connect = partial(sqlite.connect, _sqlite_file(self.name, url))
            self._sync = create_engine("sqlite://", creator=connect, poolclass=QueuePool, **limits)
        else:
            streaming = {"stream_results": True, "max_row_buffer": ROWS_AT_ONCE}
            self._sync = create_engine(url, execution_options=streaming, **limits)

    async def _read_in_loop(
        self, work: Callable[[Connection], T], deadline_s: float, reading: Reading
    ) -> T:
        assert self._async is not None
        async with self._async.connect() as connection:
            wire = await postgres.wire_of(connection)
            try:
                return await self._read_on(connection, wire, work, deadline_s, reading)
            finally:  # the server has answered, with an error or not, or its process has ended
                if wire.is_left or not connection.invalidated:
                    reading.left = None

    async def _read_on(
        self,
        connection: AsyncConnection,
        wire: BoundedWire,
        work: Callable[[Connection], T],
        deadline_s: float,
        reading: Reading,
    ) -> T:
        left_ms = max(1, int((deadline_s - monotonic()) * 1000))
        walls = {
            "transaction_read_only": "on",
            "statement_timeout": str(left_ms),
            "search_path": postgres.search_path(self.settings.search_path),
            **postgres.WRITTEN_AS,
        }
        if self.settings.role is not None:
            walls["role"] = self.settings.role
        wire.begin()
        try:
            async with connection.begin() as transaction:
                set_up = await connection.execute(_walls(tuple(walls)), walls)
                reading.left = postgres.statement_of(set_up.one())
                answer = await connection.run_sync(work)
                await transaction.rollback()
        except (TooManyValues, DBAPIError) as error:
            if isinstance(error, DBAPIError) and not wire.is_exceeded:
                raise
            raise SqlAnswerTooLarge(
                database=self.name, max_bytes=MAX_ANSWER_BYTES, component=f"sql:{self.name}"
            ) from error
        return answer

    async def _read_in_thread(self, work: Callable[[Connection], T], deadline_s: float) -> T:
        assert self._sync is not None
        assert self._threads is not None
        engine, given_up, interrupter = self._sync, Event(), Interrupter()

        def run() -> T:
            for pause_s in PAUSES_S:
                try:
                    return tried()
                except SqlMemoryTaken:  # the queries that took it fail, too, and release it
                    given_up.wait(min(pause_s, max(0.0, deadline_s - monotonic())))
            return tried()

        def tried() -> T:
            if given_up.is_set():
                raise CancelledError
            with engine.connect() as connection, ExitStack() as stoppable:
                if self.dialect == "sqlite":
                    stoppable.enter_context(interrupter.on(_raw(connection)))
                    sqlite.stop_when(
                        _raw(connection), lambda: given_up.is_set() or monotonic() > deadline_s
                    )
                with sqlite.running.one_more():
                    try:
                        return work(connection)
                    except MemoryError as error:
                        kind = SqlMemoryTaken if sqlite.running.are_several else SqlOutOfMemory
                        raise kind(
                            database=self.name,
                            max_bytes=sqlite.MAX_HEAP_BYTES,
                            component=f"sql:{self.name}",
                        ) from error

        submitted = self._threads.submit(run)
        running = asyncio.wrap_future(submitted)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            given_up.set()
            if not submitted.cancel():
                await _ended(running, interrupter)
            raise


class Targets:
    """The configured databases; connections are opened on first use."""

    def __init__(self, section: Mapping[str, Any]) -> None:
        self._settings = {name: _settings(name, value) for name, value in section.items()}
        self._targets: dict[str, Target] = {}

    def get(self, name: str, tenant: str) -> Target:
        """Return a database; raise TargetUnknown if it does not exist, or is not for that tenant."""
        known = {
            known
            for known, settings in self._settings.items()
            if "*" in settings.tenants or tenant in settings.tenants
        }
        if name not in known:
            raise TargetUnknown(database=name, known=", ".join(sorted(known)) or "(none)")
        if name not in self._targets:
            self._targets[name] = Target(name, self._settings[name])
        return self._targets[name]

    def check(self) -> None:
        """Raise TargetInvalid for the first database with an unusable configuration; does not
        connect."""
        for name, settings in self._settings.items():
            Target(name, settings)

    async def close(self) -> None:
        """Close every connection of every database."""
        for target in self._targets.values():
            await target.close()


async def _ended(running: "asyncio.Future[Any]", interrupter: Interrupter) -> None:
    """Stop a thread's statement and wait for the thread, however often its caller is cancelled."""
    while not running.done():
        interrupter.interrupt()
        with suppress(asyncio.CancelledError):
            await asyncio.wait({running}, timeout=INTERRUPT_AGAIN_S)
    running.cancelled() or running.exception()  # retrieved, because nobody awaits it


@cache
def _walls(names: tuple[str, ...]) -> TextClause:
    """Return the statement that sets these settings for the transaction, in one round trip, and tells
    what the server knows the transaction by."""
    settings = ", ".join(f"set_config('{name}', :{name}, true)" for name in names)
    return text(f"SELECT {postgres.KNOWN_BY}, {settings}")


def _raw(connection: Connection) -> Any:
    return connection.connection.driver_connection


def _sqlite_file(name: str, url: URL) -> Path:
    if url.database in (None, "", ":memory:"):
        raise TargetInvalid(
            database=name,
            reason="an SQLite database in memory would be empty, and queries only read",
            cure="Name a file: `sqlite:////data/shop.db`.",
        )
    return Path(str(url.database))


def _settings(name: str, value: Any) -> TargetSettings:
    try:
        return TargetSettings.model_validate({"url": value} if isinstance(value, str) else value)
    except ValidationError as error:
        found = faults_of(error, field_of=lambda place: ".".join(map(str, place)) or "entry")
        raise TargetInvalid(
            database=name,
            reason="; ".join(f"`{fault.field}`: {fault.reason}" for fault in found[:MAX_TOLD]),
            cure="Set `url`, and optionally `tables`, `role`, `functions`, `types`, `search_path`, "
            "`default_schema`, `max_rows`.",
        ) from None


def _url(name: str, text: str) -> URL:
    try:
        url = make_url(text)
        if url.drivername != "postgresql":  # its driver here is asyncpg
            url.get_dialect()
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise _without_driver(name, error) from None
    except ValueError:  # of the port; its text may be a part of a password
        raise TargetInvalid(
            database=name,
            reason="the port in `url` is not a number",
            cure="Write `@`, `:` and `/` of a secret as `%40`, `%3A` and `%2F`.",
        ) from None
    return url


def _for_asyncpg(name: str, url: URL) -> URL:
    """Return the URL with what SQLAlchemy hands to asyncpg, which calls libpq's `sslmode` `ssl`."""
    query = dict(url.query)
    for option in sorted(query.keys() - _ASYNCPG_OPTIONS):
        raise TargetInvalid(
            database=name,
            reason=f"`url` has the option `{option}`, which asyncpg does not take",
            cure=f"Use only {', '.join(sorted(_ASYNCPG_OPTIONS))}, or another installed driver.",
        )
    mode = query.pop("sslmode", query.get("ssl"))
    if mode is not None and mode not in _SSL_MODES:
        raise TargetInvalid(
            database=name,
            reason=f"`sslmode` is `{mode}`",
            cure=f"Use one of: {', '.join(_SSL_MODES)}.",
        )
    if mode is not None:
        query["ssl"] = mode
    return url.set(drivername="postgresql+asyncpg", query=query)


def _check_driver(name: str, url: URL) -> None:
    if url.drivername == "postgresql":  # its driver here is asyncpg
        return
    try:
        url.get_dialect().import_dbapi()
    except ImportError as error:
        raise _without_driver(name, error) from None


def _without_driver(name: str, error: Exception) -> TargetInvalid:
    cure = "Use a SQLAlchemy URL with an installed driver."
    return TargetInvalid(database=name, reason=str(error), cure=cure)


def _pattern(name: str, text: str, dialect: str) -> TablePattern:
    try:
        return parse_pattern(text, dialect)
    except SqlRefused as error:
        raise TargetInvalid(database=name, reason=str(error), cure="") from None
