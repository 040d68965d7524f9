"""`hocket runs approve`, `refuse` and `signal`: send a waiting run what it waits for."""

import time
from typing import Annotated, Any

import typer

from hocket.cli.remote.target import target_of

APPEAR_TIMEOUT_S = 2.0
"""How long a run unknown to the API may still be on its way from NATS to Postgres."""
APPEAR_INTERVAL_S = 0.05

RunId = Annotated[str, typer.Argument(help="ID of the run, as shown by `hocket runs list`.")]
Step = Annotated[str, typer.Argument(help="The approval: its node, or its step in a map or loop.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Note = Annotated[str, typer.Option(help="Reason; included in the approval's output.")]


def approve(
    context: typer.Context, run_id: RunId, step: Step, note: Note = "", as_json: AsJson = False
) -> None:
    """Approve a step that a run is waiting on."""
    sent = _send(context, run_id, step, {"approved": True, "note": note})
    _say(sent, f"approval of {step} was sent to run {run_id}", as_json=as_json)


def refuse(
    context: typer.Context, run_id: RunId, step: Step, note: Note = "", as_json: AsJson = False
) -> None:
    """Refuse an approval that a run is waiting for; the approval step fails."""
    sent = _send(context, run_id, step, {"approved": False, "note": note})
    _say(sent, f"refusal of {step} was sent to run {run_id}", as_json=as_json)


def approvals(
    context: typer.Context,
    run_id: Annotated[str | None, typer.Option("--run", help="Only approvals of this run.")] = None,
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", "-p", help="Only approvals of this pipeline.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List pending approvals, longest-waiting first."""
    from hocket.cli.drawing.amounts import local
    from hocket.cli.remote.api import every
    from hocket.cli.terminal.console import print_json, print_table

    api, asked = target_of(context).api(), {"run": run_id, "pipeline": pipeline}
    found = list(every(api, "/v1/approvals", "approvals", limit=None, **asked))
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one["run_id"],
            one["step"],
            f"{one['pipeline']} v{one['version']}",
            local(one["since"]),
            one["prompt"],
        )
        for one in found
    ]
    columns = ("RUN", "STEP", "PIPELINE", "SINCE", "PROMPT")
    print_table(columns, rows, texts=("PIPELINE", "PROMPT"))


def signal(
    context: typer.Context,
    run_id: RunId,
    name: Annotated[str, typer.Argument(help="The `signal` of the waiting node.")],
    payload: Annotated[
        str | None,
        typer.Option(help="The node's output: a JSON value, @FILE, or @- (standard input)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send a signal that a run is waiting for, or will wait for."""
    from hocket.cli.terminal.sources import json_value

    value = None if payload is None else json_value(payload, "--payload")
    sent = _send(context, run_id, name, value)
    _say(sent, f"run {run_id} was sent {name}", as_json=as_json)


def _say(sent: dict[str, Any], text: str, *, as_json: bool) -> None:
    from hocket.cli.terminal.console import print_json

    print_json(sent) if as_json else typer.echo(text)


def _send(context: typer.Context, run_id: str, name: str, payload: Any) -> dict[str, Any]:
    """Send a signal, and return what was sent; waits for a run that was published a moment ago."""
    from hocket.cli.remote.api import path
    from hocket.cli.terminal.errors import ApiRefused

    api, body = target_of(context).api(), {"name": name, "payload": payload}
    until = time.monotonic() + APPEAR_TIMEOUT_S
    while True:
        try:
            return dict(api.post(path("runs", run_id, "signals"), body))
        except ApiRefused as error:
            if error.info().code != "run_unknown" or time.monotonic() > until:
                raise
        time.sleep(APPEAR_INTERVAL_S)
