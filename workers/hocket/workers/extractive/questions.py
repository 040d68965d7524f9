"""A question as parts that can be answered one by one. Pure."""

import re
from dataclasses import dataclass
from typing import Final

from hocket.workers.extractive.words import Word, is_content, words

MAX_PARTS: Final = 4
MAX_QUESTION_CHARS: Final = 4_000

_ASKING: Final = (
    "what|which|who|whom|whose|when|where|why|how|is|are|was|were|does|do|did|has|have|can|"
    "list|compare|show|tell|give|name|describe|explain"
)
_CUT: Final = re.compile(
    rf"(?<=[?!;])\s+|\s*[;\n]\s*|(?<=[a-z0-9)])\.\s+|,?\s+(?:and|but)\s+(?:also\s+)?(?=(?:in\s+|by\s+)?(?:{_ASKING})\b)",
    re.IGNORECASE,
)
_POINTING: Final = frozenset(
    {"it", "its", "they", "their", "them", "this", "these", "those", "that"}
)
_NUMBER_WORDS: Final = {
    word: number
    for number, word in enumerate(
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
        "sixteen seventeen eighteen nineteen twenty".split(),
        1,
    )
}
_RANKING: Final = frozenset(
    "top first highest lowest largest smallest greatest most least best worst biggest".split()
)
MAX_AMOUNT: Final = 50


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a question. `words` are all its words; `points_back` tells that it says `it`."""

    text: str
    words: tuple[Word, ...]
    points_back: bool
    amount: int | None
    """How many are asked for (`the five densest`), with the place of the word that says so."""
    amount_at: int | None

    def content(self) -> tuple[Word, ...]:
        """Return the words that say what is asked about."""
        return tuple(w for i, w in enumerate(self.words) if i != self.amount_at and is_content(w))


def parts(question: str) -> list[Part]:
    """Return the one to four parts of a question; what is beyond is left in the last one."""
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
        points_back=any(word.text.casefold() in _POINTING for word in found),
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
        if before in _RANKING or any(w in _RANKING or w.endswith("est") for w in after):
            return place
        if not word.text.isdigit() and after and after[0].endswith("s") and number > 1:
            return place
    return None


def _number(text: str) -> int | None:
    if text.isdigit():
        return int(text)
    return _NUMBER_WORDS.get(text.casefold())
