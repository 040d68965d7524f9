"""`hocket migrate`."""

from typing import Annotated

import typer

from hocket.cli.remote.target import target_of


def migrate(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Migrate your own database (DATABASE_URL) to this release's schema.

    `hocket up` does this automatically. It is safe to run concurrently; the data is kept.
    """
    import asyncio

    from hocket.cli.remote.database import or_unavailable
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

    before, after = asyncio.run(or_unavailable(work()))
    if as_json:
        print_json({"before": before, "after": after})
        return
    typer.echo(
        f"the schema is at {after}" + (f" (was {before or 'empty'})" if before != after else "")
    )
