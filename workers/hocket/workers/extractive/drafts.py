"""Drafts: sentences with citation markers. Pure.

`[P2]` cites the second passage, `[S1.r3]` the third row of the first query result, `[S1]` any of its
rows; several citations are written `[P1, S2.r1]` or `[P1][S2.r1]`. Verbatim text is in double quotes.
Models are asked to use the same markers.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal

from hocket.workers.extractive.words import sentences

MARKER: Final = re.compile(
    r"\[((?:P\d{1,6}|S\d{1,6}(?:\.r\d{1,6})?)(?:\s*[,;]\s*(?:P\d{1,6}|S\d{1,6}(?:\.r\d{1,6})?))*)\]"
)
_MARKED: Final = re.compile(rf"\s*{MARKER.pattern}")
_BEFORE_MARKED: Final = re.compile(rf"(?<!\s)\s*{MARKER.pattern}|{MARKER.pattern}")

Status = Literal["answered", "partial", "not_in_data"]

NOT_IN_DATA: Final = "Not in the data"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence without its markers, and the ids it cites."""

    text: str
    citations: tuple[str, ...]

    def rendered(self) -> str:
        """Return the sentence with its markers at the end."""
        return f"{self.text} [{', '.join(self.citations)}]" if self.citations else self.text


@dataclass(frozen=True, slots=True)
class Draft:
    """An answer in sentences; `missing` lists the parts of the question that nothing answers."""

    status: Status
    sentences: tuple[Sentence, ...]
    missing: tuple[str, ...] = field(default=())

    @property
    def text(self) -> str:
        """The answer as text, one sentence per line."""
        return "\n".join(sentence.rendered() for sentence in self.sentences)

    def as_json(self) -> dict[str, Any]:
        """Return the draft as plain JSON."""
        return {
            "status": self.status,
            "text": self.text,
            "sentences": [
                {"text": sentence.text, "citations": list(sentence.citations)}
                for sentence in self.sentences
            ],
            "missing": list(self.missing),
        }


def read(text: str) -> list[Sentence]:
    """Return the sentences of a written answer, including markers that follow a full stop."""
    return [_sentence(text[start:end]) for start, end in _spans(text)]


def quoted(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of each text in double quotes."""
    return [match.span(1) for match in re.finditer(r"[\"“”]([^\"“”]*)[\"“”]", text)]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    taken = 0
    for line in re.finditer(r"[^\n]+", text):
        for start, end in _in_line(line[0]):
            begin = max(start + line.start(), taken)
            finish = end + line.start()
            while after := _MARKED.match(text, finish, line.end()):
                finish = after.end()
            if begin < finish and text[begin:finish].strip():
                yield begin, finish
            taken = max(taken, finish)


def _in_line(line: str) -> Iterator[tuple[int, int]]:
    """Yield the sentences of a line, without losing markers, quotes or text between sentences."""
    hidden = list(line)
    for start, end in (*quoted(line), *(marker.span() for marker in MARKER.finditer(line))):
        hidden[start:end] = "X" * (end - start)
    starts = [start for start, _ in sentences("".join(hidden))]
    edges = [0, *starts[1:], len(line)]
    yield from pairwise(edges)


def _sentence(text: str) -> Sentence:
    ids = [one.strip() for match in MARKER.finditer(text) for one in re.split(r"[,;]", match[1])]
    return Sentence(_BEFORE_MARKED.sub("", text).strip(), tuple(dict.fromkeys(ids)))


def rows_cited(
    ids: Sequence[str],
) -> list[tuple[str, int | None]]:
    """Return (table, row) of the ids that cite rows; rows count from 1, None means any row."""
    found: list[tuple[str, int | None]] = []
    for one in ids:
        if one.startswith("S"):
            table, _, row = one.partition(".r")
            found.append((table, int(row) if row else None))
    return found
