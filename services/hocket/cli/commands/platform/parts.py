"""`hocket platform`: the parts of the platform, and draining step queues."""

from typing import Annotated, Any

import typer

from hocket.cli.remote.target import target_of

app = typer.Typer(
    help="Parts of the platform: tenants, workers, queues, partitions.", no_args_is_help=True
)
NodeType = Annotated[str, typer.Argument(help="Node type, as listed by `hocket types`.")]
QueueOption = Annotated[
    str, typer.Option("--queue", help="Queue of the node type; defaults to its own.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PAGE = 500


@app.command("tenants")
def tenants(context: typer.Context, as_json: AsJson = False) -> None:
    """List the tenants that have runs, pipelines or keys."""
    from hocket.cli.terminal.console import print_json

    found = _all(context, "tenants")
    if as_json:
        print_json(found)
        return
    for one in found:
        typer.echo(one["tenant"])


@app.command("workers")
def workers(context: typer.Context, as_json: AsJson = False) -> None:
    """List live workers and the steps they take."""
    from hocket.cli.terminal.console import print_json, print_table

    found = _all(context, "workers")
    if as_json:
        print_json(found)
        return
    rows = [
        (one["worker"], pool["type"], pool["queue"], str(pool["slots"]))
        for one in found
        for pool in one["pools"]
    ]
    columns, texts = ("WORKER", "TYPE", "QUEUE", "SLOTS"), ("TYPE", "QUEUE")
    print_table(columns, rows, numbers=("SLOTS",), texts=texts)


@app.command("queues")
def queues(context: typer.Context, as_json: AsJson = False) -> None:
    """List step queues and their backlog."""
    _print_queues(target_of(context).api().get("/v1/queues")["queues"], as_json=as_json)


def _change(
    context: typer.Context, node_type: str, action: str, body: dict[str, Any], *, as_json: bool
) -> None:
    from hocket.cli.remote.api import path

    found = target_of(context).api().post(path("types", node_type, action), body)
    _print_queues(found["queues"], as_json=as_json)


def _print_queues(found: list[dict[str, Any]], *, as_json: bool) -> None:
    from hocket.cli.drawing.amounts import duration
    from hocket.cli.terminal.console import print_json, print_table

    if as_json:
        print_json(found)
        return
    counted = ("waiting", "handed_out", "redelivered", "asking")
    rows = [
        (
            one["type"],
            one["queue"],
            one["lane"],
            *(f"{one[name]:,}" for name in counted),
            "" if one["drained_for_s"] is None else duration(one["drained_for_s"] * 1000),
        )
        for one in found
    ]
    numbers = ("WAITING", "AT WORKERS", "REDELIVERED", "ASKING")
    columns = ("TYPE", "QUEUE", "LANE", *numbers, "DRAINED")
    print_table(columns, rows, numbers=numbers)


@app.command("drain")
def drain(
    context: typer.Context,
    node_type: NodeType,
    queue: QueueOption = "default",
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.1, max=10_080, help="How long, in minutes.")
    ] = 60,
    reason: Annotated[str, typer.Option("--reason", help="Recorded in the audit log.")] = "",
    as_json: AsJson = False,
) -> None:
    """Stop dispatching steps of a node type for a time; steps already at workers continue."""
    body = {"queue": queue, "for_s": minutes * 60, "reason": reason}
    _change(context, node_type, "drain", body, as_json=as_json)


@app.command("resume")
def resume(
    context: typer.Context,
    node_type: NodeType,
    queue: QueueOption = "default",
    as_json: AsJson = False,
) -> None:
    """Resume dispatching steps of a drained node type."""
    _change(context, node_type, "resume", {"queue": queue}, as_json=as_json)


@app.command("partitions")
def partitions(context: typer.Context, as_json: AsJson = False) -> None:
    """List the partitions of runs and the coordinators that own them."""
    from hocket.cli.terminal.console import print_json, print_table

    found = target_of(context).api().get("/v1/partitions")["partitions"]
    if as_json:
        print_json(found)
        return
    rows = [
        (str(one["partition"]), one["owner"], str(one["epoch"]), f"{one['open_runs']:,}")
        for one in found
    ]
    columns = ("PARTITION", "OWNER", "EPOCH", "OPEN RUNS")
    print_table(columns, rows, numbers=("PARTITION", "EPOCH", "OPEN RUNS"))


def _all(context: typer.Context, what: str) -> list[Any]:
    """Return the items of all pages."""
    found: list[Any] = []
    after = None
    while True:
        page = target_of(context).api().get(f"/v1/{what}", after=after, limit=PAGE)
        found += page[what]
        after = page["next"]
        if after is None:
            return found
