"""Values that code may choke on, each as the text in which it arrives, with the expected result.

An accepted value is read back as `expected`; for the others `refused` is a word of the reason. The rule
is docs/reference/values.md.
"""

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 64
MAX_PACKED_BYTES = 2_000


@dataclass(frozen=True)
class Value:
    """A value as JSON text, possibly invalid; `refused` is set if it is not accepted."""

    name: str
    text: bytes
    refused: str | None = None

    @property
    def expected(self) -> Any:
        """What is read back if it is accepted."""
        assert self.refused is None
        return json.loads(self.text)


def carried(name: str, value: Any) -> Value:
    return Value(name, json.dumps(value).encode())


CARRIED = (
    carried("right to left", "\u202egnp.exe\u2066x\u2069\u200f"),
    carried("zero width", "a\u200b\u200d\u2060b\ufeff"),
    carried("line separators", "a\u2028b\u2029c\u0085d"),
    carried("emoji", "👩‍👩‍👧‍👦🏳️‍🌈"),
    carried("combining", "Z\u0351\u036b\u0343a\u0300" * 5),
    carried("not characters", "\ufffe\uffff\U0010ffff"),
    carried("replacement", "\ufffd"),
    carried("empty", ""),
    carried("spaces", " \t\n\r "),
    carried("control characters", "".join(map(chr, range(1, 32))) + "\x7f\x80\x9f"),
    carried("terminal", "\x1b[31mred\x1b]0;title\x07\x1b[2J\x9b31m"),
    carried("template", "{{ 7*7 }}{% for x in range(9) %}{{ x }}{% endfor %}{# #}"),
    carried("template of a secret", "{{ env.DATABASE_URL }}{{ ''.__class__.__mro__ }}"),
    carried("sql", "'; DROP TABLE hocket.run; --"),
    carried("html", "<script>alert(1)</script>&amp;"),
    carried("newlines of SSE", "a\n\nevent: run\ndata: {}\n\n"),
    carried("escaped nul as text", "\\u0000 \\ud800 %00"),
    carried("the key of objects", {"__proto__": {"x": 1}, "constructor": 1, "__class__": 2}),
    carried("an empty key", {"": {"": ""}}),
    carried("a key of spaces", {" ": 1, "a b": 2, "a.b": 3, "a[0]": 4}),
    carried("a key of control characters", {"\x1b[31m\u202e\n": 1}),
    carried("a long key", {"k" * 20_000: 1}),
    carried("many keys", {f"k{n}": n for n in range(2_000)}),
    carried("a long text", "x" * 200_000),
    carried("2^53+1", 2**53 + 1),
    carried("2^63", 2**63),
    carried("-2^63-1", -(2**63) - 1),
    carried("2^70", 2**70),
    carried("1000 digits", 10**1_000 - 1),
    Value("1e-400", b"1e-400"),
    Value("-0.0", b"-0.0"),
    Value("1e308", b"1.7976931348623157e308"),
    carried("0.1", 0.1),
    carried("null, true, []", [None, True, False, [], {}]),
    carried("depth 63", json.loads("[" * 62 + "]" * 62)),
    *(
        carried(f"money {text!r}", text)
        for text in ("1e-20000", "1e200000", "-0", "NaN", "0x10", " 1", "\u0661", "1_000")
    ),
)

REFUSED = (
    Value("nul", b'"a\\u0000b"', "U+0000"),
    Value("nul, raw", b'"a\x00b"', "not JSON"),
    Value("nul in a key", b'{"a\\u0000": 1}', "U+0000"),
    Value("first half", b'"\\ud800"', "surrogate"),
    Value("second half", b'"x\\udfff"', "surrogate"),
    Value("halves in a key", b'{"\\ud800": 1}', "surrogate"),
    Value("halves, raw", b'"\xed\xa0\x80"', "UTF-8"),
    Value("halves the wrong way", b'"\\udc00\\ud800"', "surrogate"),
    Value("not UTF-8", b'"\xff\xfe"', "UTF-8"),
    Value("overlong", b'"\xc0\x80"', "UTF-8"),
    Value("NaN", b"NaN", "NaN"),
    Value("Infinity", b"[Infinity]", "Infinity"),
    Value("-Infinity", b"-Infinity", "Infinity"),
    Value("1e400", b"1e400", "finite"),
    Value("-1e400", b"[-1e400]", "finite"),
    Value("1001 digits", b"1" * 1_001, "1000 digits"),
    Value("5000 digits", b"1" * 5_000, "1000 digits"),
    Value("100,000 digits", b"1" * 100_000, "1000 digits"),
    Value("depth 65", b"[" * 64 + b"]" * 64, "64 levels"),
    Value("depth 250", b'{"a":' * 250 + b"1" + b"}" * 250, "64 levels"),
    Value("depth 100,000", b"[" * 100_000 + b"]" * 100_000, "64 levels"),
    Value("a key twice", b'{"a": 1, "a": 2}', "twice"),
    Value("a key twice, escaped", b'{"a": 1, "\\u0061": 2}', "twice"),
    Value("a comment", b"1 /* one */", "not JSON"),
    Value("hexadecimal", b"0x10", "not JSON"),
    Value("a leading zero", b"01", "not JSON"),
    Value("a trailing comma", b"[1,]", "not JSON"),
    Value("single quotes", b"'a'", "not JSON"),
    Value("nothing", b"", "not JSON"),
    Value("a mark of byte order", b'\xef\xbb\xbf"a"', "not JSON"),
)


def packed(values: Iterable[Value]) -> list[Value]:
    """Return the small values packed into one list, and the large and deep ones as they are."""
    small, other = [], []
    for value in values:
        alone = len(value.text) > MAX_PACKED_BYTES or value.name.startswith("depth")
        (other if alone else small).append(value)
    return [Value("many in a list", b"[" + b",".join(one.text for one in small) + b"]"), *other]


def mixtures(seed: int, count: int) -> list[Value]:
    """Return random structures with hostile parts in random places; if one part is refused, so is the
    whole."""
    chance = random.Random(seed)
    plain = [one for one in CARRIED if len(one.text) < 500 and not one.name.startswith("depth")]
    return [_mixture(chance, f"mixture {seed}/{n}", plain) for n in range(count)]


def _mixture(chance: random.Random, name: str, plain: list[Value]) -> Value:
    bad = chance.choice([None, *REFUSED]) if chance.random() < 0.5 else None
    texts = [chance.choice(plain).text for _ in range(chance.randint(1, 6))]
    if bad is not None and len(bad.text) < 5_000:
        texts.insert(chance.randrange(len(texts) + 1), bad.text)
    else:
        bad = None
    body = b""
    for index, text in enumerate(texts):
        body = b'{"%d": [%s], "t": %s}' % (index, text, body or b"null")
    return Value(name, body, bad.refused if bad is not None else None)
