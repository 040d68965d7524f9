"""`hocket dlq`: dead letters, the messages that could not be handled."""

import json
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import typer

from hocket.cli.remote.api import every, path
from hocket.cli.remote.target import target_of

app = typer.Typer(
    help="Dead letters, messages that could not be processed: list, show, redrive, drop.",
    no_args_is_help=True,
)


class Source(StrEnum):
    """Where dead letters come from."""

    TASK = "task"
    STEP = "step"
    LOG = "log"
    RUN = "run"
    USAGE = "usage"


Seq = Annotated[int, typer.Argument(min=1, help="Number of the dead letter.")]
Seqs = Annotated[list[int], typer.Argument(min=1, help="Numbers of the dead letters.")]
Unattributed = Annotated[
    bool,
    typer.Option(
        "--unattributed", help="Only those that belong to no tenant, because they do not name one."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number to show.")] = 20,
    source: Annotated[
        Source | None, typer.Option(help="Only dead letters from this source.")
    ] = None,
    unattributed: Unattributed = False,
    as_json: AsJson = False,
) -> None:
    """List dead letters, newest first."""
    from hocket.cli.drawing.amounts import local
    from hocket.cli.terminal.console import out, print_json, print_table

    api = target_of(context).api()
    query = {"source": source, "unattributed": unattributed or None}
    found = every(api, "/v1/dead-letters", "dead_letters", limit=limit, **query)
    letters = list(islice(found, limit))
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
            _place(letter["context"]),
            letter["error"]["code"],
            letter["error"]["message"],
        )
        for letter in letters
    ]
    columns = ("NUMBER", "BURIED", "SUBJECT", "RUN", "ERROR", "REASON")
    print_table(columns, rows, numbers=("NUMBER",), texts=("SUBJECT", "REASON"))


@app.command("show")
def show(
    context: typer.Context, seq: Seq, unattributed: Unattributed = False, as_json: AsJson = False
) -> None:
    """Show a dead letter: why it could not be processed, what it belongs to, its headers and payload."""
    from hocket.cli.terminal.console import out, print_json

    letter = (
        target_of(context)
        .api()
        .get(path("dead-letters", str(seq)), unattributed=unattributed or None)
    )
    if as_json:
        print_json(letter)
        return
    out.print(f"number   {letter['seq']}", markup=False)
    out.print(f"subject  {letter['subject']}", markup=False)
    out.print(f"error    {letter['error']['message']}", markup=False)
    for name, value in letter["context"].items():
        out.print(f"{name:<8} {value}", markup=False)
    for name, value in letter["headers"].items():
        out.print(f"header   {name}: {value}", markup=False)
    out.print(f"payload  {letter['payload_bytes']} bytes", markup=False)
    out.print(_readable(letter["payload"]), markup=False)


@app.command("redrive")
def redrive(
    context: typer.Context, seqs: Seqs, unattributed: Unattributed = False, as_json: AsJson = False
) -> None:
    """Publish dead letters again, each on its original subject, and remove them here."""
    from hocket.cli.terminal.console import print_json
    from hocket.cli.terminal.safe_text import visible

    api = target_of(context).api()
    published: list[dict[str, Any]] = []
    try:
        for seq in seqs:
            done = api.post(
                path("dead-letters", str(seq), "redrive"), unattributed=unattributed or None
            )
            published.append(done)
            if not as_json:
                typer.echo(f"dead letter {seq} was published again on {visible(done['subject'])}")
    finally:  # those before one that is refused cannot be asked for again
        if as_json:
            print_json(published)


@app.command("drop")
def drop(context: typer.Context, seqs: Seqs, unattributed: Unattributed = False) -> None:
    """Permanently remove dead letters."""
    api = target_of(context).api()
    for seq in seqs:
        api.delete(path("dead-letters", str(seq)), unattributed=unattributed or None)
        typer.echo(f"dead letter {seq} was removed")


def _place(about: dict[str, Any]) -> str:
    """Return the run and step of a letter, as far as known."""
    run_id, step, attempt = (about.get(name) for name in ("run_id", "step", "attempt"))
    if run_id is None:
        return ""
    return run_id if step is None else f"{run_id} {step} ({attempt})"


def _readable(payload: str) -> str:
    try:
        return json.dumps(json.loads(payload), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return payload
