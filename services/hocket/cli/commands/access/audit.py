"""`hocket audit`: who changed what."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hocket.cli.remote.target import Target, target_of

if TYPE_CHECKING:
    from hocket.cli.remote.api import Api
    from hocket.cli.terminal.errors import AuditUnchecked

app = typer.Typer(
    help="Audit log of who changed what, and from where: export, verify.", no_args_is_help=True
)

PAGE = 500
PART = 20_000
"""Rows that the API checks for one request of `verify`, in about a second."""
UNPROCESSABLE = 422


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
            help="Hash of the last row of an earlier export or check; that row must still be there."
        ),
    ] = None,
    after: Annotated[
        int,
        typer.Option(min=0, help="Only check the rows after this one, whose hash is --head."),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that no row of the audit log was changed, removed or inserted.

    Rows removed from the end are detected only against an export: pass the hash of its last row.
    Exits with 0 if the log is intact, 1 if it is broken, 3 if it could not be checked.
    """
    from hocket.cli.terminal.console import print_json

    found = _verdict(target_of(context), after, head)
    is_broken = found["status"] == "broken"
    if as_json:
        print_json(found)
    elif is_broken:
        typer.echo(f"broken at row {found['broken_at']}: {found['reason']}", err=True)
    if is_broken:
        raise typer.Exit(1)
    if not as_json:
        rows = f"rows {after} to {found['rows']}" if after else f"{found['rows']} rows"
        typer.echo(f"intact: {rows}, the last has the hash {found['head']}")


def _verdict(target: Target, after: int, head: str | None) -> dict[str, Any]:
    """Check the log part by part, so that each answer comes in time however long the log is. Raises
    InvalidInput and AuditUnchecked."""
    from hocket.cli.terminal import exit_codes
    from hocket.cli.terminal.errors import exit_code
    from hocket.schemas.errors import HocketError, InvalidInput

    if after and head is None:
        raise InvalidInput(
            field="--after",
            reason="it says which row to go on from, but not what its hash must be",
            cure="Give the hash, too, as an earlier check printed it: --head.",
        )
    begin: dict[str, Any] = {"from_row": after, "from_hash": head} if after else {}
    kept = None if after else head
    try:
        api = target.api()
        while True:
            found = _part(api, begin, kept)
            if found.get("next") is None:
                return found
            begin = {"from_row": found["next"], "from_hash": found["head"]}
    except (HocketError, LookupError) as error:
        if isinstance(error, HocketError) and exit_code(error) != exit_codes.FAILED:
            raise
        raise _unchecked(begin, str(error) or repr(error)) from error


def _part(api: "Api", begin: dict[str, Any], head: str | None) -> dict[str, Any]:
    """Return the verdict on one part; on the whole log, if the server is of a release that knows no
    parts."""
    from hocket.cli.terminal.errors import ApiRefused

    place = "/v1/audit/verdict"
    try:
        found: dict[str, Any] = api.get(place, limit=PART, **begin, head=head)
    except ApiRefused as error:
        if error.status != UNPROCESSABLE or error.info().field != "limit":
            raise
        if begin:
            reason = (
                "the server is of an earlier release, which checks only the whole log. Leave out"
                " --after, or upgrade the server."
            )
            raise _unchecked(begin, reason) from error
        found = api.get(place, head=head)
    return found


def _unchecked(begin: dict[str, Any], reason: str) -> "AuditUnchecked":
    from hocket.cli.terminal.errors import AuditUnchecked

    place = "at all"
    if begin:
        place = f"after row {begin['from_row']}, whose hash is {begin['from_hash']}"
    return AuditUnchecked(place=place, reason=reason)
