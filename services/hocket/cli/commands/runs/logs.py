"""`hocket logs`: what the handlers of a run's steps logged."""

import time
from typing import Annotated, Any, Literal

import typer

from hocket.cli.remote.target import target_of

PAGE = 500
FOLLOW_S = 1.0
"""How often a run in progress is asked for further lines."""


def logs(
    context: typer.Context,
    run_id: Annotated[str, typer.Argument(help="ID of the run, as shown by `hocket runs list`.")],
    step: Annotated[str | None, typer.Option(help="Only lines of this step.")] = None,
    level: Annotated[
        Literal["debug", "info", "warning", "error", "critical"] | None,
        typer.Option(help="Only lines at this level or above."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new lines until the run ends.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line.")
    ] = False,
) -> None:
    """Show what the handlers of a run's steps logged (`context.log`, structlog, logging)."""
    from hocket.cli.remote.api import path
    from hocket.cli.terminal.console import notes

    api = target_of(context).api()
    place = path("runs", run_id, "logs")
    shown, after, withheld = 0, None, False
    while True:
        is_over = not follow or api.get(path("runs", run_id))["finished_at"] is not None
        while True:
            page = api.get(place, step=step, level=level, limit=PAGE, after=after)
            for line in page["lines"][shown:]:  # the last page grows while the run is in progress
                _print_line(line, as_json=as_json)
            withheld = page["withheld"]
            if page["next"] is None:
                shown = len(page["lines"])
                break
            shown, after = 0, page["next"]
        if is_over:
            break
        time.sleep(FOLLOW_S)
    if withheld:
        notes.print("Texts are withheld: your key lacks the permission content.read.")
    elif not shown and after is None:
        is_narrowed = step is not None or level is not None
        notes.print(
            "No stored log line of this run matches."
            if is_narrowed
            else "There are no stored log lines for this run."
        )


def _print_line(line: dict[str, Any], *, as_json: bool) -> None:
    import json

    from hocket.cli.drawing.amounts import local_clock
    from hocket.cli.terminal.console import out

    if as_json:
        typer.echo(json.dumps(line, ensure_ascii=True))
        return
    fields = " ".join(f"{name}={_value(one)}" for name, one in (line["fields"] or {}).items())
    attempt = f" #{line['attempt']}" if line["attempt"] > 1 else ""
    text = line["text"] if line["text"] is not None else "(withheld)"
    said = f"{local_clock(line['at'])} {line['level']:<8} {line['step']}{attempt}  {text}"
    out.print(f"{said}  {fields}".rstrip(), soft_wrap=True)


def _value(value: Any) -> str:
    import json

    return value if isinstance(value, str) and " " not in value else json.dumps(value)
