"""`hocket data`: delete the data of a tenant, or of a customer."""

from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli.remote.target import target_of

if TYPE_CHECKING:
    from hocket.kit.postgres.data_deletion import Selection

app = typer.Typer(
    help="Delete the data of a tenant, or of a label, from the database.", no_args_is_help=True
)


@app.callback()
def data() -> None:
    """Delete the data of a tenant, or of a label, from the database."""


@app.command("delete")
def delete(
    context: typer.Context,
    tenant: Annotated[str, typer.Option("--tenant", help="Tenant whose data to delete.")],
    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            metavar="KEY=VALUE",
            help="Only tasks with this label; without it, everything.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show how much would be deleted, without deleting anything."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation prompt.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Permanently delete the runs of a tenant or label, with their results, calls and all other data.

    Works directly on the database (DATABASE_URL); the audit log records what was deleted. Runs in
    flight must have ended.
    """
    from hocket.cli.terminal.console import notes, print_json, print_table
    from hocket.kit.postgres.data_deletion import Selection
    from hocket.schemas.labels import checked_labels
    from hocket.schemas.subjects import check_token

    check_token("--tenant", tenant)
    pair = None
    if label is not None:
        key, _, value = label.partition("=")
        (pair,) = checked_labels([(key, value)], "--label").items()
    selection = Selection(tenant, pair)
    url = target_of(context).database_url
    if not dry_run and not yes:
        question = f"Permanently delete {selection.name} of the tenant {tenant}?"
        typer.confirm(question, abort=True, err=True)  # standard output is for the result
    found = _done(url, selection, dry_run=dry_run)
    if as_json:
        print_json(found)
        return
    notes.print("Found:" if dry_run else "Deleted:")
    rows = [(name, str(number)) for name, number in found.items()]
    print_table(("WHAT", "ROWS"), rows, numbers=("ROWS",))


def _done(url: str, selection: "Selection", *, dry_run: bool) -> dict[str, int]:
    """Count or delete; raise DataInUse, and what `or_unavailable` raises."""
    import asyncio

    from hocket.cli.remote.database import local_actor, or_unavailable
    from hocket.kit.postgres import data_deletion
    from hocket.kit.postgres.database import connected

    async def done() -> dict[str, int]:
        connection = await connected(url)
        try:
            if dry_run:
                return await data_deletion.counted(connection, selection)
            return await data_deletion.deleted(connection, selection, local_actor())
        finally:
            await connection.close()

    return asyncio.run(or_unavailable(done()))
