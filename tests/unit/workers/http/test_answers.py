"""What is read of an answer over HTTP or NATS."""

import codecs
from typing import Any

import pytest

from hocket.workers.http import remote_calls
from hocket.workers.http.remote_calls import DECODED_AT_ONCE_BYTES, text_value

ODD = bytes(range(256)) * 200
ENCODINGS = [
    "utf-8",
    "cp1252",
    "iso8859-3",
    "utf-16-le",
    "utf-32-le",
    "shift_jis",
    "gb18030",
    "ascii",
]


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_a_long_text_is_what_it_would_be_at_once(encoding: str) -> None:
    assert len(ODD) > 2 * DECODED_AT_ONCE_BYTES
    assert await text_value(ODD, encoding) == ODD.decode(encoding, "replace")
    text = "grün " * 10_000 if encoding != "ascii" else "green " * 10_000
    known = text.encode(encoding, "ignore")
    assert await text_value(known, encoding) == known.decode(encoding)


@pytest.mark.parametrize("times", [10, DECODED_AT_ONCE_BYTES], ids=("short", "long"))
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "UTF16"])
async def test_a_text_that_does_not_say_the_order_of_its_bytes_begins_with_the_lower(
    encoding: str, times: int
) -> None:
    text, bits = "grün;żółć\n" * times, encoding[-2:]
    assert await text_value(text.encode(f"utf-{bits}-le"), encoding) == text
    assert await text_value(f"\ufeff{text}".encode(f"utf-{bits}-le"), encoding) == text
    assert await text_value(f"\ufeff{text}".encode(f"utf-{bits}-be"), encoding) == text


async def test_a_long_text_is_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder lets nothing else in the process go on, not even from a thread."""
    lengths: list[int] = []

    class Counting(codecs.getincrementaldecoder("cp1252")):  # type: ignore[misc]
        def decode(self, data: Any, final: bool = False) -> str:
            lengths.append(len(data))
            text: str = super().decode(data, final)
            return text

    monkeypatch.setattr(remote_calls.codecs, "getincrementaldecoder", lambda _name: Counting)
    body = b"\x81" * 100_000
    assert await text_value(body, "cp1252") == "\ufffd" * 100_000
    assert sum(lengths) == 100_000
    assert max(lengths) <= DECODED_AT_ONCE_BYTES
