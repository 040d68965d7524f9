"""Splits a question into parts that can be answered one by one. Pure."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from hocket.workers.extractive.words import Word, is_content, stem, words

MAX_PARTS: Final = 4
MAX_QUESTION_CHARS: Final = 4_000

_ASKING: Final = (
    "what|which|who|whom|whose|when|where|why|how|is|are|was|were|does|do|did|has|have|can|"
    "list|compare|show|tell|give|name|describe|explain"
)
_CUT: Final = re.compile(
    rf"(?<=[?!;])\s+|(?<!\s)\s*[;\n]\s*|[;\n]\s*|(?<=[a-z0-9)])\.\s+|(?:,|(?<!\s))\s+(?:and|but)\s+(?:also\s+)?(?=(?:in\s+|by\s+)?(?:{_ASKING})\b)",
    re.IGNORECASE,
)
_ELLIPTIC: Final = re.compile(
    r"(?:which|who|what|when|where|how)(?:\s+one)?(?:\s+of\s+\w+)?\s+(?:is|are|was|were|has|have|had)"
    r"(?:\s+(?:the\s+)?(?:most|least|more|less|\w+est|\w+ed)\b.*+)?\W*$",
    re.IGNORECASE,
)
"""A part whose subject was named before: `which is the most abundant`, `when was`."""
_POINTING: Final = frozenset(
    {"it", "its", "they", "their", "them", "this", "these", "those", "that"}
)
_COUNTING: Final = frozenset({("how", "many"), ("how", "much"), ("number", "of")})
_NUMBER_WORDS: Final = {
    word: number
    for number, word in enumerate(
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
        "sixteen seventeen eighteen nineteen twenty".split(),
        1,
    )
}
RANKING: Final = frozenset(
    "top bottom first last highest lowest largest smallest greatest most least best worst biggest "
    "maximum minimum fewest".split()
)
_LEAST: Final = frozenset(
    "bottom last lowest smallest least worst minimum fewest lightest coldest rarest shortest "
    "youngest weakest thinnest cheapest slowest".split()
)
_SINGULAR: Final = frozenset({"is", "has", "was"})
_PLURAL: Final = frozenset({"are", "have", "were"})
GENERIC: Final = frozenset(
    stem(word)
    for word in (
        "thing item element kind sort type text document source passage page data example".split()
    )
)
"""Stems of words that only name the kind of thing that is asked for; evidence need not repeat them."""
MIN_SUPERLATIVE_CHARS: Final = 5
MAX_AMOUNT: Final = 50


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a question. `words` are all its words; `points_back` means that its subject (`it`) was
    named before; `asks_count` means that it asks `how many`."""

    text: str
    words: tuple[Word, ...]
    points_back: bool
    asks_count: bool
    amount: int | None
    """How many are asked for (`the five densest`); `amount_at` is the place of that word."""
    amount_at: int | None

    def names(self) -> tuple[Word, ...]:
        """Return the capitalised words inside the part, which evidence must have."""
        inner = [word for word in self.words if word.start > 0]
        return tuple(word for word in inner if word.text[0].isupper() and is_content(word))

    def objects(self) -> tuple[Word, ...]:
        """Return the words that follow `of` (as in `boiling point of X`), which evidence must have."""
        found = []
        for place, word in enumerate(self.words):
            if word.text.casefold() == "of":
                found += [after for after in self.words[place + 1 :] if is_content(after)][:1]
        return tuple(found)

    def ranks(self) -> Literal["most", "least"] | None:
        """Return which end of a ranking is asked for, if any."""
        spoken = [word.text.casefold() for word in self.words]
        if any(word in _LEAST for word in spoken):
            return "least"
        return "most" if any(map(is_ranking, spoken)) else None

    def asks_for_one(self) -> bool:
        """Tell whether a single thing is asked for: `which element has the highest ...`."""
        spoken = {word.text.casefold() for word in self.words[:5]}
        return self.amount is None and bool(spoken & _SINGULAR) and not spoken & _PLURAL

    def content(self) -> tuple[Word, ...]:
        """Return the words that say what is asked about."""
        return tuple(w for i, w in enumerate(self.words) if i != self.amount_at and is_content(w))


def is_ranking(word: str) -> bool:
    """Tell whether a lower-case word asks for the top or bottom of a ranking."""
    return word in RANKING or (word.endswith("est") and len(word) > MIN_SUPERLATIVE_CHARS)


def parts(question: str) -> list[Part]:
    """Return the one to four parts of a question; any further parts stay in the last one."""
    text = question.strip()[:MAX_QUESTION_CHARS]
    pieces: list[str] = []
    begin = 0
    for cut in _CUT.finditer(text):
        if len(pieces) == MAX_PARTS - 1:
            break
        if any(map(is_content, words(text[begin : cut.start()]))):
            pieces.append(text[begin : cut.start()])
            begin = cut.end()
    pieces.append(text[begin:])
    made = [_part(piece.strip()) for piece in pieces if piece.strip()]
    return [part for part in made if part.content() or part.points_back] or made[:1]


def _part(text: str) -> Part:
    found = tuple(words(text))
    at = _amount_at(found)
    return Part(
        text=text,
        words=found,
        points_back=any(word.text.casefold() in _POINTING for word in found)
        or _ELLIPTIC.match(text) is not None,
        asks_count=any(
            (one.text.casefold(), two.text.casefold()) in _COUNTING for one, two in pairwise(found)
        ),
        amount=None if at is None else _number(found[at].text),
        amount_at=at,
    )


def _amount_at(found: tuple[Word, ...]) -> int | None:
    """Return the place of a number next to a ranking word (`top 5`, `five densest`)."""
    for place, word in enumerate(found):
        number = _number(word.text)
        if number is None or not 1 <= number <= MAX_AMOUNT:
            continue
        before = found[place - 1].text.casefold() if place else ""
        after = [w.text.casefold() for w in found[place + 1 : place + 4]]
        if before in RANKING or any(map(is_ranking, after)):
            return place
        if not word.text.isdecimal() and after and after[0].endswith("s") and number > 1:
            return place
    return None


def _number(text: str) -> int | None:
    if text.isdecimal():  # `²` is a digit, but no number
        return int(text)
    return _NUMBER_WORDS.get(text.casefold())
