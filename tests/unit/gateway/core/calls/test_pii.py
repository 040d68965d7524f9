"""Personal data in long texts: found a slice at a time, as in the whole."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.gateway.core.calls import pii
from hocket.gateway.core.calls.pii import PATTERNS, MaskingStopped, Masks, Pattern

PARTS = (
    *("ada@example.org", "x" * 70 + "@a.example.org", "bob@example", "@exa.mple-", "@", "<EMAIL_1>"),
    *("DE89 3704 0044 0532 0130 00", "DE89370400440532013000", "DE89370400440532013000abc"),
    *("4111 1111 1111 1111", "4111-1111-1111-1111", "378282246310005", "x4111111111111111"),
    *("1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "12 34 ", "AB12 ", "A ", "1" * 40, "-1", ".4"),
    *("10.0.0.1", "fe80::1", "2001:db8::7", "+49 30 1234567", "(030) 123 4567", "555-555-0142"),
    *("\\n", "\\u0041", "\\\\u0062", "\\", "bob\\u0040x@example.org", '{"a": "', '"}', "\n"),
    *(" ", "  ", ".", "a", "\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{ARABIC-INDIC DIGIT THREE}" * 16),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=40), st.integers(1, 100))
def test_a_text_in_slices_is_masked_as_it_is_as_a_whole(parts: list[str], slice_chars: int) -> None:
    text = "".join(parts)
    whole, sliced = (Masks(PATTERNS.values(), [text]) for _ in range(2))
    expected = whole.mask(text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pii, "SLICE_CHARS", slice_chars)
        said = sliced.mask(text)
    assert (said, sliced.values) == (expected, whole.values)


def test_cards_and_accounts_are_those_of_a_run_that_the_checks_confirm() -> None:
    """The search skips groups that cannot be one; trying every beginning and end finds the same."""
    dice = random.Random(7)
    for _ in range(200):
        groups = [str(dice.randrange(10 ** dice.randint(1, 8))) for _ in range(12)]
        text = " ".join(groups)
        masks = Masks([PATTERNS["CARD"]], [text])
        masks.mask(text)
        assert list(masks.values.values()) == list(dict.fromkeys(_cards(text)))


def _cards(text: str) -> list[str]:
    """Return the cards among groups, as described: from left to right, the longest first."""
    ends = [place for place, char in enumerate(text + " ") if char == " "]
    begins = [0, *(end + 1 for end in ends[:-1])]
    found: list[str] = []
    told = 0
    for begin in begins:
        most = min(len(text), begin + PATTERNS["CARD"].most_chars)
        values = [text[begin:end] for end in ends if begin < end <= most]
        card = next((one for one in reversed(values) if pii.luhn(one)), None)
        if begin >= told and card is not None:
            found.append(card)
            told = begin + len(card)
    return found


@pytest.mark.parametrize("part", ["1234567", "<A_1>", "a", "lorem ipsum ", "("])
@pytest.mark.parametrize("begin", ["", "\\n"])
def test_a_long_search_looks_now_and_then_whether_it_is_late(part: str, begin: str) -> None:
    """A single search holds all threads up; of a text of 60 MB it takes many seconds."""
    looks = 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        return False

    slices = 8
    text = begin + part * (slices * pii.SLICE_CHARS // len(part))
    assert Masks(PATTERNS.values(), (), look).mask(text) == text
    assert looks >= len(PATTERNS) * (slices - 1)


def test_what_is_late_is_given_up() -> None:
    with pytest.raises(MaskingStopped):
        Masks(PATTERNS.values(), (), lambda: True).mask("a")


def test_a_pattern_of_ones_own_is_searched_in_the_whole_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pii, "SLICE_CHARS", 3)
    own = Pattern("ID", re.compile("(?m)^[a-z]+$"))
    assert Masks([own], []).mask("abcdefghijkl\nM\nop") == "<ID_1>\nM\n<ID_2>"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from((*PARTS, "<", "<A_1", ">")), max_size=40), st.integers(1, 100))
def test_values_are_put_back_into_a_text_in_slices(parts: list[str], slice_chars: int) -> None:
    text = "".join(parts)
    masks = Masks(PATTERNS.values(), [text])
    said = masks.mask(text)
    whole = masks.unmask(said)  # a value is put back without escapes of JSON
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pii, "SLICE_CHARS", slice_chars)
        assert masks.unmask(said) == whole
        assert "".join(pii._slices(said, pii._BEGIN)) == said
