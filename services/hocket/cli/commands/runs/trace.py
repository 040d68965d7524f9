"""`hocket trace`: where the time of a run was spent, span by span."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hocket.cli.remote.api import path
from hocket.cli.remote.target import target_of

MAX_WIDTH = 180


def trace(
    context: typer.Context,
    run_id: Annotated[str, typer.Argument(help="ID of the run, as shown by `hocket runs list`.")],
    every: Annotated[
        bool,
        typer.Option("--all", help="Show every span, including short waits and single requests."),
    ] = False,
    format_: Annotated[
        Literal["tree", "chrome"],
        typer.Option(
            "--format", help="tree, or chrome to write a file for https://ui.perfetto.dev."
        ),
    ] = "tree",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; defaults to RUN.trace.json."),
    ] = None,
    width: Annotated[int | None, typer.Option(min=60, max=400, help="Width in characters.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the trace of a run: steps, waits, attempts and model calls, with times."""
    from hocket.cli.terminal.console import print_json

    found = target_of(context).api().get(path("runs", run_id, "trace"))
    now = datetime.fromtimestamp(time.time(), tz=UTC).isoformat()
    if format_ == "chrome" or output is not None:
        _write_chrome(found, output or Path(f"{run_id}.trace.json"), now)
    elif as_json:
        print_json(found)
    else:
        _print_tree(found, width, now, every=every)


def _print_tree(found: dict[str, Any], width: int | None, now: str, *, every: bool) -> None:
    from hocket.cli.drawing.span_tree import span_tree, trace_summary
    from hocket.cli.terminal.console import drawing_cells, out, print_lines

    print_lines(trace_summary(found))
    out.print()
    cells = drawing_cells(width, most=MAX_WIDTH)
    print_lines(span_tree(found, width=cells, now=now, every=every))


def _write_chrome(found: dict[str, Any], file: Path, now: str) -> None:
    from hocket.cli.terminal.errors import FileUnwritable
    from hocket.kit.traces.chrome_trace import chrome_trace

    events = chrome_trace(found, now=now)
    try:
        file.write_text(json.dumps(events), encoding="utf-8")
    except OSError as error:
        raise FileUnwritable(path=str(file), reason=error.strerror) from error
    typer.echo(f"{file}: {len(found['spans'])} spans; open it at https://ui.perfetto.dev")
