"""`hocket runs export`: all runs that match a filter, for other programs."""

import os
import sys
from collections.abc import Iterable
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Annotated

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
from hocket.cli.remote.target import target_of

OutputFile = Annotated[
    Path | None,
    typer.Option(
        "--to", "--output", "-o", metavar="FILE", help="File to write; by default, standard output."
    ),
]


class Format(StrEnum):
    """How runs are written."""

    JSONL = "jsonl"
    CSV = "csv"


def export(
    context: typer.Context,
    format_: Annotated[
        Format, typer.Option("--format", help="JSON lines (one object per line) or CSV.")
    ] = Format.JSONL,
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
    limit: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Maximum number of runs.")
    ] = 1_000_000,
    to: OutputFile = None,
) -> None:
    """Export all runs that match, newest first, as JSON lines or CSV."""
    from hocket.cli.terminal.errors import FileUnwritable
    from hocket.cli.terminal.sources import label_header

    parts = (
        target_of(context)
        .api()
        .stream(
            "/v1/runs/export",
            format=format_.value,
            pipeline=pipeline,
            status=status,
            since=earliest(hours, since),
            until=moment(until),
            labels=label_header(labels or []),
            error_code=error,
            deadline_missed=missed or None,
            min_cost_usd=min_cost,
            contains=contains,
            limit=limit,
        )
    )
    if to is None:
        for part in parts:
            sys.stdout.buffer.write(part)
        sys.stdout.flush()
        return
    first = next(parts, b"")  # if the API refuses, an earlier export in the file is kept
    try:
        _write(to, chain([first], parts))
    except OSError as fault:
        raise FileUnwritable(path=to, reason=fault.strerror or str(fault)) from fault


def _write(to: Path, parts: Iterable[bytes]) -> None:
    """Write a file, which replaces an earlier one only when it is complete; raise OSError."""
    if not _is_replaceable(to):
        with to.open("wb") as file:
            file.writelines(parts)
        return
    whole = to.resolve()
    part = whole.with_name(f"{whole.name}.part")
    try:
        with part.open("wb") as file:
            if whole.exists():
                part.chmod(whole.stat().st_mode)
            file.writelines(parts)
        part.replace(whole)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _is_replaceable(to: Path) -> bool:
    """Return whether a path is that of a regular file, or of none yet: a pipe or `/dev/stdout` has to be
    written to as it is."""
    is_open = os.path.abspath(to).startswith(("/dev/std", "/dev/fd/", "/proc/"))
    return not is_open and (to.is_file() or not to.exists())
