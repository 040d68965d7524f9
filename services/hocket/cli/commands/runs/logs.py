"""`hocket logs`: what the handlers of a run's steps logged."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hocket.cli.remote.target import target_of

if TYPE_CHECKING:
    from hocket.cli.remote.api import Api
    from hocket.cli.terminal.patience import Patience

PAGE = 500
FOLLOW_S = 1.0
"""How often a run in progress is asked for further lines."""
APPEAR_S = 600.0
"""How long a run may be unknown after its task was taken: tasks wait while coordinators are busy."""
LATE = timedelta(seconds=30)
"""How far the time of a line may be behind that of lines that came before it."""


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
    from hocket.cli.terminal import patience
    from hocket.cli.terminal.console import notes

    api, waiting = target_of(context).api(), patience.of_run(run_id)
    place = path("runs", run_id, "logs")
    read = partial(api.get, place, step=step, level=level, limit=PAGE)
    look = partial(api.get, path("runs", run_id))
    was_over = not follow
    is_over = was_over or _begun(api, run_id, waiting)["finished_at"] is not None
    if follow:
        read(limit=1)  # raises what the API says of this request; from here on, it may be away
    lines = _Lines((lambda **query: waiting.answered(partial(read, **query))) if follow else read)
    while True:
        waiting.has_ended = is_over
        for line in lines.further():
            _print_line(line, as_json=as_json)
        if was_over:
            break
        was_over = is_over  # the last lines come a moment after the run's end
        waiting.rest(FOLLOW_S)
        is_over = was_over or waiting.answered(look)["finished_at"] is not None
    if lines.withheld:
        notes.print("Texts are withheld: your key lacks the permission content.read.")
    elif not lines.found:
        is_narrowed = step is not None or level is not None
        notes.print(
            "No stored log line of this run matches."
            if is_narrowed
            else "There are no stored log lines for this run."
        )


def _begun(api: "Api", run_id: str, waiting: "Patience") -> dict[str, Any]:
    """Return a run, as soon as the API knows it: its task may have been taken a moment ago. Raises
    ApiRefused."""
    from hocket.cli.remote.api import known_run, path
    from hocket.cli.terminal.console import notes
    from hocket.schemas.ids import is_run_id

    until_s = time.monotonic() + APPEAR_S if is_run_id(run_id) else 0.0
    run, is_told = known_run(api, run_id), False
    while run is None and time.monotonic() < until_s:
        if not is_told:
            notes.print(f"There is no run {run_id} yet. Waiting for it to begin (Ctrl-C ends).")
            is_told = True
        waiting.rest(FOLLOW_S)
        run = waiting.answered(partial(known_run, api, run_id))
    found: dict[str, Any] = run or api.get(path("runs", run_id))  # raises what the API says
    return found


class _Lines:
    """The lines of a run, read again and again. A line may come later than lines after which it was
    logged, from another worker; so pages that may still get some are read again as a whole."""

    def __init__(self, read: Callable[..., dict[str, Any]]) -> None:
        self.found = False
        self.withheld = False
        self._read = read
        self._after: str | None = None
        self._known = Counter[str]()
        """The lines behind `after` that were given already."""

    def further(self) -> Iterator[dict[str, Any]]:
        """Yield the lines that were not there the last time."""
        read, known = Counter[str](), self._known
        pages: list[tuple[str, datetime, Counter[str]]] = []
        newest, after = datetime.min.replace(tzinfo=UTC), self._after
        while True:
            page = self._read(after=after)
            self.withheld = page["withheld"]
            of_page = Counter[str]()
            for line in page["lines"]:
                self.found = True
                text = json.dumps(line, sort_keys=True)
                read[text] += 1
                of_page[text] += 1
                if read[text] > known[text]:
                    yield line
            if page["lines"]:
                newest = datetime.fromisoformat(page["lines"][-1]["at"])
            after = page["next"]
            if after is None:
                break
            pages.append((after, newest, of_page))
        self._known = read
        for after, last, of_page in pages:
            if newest - last <= LATE:
                break
            self._after = after
            self._known = self._known - of_page


def _print_line(line: dict[str, Any], *, as_json: bool) -> None:
    from hocket.cli.drawing.amounts import local_clock
    from hocket.cli.terminal.console import out, print_json_line

    if as_json:
        print_json_line(line)
        return
    fields = " ".join(f"{name}={_value(one)}" for name, one in (line["fields"] or {}).items())
    attempt = f" #{line['attempt']}" if line["attempt"] > 1 else ""
    text = line["text"] if line["text"] is not None else "(withheld)"
    said = f"{local_clock(line['at'])} {line['level']:<8} {line['step']}{attempt}  {text}"
    out.print(f"{said}  {fields}".rstrip(), soft_wrap=True)


def _value(value: Any) -> str:
    if isinstance(value, str) and " " not in value:
        return value
    return json.dumps(value, ensure_ascii=False)
