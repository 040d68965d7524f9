"""`hocket runs export`: all runs that match a filter, for other programs."""

import os
import sys
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from itertools import chain
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
        Format, typer.Option("--format", help="JSON lines (one object per line) or CSV.")
    ] = Format.JSONL,
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", "-p", help="Only runs of this pipeline.")
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(
            "--status", "-s", help="Only runs with this status: running, succeeded, failed ..."
        ),
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(help="Only runs accepted at or after this local time.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(help="Only runs accepted before this local time.")
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label", metavar="KEY=VALUE", help="Only runs with this label; may be repeated."
        ),
    ] = None,
    error: Annotated[
        str | None, typer.Option(help="Only runs that ended with this error code.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Maximum number of runs.")
    ] = 1_000_000,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            "--output",
            "-o",
            metavar="FILE",
            help="File to write; by default, standard output.",
        ),
    ] = None,
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


def _moment(given: datetime | None) -> str | None:
    try:
        return None if given is None else given.astimezone().isoformat()
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"{given} is not a time that can be compared: {error}") from None
