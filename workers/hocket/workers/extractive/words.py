"""Words and sentences of English text: their places, and the stems by which words are compared. Pure.

Two words are compared by their stems. Endings are removed by rules that are cruder than Porter's and
only need to treat the same word alike everywhere. Words of other languages are mostly compared
unchanged.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_WORD: Final = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*")

STOP_WORDS: Final = frozenset(
    """
    a about according after all also am an and any are as at be because been before being between
    both but by can could did do does doing during each either every few for from further had has
    have having he her here hers him his how i if in into is it its itself just let many may me
    might more much must my no nor not now of off on once only or other our out over own per
    please same she should so some such than that the their them then there these they this those
    through to too under until up us very was we were what when where whether which while who whom
    whose why will with would you your again answer compare compared comparison describe
    difference explain find give list mention name report say show state summarise summarize tell
    versus vs year
    """.split()
)

_EXCEPTIONS: Final = {
    "used": "use",
    "uses": "use",
    "using": "use",
    "usage": "use",
    "user": "use",
    "gas": "gas",
    "radii": "radius",
    "made": "make",
    "found": "find",
    "known": "know",
    "named": "name",
    "names": "name",
}
_ENDINGS: Final = (
    ("ativity", 4),
    ("ivity", 4), ("ively", 4), ("ation", 4), ("ition", 4), ("ating", 4), ("ative", 4), ("ated", 4),
    ("ates", 4), ("ator", 4), ("ment", 4), ("ness", 4), ("able", 4), ("ible", 4), ("ance", 4),
    ("ence", 4), ("eous", 3), ("iest", 3), ("ing", 3), ("est", 3), ("ive", 4), ("ity", 3), ("ion", 4),
    ("ant", 4), ("ate", 4), ("ier", 3), ("ily", 3), ("ous", 4), ("ic", 4), ("al", 4), ("ed", 3),
    ("er", 3), ("ly", 3), ("y", 3), ("e", 3), ("i", 4),
)  # fmt: skip
"""(ending, minimum number of letters that must remain), longest first."""

_SENTENCE_END: Final = re.compile(
    r"(?<![.!?])[.!?]+[\"'\u201d\u2019)\]]*(?=\s+[\"'\u201c\u2018(\[]?[A-Z0-9]|\s*$)"
)
_LONGEST_ABBREVIATION: Final = 64
_LINE_MARK: Final = re.compile(r"\s*(?:[-*+]\s+|\d{1,3}[.)]\s+|>\s*|\|\s*)*")
_ABBREVIATIONS: Final = frozenset(
    "dr mr mrs ms prof st no nos fig figs eq vol ed eds al ca cf vs jr sr approx".split()
)


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text, its stem and its place."""

    text: str
    stem: str
    start: int
    end: int


def words(text: str) -> list[Word]:
    """Return all words and numbers of a text."""
    return [
        Word(match[0], stem(match[0].casefold()), match.start(), match.end())
        for match in _WORD.finditer(text)
    ]


def stems(text: str) -> frozenset[str]:
    """Return the stems of a text's words, without stop words."""
    return frozenset(word.stem for word in words(text) if is_content(word))


def is_content(word: Word) -> bool:
    """Tell whether a word says what a text is about."""
    return word.text.casefold() not in STOP_WORDS and (len(word.text) > 1 or word.text.isdecimal())


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return the stem of a lower-case word."""
    if not word.isalpha() or len(word) < 3:
        return word
    if word in _EXCEPTIONS:
        return _EXCEPTIONS[word]
    shorter = _singular(word.replace("colour", "color"))
    while (next_one := _without_ending(shorter)) != shorter:
        shorter = next_one
    doubled = len(shorter) > 3 and shorter[-1] == shorter[-2]
    return shorter[:-1] if doubled else shorter


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "ases", "xes", "ches", "shes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        return word[:-1]
    return word


def _without_ending(word: str) -> str:
    if word in _EXCEPTIONS:
        return _EXCEPTIONS[word]
    for ending, least in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= least:
            return word[: -len(ending)]
    return word


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the sentences of a text, without headings and list markers.

    The lines of a paragraph belong together; a blank line or a list item ends a sentence.
    """
    for start, end in _paragraphs(text):
        yield from _sentences_of(text, start, end)


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    begin: int | None = None
    offset = 0
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        is_text = bare != "" and not _is_heading(bare)
        marked = _LINE_MARK.match(line)
        mark = marked.end() if marked else 0
        if begin is not None and (not is_text or mark > len(line) - len(line.lstrip())):
            yield begin, offset
            begin = None
        if begin is None and is_text:
            begin = offset + mark
        offset += len(line)
    if begin is not None:
        yield begin, offset


def _is_heading(line: str) -> bool:
    """Tell whether a line is a Markdown heading, or the underline of one."""
    return line.startswith("#") or not line.strip("=-*_`~|: ")


def _sentences_of(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    begin = start
    last = start + len(text[start:end].rstrip())
    for match in _SENTENCE_END.finditer(text, start, end):
        before = text[max(begin, match.start() - _LONGEST_ABBREVIATION) : match.start()]
        if _is_abbreviation(before) and match.end() < last:
            continue
        yield from _trimmed(text, begin, match.end())
        begin = match.end()
    yield from _trimmed(text, begin, end)


def _is_abbreviation(before: str) -> bool:
    if not before or before[-1].isspace():
        return False
    word = before.split()[-1].lstrip("(\"'\u201c\u2018")
    initial = len(word) == 1 and word.isalpha() and word.isupper()
    return initial or "." in word.strip(".0123456789") or word.lower() in _ABBREVIATIONS


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    piece = text[start:end]
    begin = start + len(piece) - len(piece.lstrip())
    finish = start + len(piece.rstrip())
    if begin < finish and _WORD.search(text, begin, finish):
        yield begin, finish


# ---- other words for the same thing -----------------------------------------------------------

_RINGS: Final = (
    "discover isolate identify first produce synthesize detect",
    "use application employ purpose serve",
    "big large great high most",
    "small low least little",
    "heavy light mass weight",
    "cure treat therapy treatment",
    "poison toxic poisonous danger dangerous hazard harm",
    "color appearance",
    "gas gaseous",
    "begin start",
    "average mean",
    "count number amount",
    "shine glow",
    "jewelry jewellery",
    "hot temperature",
)


def _rings() -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for ring in _RINGS:
        members = {stem(word) for word in ring.split()}
        for member in members:
            found.setdefault(member, set()).update(members - {member})
    return {member: frozenset(others) for member, others in found.items()}


_NEAR: Final = _rings()


def near(one: str) -> frozenset[str]:
    """Return stems of words that often mean the same."""
    return _NEAR.get(one, frozenset())


def covers(present: Iterable[str] | frozenset[str], one: str) -> float:
    """Return how far a set of stems covers one: 1 if it has it, 0.8 if it has a near word, otherwise
    0."""
    there = present if isinstance(present, frozenset) else frozenset(present)
    if one in there:
        return 1.0
    return 0.8 if near(one) & there else 0.0
