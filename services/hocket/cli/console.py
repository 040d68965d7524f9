"""The terminal: tables and lines on standard output, notes on standard error."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

out = Console(highlight=False, soft_wrap=True)
notes = Console(stderr=True, highlight=False, soft_wrap=True)


def print_lines(lines: Iterable[Text]) -> None:
    """Print lines as they are."""
    for line in lines:
        out.print(line)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str | Text]], *, numbers: Sequence[str] = ()
) -> None:
    """Print rows under column heads; the columns in `numbers` are flush right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    out.print(table, soft_wrap=False)


def print_json(value: Any) -> None:
    """Print a JSON value for programs: on a terminal with colours, else plain."""
    if out.is_terminal:
        out.print_json(json.dumps(value))
    else:
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
