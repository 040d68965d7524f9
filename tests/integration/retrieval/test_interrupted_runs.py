"""A run of `hocket index add` that Postgres interrupts deletes nothing, and says how to go on."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from hocket.kit.postgres.database import DatabaseUnavailable, connect_pool
from hocket.workers.retrieval import folder_files, index
from hocket.workers.retrieval.deletion import folders_of
from hocket.workers.retrieval.errors import FolderUnusable
from hocket.workers.retrieval.index import add_folder

DOCUMENTS = 12
FAILS_AT = 5
MANY = 2_000
BOUND_S = 60


class Proxy:
    """Stands between a pool and Postgres, until it cuts all connections and refuses new ones."""

    def __init__(self, database_url: str) -> None:
        self._url = urlsplit(database_url)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        login = self._url.netloc.rpartition("@")[0]
        return self._url._replace(netloc=f"{login}@127.0.0.1:{port}").geturl()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection(self._url.hostname, self._url.port)
        self._writers |= {writer, ours}
        for source, target in ((reader, ours), (theirs, writer)):
            task = asyncio.create_task(self._pipe(source, target))
            self._tasks.add(task)

    async def _pipe(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                target.write(data)
                await target.drain()
        target.close()

    async def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks)


@asynccontextmanager
async def proxied(database_url: str) -> AsyncIterator[tuple[Proxy, asyncpg.Pool]]:
    proxy = Proxy(database_url)
    pool = await connect_pool(await proxy.start(), size=4, name="test")
    try:
        yield proxy, pool
    finally:
        pool.terminate()
        await proxy.cut()


class Cutting:
    """An embedder during whose FAILS_AT-th call Postgres goes away."""

    model = "words"

    def __init__(self, proxy: Proxy | None = None) -> None:
        self._proxy = proxy
        self._calls = 0

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self._calls += 1
        if self._proxy is not None and self._calls == FAILS_AT:
            await self._proxy.cut()
        return [[1.0, 2.0, 3.0] for _ in texts]


def write(folder: Path, word: str) -> None:
    for number in range(DOCUMENTS):
        (folder / f"{number:02}.md").write_text(f"# Number {number}\n\n{word}\n")


async def documents(connection: asyncpg.Connection) -> int:
    return int(await connection.fetchval("SELECT count(*) FROM retrieval.document"))


async def test_documents_stay_if_postgres_goes_away_while_they_are_indexed_again(
    database_url: str, tmp_path: Path
) -> None:
    direct = await asyncpg.connect(database_url)
    write(tmp_path, "before")
    try:
        async with asyncio.timeout(BOUND_S):
            async with proxied(database_url) as (_, pool):
                await add_folder(pool, tmp_path, "c", tenant="acme", embedder=Cutting())
            assert await documents(direct) == DOCUMENTS
            write(tmp_path, "after")
            async with proxied(database_url) as (proxy, pool):
                with pytest.raises(DatabaseUnavailable) as told:
                    await add_folder(pool, tmp_path, "c", tenant="acme", embedder=Cutting(proxy))
            assert await documents(direct) == DOCUMENTS
            assert f"{FAILS_AT - 1} of {DOCUMENTS} files are done" in str(told.value)
            assert "run the same command again" in str(told.value)
            async with proxied(database_url) as (_, pool):
                report = await add_folder(pool, tmp_path, "c", tenant="acme", embedder=Cutting())
            assert (report.replaced, report.unchanged) == (DOCUMENTS - FAILS_AT + 1, FAILS_AT - 1)
    finally:
        await direct.close()


async def test_the_command_says_in_one_line_that_it_is_to_be_run_again(
    database_url: str, tmp_path: Path
) -> None:
    """It ended with tracebacks of asyncpg and of its own."""
    direct, proxy = await asyncpg.connect(database_url), Proxy(database_url)
    folder = tmp_path / "documents"
    folder.mkdir()
    for number in range(MANY):
        (folder / f"{number:04}.md").write_text(f"# Number {number}\n\nText.\n")
    own = {"DATABASE_URL": await proxy.start(), "HOCKET_DATA_DIR": str(tmp_path / "none")}
    command = (sys.executable, "-m", "hocket.cli", "index", "add", str(folder), "-c", "c")
    try:
        async with asyncio.timeout(BOUND_S):
            process = await asyncio.create_subprocess_exec(
                *command, env=os.environ | own, stdout=PIPE, stderr=PIPE
            )
            while await documents(direct) < FAILS_AT:
                assert process.returncode is None
            await proxy.cut()
            out, err = await process.communicate()
        assert (process.returncode, out) == (1, b"")
        (line,) = err.decode().splitlines()
        assert line.startswith("Error: Postgres did not answer (")
        assert f"of {MANY} files are done" in line
        assert "run the same command again" in line
        assert FAILS_AT <= await documents(direct) < MANY
    finally:
        await direct.close()


async def test_a_run_that_lost_its_lock_deletes_nothing(database_url: str, tmp_path: Path) -> None:
    """Another run may have begun meanwhile."""
    direct = await asyncpg.connect(database_url)
    pool = await connect_pool(database_url, size=4, name="test")
    write(tmp_path, "before")

    class Ending(Cutting):
        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            held = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
            await direct.execute(held)
            return await super().embed(texts)

    try:
        await add_folder(pool, tmp_path, "c", tenant="acme", embedder=Cutting())
        write(tmp_path, "after")
        (tmp_path / "00.md").unlink()
        with pytest.raises(DatabaseUnavailable):
            await add_folder(pool, tmp_path, "c", tenant="acme", embedder=Ending())
        assert await documents(direct) == DOCUMENTS
    finally:
        pool.terminate()
        await direct.close()


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    made = await connect_pool(database_url, size=4, name="test")
    yield made
    made.terminate()


async def test_a_large_document_is_written_although_all_of_it_takes_longer_than_a_statement_may(
    pool: asyncpg.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trigger makes each row take 20 ms; a statement may take 1 s."""
    monkeypatch.setattr(index, "WRITE_BATCH", 10)
    await slow_down(pool, 0.02)
    text = "\n\n".join(f"## Part {n}\n\n" + f"word{n} " * 150 for n in range(90))
    (tmp_path / "large.md").write_text(text)
    report = await add_folder(pool, tmp_path, "c", tenant="acme", statement_timeout_ms=1_000)
    assert report.unreadable == []
    assert report.chunks > 80
    assert await pool.fetchval("SELECT count(*) FROM retrieval.chunk") == report.chunks


async def test_a_document_whose_statement_takes_too_long_is_named_and_its_former_version_stays(
    pool: asyncpg.Pool, tmp_path: Path
) -> None:
    (tmp_path / "a.md").write_text("# Before\n\nIt was before.\n")
    await add_folder(pool, tmp_path, "c", tenant="acme")
    await slow_down(pool, 3)
    (tmp_path / "a.md").write_text("# After\n\nIt is after.\n")
    with pytest.raises(DatabaseUnavailable, match=r"no answer in time while `a\.md` was written"):
        await add_folder(pool, tmp_path, "c", tenant="acme", statement_timeout_ms=300)
    assert await pool.fetchval("SELECT text FROM retrieval.chunk") == "# Before\n\nIt was before."


async def test_a_document_that_postgres_refuses_does_not_keep_others_from_the_index(
    pool: asyncpg.Pool, tmp_path: Path
) -> None:
    (tmp_path / "a.md").write_text("# A\n\nIt is refused.\n")
    (tmp_path / "b.md").write_text("# B\n\nIt is kept.\n")
    await pool.execute("ALTER TABLE retrieval.document ADD CHECK (title <> 'A')")
    report = await add_folder(pool, tmp_path, "c", tenant="acme")
    assert report.added == 1
    ((source, reason),) = report.unreadable
    assert source == "a.md"
    assert reason.startswith("Postgres refuses it: ")


async def test_a_file_that_cannot_be_read_any_more_keeps_its_former_version(
    pool: asyncpg.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.md").write_text("# A\n\nText.\n")
    await add_folder(pool, tmp_path, "c", tenant="acme")

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(folder_files, "_opened", refused)
        report = await add_folder(pool, tmp_path, "c", tenant="acme")
    told = "Permission denied; its former version stays in the collection"
    assert (report.removed, report.unreadable) == (0, [("a.md", told)])
    (tmp_path / "b.md").write_text("# B\n\nText.\n")
    (tmp_path / "a.md").unlink()
    assert (await add_folder(pool, tmp_path, "c", tenant="acme")).removed == 1


async def test_a_folder_that_has_no_files_any_more_is_refused_and_its_documents_stay(
    pool: asyncpg.Pool, tmp_path: Path
) -> None:
    """As when its disk is not mounted."""
    (tmp_path / "a.md").write_text("# A\n\nText.\n")
    await add_folder(pool, tmp_path, "c", tenant="acme")
    (tmp_path / "a.md").unlink()
    with pytest.raises(FolderUnusable, match=rf"1 document.*delete c --folder {tmp_path}"):
        await add_folder(pool, tmp_path, "c", tenant="acme")
    assert await folders_of(pool, "c", tenant="acme") == {str(tmp_path): 1}


async def slow_down(pool: asyncpg.Pool, row_s: float) -> None:
    await pool.execute(
        f"""
        CREATE FUNCTION retrieval.slowly() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_sleep({row_s}); RETURN NEW; END $$;
        CREATE TRIGGER slowly BEFORE INSERT ON retrieval.chunk
        FOR EACH ROW EXECUTE FUNCTION retrieval.slowly();
        """
    )
