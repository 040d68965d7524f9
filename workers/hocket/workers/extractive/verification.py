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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from hocket.workers.extractive.figures import Figure, figures, number, says, says_in

MAX_SENTENCES: Final = 2_000
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
    known = _Known(passages, tables, figures(question))
    checks = [
        check
        for place, sentence in enumerate(written[:MAX_SENTENCES])
        for check in _checks(place, sentence, known)
    ]
    if len(written) > MAX_SENTENCES:
        reason = f"only the first {MAX_SENTENCES} sentences were checked"
        checks.append(Check("length", MAX_SENTENCES, f"{len(written)} sentences", False, reason))
    return Verdict(tuple(checks))


class _Known:
    """The evidence, by marker."""

    def __init__(
        self, passages: Sequence[Document], tables: Sequence[Document], asked: Sequence[Figure]
    ) -> None:
        self.passages: Mapping[str, Document] = {passage.id: passage for passage in passages}
        self.tables: Mapping[str, Document] = {table.id: table for table in tables}
        self.asked = asked


@dataclass(frozen=True, slots=True)
class _Row:
    """A cited row."""

    columns: tuple[str, ...]
    cells: tuple[Any, ...]

    def facts(self) -> list[Fact]:
        return facts_of(self.columns, self.cells)

    @property
    def is_name(self) -> bool:
        return not self.facts()


def _citation_check(place: int, cited: str, known: _Known) -> Check:
    is_there = cited in known.passages if cited.startswith("P") else bool(_rows([cited], known))
    return Check("citation", place, cited, is_there, "" if is_there else _NOT_THERE)


_NOT_THERE: Final = "there is no such passage or row"


def _checks(place: int, sentence: Sentence, known: _Known) -> Iterator[Check]:
    for one in sentence.citations:
        yield _citation_check(place, one, known)
    cited = [one for one in sentence.citations if one.startswith("P")]
    passages = [known.passages[one] for one in cited if one in known.passages]
    rows = _rows(sentence.citations, known)
    spans = quoted(sentence.text)
    for start, end in spans:
        yield _quote_check(place, sentence.text[start:end], passages, rows)
    outside = _outside(sentence.text, spans)
    if outside and len(rows) == 1 and not passages:
        yield from _row_checks(place, sentence.text, outside, rows[0])
    elif outside:
        yield from _figure_checks(place, outside, sentence, passages, rows, known)
    if not sentence.citations and spans:
        yield Check("uncited", place, sentence.text[:80], False, "a quote without a citation")


def _outside(text: str, spans: Sequence[tuple[int, int]]) -> list[Figure]:
    """Return the figures outside quotes, except a list number at the start."""
    listed = re.match(r"\s*\(?\d{1,3}[.)]\s", text)
    skipped = listed.end() if listed else 0
    return [
        figure
        for figure in figures(text)
        if figure.start >= skipped
        and not any(start <= figure.start and figure.end <= end for start, end in spans)
    ]


def _rows(citations: Sequence[str], known: _Known) -> list[_Row]:
    found = []
    for name, row in rows_cited(citations):
        table = known.tables.get(name)
        if table is None:
            continue
        if row is None:
            found += [_Row(table.columns, cells) for cells in table.rows]
        elif 1 <= row <= len(table.rows):
            found.append(_Row(table.columns, table.rows[row - 1]))
    return found


# ---- quotes -----------------------------------------------------------------------------------


def _quote_check(
    place: int, quote: str, passages: Sequence[Document], rows: Sequence[_Row]
) -> Check:
    wanted = _folded(quote)
    there = any(_contains(_folded(passage.text), wanted) for passage in passages)
    there = there or any(wanted == _folded(str(cell)) for row in rows for cell in row.cells)
    reason = "" if there else "no cited passage contains these words"
    return Check("quote", place, quote[:200], there, reason)


def _contains(text: str, wanted: str) -> bool:
    """Tell whether a text contains words as whole words, so that `17` is not found in `1783`."""
    start = text.find(wanted)
    while start >= 0 and wanted:
        end = start + len(wanted)
        before, after = text[max(start - 1, 0) : start], text[end : end + 1]
        cut_before = before.isalnum() and wanted[0].isalnum()
        cut_after = after.isalnum() and wanted[-1].isalnum()
        if not cut_before and not cut_after:
            return True
        start = text.find(wanted, start + 1)
    return False


def _folded(text: str) -> str:
    one_kind = re.sub('["\u201c\u201d\u2018\u2019`]', "'", text)
    return " ".join(one_kind.split()).casefold()


# ---- figures ----------------------------------------------------------------------------------


def _row_checks(place: int, text: str, outside: Sequence[Figure], row: _Row) -> Iterator[Check]:
    """Check the figures of a sentence about one row, each against what the sentence says it is."""
    if row.is_name:
        yield from _name_checks(place, outside, figures(subject_of(row.cells)))
        return
    labelled = list(_labelled(text, row))
    for figure in outside:
        part = next((p for p in labelled if p.start <= figure.start and figure.end <= p.end), None)
        if part is not None:
            passed, reason = part.agrees(figure)
        else:
            passed = _in_row(figure, row)
            reason = "" if passed else "it is not in the cited row"
        yield Check("figure", place, figure.text, passed, reason)


def _name_checks(place: int, outside: Sequence[Figure], name: Sequence[Figure]) -> Iterator[Check]:
    """Check a sentence about a row that is only a name: `Route 0 3` is not `Route 3 3`."""
    left = iter(name)
    for figure in outside:
        passed = any(figure.text == other.text for other in left)
        reason = "" if passed else "it is not part of the name that the cited row gives here"
        yield Check("figure", place, figure.text, passed, reason)


@dataclass(frozen=True, slots=True)
class _Labelled:
    """A piece of a sentence that labels its value: `melting point: 3695 K`."""

    text: str
    start: int
    end: int
    expected: str
    fact: Fact | None

    def agrees(self, figure: Figure) -> tuple[bool, str]:
        said = self.text[self.start : self.end].rstrip()
        if _folded(said.rstrip(".")) == _folded(self.expected.rstrip(".")):
            return True, ""
        if self.fact is not None and self.fact.value is not None:
            first = next(iter(figures(said)), None)
            is_first = first is not None and figure.start == self.start + first.start
            unit = self.fact.unit
            if is_first and says(figure, self.fact.value):
                return True, ""
            if not is_first and unit and says_in(figure, figures(unit)):
                return True, ""
        return False, f"the cited row says {self.expected}"


def _labelled(text: str, row: _Row) -> Iterator[_Labelled]:
    """Yield the subject and the `label: value` pieces of a sentence, as far as the row has them."""
    body = 0
    subject = subject_of(row.cells)
    dash = text.find(SUBJECT_DASH)
    ours = dash >= 0 and _folded(text[:dash]) == _folded(subject_of(row.cells) or NO_SUBJECT)
    if dash >= 0:
        yield _Labelled(text, 0, dash, subject, None)
        body = dash + len(SUBJECT_DASH)
    facts = {_folded(fact.label): fact for fact in row.facts()}
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


def _figure_checks(
    place: int,
    outside: Sequence[Figure],
    sentence: Sentence,
    passages: Sequence[Document],
    rows: Sequence[_Row],
    known: _Known,
) -> Iterator[Check]:
    """Check the figures of a sentence about several rows, or about passages."""
    texts = [figure for p in passages for figure in figures(f"{p.title}\n{p.text}")]
    for one in outside:
        yield _figure_check(place, one, sentence, rows, texts, known)


def _figure_check(
    place: int,
    figure: Figure,
    sentence: Sentence,
    rows: Sequence[_Row],
    texts: Sequence[Figure],
    known: _Known,
) -> Check:
    if any(_in_row(figure, row) for row in rows) or says_in(figure, texts):
        return Check("figure", place, figure.text, True)
    if says_in(figure, known.asked) and not sentence.citations:
        return Check("figure", place, figure.text, True, "it appears in the question")
    if not sentence.citations:
        return Check("uncited", place, figure.text, False, "a figure without a citation")
    return Check(
        "figure", place, figure.text, False, "it is in none of the cited rows and passages"
    )


def _in_row(figure: Figure, row: _Row) -> bool:
    for cell in row.cells:
        value = number(cell)
        if value is not None and says(figure, value):
            return True
        if isinstance(cell, str) and says_in(figure, figures(cell)):
            return True
    return False
