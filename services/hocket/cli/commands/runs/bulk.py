"""`hocket runs submit`, `bulk-cancel`, `bulk-retry`, `bulk-show` and `bulk-stop`: many runs at once."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from hocket.cli.commands.runs.run_filter import (
    ErrorCode,
    Hours,
    MinCost,
    Missed,
    Pipeline,
    Status,
    WithLabels,
    earliest,
)
from hocket.cli.remote.api import Api, encoded, every, path
from hocket.cli.remote.target import target_of
from hocket.cli.terminal import exit_codes

TASKS_AT_ONCE = 500
BYTES_AT_ONCE = 900_000
PAGE = 500
WAIT_INTERVAL_S = 0.5

NumberedTask = tuple[int, Any, int]
"""The number of a line, the task on it, and how many bytes of a request it takes."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OperationId = Annotated[str, typer.Argument(help="ID of the bulk operation.")]
AtMost = Annotated[
    int, typer.Option(min=1, max=1_000_000, help="Do nothing if more runs than this match.")
]
Preview = Annotated[
    bool, typer.Option("--preview", help="Preview how many runs match, without changing anything.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the operation to finish.")]
Every = Annotated[
    bool, typer.Option("--all", help="Change all runs of the tenant if no option narrows them.")
]


def submit(
    context: typer.Context,
    file: Annotated[
        str, typer.Argument(help="JSON lines file with one task per line; `-` for standard input.")
    ],
    as_json: AsJson = False,
) -> None:
    """Submit many tasks: each line is a body of `POST /v1/runs`, with `pipeline` and `input`."""
    api, numbered = target_of(context).api(), _tasks(file)
    told, first = list[tuple[int, dict[str, Any]]](), 1
    try:
        for portion in _portions(numbered):
            first = portion[0][0]
            receipt = api.post("/v1/bulk/runs", {"runs": [task for _, task, _ in portion]})
            lines = [line for line, _, _ in portion]
            told += zip(lines, receipt["runs"], strict=True)
    except BaseException:  # also if it is interrupted: what was accepted runs
        if told:
            _say_sent(told, as_json=as_json, stopped_at=first)
        raise
    _say_sent(told, as_json=as_json)
    if any(one["error"] for _, one in told):
        raise typer.Exit(exit_codes.FAILED)


def _say_sent(
    told: list[tuple[int, dict[str, Any]]], *, as_json: bool, stopped_at: int | None = None
) -> None:
    """Print what became of the tasks of these lines; `stopped_at` is the first line of the portion of
    which that is not known."""
    from hocket.cli.terminal.console import notes, print_json

    accepted = sum(not one["error"] for _, one in told)
    if as_json:
        print_json([one for _, one in told])
    elif stopped_at is None:
        typer.echo(f"{accepted} of {len(told)} tasks were accepted")
    if stopped_at is not None:
        sent = f"{accepted} tasks were accepted from the lines before line {stopped_at}"
        notes.print(f"{sent}; of those from it on, none is known to be.")
    for line, one in told:
        if one["error"]:
            notes.print(f"line {line}: {one['error']['message']}", style="red")


def bulk_cancel(
    context: typer.Context,
    pipeline: Pipeline = None,
    hours: Hours = None,
    labels: WithLabels = None,
    missed: Missed = False,
    min_cost: MinCost = None,
    reason: Annotated[str, typer.Option(help="Why.")] = "",
    at_most: AtMost = 1_000_000,
    every: Every = False,
    preview: Preview = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Cancel all running runs that match."""
    meant = _filter(pipeline, None, hours, labels, None, missed=missed, min_cost=min_cost)
    change = {"action": "cancel", "filter": meant, "reason": reason, "at_most": at_most}
    _check_meant(change, every=every, preview=preview)
    _begin(target_of(context).api(), change, preview=preview, wait=wait, as_json=as_json)


def bulk_retry(
    context: typer.Context,
    pipeline: Pipeline = None,
    status: Status = None,
    error: ErrorCode = None,
    hours: Hours = None,
    labels: WithLabels = None,
    missed: Missed = False,
    min_cost: MinCost = None,
    at_most: AtMost = 1_000_000,
    every: Every = False,
    preview: Preview = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Retry all matching runs that ended without a complete result."""
    meant = _filter(pipeline, status, hours, labels, error, missed=missed, min_cost=min_cost)
    change = {"action": "retry", "filter": meant, "at_most": at_most}
    _check_meant(change, every=every, preview=preview)
    _begin(target_of(context).api(), change, preview=preview, wait=wait, as_json=as_json)


def bulk_show(
    context: typer.Context,
    operation_id: Annotated[
        str | None, typer.Argument(help="ID of the bulk operation; without it, show all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the progress of bulk operations."""
    from hocket.cli.terminal.console import print_json

    api = target_of(context).api()
    if operation_id is None:
        found = list(every(api, "/v1/bulk/operations", "operations", limit=PAGE))
    else:
        found = [api.get(path("bulk", "operations", operation_id))]
    if as_json:
        print_json(found if operation_id is None else found[0])
        return
    for one in found:
        _say(one)


def bulk_stop(context: typer.Context, operation_id: OperationId, as_json: AsJson = False) -> None:
    """Stop a bulk operation; changes already made are kept."""
    from hocket.cli.terminal.console import print_json

    found = target_of(context).api().post(path("bulk", "operations", operation_id, "stop"))
    print_json(found) if as_json else _say(found)


def _check_meant(change: dict[str, Any], *, every: bool, preview: bool) -> None:
    """Raise InvalidInput if a change without a filter would be of all runs, and nobody says so."""
    if not (change["filter"] or every or preview):
        from hocket.schemas.errors import InvalidInput

        raise InvalidInput(
            field="filter",
            reason="no option says which runs are meant",
            cure="Name them, as with `--pipeline`, or pass `--all` for all runs of the tenant.",
        )


def _begin(api: Api, change: dict[str, Any], *, preview: bool, wait: bool, as_json: bool) -> None:
    from hocket.cli.terminal.console import print_json

    if preview:
        counted = api.post("/v1/bulk/preview", change)
        print_json(counted) if as_json else typer.echo(f"{counted['matching']} runs match")
        return
    found = api.post("/v1/bulk/operations", change)
    if wait:
        typer.echo(f"bulk operation {found['operation_id']} has begun", err=True)
    if wait and found["state"] == "running":
        found = _end_of(api, found["operation_id"])
    print_json(found) if as_json else _say(found)
    if wait and found["state"] == "stopped":  # by somebody else: runs that match are left
        raise typer.Exit(exit_codes.FAILED)


def _end_of(api: Api, operation_id: str) -> dict[str, Any]:
    """Return a bulk operation that was begun, once it has ended; raise EndUnknown."""
    from hocket.cli.terminal.patience import Patience

    what, shown_by = f"bulk operation {operation_id}", f"hocket runs bulk-show {operation_id}"
    waiting = Patience(what, shown_by)
    while True:
        waiting.rest(WAIT_INTERVAL_S)
        found: dict[str, Any] = waiting.answered(
            lambda: api.get(path("bulk", "operations", operation_id))
        )
        if found["state"] != "running":
            return found


def _say(one: dict[str, Any]) -> None:
    typer.echo(
        f"{one['operation_id']}  {one['action']}  {one['state']}: {one['changed']} changed, "
        f"{one['skipped']} skipped, of {one['matching']}"
    )


def _filter(
    pipeline: str | None,
    status: str | None,
    hours: float | None,
    labels: list[str] | None,
    error: str | None,
    *,
    missed: bool,
    min_cost: str | None,
) -> dict[str, Any]:
    from hocket.cli.terminal.sources import labels_of

    told = {
        "pipeline": pipeline,
        "status": status,
        "since": earliest(hours),
        "labels": labels_of(labels or []) or None,
        "error_code": error,
        "deadline_missed": missed or None,
        "min_cost_usd": min_cost,
    }
    return {name: value for name, value in told.items() if value is not None}


def _tasks(file: str) -> list[NumberedTask]:
    """Return all tasks of a file, so that nothing is sent if one of them cannot be read."""
    from hocket.cli.terminal.sources import read_unpacked
    from hocket.schemas.checks.plain_json import parse_json

    tasks = (
        (number, parse_json(line, f"line {number}"))
        for number, line in enumerate(read_unpacked(file).splitlines(), start=1)
        if line.strip()
    )
    return [(number, task, len(encoded(task)) + 1) for number, task in tasks]


def _portions(tasks: list[NumberedTask]) -> Iterator[list[NumberedTask]]:
    """Yield the tasks in portions that fit into a request."""
    portion: list[NumberedTask] = []
    size = 0
    for task in tasks:
        if portion and (len(portion) >= TASKS_AT_ONCE or size + task[2] > BYTES_AT_ONCE):
            yield portion
            portion, size = [], 0
        portion.append(task)
        size += task[2]
    if portion:
        yield portion
