"""`hocket index`: collections of documents for retrieval."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hocket.cli.remote.target import Target, target_of
from hocket.cli.terminal import folders

if TYPE_CHECKING:
    import asyncpg

    from hocket.cli.remote.embedding import GatewayEmbedder

T = TypeVar("T")

app = typer.Typer(
    help="Index documents for retrieval; list and search collections.", no_args_is_help=True
)

POOL_SIZE = 4
CONNECT_TIMEOUT_S = 5.0
SEARCH_TIMEOUT_MS = 30_000
MAX_UNREADABLE_SHOWN = 20
PASSAGE_CHARS = 300

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
        typer.Option(help="Embedding model for semantic search; without it, only keyword search."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Index the files of FOLDER into a collection.

    Running it again updates the collection: changed files are replaced, deleted files are removed,
    and the others are left alone.
    """
    from dataclasses import asdict

    from hocket.cli.terminal.console import notes, out, print_json
    from hocket.schemas.subjects import check_token
    from hocket.workers.retrieval.index import add_folder

    target, name = target_of(context), check_token("--collection", collection)

    async def work(pool: "asyncpg.Pool[asyncpg.Record]") -> Any:
        async with _embedder(target, model) as embedder:
            return await add_folder(pool, folder, name, tenant=target.tenant, embedder=embedder)

    report = _with_database(target, work)
    if as_json:
        print_json(asdict(report))
        return
    out.print(
        f"collection {name}: {report.added} added, {report.replaced} replaced, "
        f"{report.unchanged} unchanged, {report.removed} removed, {report.chunks} chunks written",
        markup=False,
    )
    for source, reason in report.unreadable[:MAX_UNREADABLE_SHOWN]:
        notes.print(f"Warning: {source} was skipped: {reason}", markup=False)
    if report.unreadable_count > MAX_UNREADABLE_SHOWN:
        notes.print(f"Warning: {report.unreadable_count} files were skipped in total.")


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
    print_table(columns, rows, numbers=("DOCUMENTS", "CHUNKS"))


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
    from hocket.workers.retrieval.index import collections
    from hocket.workers.retrieval.search import search as find

    target = target_of(context)

    async def work(pool: "asyncpg.Pool[asyncpg.Record]") -> Any:
        known = await collections(pool, tenant=target.tenant)
        models = {info.name: info.embedding_model for info in known}
        async with _embedder(target, models.get(collection) or None) as embedder:
            return await find(
                pool,
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


def _with_database(
    target: Target, work: "Callable[[asyncpg.Pool[asyncpg.Record]], Awaitable[T]]"
) -> T:
    """Run `work` with connections to the platform's database; raises DatabaseUnavailable."""
    import asyncio

    import asyncpg

    from hocket.cli.terminal.console import notes
    from hocket.cli.terminal.log_lines import show_warnings
    from hocket.kit.postgres.database import DatabaseUnavailable, connect_pool

    show_warnings(notes)

    async def run() -> T:
        pool = await connect_pool(
            target.database_url, size=POOL_SIZE, name="cli", timeout_s=CONNECT_TIMEOUT_S
        )
        try:
            return await work(pool)
        except (OSError, asyncpg.PostgresConnectionError, asyncpg.UndefinedTableError) as error:
            raise DatabaseUnavailable(reason=str(error) or type(error).__name__) from error
        finally:
            pool.terminate()

    return asyncio.run(run())


@asynccontextmanager
async def _embedder(target: Target, model: str | None) -> "AsyncIterator[GatewayEmbedder | None]":
    if model is None:
        yield None
        return
    from hocket.cli.remote.embedding import GatewayEmbedder
    from hocket.cli.remote.messaging import connected_bus

    async with connected_bus(target.nats_url, "hocket-cli") as bus:
        yield GatewayEmbedder(bus, model, target.tenant)
