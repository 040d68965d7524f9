"""`hocket migrate`."""

from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

import typer

from hocket.cli.remote.target import target_of

T = TypeVar("T")


def migrate(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Migrate your own database (DATABASE_URL) to this release's schema.

    `hocket up` does this automatically. It is safe to run concurrently; the data is kept.
    """
    import asyncio

    from hocket.cli.terminal.console import notes, print_json
    from hocket.cli.terminal.log_lines import show_warnings
    from hocket.kit.postgres.migrations import current
    from hocket.kit.postgres.migrations import migrate as apply_migrations

    show_warnings(notes)
    url = target_of(context).database_url

    async def work() -> tuple[str | None, str | None]:
        before = await current(url)
        await apply_migrations(url)
        return before, await current(url)

    before, after = asyncio.run(_or_unavailable(work()))
    if as_json:
        print_json({"before": before, "after": after})
        return
    typer.echo(
        f"the schema is at {after}" + (f" (was {before or 'empty'})" if before != after else "")
    )


async def _or_unavailable(work: Coroutine[Any, Any, T]) -> T:
    import asyncpg

    from hocket.kit.postgres.database import DatabaseUnavailable, said
    from hocket.kit.postgres.errors import AWAY

    try:
        return await work
    except (*AWAY, asyncpg.PostgresError) as error:
        raise DatabaseUnavailable(reason=said(error)) from error
