"""Cuts a document into chunks that are searched and cited. Pure.

For every chunk `document.text[chunk.start:chunk.end] == chunk.text`. A chunk never has more than
`max_chars`; it ends at the best break it can find (paragraph, line, sentence, word) and the next one of
the same section begins up to `overlap_chars` before that. Short neighbouring sections share a chunk.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hocket.workers.retrieval.extraction import Extracted, Section

VERSION: Final = 1
"""Increased when the same text would give different chunks."""

_BREAKS: Final = (
    re.compile(r"\n[ \t]*\n"),
    re.compile(r"\n"),
    re.compile(r"[.!?][\"')\]]*\s"),
    re.compile(r"\s"),
)
_NO_BLANK: Final = re.compile(r"\S")
_WORD_START: Final = re.compile(r"(?<=\s)\S")
_SENTENCE_START: Final = re.compile(r"(?:(?<=[.!?]\s)|(?<=\n))\S")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large chunks are, in characters. Sections that are shorter than `join_chars` together share
    a chunk."""

    max_chars: int = 1_200
    overlap_chars: int = 150
    join_chars: int = 400

    def __post_init__(self) -> None:
        assert 0 <= self.overlap_chars <= self.max_chars // 2
        assert 0 <= self.join_chars <= self.max_chars


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document; `id` is the hash of its place and its text."""

    id: str
    text: str
    start: int
    end: int
    title: str
    heading_path: tuple[str, ...]


DEFAULT_SIZES: Final = Sizes()


def chunks(document: Extracted, source: str, sizes: Sizes = DEFAULT_SIZES) -> list[Chunk]:
    """Return the chunks of a document, in order."""
    text = document.text
    return [
        Chunk(
            _id(source, start, text[start:end]), text[start:end], start, end, document.title, path
        )
        for begin, finish, path in _parts(document, sizes)
        for start, end in _pieces(text, begin, finish, sizes)
    ]


def _id(source: str, start: int, text: str) -> str:
    key = f"{source}\0{start}\0{text}".encode()
    return hashlib.blake2b(key, digest_size=12).hexdigest()


def _parts(document: Extracted, sizes: Sizes) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield (start, end, heading path) of sections; short ones are joined with those after them.

    A heading without a body is always joined with what follows it.
    """
    text = document.text
    ends = [*(section.start for section in document.sections[1:]), len(text)]
    joined: list[tuple[Section, int]] = []
    for section, end in zip(document.sections, ends, strict=True):
        if joined and end - joined[0][0].start > sizes.join_chars and _bodies(text, joined):
            yield _joined(text, joined)
            joined = []
        joined.append((section, end))
    if joined:
        yield _joined(text, joined)


def _bodies(text: str, parts: list[tuple[Section, int]]) -> list[Section]:
    return [part for part, end in parts if len(text[part.start : end].strip().splitlines()) > 1]


def _joined(text: str, parts: list[tuple[Section, int]]) -> tuple[int, int, tuple[str, ...]]:
    sections = _bodies(text, parts) or [section for section, _ in parts]
    paths = [section.heading_path for section in sections if section.heading_path]
    common: list[str] = []
    for names in zip(*paths, strict=False):
        if len(set(names)) > 1:
            break
        common.append(names[0])
    return parts[0][0].start, parts[-1][1], tuple(common)


def _pieces(text: str, begin: int, finish: int, sizes: Sizes) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the pieces of a part, without surrounding whitespace."""
    start = _skip_blanks(text, begin, finish)
    while start < finish:
        end = _end(text, start, finish, sizes)
        trimmed = start + len(text[start:end].rstrip())
        yield start, trimmed
        if end >= finish or _NO_BLANK.search(text, end, finish) is None:
            return
        start = _next_start(text, start, trimmed, _skip_blanks(text, end, finish), sizes)


def _skip_blanks(text: str, start: int, finish: int) -> int:
    found = _NO_BLANK.search(text, start, finish)
    return finish if found is None else found.start()


def _end(text: str, start: int, finish: int, sizes: Sizes) -> int:
    limit = start + sizes.max_chars
    if finish <= limit or _NO_BLANK.search(text, limit, finish) is None:
        return min(finish, limit)
    least = start + sizes.max_chars // 2
    for pattern in _BREAKS:
        ends = [match.end() for match in pattern.finditer(text, least, limit)]
        if ends:
            return ends[-1]
    return limit


def _next_start(text: str, start: int, end: int, after: int, sizes: Sizes) -> int:
    """Return where the next piece begins: at a sentence inside the overlap, or at a word, or after it.

    It is always beyond `start`, so that the cutting terminates.
    """
    earliest = max(end - sizes.overlap_chars, start + 1)
    for pattern in (_SENTENCE_START, _WORD_START):
        found = pattern.search(text, earliest, end)
        if found is not None:
            return found.start()
    return after
