"""Answer a question by selecting: sentences of passages and rows of query results. Pure.

For every part of the question, what covers enough of its words is taken over as it is and cited; rare
words count more, and a word that no evidence has counts most. A part that nothing covers is named as
not in the data. Equal input gives an equal draft.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from hocket.schemas.messages import Document
from hocket.workers.extractive.drafts import NOT_IN_DATA, Draft, Sentence
from hocket.workers.extractive.facts import plain, row_sentence
from hocket.workers.extractive.figures import figures
from hocket.workers.extractive.questions import Part, parts
from hocket.workers.extractive.words import covers, sentences, stem, stems, words

MIN_PASSAGE_COVERAGE: Final = 0.7
MIN_TABLE_COVERAGE: Final = 0.6
MAX_SENTENCES: Final = 3
"""Sentences of passages per part."""
NEXT_BEST: Final = 0.9
"""How close to the best sentence further ones must be."""
MAX_ROWS: Final = 10
"""Rows of one query result."""
UNFITTING: Final = 0.75
"""What a sentence is worth that has no figure where a figure is asked for, or no name for a name."""


def answer(question: str, passages: Sequence[Document], tables: Sequence[Document]) -> Draft:
    """Return a draft whose every sentence is quoted from a passage or read from a row."""
    evidence = _Evidence(passages, tables)
    written: list[Sentence] = []
    missing: list[str] = []
    before: frozenset[str] = frozenset()
    asked = parts(question)
    for part in asked:
        own = frozenset(word.stem for word in part.content())
        inherited = before if part.points_back else frozenset()
        found = [*_from_tables(own, inherited, part, evidence)]
        found += _from_passages(own, inherited, part, evidence)
        if found:
            written.extend(sentence for sentence in found if sentence not in written)
        else:
            missing.append(part.text)
        before = own or before
    if not written:
        return Draft("not_in_data", (Sentence(f"{NOT_IN_DATA}: nothing found answers this.", ()),))
    written.extend(
        Sentence(f"{NOT_IN_DATA}: {plain(text).rstrip('?.! ')}.", ()) for text in missing
    )
    return Draft("partial" if missing else "answered", tuple(written), tuple(missing))


# ---- evidence ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Unit:
    """A sentence or a row: what it says, what it cites, its own words and those of its heading."""

    text: str
    citation: str
    own: frozenset[str]
    context: frozenset[str]
    title: str = ""


class _Evidence:
    """All sentences and rows, and how rare their words are."""

    def __init__(self, passages: Sequence[Document], tables: Sequence[Document]) -> None:
        self.sentences = [unit for passage in passages for unit in _sentences_of(passage)]
        self.tables = [(table, list(_rows_of(table))) for table in tables if table.rows]
        rows = [unit for _, units in self.tables for unit in units]
        self._units = [unit.own | unit.context for unit in [*self.sentences, *rows]]

    def weight(self, one: str) -> float:
        """Return how much a word says; most for a word that is nowhere."""
        having = sum(1 for unit in self._units if covers(unit, one))
        return math.log(1 + (len(self._units) + 1) / (having + 0.5))


def _sentences_of(passage: Document) -> Iterator[_Unit]:
    context = stems(passage.title)
    for start, end in sentences(passage.text):
        text = passage.text[start:end]
        yield _Unit(text, passage.id, stems(text), context, passage.title)


def _rows_of(table: Document) -> Iterator[_Unit]:
    about = " ".join([table.title, table.source, *table.columns]).replace("_", " ")
    context = stems(about)
    for number, row in enumerate(table.rows, 1):
        text = row_sentence(table.columns, row)
        if text:
            own = stems(" ".join(str(cell) for cell in row if cell is not None)) | stems(text)
            yield _Unit(text, f"{table.id}.r{number}", own, context)


def _coverage(asked: frozenset[str], present: frozenset[str], evidence: _Evidence) -> float:
    weights = {one: evidence.weight(one) for one in asked}
    total = sum(weights.values())
    return sum(weights[one] * covers(present, one) for one in asked) / total if total else 0.0


# ---- rows -------------------------------------------------------------------------------------


def _from_tables(
    own: frozenset[str], inherited: frozenset[str], part: Part, evidence: _Evidence
) -> Iterator[Sentence]:
    """Yield the rows of the tables that are about a part, those that fit it best."""
    for _, units in evidence.tables:
        everything = frozenset().union(*(unit.own | unit.context for unit in units))
        if not units or _coverage(own, everything, evidence) < MIN_TABLE_COVERAGE:
            continue
        if inherited and not any(covers(everything, one) for one in inherited):
            continue
        asked = own | inherited
        scores = [_coverage(asked, unit.own, evidence) for unit in units]
        best = max(scores)
        fitting = [u for u, score in zip(units, scores, strict=True) if score >= best - 1e-9]
        limit = 1 if _asks_for_amount(part) else MAX_ROWS
        for unit in fitting[:limit]:
            yield Sentence(f"{unit.text}.", (unit.citation,))


def _asks_for_amount(part: Part) -> bool:
    spoken = [word.text.casefold() for word in part.words[:6]]
    return any(pair in (("how", "many"), ("how", "much")) for pair in pairwise(spoken))


# ---- sentences --------------------------------------------------------------------------------


def _from_passages(
    own: frozenset[str], inherited: frozenset[str], part: Part, evidence: _Evidence
) -> list[Sentence]:
    asked = own | inherited
    scored = []
    for unit in evidence.sentences:
        if not any(covers(unit.own, one) for one in own):
            continue  # it would only be its heading that fits
        score = _coverage(asked, unit.own | unit.context, evidence) * _fit(part, unit)
        if score >= MIN_PASSAGE_COVERAGE:
            scored.append((score, unit))
    scored.sort(key=lambda pair: -pair[0])
    best = [unit for score, unit in scored if score >= scored[0][0] * NEXT_BEST]
    return [Sentence(_quote(unit), (unit.citation,)) for unit in _distinct(best)[:MAX_SENTENCES]]


def _distinct(units: Sequence[_Unit]) -> list[_Unit]:
    return list({unit.text: unit for unit in reversed(units)}.values())[::-1]


def _fit(part: Part, unit: _Unit) -> float:
    """Return 1 where a sentence has the kind of thing that is asked for, less where it has not."""
    spoken = [word.text.casefold() for word in part.words[:4]]
    if ("when" in spoken or "year" in spoken or _asks_for_amount(part)) and not figures(unit.text):
        return UNFITTING
    if any(w in ("who", "whom", "whose") for w in spoken) and not _has_name(unit):
        return UNFITTING
    return 1.0


def _has_name(unit: _Unit) -> bool:
    """Tell whether a word inside the sentence has a capital letter and is not its subject."""
    subject = stems(unit.title)
    inner = [word for word in words(unit.text) if word.start > 0 and word.text[0].isupper()]
    return any(len(word.text) > 1 and word.stem not in subject for word in inner)


def _quote(unit: _Unit) -> str:
    """Return a sentence in quotes, under its heading where it does not name its subject itself.

    A heading with a figure (`page 3`) is left out: outside of quotes it would need evidence of its own.
    """
    text = " ".join(unit.text.split())
    for mark in ('"', "\u201c", "\u201d"):
        text = text.replace(mark, "'")
    subject = {stem(word.text.casefold()) for word in words(unit.title)}
    named = subject <= {word.stem for word in words(unit.text)} or bool(figures(unit.title))
    return f'"{text}"' if named else f'{unit.title}: "{text}"'
