"""`hocket audit`: who changed what."""

import json
from typing import Annotated

import typer

from hocket.cli.remote.target import target_of

app = typer.Typer(
    help="Audit log of who changed what, and from where: export, verify.", no_args_is_help=True
)

PAGE = 500


@app.command("export")
def export(
    context: typer.Context,
    after: Annotated[int, typer.Option(min=0, help="Only rows after this sequence number.")] = 0,
) -> None:
    """Print the audit log as JSON lines, oldest first, each with its hash."""
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
        typer.Option(
            help="Hash of the last row of an earlier export; that row must still be there."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that no row of the audit log was changed, removed or inserted.

    Rows removed from the end are detected only against an export: pass the hash of its last row.
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
        typer.echo(f"intact: {found['rows']} rows, the last has the hash {found['head']}")
