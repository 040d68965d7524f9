"""`hocket runs export`: all runs that a filter means, for other programs."""

import sys
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hocket.cli.remote.target import target_of


class Format(StrEnum):
    """How runs are written."""

    JSONL = "jsonl"
    CSV = "csv"


def export(
    context: typer.Context,
    format_: Annotated[
        Format, typer.Option("--format", help="A JSON object a line, or comma-separated values.")
    ] = Format.JSONL,
    pipeline: Annotated[str | None, typer.Option("--pipeline", "-p", help="Of this one.")] = None,
    status: Annotated[
        str | None, typer.Option("--status", "-s", help="running, succeeded, failed ...")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(help="Accepted then or later, in local time.")
    ] = None,
    until: Annotated[datetime | None, typer.Option(help="Accepted before.")] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="With this label; may be repeated."),
    ] = None,
    error: Annotated[str | None, typer.Option(help="That ended with this error code.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="At most so many.")] = 1_000_000,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it there; otherwise it is printed.")
    ] = None,
) -> None:
    """Write all runs that a filter means, the latest first, as JSON lines or CSV."""
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
            since=_moment(since),
            until=_moment(until),
            labels=label_header(labels or []),
            error_code=error,
            limit=limit,
        )
    )
    if to is None:
        for part in parts:
            sys.stdout.buffer.write(part)
        sys.stdout.flush()
        return
    try:
        with to.open("wb") as file:
            file.writelines(parts)
    except OSError as fault:
        raise FileUnwritable(path=to, reason=fault.strerror or str(fault)) from fault


def _moment(given: datetime | None) -> str | None:
    return None if given is None else given.astimezone().isoformat()
