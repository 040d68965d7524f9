"""`hocket index`: collections of documents for retrieval."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hocket.cli.remote.target import Target, target_of
from hocket.cli.terminal import folders

if TYPE_CHECKING:
    from collections.abc import Iterator

    import asyncpg

    from hocket.cli.remote.embedding import GatewayEmbedder
    from hocket.workers.retrieval.index import IndexReport

T = TypeVar("T")

app = typer.Typer(
    help="Index documents for retrieval; list, search and delete collections.",
    no_args_is_help=True,
)

POOL_SIZE = 4
CONNECT_TIMEOUT_S = 5.0
SEARCH_TIMEOUT_MS = 30_000
MAX_UNREADABLE_SHOWN = 20
MAX_FOLDERS_SHOWN = 5
PASSAGE_CHARS = 300
TOLD_IN_REPORTS = frozenset({"document_unreadable"})
"""Warnings that the report of a command repeats, with the cure."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Collection = Annotated[
    str, typer.Option("--collection", "-c", help="Collection, as named in retrieval nodes.")
]


@app.command("add")
def add(
    context: typer.Context,
    folder: Annotated[
        Path,
        typer.Argument(parser=folders.path, help="Folder of Markdown, text, HTML or PDF files."),
    ],
    collection: Collection,
    model: Annotated[
        str | None,
        typer.Option(
            help="Embedding model for semantic search. By default the collection keeps its model; a "
            "new one has only keyword search."
        ),
    ] = None,
    no_model: Annotated[
        bool,
        typer.Option(
            "--no-model", help="Only keyword search: drop the collection's vectors, if it has any."
        ),
    ] = False,
    stored_as: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="NAME",
            help="Store the documents under this name instead of FOLDER's path: for a folder whose "
            "path changes, such as a checkout of a CI job.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Index the files of FOLDER into a collection.

    Running it again updates the collection: changed files are replaced, deleted files are removed,
    and the others are left alone. The documents of a folder are known by its path, or by --as.
    Another --model makes all vectors anew.
    """
    from dataclasses import asdict

    from hocket.cli.terminal.console import notes, out, print_json
    from hocket.schemas.subjects import check_token
    from hocket.workers.retrieval.index import add_folder

    target, name = target_of(context), check_token("--collection", collection)
    if stored_as is not None:
        check_token("--as", stored_as)
    if model == "":
        raise typer.BadParameter("--model is empty; name an embedding model, or use --no-model")
    if model is not None and no_model:
        raise typer.BadParameter("--model and --no-model contradict each other; use one of them")
    keeps_model = model is None and not no_model

    async def work(pool: "asyncpg.Pool[asyncpg.Record]") -> Any:
        chosen = await _model_of(pool, name, target.tenant) if keeps_model else model
        async with _embedder(target, chosen) as embedder:
            return await add_folder(
                pool,
                folder,
                name,
                tenant=target.tenant,
                stored_as=stored_as,
                embedder=embedder,
                replace_vectors=not keeps_model,
            )

    report = _with_database(target, work)
    if as_json:
        print_json(asdict(report))
        return
    out.print(
        f"collection {name}: {report.added} added, {report.replaced} replaced, "
        f"{report.unchanged} unchanged, {report.removed} removed, {report.chunks} chunks written",
        markup=False,
    )
    for note in _notes_on(report):
        notes.print(note, markup=False)


def _notes_on(report: "IndexReport") -> "Iterator[str]":
    """Yield what a user should know about a run besides its counts."""
    for source, reason in report.unreadable[:MAX_UNREADABLE_SHOWN]:
        yield f"Warning: {source} was skipped: {reason}"
    if report.unreadable_count > MAX_UNREADABLE_SHOWN:
        yield f"Warning: {report.unreadable_count} files were skipped in total."
    if report.dropped_model:
        yield f"Note: the collection's vectors of {report.dropped_model} were dropped."
    for folder in report.missing_folders[:MAX_FOLDERS_SHOWN]:
        yield (
            f"Note: the collection also has documents of {folder}, which is no folder on this machine. "
            f"If it was moved, delete them: hocket index delete {report.collection} --folder {folder}"
        )
    if len(report.missing_folders) > MAX_FOLDERS_SHOWN:
        yield f"Note: {len(report.missing_folders)} folders are not on this machine in total."
    if report.vector_index:
        yield (
            f"Warning: the vector index was not built: {report.vector_index}. Until it is, searches "
            "compare every vector. Build it: hocket index repair"
        )


@app.command("list")
def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List collections with their sizes."""
    from dataclasses import asdict

    from hocket.cli.drawing.amounts import count
    from hocket.cli.terminal.console import print_json, print_table
    from hocket.workers.retrieval.index import collections

    target = target_of(context)

    async def work(pool: "asyncpg.Pool[asyncpg.Record]") -> Any:
        return await collections(pool, tenant=target.tenant)

    found = _with_database(target, work)
    if as_json:
        print_json([asdict(info) for info in found])
        return
    rows = [
        (info.name, count(info.documents), count(info.chunks), info.embedding_model or "(words)")
        for info in found
    ]
    columns = ("COLLECTION", "DOCUMENTS", "CHUNKS", "MODEL")
    print_table(columns, rows, numbers=("DOCUMENTS", "CHUNKS"), texts=("MODEL",))


@app.command("search")
def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="Search terms or a question.")],
    collection: Collection,
    top: Annotated[int, typer.Option(min=1, max=100, help="Maximum number of passages.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Show the passages of a collection that best match a query."""
    from rich.text import Text

    from hocket.cli.terminal.console import out, print_json
    from hocket.workers.retrieval.connections import IndexConnections
    from hocket.workers.retrieval.search import search as find

    target = target_of(context)

    async def work(pool: "asyncpg.Pool[asyncpg.Record]") -> Any:
        model = await _model_of(pool, collection, target.tenant)
        async with _embedder(target, model) as embedder:
            return await find(
                IndexConnections(pool),
                collection,
                [query],
                tenant=target.tenant,
                top_k=top,
                timeout_ms=SEARCH_TIMEOUT_MS,
                embedder=embedder,
            )

    passages = _with_database(target, work)
    if as_json:
        print_json([passage.as_json() for passage in passages])
        return
    if not passages:
        out.print("Nothing found.")
    for passage in passages:
        place = f"{passage.source}  {passage.start}-{passage.end}  {passage.score:.4f}"
        text = " ".join(passage.text.split())
        short = text if len(text) <= PASSAGE_CHARS else text[: PASSAGE_CHARS - 1] + "…"
        out.print(Text.assemble((place, "bold"), f"\n  {short}"))


@app.command("delete")
def delete(
    context: typer.Context,
    collection: Annotated[str, typer.Argument(help="Collection to delete.")],
    folder: Annotated[
        str | None,
        typer.Option(
            "--folder",
            metavar="PATH",
            help="Only the documents of this folder, or of this name (`index add --as`).",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation prompt.")] = False,
    as_json: AsJson = False,
) -> None:
    """Permanently delete a collection, or only the documents of one of its folders."""
    from hocket.cli.drawing.amounts import count
    from hocket.cli.terminal.console import out, print_json
    from hocket.workers.retrieval.deletion import delete_collection, folders_of

    target = target_of(context)

    async def look(pool: "asyncpg.Pool[asyncpg.Record]") -> dict[str, int]:
        return await folders_of(pool, collection, tenant=target.tenant)

    known = _with_database(target, look)
    stored = None if folder is None else _as_stored(folder, known)
    what = f"the collection {collection}" if stored is None else f"{stored} of {collection}"
    documents = sum(known.values()) if stored is None else known.get(stored, 0)
    if not yes and (stored is None or documents):
        question = f"Permanently delete {what} ({count(documents)} documents)?"
        typer.confirm(question, abort=True, err=True)  # standard output is for the result

    async def work(pool: "asyncpg.Pool[asyncpg.Record]") -> int:
        return await delete_collection(pool, collection, tenant=target.tenant, folder=stored)

    deleted = _with_database(target, work)
    if as_json:
        print_json({"collection": collection, "folder": stored, "documents": deleted})
        return
    out.print(f"{what}: {count(deleted)} documents deleted", markup=False)


@app.command("repair")
def repair(context: typer.Context, as_json: AsJson = False) -> None:
    """Build missing vector indexes of all tenants' collections, and drop those of deleted ones.

    Nothing waits for it. Without its index, a collection is searched by comparing every vector.
    """
    from hocket.cli.terminal.console import out, print_json
    from hocket.kit.postgres import vector_indexes

    async def work(pool: "asyncpg.Pool[asyncpg.Record]") -> vector_indexes.Repaired:
        async with pool.acquire() as connection:
            return await vector_indexes.repair(connection)

    done = _with_database(target_of(context), work)
    if as_json:
        built, dropped = map(str, done.built), map(str, done.dropped)
        print_json({"built": list(built), "dropped": list(dropped)})
        return
    for fault in done.built:
        out.print(f"{fault}: built", markup=False)
    for fault in done.dropped:
        out.print(f"{fault}: dropped", markup=False)
    if not done.built and not done.dropped:
        out.print("All vector indexes are as they should be.")


def _as_stored(folder: str, known: dict[str, int]) -> str:
    """Return the name under which a folder's documents are stored: as it was given, or its path."""
    return folder if folder in known else str(Path(folder).expanduser().resolve())


def _with_database(
    target: Target, work: "Callable[[asyncpg.Pool[asyncpg.Record]], Awaitable[T]]"
) -> T:
    """Run `work` with connections to the platform's database; raises what `or_unavailable` raises."""
    import asyncio
    import logging

    from hocket.cli.remote.database import or_unavailable
    from hocket.cli.terminal.console import notes
    from hocket.cli.terminal.log_lines import show_warnings
    from hocket.kit.postgres.database import connect_pool

    show_warnings(notes, but=TOLD_IN_REPORTS)
    for library in ("asyncpg", "pypdf"):  # the command's own error or report names the cause
        logging.getLogger(library).addHandler(logging.NullHandler())

    async def run() -> T:
        pool = await connect_pool(
            target.database_url, size=POOL_SIZE, name="cli", timeout_s=CONNECT_TIMEOUT_S
        )
        try:
            return await work(pool)
        finally:
            pool.terminate()

    return asyncio.run(or_unavailable(run()))


async def _model_of(
    pool: "asyncpg.Pool[asyncpg.Record]", collection: str, tenant: str
) -> str | None:
    """Return the model of a collection's vectors; None if it has none, or is not there."""
    from hocket.workers.retrieval.index import collections

    known = await collections(pool, tenant=tenant)
    models = {info.name: info.embedding_model for info in known}
    return models.get(collection) or None


@asynccontextmanager
async def _embedder(target: Target, model: str | None) -> "AsyncIterator[GatewayEmbedder | None]":
    if model is None:
        yield None
        return
    from hocket.cli.remote.embedding import GatewayEmbedder
    from hocket.cli.remote.messaging import connected_bus

    async with connected_bus(target.nats_url, "hocket-cli") as bus:
        yield GatewayEmbedder(bus, model, target.tenant)
