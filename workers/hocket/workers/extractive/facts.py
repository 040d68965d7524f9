"""A row of a query result as a sentence: `Tungsten \N{EN DASH} melting point: 3695 K; period: 6`. Pure.

The first cell is the subject if it is text (otherwise the subject is `Result`); every other cell that is
not NULL becomes `label: value`. The label is the column's name, except that the columns `property`,
`value` and `unit` form one figure: the property is its label, and the unit follows it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from hocket.workers.extractive.figures import number, written

SUBJECT_DASH: Final = " \u2013 "
BETWEEN: Final = "; "
NO_SUBJECT: Final = "Result"
MAX_CELL_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class Fact:
    """One `label: value` of a row; `value` is None if the cell is text."""

    label: str
    text: str
    value: Decimal | None
    unit: str

    def rendered(self) -> str:
        """Return the value with its unit."""
        return f"{self.text} {self.unit}" if self.unit else self.text


def row_sentence(columns: Sequence[str], row: Sequence[Any]) -> str:
    """Return a row as a sentence; empty for a row of NULLs."""
    facts = BETWEEN.join(f"{fact.label}: {fact.rendered()}" for fact in facts_of(columns, row))
    return f"{subject_of(row) or NO_SUBJECT}{SUBJECT_DASH}{facts}" if facts else subject_of(row)


def subject_of(row: Sequence[Any]) -> str:
    """Return the subject of a row: its first cell, if that is text."""
    first = row[0] if row else None
    return plain(first) if isinstance(first, str) and number(first) is None else ""


def facts_of(columns: Sequence[str], row: Sequence[Any]) -> list[Fact]:
    """Return the facts of a row, without its subject."""
    cells = dict(zip((column.casefold() for column in columns), row, strict=False))
    named = _names_value(cells)
    found = []
    for place, (column, cell) in enumerate(zip(columns, row, strict=False)):
        key = column.casefold()
        if cell is None or (place == 0 and subject_of(row)):
            continue
        if named and key in ("property", "unit"):
            continue
        is_value = named and key == "value"
        label = str(cells["property"]) if is_value else column.replace("_", " ")
        unit = str(cells.get("unit") or "") if is_value else ""
        found.append(Fact(plain(label), _cell(cell), number(cell), plain(unit)))
    return found


def _names_value(cells: dict[str, Any]) -> bool:
    return isinstance(cells.get("property"), str) and cells.get("value") is not None


def _cell(cell: Any) -> str:
    value = number(cell)
    return plain(str(cell)) if value is None else written(value)


def plain(text: str) -> str:
    """Return text on one line, without anything that would read as one of our markers."""
    one_line = " ".join(text.split())[:MAX_CELL_CHARS]
    for mark, instead in ((";", ","), ("\u2013", "-"), ("[", "("), ("]", ")"), ('"', "'")):
        one_line = one_line.replace(mark, instead)
    return one_line
