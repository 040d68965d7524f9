"""Plans how to answer a question from a catalog of queries and a collection of texts. Pure.

The question is split into parts. For each part a query is chosen whose parameters can all be filled
(with values that occur in the question, longest match first, or with defaults) and that accounts for
enough of the part's words; rare words of the catalog count more than common ones. Several values for one
parameter give several bindings. If no query accounts for enough, none is chosen. Every part gets a
search phrase in any case.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any, Final

from hocket.schemas.pipeline.node_parts import CatalogParam, CatalogQuery
from hocket.workers.extractive.effort import Check, unbounded
from hocket.workers.extractive.questions import Part, parts
from hocket.workers.extractive.words import Word, covers, is_content, stem, stems, words

MIN_SCORE: Final = 0.75
"""The share of a part's words, by weight, that a query must account for."""
DEFAULT_MAX_QUERIES: Final = 4
MAX_VALUES: Final = 20_000
MAX_BINDINGS: Final = 4
MAX_SPAN_WORDS: Final = 8
_COUNT: Final = stem("count")


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query of the catalog with its parameters; `question` is the part that it answers."""

    name: str
    params: Mapping[str, Any]
    question: str
    score: float
    sql: str
    description: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Parts of a question, phrases to search for, and queries to run."""

    questions: tuple[str, ...]
    searches: tuple[str, ...]
    queries: tuple[PlannedQuery, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the plan in the form of a planning node's output."""
        return {
            "questions": list(self.questions),
            "searches": list(self.searches),
            "queries": [
                {
                    "name": query.name,
                    "title": query.description,
                    "sql": query.sql,
                    "params": dict(query.params),
                    "question": query.question,
                    "score": round(query.score, 3),
                }
                for query in self.queries
            ],
        }


def value_selects(catalog: Sequence[CatalogQuery]) -> tuple[str, ...]:
    """Return each SELECT that lists allowed parameter values, once; `plan_question` needs the values."""
    selects = (p.values for query in catalog for p in query.params.values() if p.values)
    return tuple(dict.fromkeys(selects))


def plan_question(
    question: str,
    catalog: Sequence[CatalogQuery],
    values: Mapping[str, Sequence[Any]],
    *,
    max_queries: int = DEFAULT_MAX_QUERIES,
    check: Check = unbounded,
) -> Plan:
    """Return a plan; `values` maps each of `value_selects(catalog)` to the values it returned. `check`
    is called again and again, and may raise to stop the work."""
    vocabulary = _Vocabulary(catalog, values, check)
    asked = parts(question)
    chosen: list[PlannedQuery] = []
    searches: list[str] = []
    before: tuple[_Span, ...] = ()
    for part in asked:
        spans = vocabulary.spans(part)
        inherited = () if _names_something(spans, before) or not part.points_back else before
        chosen.extend(_queries_for(part, spans, inherited, vocabulary))
        searches.append(_phrase(part, inherited))
        before = spans or before
    unique = {
        (query.name, tuple(sorted(query.params.items()))): query for query in reversed(chosen)
    }
    return Plan(
        questions=tuple(part.text for part in asked),
        searches=tuple(dict.fromkeys(searches)),
        queries=tuple(reversed(unique.values()))[:max_queries],
    )


# ---- values in the question -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Span:
    """A value from one SELECT that the question names, and the places of its words."""

    select: str
    value: Any
    text: str
    places: frozenset[int]


class _Vocabulary:
    """The words of the catalog's queries, and the values that their parameters may have."""

    def __init__(
        self, catalog: Sequence[CatalogQuery], values: Mapping[str, Sequence[Any]], check: Check
    ) -> None:
        self.catalog = catalog
        self.check = check
        self.texts = [_texts(query) for query in catalog]
        self._having = Counter(one for text in self.texts for one in text)
        self._values = {
            select: _stemmed(values.get(select, ()), check) for select in value_selects(catalog)
        }

    def weight(self, one: str) -> float:
        """Return how well a word distinguishes queries; a word that no query has weighs most."""
        return math.log(1 + (len(self.texts) + 1) / (self._having[one] + 0.5))

    def spans(self, part: Part) -> tuple[_Span, ...]:
        """Return the values that a part names, longer matches first; a word counts once per SELECT."""
        found: list[_Span] = []
        for select, known in self._values.items():
            self.check()
            taken: set[int] = set()
            for length in range(min(MAX_SPAN_WORDS, len(part.words)), 0, -1):
                for first in range(len(part.words) - length + 1):
                    places = frozenset(range(first, first + length))
                    key = tuple(word.stem for word in part.words[first : first + length])
                    value = None if places & taken else known.get(key)
                    if value is None or not _may_name(part.words[first : first + length]):
                        continue
                    taken |= places
                    found.append(_Span(select, value, str(value), places))
        return _without_inner(found, self.check)


def _stemmed(values: Sequence[Any], check: Check) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for value in values[:MAX_VALUES]:
        check()
        key = tuple(word.stem for word in words(str(value)))
        if key:
            found.setdefault(key, value)
    return found


def _may_name(found: Sequence[Word]) -> bool:
    return any(is_content(word) for word in found)


def _without_inner(spans: Sequence[_Span], check: Check) -> tuple[_Span, ...]:
    """Drop values inside longer ones: in `atomic mass`, `mass` is not meant separately."""
    places = {span.places for span in spans}
    outer: set[frozenset[int]] = set()
    for one in places:
        check()
        if not any(one < other for other in places):
            outer.add(one)
    return tuple(sorted((s for s in spans if s.places in outer), key=lambda s: min(s.places)))


def _texts(query: CatalogQuery) -> frozenset[str]:
    parameters = " ".join(f"{name} {p.description}" for name, p in query.params.items())
    return stems(f"{query.name.replace('_', ' ')} {query.description} {parameters}")


def _names_something(spans: Sequence[_Span], before: Sequence[_Span]) -> bool:
    """Tell whether a part names the same kind of thing as the one before it."""
    return bool({span.select for span in spans} & {span.select for span in before})


# ---- choosing ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Candidate:
    query: CatalogQuery
    bindings: tuple[dict[str, Any], ...]
    score: float
    spare: float
    """The share of the query's own words that the part does not use; lower is closer."""


def _queries_for(
    part: Part, spans: tuple[_Span, ...], inherited: tuple[_Span, ...], vocabulary: _Vocabulary
) -> list[PlannedQuery]:
    asked = _asked(part, spans, inherited)
    candidates = [
        candidate
        for query, text in zip(vocabulary.catalog, vocabulary.texts, strict=True)
        if (candidate := _candidate(query, text, asked, vocabulary)) is not None
    ]
    if not candidates:
        return []
    best = max(candidates, key=lambda c: (round(c.score, 6), -c.spare))
    if best.score < MIN_SCORE:
        return []
    query = best.query
    return [
        PlannedQuery(query.name, binding, part.text, best.score, query.sql, query.description)
        for binding in best.bindings
    ]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A part of the question, its content words by place, and the values that it names and inherits, by
    their SELECT."""

    part: Part
    content: tuple[tuple[int, Word], ...]
    named: Mapping[str, Sequence[_Span]]
    inherited: Mapping[str, tuple[Any, ...]]
    in_values: frozenset[int]
    """The places of the words that name a value."""


def _asked(part: Part, spans: Sequence[_Span], inherited: Sequence[_Span]) -> _Asked:
    content = frozenset(part.content())
    named, taken_over = _by_select(spans), _by_select(inherited)
    return _Asked(
        part,
        tuple((place, word) for place, word in enumerate(part.words) if word in content),
        named,
        {select: _first(span.value for span in found) for select, found in taken_over.items()},
        frozenset().union(*(span.places for span in spans)),
    )


def _by_select(spans: Sequence[_Span]) -> dict[str, list[_Span]]:
    found: dict[str, list[_Span]] = {}
    for span in spans:
        found.setdefault(span.select, []).append(span)
    return found


def _first(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the values, each once, of which the first MAX_BINDINGS bindings are made."""
    return tuple(islice(dict.fromkeys(values), MAX_BINDINGS))


def _candidate(
    query: CatalogQuery, text: frozenset[str], asked: _Asked, vocabulary: _Vocabulary
) -> _Candidate | None:
    """Return how a query would answer a part, or None if a parameter stays empty."""
    vocabulary.check()
    bound = _bound(query, asked, vocabulary.check)
    if bound is None or not asked.content:
        return None
    choices, used = bound
    heaviest = math.log(1 + (len(vocabulary.texts) + 1) / 0.5)
    matched = total = 0.0
    for place, word in asked.content:
        weight = heaviest if place in asked.in_values else vocabulary.weight(word.stem)
        total += weight
        matched += weight * (1.0 if place in used else covers(text, word.stem))
    if asked.part.asks_count:
        weight = vocabulary.weight(_COUNT)
        total += weight
        matched += weight * covers(text, _COUNT)
    stems_asked = frozenset(word.stem for _, word in asked.content)
    spare = len(text - stems_asked) / len(text) if text else 1.0
    rows = islice(product(*choices.values()), MAX_BINDINGS)
    bindings = tuple(dict(zip(choices, row, strict=True)) for row in rows)
    return _Candidate(query, bindings, matched / total, spare)


def _bound(
    query: CatalogQuery, asked: _Asked, check: Check
) -> tuple[dict[str, tuple[Any, ...]], set[int]] | None:
    """Return the first values that each parameter may have, and the places of the words that give them;
    None if a parameter has no value."""
    choices: dict[str, tuple[Any, ...]] = {}
    used: set[int] = set()
    for name, parameter in query.params.items():
        check()
        named = _named(parameter, name, asked, used)
        inherited = asked.inherited.get(parameter.values or "", ())
        if named:
            choices[name] = _first(value for value, _ in named)
            used.update(*(places for _, places in named))
        elif inherited:
            choices[name] = inherited
        elif parameter.default is not None:
            choices[name] = (parameter.default,)
        else:
            return None
    return choices, used


def _named(
    parameter: CatalogParam, name: str, asked: _Asked, used: set[int]
) -> list[tuple[Any, frozenset[int]]]:
    """Return the values of a parameter that a part names, with the places of their words."""
    if parameter.values:
        spans = asked.named.get(parameter.values, ())
        return [(span.value, span.places) for span in spans if not span.places & used]
    if parameter.type in ("integer", "number"):
        return _numbers(name, asked.part, used)
    return []


def _numbers(name: str, part: Part, used: set[int]) -> list[tuple[Any, frozenset[int]]]:
    """Return `5` for `top 5`, and for `period 5` if the parameter has that name."""
    own = stem(name.split("_")[-1].casefold())
    for place, word in enumerate(part.words):
        beside = part.words[max(place - 1, 0) : place + 2]
        if word.text.isdecimal() and place not in used and any(w.stem == own for w in beside):
            return [(int(word.text), frozenset({place}))]
    if part.amount is not None and part.amount_at is not None:
        return [(part.amount, frozenset({part.amount_at}))]
    return []


def _phrase(part: Part, inherited: Sequence[_Span]) -> str:
    content = [word.text for word in part.content()]
    subjects = [span.text for span in inherited if span.text[:1].isupper()]
    told = subjects or [span.text for span in inherited]
    return " ".join(dict.fromkeys([*content, *told])) or part.text
