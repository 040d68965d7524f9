"""`hocket dlq`: dead letters, the messages that could not be handled."""

import json
from typing import Annotated

import typer

from hocket.cli.api import path
from hocket.cli.target import target_of

app = typer.Typer(
    help="Messages that could not be handled: list, show, redrive.",
    no_args_is_help=True,
)

Seq = Annotated[int, typer.Argument(min=1, help="A dead letter's number.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@app.command("list")
def list_(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List dead letters, the latest first."""
    from hocket.cli.console import out, print_json, print_table
    from hocket.cli.drawing.amounts import local

    letters = target_of(context).api().get("/v1/dead-letters", limit=limit)["dead_letters"]
    if as_json:
        print_json(letters)
        return
    if not letters:
        out.print("There are no dead letters.")
        return
    rows = [
        (
            str(letter["seq"]),
            local(letter["buried_at"]),
            letter["subject"],
            letter["error"]["code"],
            letter["error"]["message"],
        )
        for letter in letters
    ]
    print_table(("NUMBER", "BURIED", "SUBJECT", "ERROR", "REASON"), rows, numbers=("NUMBER",))


@app.command("show")
def show(context: typer.Context, seq: Seq, as_json: AsJson = False) -> None:
    """Show one dead letter: why it could not be handled, its headers and its payload."""
    from hocket.cli.console import out, print_json

    letter = target_of(context).api().get(path("dead-letters", str(seq)))
    if as_json:
        print_json(letter)
        return
    out.print(f"number   {letter['seq']}", markup=False)
    out.print(f"subject  {letter['subject']}", markup=False)
    out.print(f"error    {letter['error']['message']}", markup=False)
    for name, value in letter["headers"].items():
        out.print(f"header   {name}: {value}", markup=False)
    out.print(f"payload  {letter['payload_bytes']} bytes", markup=False)
    out.print(_readable(letter["payload"]), markup=False)


@app.command("redrive")
def redrive(context: typer.Context, seq: Seq) -> None:
    """Publish a dead letter again on its own subject and remove it here."""
    done = target_of(context).api().post(path("dead-letters", str(seq), "redrive"))
    typer.echo(f"dead letter {seq} was published again on {done['subject']}")


@app.command("drop")
def drop(context: typer.Context, seq: Seq) -> None:
    """Remove a dead letter for good."""
    target_of(context).api().delete(path("dead-letters", str(seq)))
    typer.echo(f"dead letter {seq} was removed")


def _readable(payload: str) -> str:
    try:
        return json.dumps(json.loads(payload), indent=2, ensure_ascii=False)
    except ValueError:
        return payload
