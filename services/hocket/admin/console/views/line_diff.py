"""Two texts side by side, line by line. Pure."""

from dataclasses import dataclass
from difflib import SequenceMatcher

MAX_LINES = 1_000
"""The maximum number of lines compared of each text."""
AROUND = 3
"""Lines shown before and after a change."""


@dataclass(frozen=True, slots=True)
class LinePair:
    """A line of each text, None on a side without one. A `gap` stands for omitted equal lines."""

    left: str | None
    right: str | None
    same: bool
    gap: int = 0


@dataclass(frozen=True, slots=True)
class LineDiff:
    """The difference between two texts."""

    pairs: list[LinePair]
    truncated: bool
    equal: bool
    """Whether all of both is equal, including what is not compared line by line."""

    @property
    def same(self) -> bool:
        """Whether the compared parts are equal."""
        return all(pair.same for pair in self.pairs)


def diff_of(left: str, right: str, *, equal: bool | None = None) -> LineDiff:
    """Return two texts side by side; of equal parts, only the lines around changes. If the texts were
    cut, `equal` tells whether the whole ones are equal."""
    ours, theirs = left.splitlines(), right.splitlines()
    truncated = max(len(ours), len(theirs)) > MAX_LINES
    ours, theirs = ours[:MAX_LINES], theirs[:MAX_LINES]
    pairs: list[LinePair] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, ours, theirs).get_opcodes():
        if tag == "equal":
            is_last = i2 == len(ours) and j2 == len(theirs)
            pairs += _same(ours[i1:i2], first=i1 == 0 and j1 == 0, last=is_last)
            continue
        for at in range(max(i2 - i1, j2 - j1)):
            before = ours[i1 + at] if i1 + at < i2 else None
            after = theirs[j1 + at] if j1 + at < j2 else None
            pairs.append(LinePair(before, after, same=False))
    return LineDiff(pairs, truncated, left == right if equal is None else equal)


def _same(lines: list[str], *, first: bool, last: bool) -> list[LinePair]:
    head = 0 if first else AROUND
    tail = 0 if last else AROUND
    if len(lines) <= head + tail + 1 or (first and last):
        return [LinePair(line, line, same=True) for line in lines]
    shown = [LinePair(line, line, same=True) for line in lines[:head]]
    shown.append(LinePair(None, None, same=True, gap=len(lines) - head - tail))
    return shown + [LinePair(line, line, same=True) for line in lines[len(lines) - tail :]]
