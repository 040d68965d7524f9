"""The critical path of a run: where its time was spent, by kind, then one row per step on the path.

A row's bar shows when the step was on the path; its marks show the kind of time (see MARKS). Steps too
short to be seen are counted in the last line.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.text import Text

from hocket.cli.drawing.amounts import count, duration
from hocket.cli.drawing.columns import fitted, shortened

MARKS: Mapping[str, str] = {
    "coordinator": "·",
    "queue": "░",
    "execution": "█",
    "gateway_queue": "▒",
    "model": "▓",
    "backoff": "~",
    "cache": "=",
    "waiting": "─",
}
OTHER = "?"
MIN_BAR_CELLS = 12
MIN_STEP_CELLS, MAX_STEP_CELLS = 10, 32
MAX_ROWS = 40
"""The maximum number of steps drawn: the longest ones, in the order of the path."""

Json = Mapping[str, Any]


def critical_path(path: Json | None, *, width: int) -> list[Text]:
    """Return the lines of a run's critical path in `width` cells; empty for a run without one."""
    if not path or not path["segments"]:
        return []
    total_ms = sum(path["by_kind"].values())
    visits = [
        (step, list(pieces)) for step, pieces in groupby(path["segments"], lambda s: s["step"])
    ]
    longest = sorted(range(len(visits)), key=lambda i: -_ms(visits[i][1]))[:MAX_ROWS]
    drawn = [visits[i] for i in sorted(longest)]
    rows = [HEAD, *(_row(step, pieces, total_ms) for step, pieces in drawn)]
    natural = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    widths = fitted(natural, {0: MIN_STEP_CELLS}, width - 2 * len(HEAD) - MIN_BAR_CELLS)
    cells = max(MIN_BAR_CELLS, width - sum(widths) - 2 * len(widths))
    lines = [_kinds(path["by_kind"], total_ms)]
    head = _cells(HEAD, widths)
    head.append("0" + duration(total_ms).rjust(cells - 1))
    head.stylize("bold")
    lines.append(head)
    for row, (_, pieces) in zip(rows[1:], drawn, strict=True):
        line = _cells(row, widths)
        line.append(_bar(pieces, total_ms, cells))
        line.rstrip()
        lines.append(line)
    if len(drawn) < len(visits):
        rest_ms = total_ms - sum(_ms(pieces) for _, pieces in drawn)
        rest = f"and {count(len(visits) - len(drawn))} shorter visits, {duration(rest_ms)} in all"
        lines.append(Text(rest, "dim"))
    return lines


HEAD = ("CRITICAL PATH", "MOST OF IT", "TIME", "SHARE")
LEFT = 2
"""How many columns are left-aligned; the others are numbers."""


def _kinds(by_kind: Mapping[str, float], total_ms: float) -> Text:
    line = Text("where the time went: ")
    parts = [
        f"{MARKS.get(kind, OTHER)} {_name(kind)} {duration(ms)} ({_share(ms, total_ms)})"
        for kind, ms in by_kind.items()
    ]
    return line.append(", ".join(parts))


def _row(step: str, pieces: Sequence[Json], total_ms: float) -> tuple[str, ...]:
    by_kind: dict[str, float] = {}
    for piece in pieces:
        by_kind[piece["kind"]] = by_kind.get(piece["kind"], 0.0) + piece["ms"]
    most = max(by_kind, key=lambda kind: by_kind[kind])
    ms = _ms(pieces)
    return (shortened(step, MAX_STEP_CELLS), _name(most), duration(ms), _share(ms, total_ms))


def _bar(pieces: Sequence[Json], total_ms: float, cells: int) -> str:
    bar = [" "] * cells
    for piece in sorted(pieces, key=lambda piece: piece["ms"]):  # the longest piece wins a cell
        first = min(cells - 1, int(piece["from_ms"] / total_ms * cells)) if total_ms else 0
        end = piece["from_ms"] + piece["ms"]
        last = min(cells, int(end / total_ms * cells)) if total_ms else 0
        for place in range(first, max(first + 1, last)):
            bar[place] = MARKS.get(piece["kind"], OTHER)
    return "".join(bar)


def _cells(row: Sequence[str], widths: Sequence[int]) -> Text:
    return Text(
        "".join(
            (shortened(cell, width).ljust(width) if i < LEFT else cell.rjust(width)) + "  "
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
    )


def _ms(pieces: Sequence[Json]) -> float:
    total: float = sum(piece["ms"] for piece in pieces)
    return total


def _name(kind: str) -> str:
    return kind.replace("_", " ")


def _share(ms: float, total_ms: float) -> str:
    return f"{100 * ms / total_ms:.0f} %" if total_ms else "-"
