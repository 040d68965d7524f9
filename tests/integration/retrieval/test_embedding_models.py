"""A collection keeps its embedding model, and loses its vectors only when that is asked for: neither a
model that cannot be used nor an interruption takes them away."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import nats
import pytest
from nats.aio.msg import Msg

from hocket.kit.postgres import vector_indexes
from hocket.kit.postgres.database import connect_pool
from hocket.schemas import subjects
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import CallReply, CallRequest
from hocket.workers.retrieval.errors import EmbedderMissing, FolderUnusable
from hocket.workers.retrieval.index import IndexReport, add_folder, collections
from support.shared.commands import run_hocket

DOCUMENTS = 3
DIMENSIONS = {"emb": 3, "other": 5}
OUTSIDE = "it is a link that leads out of the folder; its former version stays in the collection"


class ModelBroken(Exception):
    """A model's answer that is none."""


class Embedder:
    """Vectors of a model, which fails at its `fails_at`-th call."""

    def __init__(self, model: str = "emb", *, fails_at: int = 0) -> None:
        self.model = model
        self._fails_at = fails_at
        self._calls = 0
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self._calls += 1
        if self._calls == self._fails_at:
            raise ModelBroken
        self.asked += texts
        return [[float(len(text))] * DIMENSIONS[self.model] for text in texts]


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    made = await connect_pool(database_url, size=4, name="test")
    yield made
    made.terminate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "documents"
    made.mkdir()
    for number in range(DOCUMENTS):
        (made / f"{number}.md").write_text(f"# Number {number}\n\nText.\n")
    return made


async def add(pool: asyncpg.Pool, folder: Path, **options: Any) -> IndexReport:
    return await add_folder(pool, folder, "c", tenant="acme", **options)


async def state(pool: asyncpg.Pool) -> tuple[str, int | None, int]:
    """Return the collection's model and dimension, and how many of its chunks have vectors of it."""
    (info,) = await collections(pool, tenant="acme")
    vectors = await pool.fetchval(
        "SELECT count(*) FROM retrieval.chunk WHERE vector_dims(embedding) = $1", info.dimension
    )
    return info.embedding_model, info.dimension, vectors


async def test_vectors_that_a_document_has_are_not_paid_for_again(
    pool: asyncpg.Pool, folder: Path
) -> None:
    await add(pool, folder, embedder=Embedder())
    before = await pool.fetch("SELECT chunk_id, embedding::text FROM retrieval.chunk ORDER BY 1")

    await pool.execute("UPDATE retrieval.document SET recipe = 'of a former release'")
    again = Embedder()
    report = await add(pool, folder, embedder=again)
    assert (report.replaced, again.asked) == (DOCUMENTS, [])
    after = await pool.fetch("SELECT chunk_id, embedding::text FROM retrieval.chunk ORDER BY 1")
    assert after == before

    words = "\n\n".join("Long enough for a piece of its own. " * 40 for _ in range(2))
    (folder / "0.md").write_text(f"# Number 0\n\nText.\n\n## More\n\n{words}\n")
    more = Embedder()
    await add(pool, folder, embedder=more)
    assert more.asked
    assert "Number 0\nText." not in more.asked
    assert (await state(pool))[2] == await pool.fetchval("SELECT count(*) FROM retrieval.chunk")


async def test_a_model_that_gives_no_vector_changes_nothing(
    pool: asyncpg.Pool, folder: Path
) -> None:
    await add(pool, folder, embedder=Embedder())
    kept = "SELECT xmin::text, * FROM retrieval.{} ORDER BY 2, 3"
    before = [await pool.fetch(kept.format(table)) for table in ("collection", "document", "chunk")]
    with pytest.raises(ModelBroken):
        await add(pool, folder, embedder=Embedder("other", fails_at=1), replace_vectors=True)
    after = [await pool.fetch(kept.format(table)) for table in ("collection", "document", "chunk")]
    assert [row[1:] for row in before[0]] == [row[1:] for row in after[0]]  # the row is locked
    assert before[1:] == after[1:]
    again = await add(pool, folder, embedder=Embedder())
    assert (again.unchanged, await state(pool)) == (DOCUMENTS, ("emb", 3, DOCUMENTS))


@pytest.mark.parametrize("fails_at", [2, 3, 4])
@pytest.mark.parametrize("then", ["emb", "other"])
async def test_a_change_of_model_that_was_interrupted_is_finished_or_reverted_by_the_next_run(
    pool: asyncpg.Pool, folder: Path, fails_at: int, then: str
) -> None:
    await add(pool, folder, embedder=Embedder())
    with pytest.raises(ModelBroken):
        await add(pool, folder, embedder=Embedder("other", fails_at=fails_at), replace_vectors=True)
    assert await state(pool) == ("other", 5, fails_at - 2)
    await add(pool, folder, embedder=Embedder(then), replace_vectors=True)
    assert await state(pool) == (then, DIMENSIONS[then], DOCUMENTS)


async def test_a_change_of_model_leaves_no_index_of_the_former_one(
    pool: asyncpg.Pool, folder: Path
) -> None:
    """Even one of the same dimension, which would lead to vectors that are gone."""
    made = "SELECT oid FROM pg_class WHERE relname ~ '^chunk_embedding_' AND relkind = 'i'"
    await add(pool, folder, embedder=Embedder())
    before = await pool.fetchval(made)
    await pool.execute("UPDATE retrieval.collection SET embedding_model = 'of the same dimension'")
    assert (await add(pool, folder, embedder=Embedder(), replace_vectors=True)).vector_index == ""
    again = await pool.fetchval(made)
    assert again != before
    await add(pool, folder, embedder=Embedder())
    assert await pool.fetchval(made) == again, "which stays otherwise"
    await add(pool, folder, replace_vectors=True)
    assert await pool.fetchval(made) is None


class Stopped(BaseException):
    """The process ends."""


async def test_a_change_of_model_that_ended_before_its_index_was_changed_is_finished_by_the_next_run(
    pool: asyncpg.Pool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(pool, folder, embedder=Embedder())

    async def stops(*_: object, **__: object) -> None:
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(vector_indexes, "drop", stops)
        with pytest.raises(Stopped):
            await add(pool, folder, embedder=Embedder("other"), replace_vectors=True)
    assert await state(pool) == ("other", 5, 0)
    with pytest.raises(EmbedderMissing, match="vectors of the model `other`"):
        await add(pool, folder)
    report = await add(pool, folder, embedder=Embedder("other"))
    assert (report.replaced, report.unreadable, report.vector_index) == (DOCUMENTS, [], "")
    assert await state(pool) == ("other", 5, DOCUMENTS)
    assert not await vector_indexes.faults(pool)


@pytest.mark.parametrize("model", ["", "emb"])
async def test_documents_that_lost_their_vectors_get_them_back(
    pool: asyncpg.Pool, folder: Path, model: str
) -> None:
    """As former releases left them: with a recipe that tells of a model."""
    await add(pool, folder, embedder=Embedder())
    await pool.execute("UPDATE retrieval.chunk SET embedding = NULL")
    if not model:
        await pool.execute("UPDATE retrieval.collection SET embedding_model = '', dimension = NULL")
    report = await add(pool, folder, embedder=Embedder())
    assert (report.replaced, await state(pool)) == (DOCUMENTS, ("emb", 3, DOCUMENTS))
    assert (await add(pool, folder, embedder=Embedder())).unchanged == DOCUMENTS


async def test_vectors_are_not_dropped_unless_that_is_asked_for(
    pool: asyncpg.Pool, folder: Path
) -> None:
    await add(pool, folder, embedder=Embedder())
    for embedder in (None, Embedder("other")):
        with pytest.raises(EmbedderMissing, match="vectors of the model `emb`"):
            await add(pool, folder, embedder=embedder)
    assert await state(pool) == ("emb", 3, DOCUMENTS)
    report = await add(pool, folder, replace_vectors=True)
    assert (report.replaced, report.dropped_model) == (DOCUMENTS, "emb")
    assert await state(pool) == ("", None, 0)


async def test_a_collection_without_documents_keeps_its_model(
    pool: asyncpg.Pool, folder: Path
) -> None:
    (folder / "3.md").write_bytes(b"\xff")
    for number in range(DOCUMENTS):
        (folder / f"{number}.md").unlink()
    assert (await add(pool, folder, embedder=Embedder())).unreadable_count == 1
    assert await state(pool) == ("emb", 3, 0)


async def test_a_document_that_became_a_link_out_of_the_folder_stays_and_is_reported(
    pool: asyncpg.Pool, folder: Path, tmp_path: Path
) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "a.md").write_text("# A\n\nText.\n")
    await add(pool, folder)
    (folder / "sub").rename(tmp_path / "sub")
    (folder / "sub").symlink_to(tmp_path / "sub")
    (folder / "0.md").rename(tmp_path / "0.md")
    (folder / "0.md").symlink_to(tmp_path / "0.md")
    report = await add(pool, folder)
    assert (report.unchanged, report.removed) == (DOCUMENTS - 1, 0)
    assert report.unreadable == [("0.md", OUTSIDE), ("sub", OUTSIDE)]
    (folder / "sub").unlink()
    (folder / "0.md").unlink()
    assert (await add(pool, folder)).removed == 2


async def test_a_folder_with_nothing_but_links_to_what_is_not_mounted_keeps_its_documents(
    pool: asyncpg.Pool, folder: Path, tmp_path: Path
) -> None:
    mounted = folder / "releases"
    (mounted / "1").mkdir(parents=True)
    for number in range(DOCUMENTS):
        (folder / f"{number}.md").rename(mounted / "1" / f"{number}.md")
    (folder / "current").symlink_to("releases/1")
    await add(pool, folder, embedder=Embedder())
    mounted.rename(tmp_path / "elsewhere")
    mounted.mkdir()
    with pytest.raises(FolderUnusable, match="only links that cannot be followed"):
        await add(pool, folder, embedder=Embedder())
    assert await state(pool) == ("emb", 3, DOCUMENTS)
    mounted.rmdir()
    (tmp_path / "elsewhere").rename(mounted)
    assert (await add(pool, folder, embedder=Embedder())).unchanged == DOCUMENTS


async def test_a_folder_that_became_a_file_loses_its_documents(
    pool: asyncpg.Pool, folder: Path
) -> None:
    (folder / "x.md").mkdir()
    (folder / "x.md" / "a.md").write_text("# A\n\nText.\n")
    await add(pool, folder)
    (folder / "x.md" / "a.md").unlink()
    (folder / "x.md").rmdir()
    (folder / "x.md").write_text("# X\n\nText.\n")
    report = await add(pool, folder)
    assert (report.added, report.removed) == (1, 1)


# ---- the command ----------------------------------------------------------------------------


@pytest.fixture
async def gateway(nats_url: str) -> AsyncIterator[list[str]]:
    """Answers calls in the gateway's place; yields the models that were called."""
    called: list[str] = []

    async def answer(message: Msg) -> None:
        request = CallRequest.model_validate_json(message.data)
        called.append(request.model)
        if request.model in DIMENSIONS:
            vectors = await Embedder(request.model).embed(request.embed)
            reply = CallReply(call_id=request.call_id, embeddings=tuple(map(tuple, vectors)))
        else:
            told = f"There is no model `{request.model}`."
            error = ErrorInfo(code="model_unknown", error_class=ErrorClass.INVALID, message=told)
            reply = CallReply(call_id=request.call_id, error=error)
        await message.respond(reply.model_dump_json().encode())

    client = await nats.connect(nats_url, connect_timeout=5)
    await client.subscribe(subjects.GATEWAY_CALL, cb=answer)
    await client.flush(5)
    yield called
    await client.close()


@pytest.fixture
def hocket(database_url: str, nats_url: str, tmp_path: Path) -> Any:
    env = {**os.environ, "DATABASE_URL": database_url, "NATS_URL": nats_url, "COLUMNS": "200"}
    env["HOCKET_DATA_DIR"] = str(tmp_path / "none")

    async def run(*arguments: str) -> tuple[int, str, str]:
        done = await asyncio.to_thread(run_hocket, "index", *arguments, env=env, timeout_s=30)
        return done.returncode, done.stdout, done.stderr

    return run


async def test_the_command_keeps_the_model_of_a_collection(
    hocket: Any, gateway: list[str], folder: Path
) -> None:
    await hocket("add", str(folder), "-c", "c", "--model", "emb")
    (folder / "0.md").write_text("# Zero\n\nOther text.\n")
    code, out, err = await hocket("add", str(folder), "-c", "c")
    assert (code, err) == (0, "")
    assert out.startswith("collection c: 0 added, 1 replaced, 2 unchanged, 0 removed")
    _, listed, _ = await hocket("list", "--json")
    assert [one["embedding_model"] for one in json.loads(listed)] == ["emb"]
    assert set(gateway) == {"emb"}


async def test_the_command_changes_nothing_for_a_model_that_there_is_not(
    hocket: Any, gateway: list[str], folder: Path
) -> None:
    await hocket("add", str(folder), "-c", "c", "--model", "emb")
    code, out, err = await hocket("add", str(folder), "-c", "c", "--model", "ebm")
    assert (code, out) == (1, "")
    assert "There is no model `ebm`" in err
    _, out, _ = await hocket("add", str(folder), "-c", "c", "--model", "emb")
    assert "0 replaced, 3 unchanged" in out


async def test_the_command_drops_vectors_when_it_is_told_to_and_says_so(
    hocket: Any, gateway: list[str], folder: Path
) -> None:
    dropped = "Note: the collection's vectors of {} were dropped.\n"
    await hocket("add", str(folder), "-c", "c", "--model", "emb")
    code, out, err = await hocket("add", str(folder), "-c", "c", "--model", "other")
    assert (code, "3 replaced" in out, err) == (0, True, dropped.format("emb"))
    code, out, err = await hocket("add", str(folder), "-c", "c", "--no-model")
    assert (code, "3 replaced" in out, err) == (0, True, dropped.format("other"))
    code, out, err = await hocket("add", str(folder), "-c", "c", "--no-model")
    assert (code, "3 unchanged" in out, err) == (0, True, "")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--model", "emb", "--no-model"), "use one of them"),
        (("--model", ""), "--model is empty"),
    ],
)
async def test_the_command_refuses_a_model_that_is_none(
    hocket: Any, folder: Path, given: tuple[str, ...], told: str
) -> None:
    code, _, err = await hocket("add", str(folder), "-c", "c", *given)
    assert (code, told in err) == (2, True), err
