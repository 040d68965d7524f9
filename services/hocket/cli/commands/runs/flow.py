"""`hocket flow`: the per-key limits that hold runs back."""

from typing import Annotated, Any

import typer

from hocket.cli.remote.api import every
from hocket.cli.remote.target import target_of

app = typer.Typer(
    help="Per-key limits: which ones hold runs back, and which runs wait.", no_args_is_help=True
)

Pipeline = Annotated[
    str | None, typer.Option("--pipeline", "-p", help="Only limits of this pipeline.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PAGE = 500
WITHHELD = "(withheld)"


@app.command("list")
def list_(context: typer.Context, pipeline: Pipeline = None, as_json: AsJson = False) -> None:
    """List the limits that runs hold or wait for, those with the most waiting runs first."""
    from hocket.cli.drawing.amounts import local
    from hocket.cli.terminal.console import out, print_json, print_table

    api = target_of(context).api()
    found = list(every(api, "/v1/flow", "queues", limit=PAGE, pipeline=pipeline))
    if as_json:
        print_json(found)
        return
    if not found:
        out.print("No run holds or waits for a per-key limit.")
        return
    rows = [
        (
            one["queue"],
            one["pipeline"],
            one["kind"],
            _key(one),
            _rule(one["rule"]),
            str(one["held"]),
            str(one["waiting"]),
            local(one["waiting_since"]) if one["waiting_since"] else "-",
        )
        for one in found
    ]
    columns = ("QUEUE", "PIPELINE", "KIND", "KEY", "LIMIT", "HELD", "WAITING", "SINCE")
    print_table(columns, rows, texts=("PIPELINE", "KEY"))


@app.command("runs")
def runs(
    context: typer.Context,
    pipeline: Pipeline = None,
    queue: Annotated[
        str | None, typer.Option(help="Queue, as shown by `hocket flow list`.")
    ] = None,
    run_id: Annotated[str | None, typer.Option("--run", help="Only this run.")] = None,
    as_json: AsJson = False,
) -> None:
    """List runs that hold or wait for a slot, each with its position."""
    from hocket.cli.drawing.amounts import local
    from hocket.cli.terminal.console import out, print_json, print_table

    asked = {"pipeline": pipeline, "queue": queue, "run": run_id}
    found = list(every(target_of(context).api(), "/v1/flow/runs", "runs", limit=PAGE, **asked))
    if as_json:
        print_json(found)
        return
    if not found:
        out.print("No such run holds or waits for a per-key limit.")
        return
    rows = [
        (
            one["run_id"],
            one["pipeline"],
            one["kind"],
            _key(one),
            one["state"],
            "-" if one["position"] is None else str(one["position"]),
            local(one["since"]),
        )
        for one in found
    ]
    columns = ("RUN", "PIPELINE", "KIND", "KEY", "STATE", "POSITION", "SINCE")
    print_table(columns, rows, texts=("PIPELINE", "KEY"))


def _key(one: dict[str, Any]) -> str:
    return WITHHELD if one["key"] is None else one["key"] or "(all)"


def _rule(rule: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(rule.items()))
