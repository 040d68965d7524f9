"""Answers a question by selecting sentences of passages and rows of query results. Pure.

For every part of the question, evidence that covers enough of its words is quoted unchanged and cited.
Rare words count more, and a word that no evidence has counts most. A part that nothing covers is
reported as not in the data. The same input always gives the same draft.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from operator import itemgetter
from typing import Final

from hocket.schemas.messages import Document
from hocket.workers.extractive.drafts import NOT_IN_DATA, Draft, Sentence
from hocket.workers.extractive.effort import Check, unbounded
from hocket.workers.extractive.facts import Fact, facts_of, plain, row_sentence, subject_of
from hocket.workers.extractive.figures import figures
from hocket.workers.extractive.questions import GENERIC, RANKING, Part, parts
from hocket.workers.extractive.words import covers, sentences, stem, stems, words

MIN_PASSAGE_COVERAGE: Final = 0.7
MIN_TABLE_COVERAGE: Final = 0.7
SURE_COVERAGE: Final = 0.95
"""The coverage that a sentence needs if rows already answer the part."""
MAX_SENTENCES: Final = 3
"""The most sentences of passages per part."""
NEXT_BEST: Final = 0.9
"""How close further sentences must be to the best one."""
MAX_ROWS: Final = 10
"""The most rows of one query result."""
UNFITTING: Final = 0.75
"""The weight of a sentence without a figure or name if the part asks for one."""


def answer(
    question: str,
    passages: Sequence[Document],
    tables: Sequence[Document],
    check: Check = unbounded,
) -> Draft:
    """Return a draft in which every sentence is quoted from a passage or read from a row. `check` is
    called again and again, and may raise to stop the work."""
    evidence = _Evidence(passages, tables, check)
    said: dict[Sentence, None] = {}
    missing: list[str] = []
    subject: frozenset[str] = frozenset()
    for part in parts(question):
        asked = _Asked(part, subject if part.points_back else frozenset())
        rows = _from_tables(asked, evidence)
        quotes = _from_passages(asked, evidence, answered=bool(rows))
        found = [*(_row(unit) for unit in rows), *map(_quote, quotes)]
        if found:
            said |= dict.fromkeys(found)
        else:
            missing.append(part.text)
        subject = evidence.subject(asked.own, rows) or subject
    written = list(said)
    if not written:
        return Draft("not_in_data", (Sentence(f"{NOT_IN_DATA}: nothing found answers this.", ()),))
    written.extend(
        Sentence(f"{NOT_IN_DATA}: {plain(text).rstrip('?.! ')}.", ()) for text in missing
    )
    return Draft("partial" if missing else "answered", tuple(written), tuple(missing))


class _Asked:
    """A part of the question: its own words, and the subject that it takes from the previous part."""

    def __init__(self, part: Part, inherited: frozenset[str]) -> None:
        self.part = part
        self.inherited = inherited
        self.own = frozenset(word.stem for word in part.content())
        self.names = frozenset(word.stem for word in part.names())
        self.required = self.names | {word.stem for word in part.objects()}
        """The words that a sentence or its heading must have."""
        self.unranked = frozenset(
            word.stem for word in part.content() if word.text.casefold() not in RANKING
        )
        self.all = self.own | self.inherited
        """All words that evidence should have."""
        self.telling = self.own - GENERIC or self.own
        """Of its own words, those of which a sentence must have one."""


# ---- evidence ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Unit:
    """A sentence or a row: its text, its citation, its own words and those of its heading.

    `subject` is the row's subject or the passage's title.
    """

    text: str
    citation: str
    own: frozenset[str]
    context: frozenset[str]
    subject: str = ""
    facts: tuple[Fact, ...] = ()

    def covers(self, one: str) -> float:
        """Return how far it covers a word, together with its heading."""
        return max(covers(self.own, one), covers(self.context, one))


class _Evidence:
    """All sentences and rows, and how rare their words are."""

    def __init__(
        self, passages: Sequence[Document], tables: Sequence[Document], check: Check
    ) -> None:
        self.check = check
        of_passages = [list(_sentences_of(passage, check)) for passage in passages]
        self.sentences = [unit for units in of_passages for unit in units]
        self.tables = _with_their_words(tables, check)
        self._groups = [
            units for units in [*of_passages, *map(itemgetter(0), self.tables)] if units
        ]
        self._count = sum(map(len, self._groups))
        self._subjects = frozenset().union(
            *map(stems, {unit.subject for units in self._groups for unit in units})
        )
        self._weights: dict[str, float] = {}

    def subject(self, asked: frozenset[str], rows: Sequence[_Unit]) -> frozenset[str]:
        """Return what a part is about: the subjects that it names, or otherwise that of the first
        row."""
        return self._subjects & asked or (stems(rows[0].subject) if rows else frozenset())

    def weight(self, one: str) -> float:
        """Return the weight of a word; words that no evidence has weigh most."""
        if one not in self._weights:
            having = sum(_having(units, one) for units in self._groups)
            self._weights[one] = math.log(1 + (self._count + 1) / (having + 0.5))
            self.check()
        return self._weights[one]


def _having(units: Sequence[_Unit], one: str) -> int:
    """Return how many sentences of a passage, or rows of a table, cover a word. They have one
    heading."""
    if covers(units[0].context, one):
        return len(units)
    return sum(1 for unit in units if covers(unit.own, one))


def _with_their_words(
    tables: Sequence[Document], check: Check
) -> list[tuple[list[_Unit], frozenset[str]]]:
    """Return each table's rows, with the words of all tables that came from the same query.

    Two bindings of a query (gold and lead) answer a comparison together, not each alone.
    """
    rows = [list(_rows_of(table, check)) for table in tables]
    together: dict[tuple[str, str], set[str]] = {}
    for table, units in zip(tables, rows, strict=True):
        words_of = together.setdefault((table.title, table.source), set())
        words_of.update(*(unit.own for unit in units), *(unit.context for unit in units[:1]))
    frozen = {key: frozenset(words_of) for key, words_of in together.items()}
    return [
        (units, frozen[table.title, table.source])
        for table, units in zip(tables, rows, strict=True)
    ]


def _sentences_of(passage: Document, check: Check) -> Iterator[_Unit]:
    context = stems(passage.title)
    for start, end in sentences(passage.text):
        check()
        text = passage.text[start:end]
        yield _Unit(text, passage.id, stems(text), context, passage.title)


def _rows_of(table: Document, check: Check) -> Iterator[_Unit]:
    about = " ".join([table.title, table.source, *table.columns]).replace("_", " ")
    context = stems(about)
    for number, row in enumerate(table.rows, 1):
        check()
        text = row_sentence(table.columns, row)
        if text:
            own = stems(" ".join(str(cell) for cell in row if cell is not None)) | stems(text)
            facts = tuple(facts_of(table.columns, row))
            yield _Unit(text, f"{table.id}.r{number}", own, context, subject_of(row), facts)


def _coverage(asked: frozenset[str], covered: Callable[[str], float], evidence: _Evidence) -> float:
    """Return the share of the asked words, by weight, that is covered."""
    evidence.check()
    weights = {one: evidence.weight(one) for one in asked}
    total = sum(weights.values())
    return sum(weights[one] * covered(one) for one in asked) / total if total else 0.0


# ---- rows -------------------------------------------------------------------------------------


def _from_tables(asked: _Asked, evidence: _Evidence) -> list[_Unit]:
    """Return the rows that fit a part best, from the tables that are about it."""
    found: list[_Unit] = []
    for units, everything in evidence.tables:
        if not units or not _about(asked, everything, evidence):
            continue
        scores = [_coverage(asked.all, partial(covers, unit.own), evidence) for unit in units]
        least = max(scores) - 1e-9
        fitting = [unit for unit, score in zip(units, scores, strict=True) if score >= least]
        found += _as_many_as_asked(asked.part, fitting)
    return found


def _about(asked: _Asked, present: frozenset[str], evidence: _Evidence) -> bool:
    """Tell whether a table is about a part. Ranking words are ignored, because a ranking shows in the
    order of the rows and not in their words."""
    if asked.inherited and not any(covers(present, one) for one in asked.inherited):
        return False
    named = all(covers(present, one) for one in asked.names)
    return named and (
        _coverage(asked.unranked, partial(covers, present), evidence) >= MIN_TABLE_COVERAGE
    )


def _as_many_as_asked(part: Part, units: list[_Unit]) -> list[_Unit]:
    end = part.ranks()
    if end is not None and part.asks_for_one():
        measured = [(value, unit) for unit in units if (value := _measure(part, unit)) is not None]
        if len(measured) == len(units):
            choose = max if end == "most" else min
            return [choose(measured, key=lambda pair: pair[0])[1]]
    return units[:1] if part.asks_count else units[:MAX_ROWS]


def _measure(part: Part, unit: _Unit) -> Decimal | None:
    """Return the figure that a ranking uses: the one that the part names, or that of the property."""
    asked = frozenset(word.stem for word in part.content())
    named = [fact for fact in unit.facts if fact.value is not None]
    fitting = [fact for fact in named if any(covers(stems(fact.label), one) for one in asked)]
    chosen = fitting or [fact for fact in named if fact.unit]
    return chosen[0].value if chosen else None


def _row(unit: _Unit) -> Sentence:
    return Sentence(f"{unit.text}.", (unit.citation,))


# ---- sentences --------------------------------------------------------------------------------


def _from_passages(asked: _Asked, evidence: _Evidence, *, answered: bool) -> list[_Unit]:
    """Return the sentences that cover a part; fewer and more certain ones if rows already answer it."""
    if answered and asked.part.asks_count:
        return []
    least = SURE_COVERAGE if answered else MIN_PASSAGE_COVERAGE
    wanted = asked.all - GENERIC or asked.all
    scored = []
    for unit in evidence.sentences:
        evidence.check()
        if _may_answer(asked, unit):
            score = _coverage(wanted, unit.covers, evidence) * _fit(asked.part, unit)
            if score >= least:
                scored.append((score, unit))
    scored.sort(key=lambda pair: -pair[0])
    best = [unit for score, unit in scored if score >= scored[0][0] * NEXT_BEST]
    return _distinct(best)[: 1 if answered else MAX_SENTENCES]


def _may_answer(asked: _Asked, unit: _Unit) -> bool:
    """Tell whether a sentence has a word of the part itself, and together with its heading everything
    that the part names."""
    if not any(covers(unit.own, one) for one in asked.telling):
        return False  # only the heading would fit
    return all(unit.covers(one) for one in asked.required)


def _distinct(units: Sequence[_Unit]) -> list[_Unit]:
    return list({unit.text: unit for unit in reversed(units)}.values())[::-1]


def _fit(part: Part, unit: _Unit) -> float:
    """Return 1 if a sentence has the kind of thing that is asked for, and UNFITTING otherwise."""
    spoken = [word.text.casefold() for word in part.words[:4]]
    if ("when" in spoken or "year" in spoken or part.asks_count) and not figures(unit.text):
        return UNFITTING
    if any(w in ("who", "whom", "whose") for w in spoken) and not _has_name(unit):
        return UNFITTING
    return 1.0


def _has_name(unit: _Unit) -> bool:
    """Tell whether a word inside the sentence has a capital letter and is not in its heading."""
    inner = [word for word in words(unit.text) if word.start > 0 and word.text[0].isupper()]
    return any(len(word.text) > 1 and word.stem not in unit.context for word in inner)


def _quote(unit: _Unit) -> Sentence:
    """Return a sentence in quotes, after its heading if it does not name its subject itself.

    A heading with a figure (`page 3`) is left out, because outside quotes it would need its own
    evidence.
    """
    text = " ".join(unit.text.split())
    for mark in ('"', "\u201c", "\u201d"):
        text = text.replace(mark, "'")
    subject = {stem(word.text.casefold()) for word in words(unit.subject)}
    named = subject <= {word.stem for word in words(unit.text)} or bool(figures(unit.subject))
    quote = f'"{text}"' if named else f'{unit.subject}: "{text}"'
    return Sentence(quote, (unit.citation,))
