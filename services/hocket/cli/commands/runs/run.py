"""`hocket run`: publish a task, watch its run, print the result."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from hocket.cli.remote.target import Target, target_of
from hocket.cli.terminal import exit_codes


class Class(StrEnum):
    """Priority classes: which runs wait when not all can be served."""

    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BATCH = "batch"


def run(
    context: typer.Context,
    pipeline: Annotated[str, typer.Argument(help="Name of an applied pipeline.")],
    given: Annotated[
        str | None,
        typer.Option("--input", help="Input: a JSON object, @FILE, or @- (standard input)."),
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "-i",
            metavar="KEY=VALUE",
            help="One field of the input: JSON, otherwise text. May be repeated.",
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait", help="Wait until the run ends, or only until it has started."
        ),
    ] = True,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: the same key always means the same run.")
    ] = None,
    deadline_ms: Annotated[
        float | None,
        typer.Option(
            min=1, help="Deadline in milliseconds from now; overrides the pipeline's SLO."
        ),
    ] = None,
    priority: Annotated[
        Class | None,
        typer.Option("--class", help="Class of the run; overrides the pipeline's class."),
    ] = None,
    budget_usd: Annotated[
        float | None,
        typer.Option(min=0, help="Budget of the run; overrides the pipeline's budget."),
    ] = None,
    version: Annotated[
        int | None,
        typer.Option(
            min=1, help="Version to run; defaults to the active one, otherwise the newest."
        ),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="KEY=VALUE",
            help="Label that the run is charged to; may be repeated.",
        ),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds to wait for the run to end.")
    ] = 600.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON; with --no-wait, the run's ID.")
    ] = False,
) -> None:
    """Run a pipeline and print its output.

    Publishes a task on NATS and waits for its run with live progress, then prints output and timeline.
    Exits with 0 if the run succeeded (or is degraded), 1 if it did not or the platform has no room for
    it, 2 if the task is invalid, 3 if the timeout passed: the run goes on.
    """
    import asyncio

    from hocket.cli.remote.task import Task, publish
    from hocket.cli.terminal.console import print_json
    from hocket.cli.terminal.sources import checked_text, label_header, task_input
    from hocket.schemas.rest import Key

    target = target_of(context)
    headers = {
        "Hocket-Deadline-Ms": deadline_ms,
        "Hocket-Class": priority.value if priority else None,
        "Hocket-Budget-Usd": budget_usd,
        "Hocket-Version": version,
        "Hocket-Labels": label_header(labels or []),
    }
    task = Task(
        tenant=target.tenant,
        pipeline=pipeline,
        input=task_input(given, pairs or []),
        headers={name: str(value) for name, value in headers.items() if value is not None},
        **({} if key is None else {"key": checked_text(Key, key, "--key")}),
    )
    if version is not None:
        _check_version(target, pipeline, version)
    if not wait:
        began = asyncio.run(
            publish(target.nats_url, task, look=lambda: _known(target, task.run_id))
        )
        if as_json:
            print_json({"run_id": task.run_id, "has_begun": began})
        else:
            typer.echo(task.run_id)
        if not began:
            typer.echo("The task is stored; no coordinator has picked it up yet.", err=True)
        return
    end = _follow(target, task, timeout_s, has_key=key is not None, quiet=as_json)
    if end is None:
        typer.echo(f"run {task.run_id} is still running: hocket runs show {task.run_id}", err=True)
        raise typer.Exit(exit_codes.UNCHECKED)
    end = _whole(target, end)
    _print_end(target, end, as_json=as_json)
    if end["status"] not in ("succeeded", "degraded"):
        raise typer.Exit(exit_codes.FAILED)


def _check_version(target: Target, pipeline: str, version: int) -> None:
    """Raise ApiRefused if the API knows that the pipeline has no such version: it names the latest,
    which a coordinator does not. The task of a key that may not read pipelines is published anyway."""
    from hocket.cli.remote.api import path
    from hocket.cli.terminal.errors import ApiRefused, ApiUnreachable
    from hocket.schemas.errors import InvalidInput

    if target.api_url is None:
        return
    try:
        target.api().get(path("pipelines", pipeline), version=version)
    except ApiUnreachable:
        return
    except ApiRefused as error:
        if error.info().code == InvalidInput.code:
            raise


def _follow(
    target: Target, task: Any, timeout_s: float, *, has_key: bool, quiet: bool
) -> dict[str, Any] | None:
    import asyncio

    from hocket.cli.remote.task import publish_and_follow
    from hocket.cli.terminal.console import notes
    from hocket.cli.terminal.progress import Progress

    shown = notes.is_terminal and not quiet
    before = _known(target, task.run_id) if has_key else None
    refused = before if before is not None and before["status"] == "rejected" else None

    def stored() -> None:
        if not shown:  # the drawing has it
            typer.echo(f"the task of run {task.run_id} is stored", err=True)

    try:
        with Progress(notes, f"run {task.run_id}", shown=shown) as progress:
            return asyncio.run(
                publish_and_follow(
                    target.nats_url,
                    task,
                    look=lambda: _ended(target, task.run_id, refused),
                    on_step=progress.step,
                    timeout_s=timeout_s,
                    on_stored=stored,
                )
            )
    except KeyboardInterrupt:
        if shown:  # the drawing is gone
            typer.echo(f"run {task.run_id} goes on: hocket runs show {task.run_id}", err=True)
        raise


def _ended(target: Target, run_id: str, refused: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the end of the run, as NATS tells it, if the API knows that it has ended. What it has of an
    earlier task with the key that was `refused` is none."""
    run = _known(target, run_id)
    if run is None or run["finished_at"] is None:
        return None
    if refused is not None and run["finished_at"] == refused["finished_at"]:
        return None
    return _as_told(run)


def _whole(target: Target, end: dict[str, Any]) -> dict[str, Any]:
    """Return an end with its output, if that was too large for the message and the API has it."""
    if not end.get("output_left_out"):
        return end
    return _ended(target, end["run_id"], None) or end


def _as_told(run: dict[str, Any]) -> dict[str, Any]:
    """Return an ended run of the API in the form of RunFinished: whichever is first is printed."""
    same = ("run_id", "tenant", "pipeline", "version", "status", "output", "error")
    return {
        **{name: run[name] for name in same},
        **{f"{name}_ms": _ms(run[name]) for name in ("accepted_at", "finished_at", "deadline_at")},
        **({"labels": run["labels"]} if run["labels"] else {}),
        "cost_usd": run["spent_usd"],
    }


def _ms(moment: str) -> float:
    from datetime import datetime

    return round(datetime.fromisoformat(moment).timestamp() * 1000, 3)


def _known(target: Target, run_id: str) -> dict[str, Any] | None:
    """Return the run if the API knows it and shows it to this key, which may only submit."""
    from hocket.cli.remote.api import path
    from hocket.cli.terminal.errors import ApiRefused, ApiUnreachable

    if target.api_url is None:
        return None
    try:
        run: dict[str, Any] = target.api().get(path("runs", run_id))
    except (ApiRefused, ApiUnreachable):
        return None
    return run


def _print_end(target: Target, end: dict[str, Any], *, as_json: bool) -> None:
    from hocket.cli.commands.runs.runs import print_output, print_run, settled_run
    from hocket.cli.terminal.console import notes, out, print_json
    from hocket.cli.terminal.errors import ApiRefused, ApiUnreachable

    if as_json:
        print_json(end)
        return
    if end.get("output") is not None:
        print_output(end["output"])
        out.print()
    elif end.get("output_left_out"):
        notes.print("The output is too large for a message, and the API does not answer.")
    if target.api_url is not None:
        try:
            print_run(settled_run(target.api(), end["run_id"]), output=False)
        except (ApiRefused, ApiUnreachable) as error:  # its end is known all the same
            notes.print(f"The run's steps are not shown. {error}", markup=False)
        else:
            return
    if end.get("error"):
        notes.print(f"error: {end['error']['message']}", markup=False)
    notes.print(f"run {end['run_id']} {end['status']}", markup=False)
