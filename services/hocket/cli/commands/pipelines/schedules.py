"""`hocket schedules`: tasks submitted by the clock."""

from typing import Annotated, Any

import typer

from hocket.cli.remote.api import every, path
from hocket.cli.remote.target import target_of

app = typer.Typer(
    help="Run pipelines on a schedule: put, list, show, pause, resume, trigger, delete.",
    no_args_is_help=True,
)

PAGE = 500

Name = Annotated[str, typer.Argument(help="Name of the schedule.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
IfMatch = Annotated[
    int | None,
    typer.Option(
        "--if-revision",
        "--revision",
        min=1,
        help="Proceed only if the schedule still has this revision.",
    ),
]
Count = Annotated[
    int, typer.Option("--count", "-n", min=1, max=20, help="Number of times to show.")
]


@app.command("put")
def put(
    context: typer.Context,
    name: Name,
    cron: Annotated[
        str, typer.Option(help="Cron expression: minute, hour, day, month, day of the week.")
    ],
    pipeline: Annotated[str, typer.Option("--pipeline", "-p", help="Pipeline to run.")],
    given: Annotated[
        str | None, typer.Option("--input", help="The input: a JSON object, @FILE, or @-.")
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "-i",
            metavar="KEY=VALUE",
            help="One field of the input: JSON, otherwise text. May be repeated.",
        ),
    ] = None,
    time_zone: Annotated[str, typer.Option(help="IANA time zone, such as Europe/Berlin.")] = "UTC",
    time_field: Annotated[
        str | None, typer.Option(help="Field of the input that is set to the scheduled time.")
    ] = None,
    jitter_s: Annotated[
        float, typer.Option(min=0, help="Delay each time by up to this many seconds.")
    ] = 0,
    catch_up: Annotated[
        str, typer.Option(help="Missed times to catch up on: none, one or all.")
    ] = "one",
    catch_up_window_s: Annotated[
        float, typer.Option(min=0, help="Seconds; times missed longer ago are skipped.")
    ] = 86_400,
    overlap: Annotated[
        str,
        typer.Option(
            help="If a run is still in progress: allow, skip, cancel_running or buffer_one."
        ),
    ] = "skip",
    deadline_ms: Annotated[
        float | None, typer.Option(help="Deadline of each run, in milliseconds.")
    ] = None,
    budget_usd: Annotated[
        str | None, typer.Option(help="Budget of each run, in US dollars.")
    ] = None,
    priority: Annotated[str | None, typer.Option("--class", help="Class of each run.")] = None,
    version: Annotated[
        int | None,
        typer.Option(
            help="Version of the pipeline; defaults to the active one, otherwise the newest."
        ),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="Label of each run; may be repeated."),
    ] = None,
    description: Annotated[str, typer.Option(help="What the schedule is for.")] = "",
    paused: Annotated[
        bool | None,
        typer.Option(
            "--paused/--running",
            help="Pause or run the schedule; without either, its state does not change.",
        ),
    ] = None,
    revision: IfMatch = None,
    as_json: AsJson = False,
) -> None:
    """Create a schedule, or replace the one with that name."""
    from hocket.cli.terminal.sources import labels_of, task_input

    task = {
        "pipeline": pipeline,
        "input": task_input(given, pairs or []),
        "deadline_ms": deadline_ms,
        "budget_usd": budget_usd,
        "class": priority,
        "version": version,
        "labels": labels_of(labels or []),
    }
    body = {
        "cron": cron,
        "time_zone": time_zone,
        "jitter_s": jitter_s,
        "catch_up": catch_up,
        "catch_up_window_s": catch_up_window_s,
        "overlap": overlap,
        "description": description,
        "time_field": time_field,
        "paused": paused,
        "task": {key: given for key, given in task.items() if given is not None},
    }
    api = target_of(context).api()
    _say(api.put(path("schedules", name), body, if_match=_etag(revision)), as_json=as_json)


@app.command("list")
def list_(
    context: typer.Context,
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", "-p", help="Only schedules of this pipeline.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List schedules with their next times."""
    from hocket.cli.terminal.console import out, print_json, print_table

    api = target_of(context).api()
    found = list(every(api, "/v1/schedules", "schedules", limit=PAGE, pipeline=pipeline))
    if as_json:
        print_json(found)
        return
    if not found:
        out.print("There are no schedules. Create one with `hocket schedules put`.")
        return
    rows = [
        (one["name"], one["cron"], one["time_zone"], one["task"]["pipeline"], _next(one))
        for one in found
    ]
    columns = ("NAME", "CRON", "TIME ZONE", "PIPELINE", "NEXT")
    print_table(columns, rows, texts=("TIME ZONE", "PIPELINE"))


@app.command("show")
def show(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Show a schedule."""
    _say(target_of(context).api().get(path("schedules", name)), as_json=as_json)


@app.command("next")
def next_(context: typer.Context, name: Name, count: Count = 5, as_json: AsJson = False) -> None:
    """Show the upcoming times of a schedule."""
    found = target_of(context).api().get(path("schedules", name, "next"), count=count)
    _say_times(found["times"], as_json=as_json)


@app.command("preview")
def preview(
    context: typer.Context,
    cron: Annotated[
        str, typer.Argument(help="Cron expression: minute, hour, day, month, day of the week.")
    ],
    time_zone: Annotated[str, typer.Option(help="IANA time zone, such as Europe/Berlin.")] = "UTC",
    count: Count = 5,
    as_json: AsJson = False,
) -> None:
    """Show the upcoming times of a cron expression, without creating a schedule."""
    body = {"cron": cron, "time_zone": time_zone}
    found = target_of(context).api().post("/v1/schedule-preview", body, count=count)
    _say_times(found["times"], as_json=as_json)


@app.command("history")
def history(
    context: typer.Context,
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=PAGE, help="Number of times to show.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show the past times of a schedule and their outcome."""
    from hocket.cli.drawing.amounts import local
    from hocket.cli.terminal.console import out, print_json, print_table

    api = target_of(context).api()
    found = api.get(path("schedules", name, "firings"), limit=limit)["firings"]
    if as_json:
        print_json(found)
        return
    if not found:
        out.print("The schedule has not fired yet.")
        return
    rows = [
        (local(one["planned_at"]), one["cause"], one["state"], one["run_id"] or "", _outcome(one))
        for one in found
    ]
    print_table(("TIME", "CAUSE", "STATE", "RUN", ""), rows, texts=("",))


@app.command("pause")
def pause(
    context: typer.Context,
    name: Name,
    reason: Annotated[str, typer.Option(help="Why.")] = "",
    revision: IfMatch = None,
    as_json: AsJson = False,
) -> None:
    """Pause a schedule; times that pass while it is paused are skipped."""
    api, place = target_of(context).api(), path("schedules", name, "pause")
    _say(api.post(place, {"reason": reason}, if_match=_etag(revision)), as_json=as_json)


@app.command("resume")
def resume(
    context: typer.Context, name: Name, revision: IfMatch = None, as_json: AsJson = False
) -> None:
    """Resume a paused schedule from its next time."""
    api, place = target_of(context).api(), path("schedules", name, "resume")
    _say(api.post(place, if_match=_etag(revision)), as_json=as_json)


@app.command("trigger")
def trigger(
    context: typer.Context,
    name: Name,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: the same key always means the same run.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Submit a schedule's task now."""
    from hocket.cli.terminal.console import print_json

    body = {} if key is None else {"idempotency_key": key}
    found = target_of(context).api().post(path("schedules", name, "trigger"), body)
    print_json(found) if as_json else typer.echo(f"{found['state']}: {found['run_id']}")


@app.command("delete")
def delete(context: typer.Context, name: Name, revision: IfMatch = None) -> None:
    """Delete a schedule and its history. Its runs are kept."""
    target_of(context).api().delete(path("schedules", name), if_match=_etag(revision))
    typer.echo(f"{name} is deleted")


def _etag(revision: int | None) -> str | None:
    return None if revision is None else f'"{revision}"'


def _next(one: dict[str, Any]) -> str:
    from hocket.cli.drawing.amounts import local

    if one["paused"]:
        return "paused" + (f": {one['pause_reason']}" if one["pause_reason"] else "")
    return local(one["next"][0]) if one["next"] else "never"


def _there(one: dict[str, Any]) -> str:
    """Return what the clocks in the schedule's time zone show at its next time, if they show another
    time than those here."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    from hocket.cli.drawing.amounts import moment

    at = None if one["paused"] or not one["next"] else moment(one["next"][0])
    if at is None:
        return ""
    try:
        there = at.astimezone(ZoneInfo(one["time_zone"]))
    except (ZoneInfoNotFoundError, ValueError, OSError):  # this machine does not know the zone
        return ""
    if there.utcoffset() == at.astimezone().utcoffset():
        return ""
    return f" here, {there:%H:%M:%S} in {one['time_zone']}"


def _outcome(one: dict[str, Any]) -> str:
    if one["error"] is not None:
        return str(one["error"]["message"])
    if one["until"] is not None:
        return f"and all until {one['until']}"
    return str(one["run_status"] or one["reason"])


def _say(one: dict[str, Any], *, as_json: bool) -> None:
    from hocket.cli.terminal.console import out, print_json

    if as_json:
        print_json(one)
        return
    task = one["task"]
    out.print(f"schedule     {one['name']}, revision {one['revision']}", markup=False)
    out.print(f"times        {one['cron']} ({one['time_zone']})", markup=False)
    out.print(f"next         {_next(one)}{_there(one)}", markup=False)
    out.print(f"pipeline     {task['pipeline']}", markup=False)
    if one["time_field"]:
        out.print(f"time field   {one['time_field']}", markup=False)
    jitter = f", jitter up to {one['jitter_s']:g} s" if one["jitter_s"] else ""
    policies = f"catch up {one['catch_up']}, overlap {one['overlap']}{jitter}"
    out.print(f"policies     {policies}", markup=False)
    if task["labels"]:
        labels = ", ".join(f"{key}={value}" for key, value in task["labels"].items())
        out.print(f"labels       {labels}", markup=False)


def _say_times(times: list[dict[str, Any]], *, as_json: bool) -> None:
    from hocket.cli.terminal.console import print_json

    if as_json:
        print_json(times)
        return
    for one in times:
        typer.echo(one["local"])
