"""The terminal: tables and lines on standard output, notes on standard error."""

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from rich.text import Text

from hocket.cli.terminal.safe_text import SafeConsole, visible_json
from hocket.cli.terminal.tables import Table

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
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    numbers: Collection[str] = (),
    texts: Collection[str] = (),
) -> None:
    """Print rows under column headings; the columns in `numbers` are right-aligned. On a terminal that
    is too narrow, those in `texts` are shortened; elsewhere each row is one line."""
    width = out.width if out.is_terminal and sys.stdout.isatty() else None
    print_lines(Table(columns, rows, numbers, texts).lines(out, width))


def print_json(value: Any) -> None:
    """Print a JSON value for programs: with colours on a terminal, and otherwise plain, whatever
    FORCE_COLOR says. Where standard output is not UTF-8, it is ASCII."""
    if out.is_terminal and sys.stdout.isatty():
        out.print_json(json.dumps(value))
        return
    sys.stdout.write(_plain_json(value, indent=2) + "\n")


def print_json_line(value: Any) -> None:
    """Print a JSON value for programs as one line. Where standard output is not UTF-8, it is ASCII."""
    sys.stdout.write(_plain_json(value, indent=None) + "\n")
    sys.stdout.flush()


def _plain_json(value: Any, *, indent: int | None) -> str:
    is_utf8 = (sys.stdout.encoding or "utf8").lower().replace("-", "") == "utf8"
    return visible_json(json.dumps(value, indent=indent, ensure_ascii=not is_utf8))


def print_document(text: str) -> None:
    """Print a document that other commands read: in UTF-8, whatever the encoding of standard output."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()
