"""Personal data in texts: found by patterns, replaced by placeholders, and put back into answers.

A placeholder consists of the kind and a number (`<EMAIL_1>`); within one call the same value always
gets the same placeholder, so a model can still tell people apart. Patterns start at a boundary and
are bounded or cannot backtrack, so no text makes them slow. Text that only looks like a card, an
account or an address is left alone: cards must pass the Luhn check, IBANs that of ISO 7064, and
addresses must parse. Cards and accounts are searched for within every run of digit groups, because
other numbers may stand next to them.
"""

import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

MAX_PATTERNS = 32
MAX_VALUES = 10_000
"""The most distinct values in one call;
further ones share the last placeholder and cannot be put back."""
_TAGS: tuple[str, ...] = ("", *"xyzabcdefghijklmnopqrstuvw")

_GROUP = re.compile(r"[^ -]+")
_ESCAPES = re.compile(r"(\\+(?:u[0-9A-Fa-f]{4}|[nrtbf])?)")
"""Escapes of JSON, whose last letter would otherwise count as one of the word that follows."""
_DOMAIN = r"@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,63}(?![\w-])"
_ESCAPED_ADDRESS = re.compile(
    r"\\++(?:[nrtbf]|(?!u[0-9A-Fa-f]{4}))"
    rf"|((?:[\w.%+-]|\\+u[0-9A-Fa-f]{{4}}){{1,64}}{_DOMAIN})"
    r"|(?:[\w.%+-]|\\+u[0-9A-Fa-f]{4})++"
)
"""An escape that is no letter, or (the group) what may be an e-mail address with escaped letters in it,
or a run of characters that none ends."""
_CHARACTER = re.compile(r"(\\+)u([0-9A-Fa-f]{4})|.", re.DOTALL)
_DIGITS = re.compile(r"\D")
_MIN_PHONE_DIGITS, _MAX_PHONE_DIGITS = 7, 15
_IBAN_MIN, _IBAN_MAX = 15, 34
_CARD_MIN, _CARD_MAX = 13, 19


@dataclass(frozen=True, slots=True)
class Pattern:
    """A kind of personal data: an expression that finds candidates, and a check that confirms them.

    With `most_chars`, the expression finds a run of groups that may contain values of up to that
    many characters.
    """

    kind: str
    regex: re.Pattern[str]
    is_one: Callable[[str], bool] = field(default=bool, compare=False)
    most_chars: int = 0


def luhn(text: str) -> bool:
    """Tell whether digits pass the Luhn check (ISO/IEC 7812-1)."""
    if len(text) < _CARD_MIN:
        return False
    plain = text.replace(" ", "").replace("-", "")
    if not (_CARD_MIN <= len(plain) <= _CARD_MAX and plain.isdecimal()):
        return False
    digits = list(map(int, plain))
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[::-2]) + sum(doubled)) % 10 == 0


def iban(text: str) -> bool:
    """Tell whether an account number has the right check digits (ISO 13616, ISO 7064 MOD 97-10)."""
    if len(text) < _IBAN_MIN or not (text[:2].isalpha() and text[2:4].isdigit()):
        return False
    plain = text.replace(" ", "")
    if not _IBAN_MIN <= len(plain) <= _IBAN_MAX:
        return False
    return int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1


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
        ),
        Pattern("IBAN", re.compile(r"(?<!\w)[A-Z0-9]+(?: [A-Z0-9]+)*"), iban, _IBAN_MAX + 8),
        Pattern("CARD", re.compile(r"(?<![\w.])\d+(?:[ -]\d+)*"), luhn, _CARD_MAX + 6),
        Pattern(
            "IP",
            re.compile(
                r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}"
                r"|(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4})(?![\w:]|\.\d)"
            ),
            address,
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
        ),
    )
}
"""Patterns by kind, in the order they are applied; text that one has matched is not examined again."""


class MaskingStopped(Exception):
    """Nobody waits for what is masked."""


class Masks:
    """The placeholders of one call."""

    def __init__(self, patterns: Iterable[Pattern], texts: Iterable[str]) -> None:
        self._patterns = tuple(patterns)
        self._placeholders: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self.values: dict[str, str] = {}
        """The original value of each placeholder."""
        self._tag = _free_tag([pattern.kind for pattern in self._patterns], texts)
        self._any = re.compile(rf"(<[A-Za-z][A-Za-z0-9_]{{0,63}}_{self._tag}[0-9]{{1,6}}>)")
        """Matches any placeholder of this call. A single expression, because an alternation of all
        of them would take a step for each at every candidate position."""
        self.stopped = False
        """Set when nobody waits for the result any more; may be set from another thread."""

    @property
    def longest(self) -> int:
        """The length of the longest placeholder."""
        return max(map(len, self.values), default=0)

    def check(self) -> None:
        """Raise MaskingStopped if nobody waits any more."""
        if self.stopped:
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
            text = _ESCAPED_ADDRESS.sub(self._with_escaped_address, text)
        text = self._around_placeholders(text, self._between_escapes)
        return self._around_placeholders(text, self._masked)

    def _around_placeholders(self, text: str, mask: Callable[[str], str]) -> str:
        between = self._any.split(text)  # every second part is a placeholder
        between[::2] = map(mask, between[::2])
        return "".join(between)

    def _between_escapes(self, text: str) -> str:
        parts = _ESCAPES.split(text)
        return "".join(
            self._masked(part) if part and not part.startswith("\\") else part for part in parts
        )

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
        self.check()
        for pattern in self._patterns:

            def replaced(found: re.Match[str], pattern: Pattern = pattern) -> str:
                return self._replaced(found.group(), pattern)

            text = pattern.regex.sub(replaced, text)
        return text

    def _replaced(self, found: str, pattern: Pattern) -> str:
        """Return a match with its personal data replaced: all of it, or those runs of its groups
        that are valid values, longest first, because other numbers may stand next to them."""
        self.check()
        if not pattern.most_chars:
            is_one = pattern.is_one(found)
            return self.placeholder(pattern.kind, found) if is_one else found
        groups = [one.span() for one in _GROUP.finditer(found)]
        said: list[str] = []
        first = told = 0
        while first < len(groups):
            self.check()
            begin = groups[first][0]
            last = first
            while last + 1 < len(groups) and groups[last + 1][1] - begin <= pattern.most_chars:
                last += 1
            while last >= first and not pattern.is_one(found[begin : groups[last][1]]):
                last -= 1
            if last >= first:
                end = groups[last][1]
                said += [found[told:begin], self.placeholder(pattern.kind, found[begin:end])]
                told = end
            first = max(last, first) + 1
        return "".join([*said, found[told:]])

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
        return self._any.sub(lambda found: self.values.get(found.group(), found.group()), text)

    def unmask_json(self, text: str) -> str:
        """Return JSON as text with the values put back into its strings."""
        if "<" not in text or not self.values:
            return text
        return self._any.sub(
            lambda found: _in_json(self.values.get(found.group(), found.group())), text
        )


class Unmasking:
    """Puts values back into a streamed text.

    Whatever may be the beginning of a placeholder is held back until it is certain.
    """

    def __init__(self, masks: Masks, unmask: Callable[[str], str]) -> None:
        self._longest = masks.longest
        self._unmask = unmask
        self._held = ""

    def piece(self, text: str) -> str:
        """Return the text that can be released after one more piece."""
        text = self._held + text
        begin = text.rfind("<")
        if begin < 0 or ">" in text[begin:] or len(text) - begin >= self._longest:
            self._held = ""
            return self._unmask(text)
        self._held = text[begin:]
        return self._unmask(text[:begin])

    def rest(self) -> str:
        """Return the text still held back at the end."""
        held, self._held = self._held, ""
        return held


def _in_json(value: str) -> str:
    text: str = json.dumps(value, ensure_ascii=False)
    return text[1:-1]


def _free_tag(kinds: Iterable[str], texts: Iterable[str]) -> str:
    """Return a tag for placeholders such that none of them occurs in the texts already."""
    kinds, texts = list(kinds), list(texts)
    for tag in _TAGS:
        if not any(f"<{kind}_{tag}" in text for kind in kinds for text in texts):
            return tag
    return "q0"
