"""`hocket audit`: who changed what."""

import json
from typing import Annotated

import typer

from hocket.cli.remote.target import target_of

app = typer.Typer(help="Who changed what, from where: export, verify.", no_args_is_help=True)

PAGE = 500


@app.command("export")
def export(
    context: typer.Context,
    after: Annotated[int, typer.Option(min=0, help="Only what follows this number.")] = 0,
) -> None:
    """Print the audit as JSON lines, the earliest first, each with its hash."""
    api = target_of(context).api()
    place: int | None = after
    while place is not None:
        page = api.get("/v1/audit", after=place, limit=PAGE)
        for entry in page["entries"]:
            typer.echo(json.dumps(entry, ensure_ascii=True))
        place = page["next"]


@app.command("verify")
def verify(
    context: typer.Context,
    head: Annotated[
        str | None,
        typer.Option(help="The hash of the last row of an earlier export: it must be there still."),
    ] = None,
) -> None:
    """Check that no row of the audit was changed, removed or put in between.

    Rows that were removed at the end show only against an export: give the hash of its last row.
    """
    api = target_of(context).api()
    found = api.get("/v1/audit/verdict", head=head)
    if found["status"] == "broken":
        typer.echo(f"broken at row {found['broken_at']}: {found['reason']}", err=True)
        raise typer.Exit(1)
    typer.echo(f"whole: {found['rows']} rows, the last has the hash {found['head']}")
