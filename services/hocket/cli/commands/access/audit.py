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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Check that no row of the audit was changed, removed or put in between.

    Rows that were removed at the end show only against an export: give the hash of its last row.
    """
    from hocket.cli.terminal.console import print_json

    api = target_of(context).api()
    found = api.get("/v1/audit/verdict", head=head)
    is_broken = found["status"] == "broken"
    if as_json:
        print_json(found)
    elif is_broken:
        typer.echo(f"broken at row {found['broken_at']}: {found['reason']}", err=True)
    if is_broken:
        raise typer.Exit(1)
    if not as_json:
        typer.echo(f"whole: {found['rows']} rows, the last has the hash {found['head']}")
