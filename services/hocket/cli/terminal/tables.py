"""Tables as lines of text, for a terminal of some width and for programs.

On a terminal that is too narrow, texts become shorter: the last column is folded into several lines, and
other texts are cut in the middle (`…`), down to a least width. If the table is still too wide, its rows
continue on an indented line. Ids, numbers, states and times are never cut. For programs, each row is one
line, with all of its text, and begins with that of the first column.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from hocket.cli.terminal.safe_text import visible

GAP, INDENT = 2, 4
"""Spaces between columns, and before what continues a row."""
LEAST_CUT_CELLS, LEAST_FOLDED_CELLS = 16, 24
"""Texts are not made narrower: one that is cut, and one that is folded."""

Cells = Sequence[Text]
Bands = Sequence[Sequence[int]]
"""The places of the columns on each line of a row; usually there is one line."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under column headings. The columns in `numbers` are right-aligned; those in `texts` may be
    cut or folded."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Text]]
    numbers: Collection[str] = ()
    texts: Collection[str] = ()

    def lines(self, console: Console, width: int | None) -> Iterator[Text]:
        """Yield its lines, for a terminal of that width; None is for programs."""
        rows = [[self._cell(cell, place, width) for place, cell in enumerate(row)]
                for row in self.rows]  # fmt: skip
        headings = [Text(column, "bold") for column in self.columns]
        widths = [
            max(max(map(cell_len, cell.plain.split("\n"))) for cell in column)
            for column in zip(headings, *rows, strict=True)
        ]
        bands: Bands = [range(len(widths))]
        if width is not None and _total(widths) > width:
            fitted = self._fitted(widths, width)
            widths, bands = self._banded(widths, width) if fitted is None else (fitted, bands)
        table = self if width is not None else self._with_first_to_left()
        for row in (headings, *rows):
            yield from table._row_lines(console, row, widths, bands)

    def _with_first_to_left(self) -> "Table":
        """Return it with a first column that is left-aligned: `cut -d' ' -f1` must find its value."""
        return replace(self, numbers=[one for one in self.numbers if one != self.columns[0]])

    def _cell(self, cell: str | Text, place: int, width: int | None) -> Text:
        """Return a cell as it is shown; only what can be folded keeps its line breaks."""
        shown = cell if isinstance(cell, Text) else Text(cell)
        text = visible(shown.plain).replace("\t", " ")
        if width is None or not self._is_folded(place):
            text = text.replace("\n", " ")
        return Text(text, shown.style)

    def _is_folded(self, place: int) -> bool:
        return place == len(self.columns) - 1 and self.columns[place] in self.texts

    def _least(self, place: int, cells: int) -> int:
        """Return to how many cells a column of that many can be narrowed."""
        name = self.columns[place]
        if name not in self.texts:
            return cells
        least = LEAST_FOLDED_CELLS if self._is_folded(place) else LEAST_CUT_CELLS
        return min(cells, max(least, cell_len(name)))

    def _fitted(self, widths: Sequence[int], width: int) -> list[int] | None:
        """Return widths that fit: the widest texts are narrowed first. None if they do not fit."""
        least = [self._least(place, cells) for place, cells in enumerate(widths)]
        if _total(least) > width:
            return None
        fitted = [max(low, min(cells, width)) for low, cells in zip(least, widths, strict=True)]
        while _total(fitted) > width:
            narrowed = [place for place, cells in enumerate(fitted) if cells > least[place]]
            fitted[max(narrowed, key=fitted.__getitem__)] -= 1
        return fitted

    def _banded(self, widths: Sequence[int], width: int) -> tuple[list[int], Bands]:
        """Return the width of each column, and on which line of a row it is. Texts are cut only if they
        are wider than a line, or if that saves one."""
        least = [self._least(place, cells) for place, cells in enumerate(widths)]
        whole, cut = (
            [
                cells if self._is_folded(place) else max(least[place], min(cells, most))
                for place, cells in enumerate(widths)
            ]
            for most in (width - INDENT, 0)
        )
        return min((self._placed(one, width) for one in (whole, cut)), key=lambda it: len(it[1]))

    def _placed(self, widths: Sequence[int], width: int) -> tuple[list[int], Bands]:
        bands: list[list[int]] = [[]]
        left = width
        placed: list[int] = []
        for place, cells in enumerate(widths):
            needed = self._least(place, cells) if self._is_folded(place) else cells
            if bands[-1] and needed > left:
                bands.append([])
                left = width - INDENT
            bands[-1].append(place)
            placed.append(max(needed, min(cells, left)) if self._is_folded(place) else cells)
            left -= placed[-1] + GAP
        return placed, bands

    def _row_lines(
        self, console: Console, row: Cells, widths: Sequence[int], bands: Bands
    ) -> Iterator[Text]:
        for number, band in enumerate(bands):
            parts = [self._parts(console, row[place], place, widths[place]) for place in band]
            if number and not any(part.plain for cell in parts for part in cell):
                continue
            for line in zip_longest(*parts, fillvalue=Text()):
                yield self._joined(line, [(place, widths[place]) for place in band], number)

    def _parts(self, console: Console, cell: Text, place: int, cells: int) -> list[Text]:
        """Return the lines of one cell."""
        if self._is_folded(place):
            return list(cell.wrap(console, max(1, cells), overflow="fold")) or [Text()]
        return [_cut(cell, cells)]

    def _joined(self, line: Cells, columns: Sequence[tuple[int, int]], number: int) -> Text:
        joined = Text(" " * INDENT if number else "")
        for index, (cell, (place, cells)) in enumerate(zip(line, columns, strict=True)):
            spaces = " " * max(0, cells - cell.cell_len)
            is_number = self.columns[place] in self.numbers
            joined.append(" " * GAP if index else "")
            joined.append(spaces if is_number else "").append_text(cell)
            joined.append("" if is_number else spaces)
        joined.rstrip()
        return joined


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _cut(cell: Text, cells: int) -> Text:
    """Return a text with at most that many cells. Names differ at their ends, so its middle is cut."""
    if cell.cell_len <= cells:
        return cell
    after = ""
    for char in reversed(cell.plain):
        if cell_len(char + after) > (cells - 1) // 3:
            break
        after = char + after
    before = set_cell_size(cell.plain, cells - 1 - cell_len(after)).rstrip()
    return Text(f"{before}…{after}", cell.style)
