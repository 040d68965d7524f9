"""The terminal: tables and lines on standard output, notes on standard error."""

import json
import sys
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Any

from rich.table import Table
from rich.text import Text

from hocket.cli.terminal.safe_text import SafeConsole, visible_json

MAX_LINE_CELLS = 10_000
MIN_DRAWING_CELLS, USUAL_DRAWING_CELLS = 60, 100
"""Drawings are not narrower: on a terminal, and elsewhere."""

out = SafeConsole(highlight=False, soft_wrap=True)
notes = SafeConsole(stderr=True, highlight=False, soft_wrap=True)


def drawing_cells(given: int | None, *, most: int) -> int:
    """Return how wide a drawing is: as given, otherwise as the terminal, and at most `most`."""
    if given is not None:
        return given
    least = MIN_DRAWING_CELLS if out.is_terminal else USUAL_DRAWING_CELLS
    return max(least, min(out.width, most))


def print_lines(lines: Iterable[Text]) -> None:
    """Print lines as they are."""
    for line in lines:
        out.print(line)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str | Text]], *, numbers: Sequence[str] = ()
) -> None:
    """Print rows under column headings; the columns in `numbers` are right-aligned. On a terminal, the
    last column wraps if necessary; elsewhere each row is one line."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in numbers else "left",
            no_wrap=column != columns[-1] or not out.is_terminal,
            overflow="fold" if column == columns[-1] else "ignore",
        )
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(_in_a_line(cell)) for cell in row))
    if out.is_terminal:
        out.print(table, soft_wrap=False)
        return
    text = StringIO()
    SafeConsole(file=text, highlight=False, width=MAX_LINE_CELLS).print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in text.getvalue().split("\n")[:-1])


def _in_a_line(cell: str) -> str:
    """Return a cell as it is for a terminal, and elsewhere without line breaks: each row is one line."""
    return cell if out.is_terminal else cell.replace("\n", " ")


def print_json(value: Any) -> None:
    """Print a JSON value for programs: with colours on a terminal, and otherwise plain, whatever
    FORCE_COLOR says. Where standard output is not UTF-8, it is ASCII."""
    if out.is_terminal and sys.stdout.isatty():
        out.print_json(json.dumps(value))
        return
    is_utf8 = (sys.stdout.encoding or "utf8").lower().replace("-", "") == "utf8"
    text = json.dumps(value, indent=2, ensure_ascii=not is_utf8)
    sys.stdout.write(visible_json(text) + "\n")


def print_document(text: str) -> None:
    """Print a document that other commands read: in UTF-8, whatever the encoding of standard output."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()
