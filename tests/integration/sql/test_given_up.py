"""Statements of a Postgres server that nobody waits for any more."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from hocket.workers.sql import postgres, targets
from hocket.workers.sql.errors import SqlUnavailable
from hocket.workers.sql.places import State, Statement
from hocket.workers.sql.runner import run_query
from hocket.workers.sql.targets import Target, TargetSettings
from support.worker_rig import eventually

SLOW = "SELECT count(*) AS n FROM t a, t b, t c, t d"
RUNNING = (
    "SELECT pid FROM pg_stat_activity "
    "WHERE query LIKE '%public.t AS d%' AND state = 'active' AND pid <> pg_backend_pid()"
)
TIMEOUT_MS = 10_000.0


class Server:
    """A server with the table `t`, asked by its administrator."""

    def __init__(self, url: str, admin: asyncpg.Connection) -> None:
        self.url = url
        self._admin = admin

    def target(self) -> Target:
        return Target("t", TargetSettings(url=self.url, tables=("public.t",)))

    async def running(self) -> list[int]:
        """Return the processes that work on SLOW."""
        return [row["pid"] for row in await self._admin.fetch(RUNNING)]

    async def begin(self, target: Target) -> tuple["asyncio.Task[object]", int]:
        """Begin SLOW; return its task and its process."""
        task = asyncio.create_task(run_query(target, SLOW, {}, timeout_ms=60_000, max_rows=1))

        async def runs() -> bool:
            return len(await self.running()) == 1

        await eventually(runs)
        (pid,) = await self.running()
        return task, pid

    async def terminate(self, pid: int) -> None:
        await self._admin.execute("SELECT pg_terminate_backend($1)", pid)


@pytest.fixture
async def server(database_url: str) -> AsyncIterator[Server]:
    admin = await asyncpg.connect(database_url)
    await admin.execute("CREATE TABLE public.t AS SELECT i AS n FROM generate_series(1, 300) i")
    yield Server(database_url, admin)
    await admin.close()


async def test_the_server_tells_whether_it_still_works_on_a_statement(server: Server) -> None:
    connection = await asyncpg.connect(server.url)
    url = server.url.replace("postgresql://", "postgresql+asyncpg://")
    engine = create_async_engine(url, poolclass=NullPool)
    transaction = connection.transaction()
    await transaction.start()
    statement = postgres.statement_of(await connection.fetchrow(f"SELECT {postgres.KNOWN_BY}"))
    begun_earlier = Statement(statement.pid, "1.5", statement.server)
    on_one_before = Statement(statement.pid, "1.5", "1.0")
    on_another = Statement(statement.pid, statement.begun, "1.0")
    running = asyncio.create_task(connection.execute("SELECT pg_sleep(600)"))

    async def told(*states: State) -> None:
        asked = [statement, begun_earlier, on_one_before, on_another][: len(states)]

        async def is_told() -> bool:
            return await postgres.states_of(engine, asked) == list(states)

        await eventually(is_told)

    await told(State.WORKING, State.ENDED, State.ENDED, State.UNSURE)
    running.cancel()
    await asyncio.wait({running})
    await told(State.ENDED)
    await connection.close()
    await told(State.ENDED)


async def test_what_is_cancelled_keeps_its_place_until_the_server_has_ended_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: asyncio.Queue[Sequence[Statement]] = asyncio.Queue()
    may_tell = asyncio.Event()

    async def states_of(engine: AsyncEngine, statements: Sequence[Statement]) -> list[State]:
        asked.put_nowait(statements)
        await may_tell.wait()
        return await real(engine, statements)

    real = postgres.states_of
    monkeypatch.setattr(postgres, "states_of", states_of)
    monkeypatch.setattr(targets, "POOL_SIZE", 1)
    target = server.target()
    running, pid = await server.begin(target)
    running.cancel()
    await asyncio.wait({running})
    reading = run_query(target, "SELECT 1 AS n", {}, timeout_ms=TIMEOUT_MS, max_rows=1)
    waiting = asyncio.create_task(reading)
    assert [statement.pid for statement in await asked.get()] == [pid]
    assert not waiting.done()
    may_tell.set()
    assert (await waiting).rows == ((1,),)
    await target.close()


async def test_a_statement_whose_process_ends_is_not_looked_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    async def states_of(_engine: AsyncEngine, statements: Sequence[Statement]) -> list[State]:
        nonlocal looks
        looks += 1
        return [State.ENDED] * len(statements)

    monkeypatch.setattr(postgres, "states_of", states_of)
    monkeypatch.setattr(targets, "POOL_SIZE", 1)
    target = server.target()
    running, pid = await server.begin(target)
    await server.terminate(pid)
    with pytest.raises(SqlUnavailable, match="terminating connection"):
        await running
    answer = await run_query(target, "SELECT 1 AS n", {}, timeout_ms=TIMEOUT_MS, max_rows=1)
    assert answer.rows == ((1,),)
    assert looks == 0
    await target.close()


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_worker_that_closes_leaves_no_statement_running(
    server: Server, *, is_cancelled: bool
) -> None:
    target = server.target()
    running, _pid = await server.begin(target)
    if is_cancelled:
        running.cancel()
        await asyncio.wait({running})
    await target.close()

    async def is_stopped() -> bool:
        return not await server.running()

    await eventually(is_stopped)
    await asyncio.wait({running})
    assert running.cancelled() is is_cancelled
    assert is_cancelled or isinstance(running.exception(), SqlUnavailable)
