"""`hocket runs`: list, show, cancel and repeat runs."""

import time
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from typing import Annotated, Any

import typer

from hocket.cli.commands.runs.run_filter import (
    Contains,
    ErrorCode,
    Hours,
    MinCost,
    Missed,
    Pipeline,
    Since,
    Status,
    Until,
    WithLabels,
    earliest,
    moment,
)
from hocket.cli.remote.api import Api, every, known_run, path
from hocket.cli.remote.target import target_of
from hocket.cli.terminal import exit_codes

app = typer.Typer(help="Runs: list, show, cancel, retry and more.", no_args_is_help=True)

STEP_PAGE = 500
MAX_STEPS_SHOWN = 5_000
LEDGER_TIMEOUT_S = 1.5
LEDGER_INTERVAL_S = 0.05
LEAST_USD = Decimal("1e-15")
"""Less than this is no difference between two amounts."""
WAIT_S = 600.0
"""How long a new run may take to begin: tasks wait while coordinators are busy."""
WAIT_INTERVAL_S = 0.1
MODEL_TYPES = ("llm", "agent", "planning")

MAX_CALLS_SHOWN = 200
RunId = Annotated[str, typer.Argument(help="ID of the run, as shown by `hocket runs list`.")]
Key = Annotated[
    str | None,
    typer.Option(help="Idempotency key; without it, the same request always means the same run."),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the new run ends, and show it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_(
    context: typer.Context,
    pipeline: Pipeline = None,
    status: Status = None,
    hours: Hours = None,
    since: Since = None,
    until: Until = None,
    labels: WithLabels = None,
    error: ErrorCode = None,
    missed: Missed = False,
    min_cost: MinCost = None,
    contains: Contains = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number of runs.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    from rich.text import Text

    from hocket.cli.drawing import timeline
    from hocket.cli.drawing.amounts import duration, local, money
    from hocket.cli.drawing.states import style
    from hocket.cli.terminal.console import notes, print_json, print_table
    from hocket.cli.terminal.sources import label_header

    first, last = earliest(hours, since), moment(until)
    api, found, after = target_of(context).api(), list[dict[str, Any]](), None
    while True:  # a page of a search may be short, or empty, though earlier runs match
        page = api.get(
            "/v1/runs",
            pipeline=pipeline,
            status=status,
            since=first,
            until=last,
            labels=label_header(labels or []),
            error_code=error,
            deadline_missed=missed or None,
            min_cost_usd=min_cost,
            contains=contains,
            after=after,
            limit=limit - len(found),
        )
        found += page["runs"]
        if (after := page["next"]) is None or len(found) >= limit:
            break
    if as_json:
        print_json(found)
        return
    rows = [
        (
            run["run_id"],
            f"{run['pipeline']} v{run['version']}",
            Text(run["status"], style(run["status"])),
            local(run["accepted_at"]),
            duration(run["duration_ms"]),
            timeline.kept_deadline(run),
            money(run["spent_usd"]),
        )
        for run in found
    ]
    columns = ("RUN", "PIPELINE", "STATUS", "ACCEPTED", "TIME", "DEADLINE", "COST")
    print_table(columns, rows, numbers=("TIME", "COST"), texts=("PIPELINE",))
    if after is not None:
        notes.print(f"There are more runs; --limit (now {limit}) can be up to 500.", style="dim")


@app.command("show")
def show(
    context: typer.Context,
    run_id: RunId,
    width: Annotated[
        int | None, typer.Option(min=60, max=400, help="Width of the drawing, in characters.")
    ] = None,
    content: Annotated[
        bool,
        typer.Option(
            "--content",
            help="Show its prompts and answers instead, if a policy stores them; also takes the ID "
            "of a call.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a run: output or error, timeline with deadlines and slack, and cost per node.

    Includes the critical path once the run has ended. For an external run that calls refer to, shows
    those calls.
    """
    from hocket.cli.terminal.console import print_json
    from hocket.cli.terminal.errors import ApiRefused, RunNotFound

    api = target_of(context).api()
    if content:
        _show_content(api, run_id, as_json=as_json)
        return
    try:
        found = read_run(api, run_id, values=as_json)
    except ApiRefused as error:
        page = api.get("/v1/calls", run=run_id, limit=MAX_CALLS_SHOWN)
        if not page["calls"] and error.info().field == "run_id":  # no id of Hocket's
            raise RunNotFound(run_id=run_id) from None
        if not page["calls"]:
            raise
        _print_external(run_id, page, as_json=as_json)
        return
    if as_json:
        print_json(found)
        _say_truncated(found)
        return
    print_run(found, width=width)


def _show_content(api: Api, run_id: str, *, as_json: bool) -> None:
    from hocket.cli.drawing.content import content_lines
    from hocket.cli.remote.content import content_of
    from hocket.cli.terminal.console import notes, out, print_json

    found = content_of(api, run_id, limit=MAX_CALLS_SHOWN)
    if as_json:
        print_json(found)
    elif not found["content"]:
        notes.print(
            f"No prompts or answers of {run_id} are stored: the section `content:` of the "
            "gateway's configuration decides which ones are (docs/how-to/content.md).",
            markup=False,
        )
    for line in content_lines(found) if not as_json else ():
        out.print(line)


def _print_external(run_id: str, page: dict[str, Any], *, as_json: bool) -> None:
    """Print the calls that name an unknown run: one that is not Hocket's, or no longer stored."""
    from decimal import Decimal

    from hocket.cli.drawing.amounts import money
    from hocket.cli.drawing.decisions import explained_lines
    from hocket.cli.terminal.console import out, print_json

    calls = page["calls"]
    if as_json:
        print_json({"run": None, "calls": calls, "truncated": page["truncated"]})
        return
    total = sum((Decimal(call["cost_usd"]) for call in calls), Decimal(0))
    some = "the first " if page["truncated"] else ""
    head = (
        f"run {run_id} is external: calls refer to it, but Hocket did not run it or no longer "
        "stores it"
    )
    out.print(head, style="bold", markup=False)
    number = f"{len(calls)} call{'' if len(calls) == 1 else 's'}"
    out.print(f"{some}{number}, {money(total)}\n", markup=False)
    for line in explained_lines({"attempts": calls}):
        out.print(line)


@app.command("cancel")
def cancel(
    context: typer.Context,
    run_id: RunId,
    reason: Annotated[str, typer.Option(help="Reason; recorded with the run.")] = "",
    as_json: AsJson = False,
) -> None:
    """Cancel a run. Steps in flight are told to stop."""
    from hocket.cli.terminal.console import print_json

    sent = target_of(context).api().post(path("runs", run_id, "cancel"), {"reason": reason})
    if as_json:
        print_json(sent)
        return
    typer.echo(f"cancellation of run {run_id} was requested")


@app.command("retry")
def retry(
    context: typer.Context,
    run_id: RunId,
    key: Key = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Retry what failed in a run, as a new run that reuses everything that succeeded."""
    _repeat(context, run_id, "retry", {"idempotency_key": key}, wait=wait, as_json=as_json)


@app.command("rerun")
def rerun(
    context: typer.Context,
    run_id: RunId,
    from_step: Annotated[
        str | None, typer.Option("--from", help="Always rerun this step and all steps after it.")
    ] = None,
    step_input: Annotated[
        str | None, typer.Option(help="Input of that step: a JSON object, @FILE, or @-.")
    ] = None,
    given: Annotated[
        str | None, typer.Option("--input", help="Input of the run: a JSON object, @FILE, or @-.")
    ] = None,
    version: Annotated[int | None, typer.Option(min=1, help="Version of the pipeline.")] = None,
    key: Key = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Rerun a run as a new run, from a given step, with another input or with another version.

    Steps that would do exactly the same are reused from the old run; only the others run and cost again.
    """
    from hocket.cli.terminal.sources import task_input

    body = {
        "from_step": from_step,
        "step_input": None if step_input is None else task_input(step_input, [], "--step-input"),
        "input": None if given is None else task_input(given, []),
        "version": version,
        "idempotency_key": key,
    }
    _repeat(context, run_id, "rerun", body, wait=wait, as_json=as_json)


def _repeat(
    context: typer.Context,
    run_id: str,
    operation: str,
    body: dict[str, Any],
    *,
    wait: bool,
    as_json: bool,
) -> None:
    from hocket.cli.terminal.console import print_json
    from hocket.cli.terminal.safe_text import visible

    api = target_of(context).api()
    said = {name: value for name, value in body.items() if value is not None}
    receipt = api.post(path("runs", run_id, operation), said)
    if wait:
        typer.echo(f"run {visible(receipt['run_id'])} was submitted", err=True)
        receipt = _end_of(api, receipt["run_id"]) or receipt
    if as_json:
        print_json(receipt)
    elif not wait:
        typer.echo(visible(receipt["run_id"]))
    elif receipt.get("finished_at") is None:
        typer.echo(f"run {visible(receipt['run_id'])} has not begun yet", err=True)
    else:
        _print_end(api, receipt)
    if wait and receipt.get("finished_at") is None:
        raise typer.Exit(exit_codes.UNCHECKED)
    if wait and receipt["status"] not in ("succeeded", "degraded"):
        raise typer.Exit(exit_codes.FAILED)


def _end_of(api: Api, run_id: str) -> dict[str, Any] | None:
    """Return a run whose task was taken, once it has ended; None if it has not begun after WAIT_S.
    Raises EndUnknown, and ApiRefused for one that was deleted."""
    from hocket.cli.terminal import patience

    deadline, waiting = time.monotonic() + WAIT_S, patience.of_run(run_id)
    while (run := waiting.answered(lambda: known_run(api, run_id))) is None:
        if time.monotonic() > deadline:
            return None
        waiting.rest(WAIT_INTERVAL_S)
    while run["finished_at"] is None:
        waiting.rest(WAIT_INTERVAL_S)
        found: dict[str, Any] = waiting.answered(lambda: api.get(path("runs", run_id)))
        run = found
    return run


def _print_end(api: Api, run: dict[str, Any]) -> None:
    """Print an ended run; its end is known, even if the API does not answer any more."""
    from hocket.cli.terminal.console import notes
    from hocket.cli.terminal.errors import ApiRefused, ApiUnreachable

    try:
        found = settled_run(api, run["run_id"])
    except (ApiRefused, ApiUnreachable) as error:
        notes.print(f"The run's steps are not shown. {error}", markup=False)
        notes.print(f"run {run['run_id']} {run['status']}", markup=False)
    else:
        print_run(found)


def read_run(api: Api, run_id: str, *, values: bool = False) -> dict[str, Any]:
    """Return a run with its steps, their journals and its cost: `{run, steps, flow, journal, cost,
    truncated}`. `flow` has the limits by key at which it waits before its first step; `truncated` says
    whether there are more steps or entries in journals."""
    run = api.get(path("runs", run_id))
    steps_place = path("runs", run_id, "steps")
    all_steps = every(api, steps_place, "steps", limit=STEP_PAGE, values=values or None)
    steps = list(islice(all_steps, MAX_STEPS_SHOWN))
    truncated = len(steps) == MAX_STEPS_SHOWN and next(all_steps, None) is not None
    journal = None
    if any(step["type"] == "python" or "." in step["type"] for step in steps):
        found = api.get(path("runs", run_id, "journal"))
        journal, truncated = found["entries"], truncated or found["truncated"]
    cost = api.get(path("runs", run_id, "cost"))
    return {
        "run": run,
        "steps": steps,
        "flow": _flow_of(api, run) if not steps else [],
        "journal": journal,
        "cost": cost,
        "truncated": truncated,
    }


def _flow_of(api: Api, run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the limits by key at which a run waits."""
    if run["finished_at"] is not None:
        return []
    places = api.get("/v1/flow/runs", run=run["run_id"])["runs"]
    return [place for place in places if place["state"] == "waiting"]


def settled_run(api: Api, run_id: str) -> dict[str, Any]:
    """Return an ended run as `read_run` does, once the ledger has booked a call for each step that calls
    models, and what was spent in sub-runs, or after `LEDGER_TIMEOUT_S`."""
    deadline = time.monotonic() + LEDGER_TIMEOUT_S
    while True:
        found = read_run(api, run_id)
        booked = {node["node"] for node in found["cost"]["nodes"]}
        called = {
            step["node"]
            for step in found["steps"]
            if step["type"] in MODEL_TYPES and step["state"] == "succeeded"
        }
        is_booked = called <= booked and _has_sub_runs_cost(found)
        if is_booked or time.monotonic() > deadline:
            return found
        time.sleep(LEDGER_INTERVAL_S)


def _has_sub_runs_cost(found: dict[str, Any]) -> bool:
    """Tell whether the ledger has booked all that a run has spent, if it has sub-runs. (What they spent
    may have more decimal places than what is booked.)"""
    cost = found["cost"]
    left_usd = Decimal(found["run"]["spent_usd"]) - Decimal(cost["cost_usd"])
    return not cost.get("sub_runs") or left_usd < LEAST_USD


def print_run(found: dict[str, Any], *, width: int | None = None, output: bool = True) -> None:
    """Print a run as `hocket runs show` does; `output` says whether to include its output."""
    from rich.text import Text

    from hocket.cli.drawing import timeline
    from hocket.cli.drawing.critical_path import critical_path
    from hocket.cli.terminal.console import drawing_cells, out, print_lines

    run, steps = found["run"], found["steps"]
    now = datetime.fromtimestamp(time.time(), tz=UTC).isoformat()
    print_lines(timeline.summary(run))
    print_lines(timeline.held_back(found.get("flow") or ()))
    if run["error"]:
        out.print(Text.assemble(("error: ", "red"), run["error"]["message"]))
    out.print()
    cells = drawing_cells(width, most=160)
    print_lines(timeline.timeline(run, steps, width=cells, now=now))
    print_lines(timeline.faults(steps))
    print_lines(timeline.awaited(steps))
    print_lines(timeline.done(found.get("journal") or ()))
    out.print()
    if path_lines := critical_path(run.get("critical_path"), width=cells):
        print_lines(path_lines)
        out.print()
    is_bounded = width is not None or out.is_terminal
    print_lines(timeline.costs(found["cost"], width=cells if is_bounded else None))
    if output and run["output"] is not None:
        out.print()
        print_output(run["output"])
    _say_truncated(found)


def _say_truncated(found: dict[str, Any]) -> None:
    from hocket.cli.terminal.console import notes

    if found["truncated"]:
        place = path("runs", found["run"]["run_id"])
        notes.print(
            "There are more steps, or more entries in their journals, than are shown; "
            f"`GET {place}/steps` has all steps.",
            style="dim",
            markup=False,
        )


def print_output(output: Any) -> None:
    """Print a run's output: text as it is, other values as JSON."""
    from hocket.cli.terminal.console import out, print_json

    if isinstance(output, str):
        out.print(output, markup=False)
    else:
        print_json(output)
