"""Personal data in texts: found by patterns, replaced by placeholders, and put back into answers.

A placeholder consists of the kind and a number (`<EMAIL_1>`); within one call the same value always
gets the same placeholder, so a model can still tell people apart. Patterns start at a boundary and
are bounded, so no text makes them slow. Text that only looks like a card, an account or an address
is left alone: cards must pass the Luhn check, IBANs that of ISO 7064, and addresses must parse. Cards
and accounts are searched for at every group of a run of them, because other numbers may stand next
to them.

A search in Python holds all other threads up and cannot be stopped. So a long text is searched a
slice at a time; slices overlap, so that the same is found as in the whole.
"""

import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from string import ascii_uppercase

MAX_PATTERNS = 32
MAX_VALUES = 10_000
"""The most distinct values in one call;
further ones share the last placeholder and cannot be put back."""
_TAGS: tuple[str, ...] = ("", *"xyzabcdefghijklmnopqrstuvw")

SLICE_CHARS = 65_536
"""How much of a text is searched at a time."""
_MAX_PLACEHOLDER_CHARS = 75
_AFTER_CHARS = 2
"""How far the expressions of the kinds here look beyond a value."""
_ESCAPES = re.compile(r"\\+(?:u[0-9A-Fa-f]{4}|[nrtbf])?")
"""Escapes of JSON, whose last letter would otherwise count as one of the word that follows."""
_DOMAIN = r"@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,63}(?![\w-])"
_ESCAPED_ADDRESS = re.compile(
    r"\\++(?:[nrtbf]|(?!u[0-9A-Fa-f]{4}))"
    rf"|((?:[\w.%+-]|\\+u[0-9A-Fa-f]{{4}}){{1,64}}{_DOMAIN})"
    r"|(?:[\w.%+-]++|\\+u[0-9A-Fa-f]{4})+"
)
"""An escape that is no letter, or (the group) what may be an e-mail address with escaped letters in it,
or a run of characters that none ends."""
_NO_ADDRESS = re.compile(r"[^\w.%+@\\-]")
"""A character that is in nothing that _ESCAPED_ADDRESS matches."""
_ESCAPED_BEGIN = r"\\(?<!\\\\)((?:\\\\)*)u003[cC]"
"""An escape of `<`, as which some encoders write it in JSON, after any escaped backslashes (the group);
the first backslash must be that of a run of them, or half of an escaped one would count."""
_BEGIN = re.compile("<")
_BEGIN_IN_JSON = re.compile(rf"<|{_ESCAPED_BEGIN}")
_UNFINISHED = re.compile(r"(?=<\w*\Z)", re.ASCII)
_UNFINISHED_IN_JSON = re.compile(
    r"(?=(?:<|\\u003[cC])\w*(?:\\(?:u0{0,2}3?)?)?\Z|\\(?:u0{0,2}3?)?\Z)", re.ASCII
)
"""Where at the end of a text something begins that may become a placeholder; in JSON one whose `<` or
`>` is escaped, which is cut anywhere."""
_ESCAPES_CHARS = 2 * len(r"\u003c") - 2
"""How much longer a placeholder is whose `<` and `>` are escaped."""
_CHARACTER = re.compile(r"(\\+)u([0-9A-Fa-f]{4})|.", re.DOTALL)
_DIGITS = re.compile(r"\D")
_MIN_PHONE_DIGITS, _MAX_PHONE_DIGITS = 7, 15
_IBAN_MIN, _IBAN_MAX = 15, 34
_LETTER_NUMBERS = {ord(letter): str(number) for number, letter in enumerate(ascii_uppercase, 10)}
_CARD_MIN, _CARD_MAX = 13, 19
_DOUBLED = bytes((0, 2, 4, 6, 8, 1, 3, 5, 7, 9)).ljust(256)
"""The sum of the digits of a doubled digit."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A kind of personal data: an expression that finds candidates, and a check that confirms them.

    `most_chars` is the length of the longest value; 0: unknown, so a text is searched in one go. With
    `run`, the expression finds where a value may begin, which consists of one or more of the groups
    that `run` matches from there, and of `plain_chars` characters without what separates these.
    """

    kind: str
    regex: re.Pattern[str]
    is_one: Callable[[str], bool] = field(default=bool, compare=False)
    most_chars: int = 0
    run: re.Pattern[str] | None = None
    plain_chars: range = range(0)


def luhn(text: str) -> bool:
    """Tell whether digits pass the Luhn check (ISO/IEC 7812-1)."""
    plain = text.replace(" ", "").replace("-", "")
    if not (_CARD_MIN <= len(plain) <= _CARD_MAX and plain.isdecimal()):
        return False
    digits = bytes(map(int, plain))
    return (sum(digits[::-2]) + sum(digits[-2::-2].translate(_DOUBLED))) % 10 == 0


def iban(text: str) -> bool:
    """Tell whether an account number has the right check digits (ISO 13616, ISO 7064 MOD 97-10)."""
    if len(text) < _IBAN_MIN or not (text[:2].isalpha() and text[2:4].isdigit()):
        return False
    plain = text.replace(" ", "")
    if not _IBAN_MIN <= len(plain) <= _IBAN_MAX:
        return False
    return int((plain[4:] + plain[:4]).translate(_LETTER_NUMBERS)) % 97 == 1


def address(text: str) -> bool:
    """Tell whether a text is an IPv4 or IPv6 address other than the unspecified one."""
    try:
        return not ipaddress.ip_address(text).is_unspecified
    except ValueError:
        return False


def phone(text: str) -> bool:
    """Tell whether a text has as many digits as a phone number (ITU-T E.164)."""
    return _MIN_PHONE_DIGITS <= len(_DIGITS.sub("", text)) <= _MAX_PHONE_DIGITS


PATTERNS: Mapping[str, Pattern] = {
    pattern.kind: pattern
    for pattern in (
        Pattern(
            "EMAIL",
            re.compile(rf"(?<![\w.%+-])[\w.%+-]{{1,64}}{_DOMAIN}"),
            most_chars=64 + 1 + 8 * 64 + 63,
        ),
        Pattern(
            "IBAN",
            re.compile(r"(?<!\w)[A-Z]{2}[0-9]{2}"),
            iban,
            _IBAN_MAX + 8,
            re.compile(r"[A-Z0-9]+(?: [A-Z0-9]+)*"),
            range(_IBAN_MIN, _IBAN_MAX + 1),
        ),
        Pattern(
            "CARD",
            re.compile(rf"(?<![\w.])\d(?=(?:[ -]?\d){{{_CARD_MIN - 1}}})"),
            luhn,
            _CARD_MAX + 6,
            re.compile(r"\d+(?:[ -]\d+)*"),
            range(_CARD_MIN, _CARD_MAX + 1),
        ),
        Pattern(
            "IP",
            re.compile(
                r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}"
                r"|(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4})(?![\w:]|\.\d)"
            ),
            address,
            most_chars=39,
        ),
        Pattern(
            "PHONE",
            re.compile(
                r"(?<![\w.+-])(?:"
                r"(?:\+|00)\d{1,3}[ ./-]?(?:\(\d{1,5}\)[ ./-]?)?\d(?:[ ./-]?\d){4,12}"
                r"|\(\d{2,5}\)[ -]?\d{3,4}(?:[ -]?\d{2,4}){1,3}"
                r"|\d{3}-\d{3}-\d{4}"
                r"|0\d{1,4}[ /-]\d{3,8}(?:[ -]\d{2,5}){0,2}"
                r")(?![\w-]|\.\d)"
            ),
            phone,
            most_chars=39,
        ),
    )
}
"""Patterns by kind, in the order they are applied; text that one has matched is not examined again."""


class MaskingStopped(Exception):
    """Nobody waits for what is masked, or it takes too long."""


class Masks:
    """The placeholders of one call; its methods raise MaskingStopped when it `is_late`."""

    def __init__(
        self,
        patterns: Iterable[Pattern],
        texts: Iterable[str],
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        self._patterns = tuple(patterns)
        self._placeholders: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self.values: dict[str, str] = {}
        """The original value of each placeholder."""
        self._tag = _free_tag([pattern.kind for pattern in self._patterns], texts)
        self._any = re.compile(rf"<[A-Za-z][A-Za-z0-9_]{{0,63}}_{self._tag}[0-9]{{1,6}}>")
        """Matches any placeholder of this call. A single expression, because an alternation of all
        of them would take a step for each at every candidate position."""
        self._any_in_json = re.compile(
            rf"(?:<|{_ESCAPED_BEGIN})([A-Za-z][A-Za-z0-9_]{{0,63}}_{self._tag}[0-9]{{1,6}})"
            r"(?:>|\\u003[eE])"
        )
        self._is_late = is_late

    @property
    def longest(self) -> int:
        """The length of the longest placeholder."""
        return max(map(len, self.values), default=0)

    def check(self) -> None:
        """Raise MaskingStopped if it is too late."""
        if self._is_late():
            raise MaskingStopped

    def mask(self, text: str) -> str:
        """Return a text with the personal data found in it replaced.

        Texts are often JSON: tool calls, tool results, answers by a schema. So what stands between
        escapes is searched by itself first, and no letter of an escape becomes part of a value; only
        e-mail addresses are put together with the letters that are escaped in them.
        """
        if "\\" not in text:
            return self._masked(text)
        if PATTERNS["EMAIL"] in self._patterns:
            text = self._escaped_addresses(text)
        text = self._around_placeholders(text, self._between_escapes)
        return self._around_placeholders(text, self._masked)

    def _around_placeholders(self, text: str, mask: Callable[[str], str]) -> str:
        said: list[str] = []
        told = 0
        for found in self._found(self._any, text, _MAX_PLACEHOLDER_CHARS):
            said += [mask(text[told : found.start()]), found[0]]
            told = found.end()
        return "".join([*said, mask(text[told:])])

    def _between_escapes(self, text: str) -> str:
        said: list[str] = []
        told = 0
        for found in _ESCAPES.finditer(text):
            self.check()
            said += [self._masked(text[told : found.start()]), found[0]]
            told = found.end()
        return "".join([*said, self._masked(text[told:])])

    def _escaped_addresses(self, text: str) -> str:
        """Return a text with the e-mail addresses replaced in which letters are escaped."""
        said: list[str] = []
        told = 0
        while told < len(text):
            self.check()
            border = _NO_ADDRESS.search(text, told + SLICE_CHARS)
            end = len(text) if border is None else border.start()
            said.append(_ESCAPED_ADDRESS.sub(self._with_escaped_address, text[told:end]))
            told = end
        return "".join(said)

    def _with_escaped_address(self, found: re.Match[str]) -> str:
        """Return a match with the e-mail address in it replaced if letters of it are escaped."""
        self.check()
        if not found[1] or "\\" not in found[1]:
            return found[0]
        written = list(_CHARACTER.finditer(found[1]))
        plain = "".join(chr(int(one[2], 16)) if one[2] else one[0] for one in written)
        address = PATTERNS["EMAIL"].regex.search(plain)
        if address is None or not any(one[1] for one in written[slice(*address.span())]):
            return found[0]
        first = written[address.start()]
        slashes = len(first[1] or "")
        literal = slashes - (
            slashes & -slashes
        )  # JSON within JSON doubles those of the escape, too
        begin = first.start() + literal
        return found[1][:begin] + self.placeholder("EMAIL", address[0])

    def _masked(self, text: str) -> str:
        if not text:
            return text
        for pattern in self._patterns:
            said: list[str] = []
            told = 0
            for begin, end in self._values(pattern, text):
                said += [text[told:begin], self.placeholder(pattern.kind, text[begin:end])]
                told = end
            if said:
                text = "".join([*said, text[told:]])
        return text

    def _values(self, pattern: Pattern, text: str) -> Iterator[tuple[int, int]]:
        """Yield where the values of a pattern begin and end in a text."""
        told = 0
        for found in self._found(pattern.regex, text, pattern.most_chars):
            begin, end = found.span()
            if begin < told:
                continue  # a group of the value before
            if pattern.run is not None:
                end = _end_of_groups(pattern, pattern.run, text, begin)
            elif not pattern.is_one(found[0]):
                end = 0
            if end:
                yield begin, end
                told = end

    def _found(self, regex: re.Pattern[str], text: str, most_chars: int) -> Iterator[re.Match[str]]:
        """Yield the matches of an expression, which are up to `most_chars` long (0: unknown), a slice
        at a time."""
        begin = 0
        while most_chars and begin + SLICE_CHARS + most_chars < len(text):
            self.check()
            next_begin = begin + SLICE_CHARS
            for found in regex.finditer(text, begin, next_begin + most_chars + _AFTER_CHARS):
                if found.start() >= next_begin:
                    break  # it may go on beyond this slice
                next_begin = max(next_begin, found.end())
                yield found
            begin = next_begin
        self.check()
        for found in regex.finditer(text, begin):
            self.check()
            yield found

    def placeholder(self, kind: str, value: str) -> str:
        """Return the placeholder of a value."""
        known = self._placeholders.get((kind, value))
        if known is not None:
            return known
        if len(self.values) >= MAX_VALUES:
            return f"<{kind}_{self._tag}{MAX_VALUES + 1}>"
        self._counts[kind] = self._counts.get(kind, 0) + 1
        made = f"<{kind}_{self._tag}{self._counts[kind]}>"
        self._placeholders[kind, value] = made
        self.values[made] = value
        return made

    def unmask(self, text: str) -> str:
        """Return a text with the values put back."""
        if "<" not in text or not self.values:
            return text
        return self._restored(self._any, self._value, _slices(text, _BEGIN))

    def unmask_json(self, text: str) -> str:
        """Return JSON as text with the values put back into its strings."""
        if not self.values or ("<" not in text and "\\u003" not in text):
            return text
        slices = _slices(text, _BEGIN_IN_JSON)
        return self._restored(self._any_in_json, self._value_in_json, slices)

    def _restored(
        self,
        placeholders: re.Pattern[str],
        value: Callable[[re.Match[str]], str],
        slices: Iterator[str],
    ) -> str:
        return "".join(placeholders.sub(value, one) for one in slices)

    def _value(self, found: re.Match[str]) -> str:
        return self.values.get(found[0], found[0])

    def _value_in_json(self, found: re.Match[str]) -> str:
        value = self.values.get(f"<{found[2]}>")
        return found[0] if value is None else (found[1] or "") + _in_json(value)


class Unmasking:
    """Puts values back into a streamed text, or into the strings of a streamed one that is JSON.

    Whatever may be the beginning of a placeholder is held back until it is certain.
    """

    def __init__(self, masks: Masks, *, in_json: bool = False) -> None:
        self._in_json = in_json
        self._longest = masks.longest + (_ESCAPES_CHARS if in_json else 0)
        self._unmask = masks.unmask_json if in_json else masks.unmask
        self._held = ""

    def piece(self, text: str) -> str:
        """Return the text that can be released after one more piece."""
        text = self._held + text
        begin = self._unfinished(text)
        self._held = text[begin:]
        return self._unmask(text[:begin])

    def rest(self) -> str:
        """Return the text still held back at the end."""
        held, self._held = self._held, ""
        return held

    def _unfinished(self, text: str) -> int:
        """Return where at the end of a text a placeholder may begin that is not complete."""
        begins = _UNFINISHED_IN_JSON if self._in_json else _UNFINISHED
        for found in begins.finditer(text, max(len(text) - self._longest + 1, 0)):
            if text[found.start()] == "<" or not _is_escaped(text, found.start()):
                return found.start()
        return len(text)


def _end_of_groups(pattern: Pattern, run: re.Pattern[str], text: str, begin: int) -> int:
    """Return where the longest value that begins here ends, 0 if none does; other numbers may follow
    it."""
    found = run.match(text, begin, begin + pattern.most_chars + 1)  # 1: does the last group end?
    groups = found[0].replace("-", " ").split(" ") if found else []
    ends = [
        begin + chars + separators
        for separators, chars in enumerate(accumulate(map(len, groups)))
        if chars in pattern.plain_chars and chars + separators <= pattern.most_chars
    ]
    return next((end for end in reversed(ends) if pattern.is_one(text[begin:end])), 0)


def _slices(text: str, begins: re.Pattern[str]) -> Iterator[str]:
    """Yield a text in slices that begin no placeholder which they do not end; `begins` matches where
    one may begin."""
    begin = 0
    while begin < len(text):
        found = begins.search(text, begin + SLICE_CHARS)
        end = len(text) if found is None else found.start()
        yield text[begin:end]
        begin = end


def _is_escaped(text: str, at: int) -> bool:
    """Tell whether a character of JSON follows a backslash that is not escaped itself."""
    before = text[:at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _in_json(value: str) -> str:
    text: str = json.dumps(value, ensure_ascii=False)
    return text[1:-1]


def _free_tag(kinds: Iterable[str], texts: Iterable[str]) -> str:
    """Return a tag for placeholders such that none of them occurs in the texts already."""
    kinds, texts = list(kinds), list(texts)
    texts += [_with_begins(text) for text in texts if "\\u003" in text]
    for tag in _TAGS:
        if not any(f"<{kind}_{tag}" in text for kind in kinds for text in texts):
            return tag
    return "q0"


def _with_begins(text: str) -> str:
    """Return a text with each `<` that is escaped in it as itself."""
    return text.replace("\\u003c", "<").replace("\\u003C", "<")
