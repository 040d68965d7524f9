"""Checks a draft against what it cites, whoever wrote it. Pure.

- `citation`: every marker names a passage or a row that exists.
- `quote`: text in double quotes is in a cited passage (or is a cited cell), word by word; whitespace and
  the kind of quotation marks do not matter.
- `figure`: every figure outside quotes is in a cited row or passage. In rows, it may be the number
  itself or rounded as described in `figures`; in passages, it must be the same number. In `label:
  figure` the figure must be that of the cited row's column (or property) of this name. If a row is only
  a name, the figures must be those in the name, in the same order.
- `uncited`: a sentence with a figure or a quote cites something. A figure that is in the question itself
  may be repeated.

Words that are neither quoted nor figures are not checked.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import islice
from typing import Any, Final, Literal

from hocket.schemas.messages import Document
from hocket.workers.extractive.drafts import Draft, Sentence, quoted, read, rows_cited
from hocket.workers.extractive.facts import (
    BETWEEN,
    NO_SUBJECT,
    SUBJECT_DASH,
    Fact,
    facts_of,
    subject_of,
)
from hocket.workers.extractive.figures import Evidence, Figure, figures, number, says

MAX_SENTENCES: Final = 2_000
MAX_CHECKS: Final = 10_000
"""The most citations, quotes and figures of a draft that are checked."""
MAX_FAILED_IN_REASON: Final = 3

Kind = Literal["citation", "quote", "figure", "uncited", "length"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its kind, the sentence (from 0), and why it failed, if it did."""

    kind: Kind
    sentence: int
    subject: str
    passed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """All checks of a draft; it is `ok` if none failed."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as plain JSON: the counts, and the checks, failed ones first."""
        ordered = sorted(self.checks, key=lambda check: check.passed)
        return {
            "ok": self.ok,
            "passed": sum(check.passed for check in self.checks),
            "failed": sum(not check.passed for check in self.checks),
            "checks": [
                {
                    "kind": check.kind,
                    "sentence": check.sentence,
                    "subject": check.subject,
                    "passed": check.passed,
                    "reason": check.reason,
                }
                for check in ordered
            ],
        }


def verify(
    draft: Draft | str,
    passages: Sequence[Document],
    tables: Sequence[Document],
    *,
    question: str = "",
) -> Verdict:
    """Return the verdict on a draft; figures that are in `question` may be repeated."""
    written = read(draft) if isinstance(draft, str) else list(draft.sentences)
    known = _Known(passages, tables, Evidence(figures(question)))
    left = (
        check
        for place, sentence in enumerate(written[:MAX_SENTENCES])
        for check in _checks(place, sentence, known)
    )
    checks = list(islice(left, MAX_CHECKS))
    subject = f"{len(written)} sentences"
    if (beyond := next(left, None)) is not None:
        reason = f"only the first {MAX_CHECKS} citations, quotes and figures were checked"
        checks.append(Check("length", beyond.sentence, subject, False, reason))
    elif len(written) > MAX_SENTENCES:
        reason = f"only the first {MAX_SENTENCES} sentences were checked"
        checks.append(Check("length", MAX_SENTENCES, subject, False, reason))
    return Verdict(tuple(checks))


class _Known:
    """The evidence, by marker. What is read from it is kept, because a draft may cite it a thousand
    times."""

    def __init__(
        self, passages: Sequence[Document], tables: Sequence[Document], asked: Evidence
    ) -> None:
        self.passages = {one.id: _Passage(one.title, one.text) for one in passages}
        self.asked = asked
        self._tables = {
            one.id: _Rows(tuple(_Row(one.columns, cells) for cells in one.rows)) for one in tables
        }

    def rows(self, citations: Sequence[str]) -> "list[_Rows]":
        """Return the rows that are cited: each whole table, and those cited one by one."""
        found, single = [], []
        for name, row in rows_cited(citations):
            table = self._tables.get(name)
            if table is None:
                continue
            if row is None:
                found.append(table)
            elif 1 <= row <= len(table.rows):
                single.append(table.rows[row - 1])
        return [*found, _Rows(tuple(single))] if single else found


@dataclass(frozen=True)
class _Passage:
    """A cited passage."""

    title: str
    text: str

    @cached_property
    def words(self) -> str:
        return _words(self.text)

    @cached_property
    def evidence(self) -> Evidence:
        return Evidence(figures(f"{self.title}\n{self.text}"))


@dataclass(frozen=True)
class _Row:
    """A cited row."""

    columns: tuple[str, ...]
    cells: tuple[Any, ...]

    @cached_property
    def facts(self) -> list[Fact]:
        return facts_of(self.columns, self.cells)

    @cached_property
    def folded(self) -> list[str]:
        return [_folded(str(cell)) for cell in self.cells]

    @cached_property
    def numbers(self) -> list[Decimal]:
        return [value for cell in self.cells if (value := number(cell)) is not None]

    @cached_property
    def figures(self) -> list[Figure]:
        """The figures in its texts."""
        return [one for cell in self.cells if isinstance(cell, str) for one in figures(cell)]


@dataclass(frozen=True)
class _Rows:
    """Cited rows."""

    rows: tuple[_Row, ...]

    @cached_property
    def folded(self) -> frozenset[str]:
        return frozenset(cell for row in self.rows for cell in row.folded)

    @cached_property
    def evidence(self) -> Evidence:
        texts = (figure for row in self.rows for figure in row.figures)
        return Evidence(texts, (value for row in self.rows for value in row.numbers))


def _citation_check(place: int, cited: str, known: _Known) -> Check:
    if cited.startswith("P"):
        is_there = cited in known.passages
    else:
        is_there = any(one.rows for one in known.rows([cited]))
    return Check("citation", place, cited, is_there, "" if is_there else _NOT_THERE)


_NOT_THERE: Final = "there is no such passage or row"


def _checks(place: int, sentence: Sentence, known: _Known) -> Iterator[Check]:
    for one in sentence.citations:
        yield _citation_check(place, one, known)
    passages = [known.passages[one] for one in sentence.citations if one in known.passages]
    tables = known.rows(sentence.citations)
    spans = quoted(sentence.text)
    for start, end in spans:
        yield _quote_check(place, sentence.text[start:end], passages, tables)
    if outside := _outside(sentence.text, spans):
        yield from _checks_outside(place, outside, sentence, passages, tables, known)
    if not sentence.citations and spans:
        yield Check("uncited", place, sentence.text[:80], False, "a quote without a citation")


def _checks_outside(
    place: int,
    outside: Sequence[Figure],
    sentence: Sentence,
    passages: Sequence[_Passage],
    tables: Sequence[_Rows],
    known: _Known,
) -> Iterator[Check]:
    """Check the figures of a sentence that are not in its quotes."""
    rows = [row for one in tables for row in one.rows[:2]]  # two are as good as many
    if len(rows) == 1 and not passages:
        yield from _row_checks(place, sentence.text, outside, rows[0])
        return
    evidence = [one.evidence for one in passages] + [one.evidence for one in tables]
    for figure in outside:
        yield _figure_check(place, figure, sentence, evidence, known)


def _outside(text: str, spans: Sequence[tuple[int, int]]) -> list[Figure]:
    """Return the figures outside quotes, except a list number at the start."""
    listed = re.match(r"\s*\(?\d{1,3}[.)]\s", text)
    skipped = listed.end() if listed else 0
    return [
        figure
        for figure in figures(text)
        if figure.start >= skipped and _place(figure, spans) is None
    ]


def _place(figure: Figure, spans: Sequence[tuple[int, int]]) -> int | None:
    """Return which of the spans, given in order, a figure is in."""
    place = bisect_right(spans, figure.start, key=lambda span: span[0]) - 1
    return place if place >= 0 and figure.end <= spans[place][1] else None


# ---- quotes -----------------------------------------------------------------------------------


def _quote_check(
    place: int, quote: str, passages: Sequence[_Passage], tables: Sequence[_Rows]
) -> Check:
    wanted, words = _folded(quote), _words(quote)
    there = bool(wanted) and any(words in passage.words for passage in passages)
    there = there or any(wanted in one.folded for one in tables)
    reason = "" if there else "no cited passage contains these words"
    return Check("quote", place, quote[:200], there, reason)


def _words(text: str) -> str:
    """Return a folded text with each word between line ends, so that `17` is not found in `1783`."""
    return re.sub(r"[^\W_]+", "\n\\g<0>\n", _folded(text))


def _folded(text: str) -> str:
    one_kind = re.sub('["\u201c\u201d\u2018\u2019`]', "'", text)
    return " ".join(one_kind.split()).casefold()


# ---- figures ----------------------------------------------------------------------------------


def _row_checks(place: int, text: str, outside: Sequence[Figure], row: _Row) -> Iterator[Check]:
    """Check the figures of a sentence about one row, each against what the sentence says it is."""
    if not row.facts:  # it is only a name
        yield from _name_checks(place, outside, figures(subject_of(row.cells)))
        return
    labelled = list(_labelled(text, row))
    spans = [(part.start, part.end) for part in labelled]
    evidence = _Rows((row,)).evidence
    for figure in outside:
        part = _place(figure, spans)
        if part is not None:
            passed, reason = labelled[part].agrees(figure)
        else:
            passed = evidence.has(figure)
            reason = "" if passed else "it is not in the cited row"
        yield Check("figure", place, figure.text, passed, reason)


def _name_checks(place: int, outside: Sequence[Figure], name: Sequence[Figure]) -> Iterator[Check]:
    """Check a sentence about a row that is only a name: `Route 0 3` is not `Route 3 3`."""
    left = iter(name)
    for figure in outside:
        passed = any(figure.text == other.text for other in left)
        reason = "" if passed else "it is not part of the name that the cited row gives here"
        yield Check("figure", place, figure.text, passed, reason)


@dataclass(frozen=True)
class _Labelled:
    """A piece of a sentence that labels its value: `melting point: 3695 K`."""

    text: str
    start: int
    end: int
    expected: str
    fact: Fact | None

    def agrees(self, figure: Figure) -> tuple[bool, str]:
        if self._is_expected:
            return True, ""
        if self.fact is not None and self.fact.value is not None:
            is_first = figure.start == self._first
            if is_first and says(figure, self.fact.value):
                return True, ""
            if not is_first and self._unit.has(figure):
                return True, ""
        return False, f"the cited row says {self.expected}"

    @cached_property
    def _said(self) -> str:
        return self.text[self.start : self.end].rstrip()

    @cached_property
    def _is_expected(self) -> bool:
        return _folded(self._said.rstrip(".")) == _folded(self.expected.rstrip("."))

    @cached_property
    def _first(self) -> int | None:
        """Where its first figure starts."""
        first = next(iter(figures(self._said)), None)
        return None if first is None else self.start + first.start

    @cached_property
    def _unit(self) -> Evidence:
        return Evidence(figures(self.fact.unit if self.fact is not None else ""))


def _labelled(text: str, row: _Row) -> Iterator[_Labelled]:
    """Yield the subject and the `label: value` pieces of a sentence, as far as the row has them."""
    body = 0
    subject = subject_of(row.cells)
    dash = text.find(SUBJECT_DASH)
    ours = dash >= 0 and _folded(text[:dash]) == _folded(subject_of(row.cells) or NO_SUBJECT)
    if dash >= 0:
        yield _Labelled(text, 0, dash, subject, None)
        body = dash + len(SUBJECT_DASH)
    facts = {_folded(fact.label): fact for fact in row.facts}
    for piece_start, piece_end in _between(text, body):
        label, colon, _ = text[piece_start:piece_end].partition(": ")
        fact = facts.get(_folded(label)) if colon else None
        if fact is not None:
            begin = piece_start + len(label)
            value = begin + len(colon)
            yield _Labelled(text, piece_start, begin, label, None)
            yield _Labelled(text, value, piece_end, fact.rendered(), fact)
        elif ours:
            yield _Labelled(text, piece_start, piece_end, "nothing under this name", None)


def _between(text: str, start: int) -> Iterator[tuple[int, int]]:
    while start < len(text):
        end = text.find(BETWEEN, start)
        end = len(text) if end < 0 else end
        yield start, end
        start = end + len(BETWEEN)


def _figure_check(
    place: int, figure: Figure, sentence: Sentence, evidence: Sequence[Evidence], known: _Known
) -> Check:
    """Check a figure of a sentence about several rows, or about passages."""
    if any(one.has(figure) for one in evidence):
        return Check("figure", place, figure.text, True)
    if not sentence.citations and known.asked.has(figure):
        return Check("figure", place, figure.text, True, "it appears in the question")
    if not sentence.citations:
        return Check("uncited", place, figure.text, False, "a figure without a citation")
    return Check(
        "figure", place, figure.text, False, "it is in none of the cited rows and passages"
    )
