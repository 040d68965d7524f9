"""`hocket flow`: the limits by key that hold runs back."""

from typing import Annotated, Any

import typer

from hocket.cli.remote.target import target_of

app = typer.Typer(help="Limits by key: which hold runs back, who waits.", no_args_is_help=True)

Pipeline = Annotated[str | None, typer.Option("--pipeline", "-p", help="Of this one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
WITHHELD = "(withheld)"


@app.command("list")
def list_(context: typer.Context, pipeline: Pipeline = None, as_json: AsJson = False) -> None:
    """List the limits at which runs stand, those first at which most wait."""
    from hocket.cli.drawing.amounts import local
    from hocket.cli.terminal.console import out, print_json, print_table

    found = target_of(context).api().get("/v1/flow", pipeline=pipeline, limit=500)["queues"]
    if as_json:
        print_json(found)
        return
    if not found:
        out.print("No run waits for a limit by key, and none holds a place.")
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
    print_table(("QUEUE", "PIPELINE", "KIND", "KEY", "LIMIT", "HELD", "WAITING", "SINCE"), rows)


@app.command("runs")
def runs(
    context: typer.Context,
    pipeline: Pipeline = None,
    queue: Annotated[str | None, typer.Option(help="As `hocket flow list` shows it.")] = None,
    run_id: Annotated[str | None, typer.Option("--run", help="Where this run stands.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the runs that hold places or wait for one, each with its position."""
    from hocket.cli.drawing.amounts import local
    from hocket.cli.terminal.console import out, print_json, print_table

    asked = {"pipeline": pipeline, "queue": queue, "run": run_id}
    found = target_of(context).api().get("/v1/flow/runs", **asked, limit=500)["runs"]
    if as_json:
        print_json(found)
        return
    if not found:
        out.print("No such run stands at a limit by key.")
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
    print_table(("RUN", "PIPELINE", "KIND", "KEY", "STATE", "POSITION", "SINCE"), rows)


def _key(one: dict[str, Any]) -> str:
    return WITHHELD if one["key"] is None else one["key"] or "(all)"


def _rule(rule: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(rule.items()))
