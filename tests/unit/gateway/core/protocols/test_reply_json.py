"""JSON of servers that cut a character in two."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.gateway.core.protocols import reply_json
from hocket.gateway.core.protocols.reply_json import reply_value

ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.text('a\ud83d\ude00\\"u')


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (rb'"a\ud83d"', "a\ufffd"),
        (rb'"\ude00b"', "\ufffdb"),
        (rb'"\uD83D\uDE00"', "\U0001f600"),
        (rb'"\ud83d\ud83d\ude00\ude00"', "\ufffd\U0001f600\ufffd"),
        (rb'"\\ud83d \ud83d"', r"\ud83d " + "\ufffd"),
        (rb'{"\ud83d": ["\u0041\ud83d\n"]}', {"\ufffd": ["A\ufffd\n"]}),
    ],
)
def test_half_a_character_becomes_the_sign_for_one_that_cannot_be_shown(
    content: bytes, expected: Any
) -> None:
    assert reply_value(content) == expected


@given(st.lists(ANY_TEXT))
def test_every_text_is_read_as_its_whole_characters(texts: list[str]) -> None:
    written = json.dumps(texts)
    whole = [one.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for one in texts]
    assert reply_value(written.encode()) == whole


@pytest.mark.parametrize("content", [rb'{"a": NaN}', b'"\xff"', rb'"\ud8', rb'"\ud83d', b"\\", b""])
def test_what_is_not_json_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="line 1"):
        reply_value(content)


def test_a_large_document_is_not_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_json, "SMALL_BYTES", 4)
    with pytest.raises(ValueError, match="escape"):
        reply_value(rb'"a\ud83d"')
