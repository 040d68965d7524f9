"""Columns of a drawing that fit into its width: texts are shortened, numbers are not."""

from collections.abc import Mapping, Sequence


def fitted(widths: Sequence[int], least: Mapping[int, int], cells: int) -> list[int]:
    """Return the widths of columns that together have at most `cells`, if that is possible: those in
    `least` are narrowed to no less than what it says, always the widest of them."""
    found = list(widths)
    while sum(found) > cells:
        wide = [place for place, fewest in least.items() if found[place] > fewest]
        if not wide:
            break
        found[max(wide, key=lambda place: found[place])] -= 1
    return found


def shortened(text: str, cells: int) -> str:
    """Return a text in at most that many cells, with `…` for what is left out."""
    return text if len(text) <= cells else text[: max(0, cells - 1)] + "…"
