"""Server-sent events, in every way in which the standard lets a server write them."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.gateway.core.protocols import event_lines
from hocket.gateway.core.protocols.event_lines import DONE, EventData, EventLines
from hocket.gateway.core.protocols.json_size import QUICK_BYTES

FIRST, SECOND = b'{"a": 1}', b'{"b": [2, {"c": 3}]}'
STREAM = b"".join(
    [
        b": it lives\n\nid: 1\nevent: x\n",
        *(b"data: " + one + b"\n\n" for one in (FIRST, SECOND, DONE)),
    ]
)
WRITTEN = {
    "line feeds": STREAM,
    "carriage returns": STREAM.replace(b"\n", b"\r"),
    "both": STREAM.replace(b"\n", b"\r\n"),
    "a mark at the beginning": b"\xef\xbb\xbf" + STREAM.removeprefix(b": it lives\n\n"),
    "no space": STREAM.replace(b"data: ", b"data:"),
    "no empty lines": STREAM.replace(b"\n\n", b"\n"),
    "several lines": STREAM.replace(
        SECOND, json.dumps(json.loads(SECOND), indent=1).encode().replace(b"\n", b"\ndata: ")
    ),
}


def events(*pieces: bytes) -> list[bytes]:
    lines, data = EventLines(), EventData()
    return [found for piece in pieces for line in lines.add(piece) if (found := data.add(line))]


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN.keys())
def test_events_are_the_same_however_they_are_written(written: bytes) -> None:
    *objects, last = events(written)
    assert [json.loads(one) for one in objects] == [json.loads(FIRST), json.loads(SECOND)]
    assert last == DONE


@given(st.sampled_from(sorted(WRITTEN.values())), st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_events_are_the_same_however_they_arrive(written: bytes, cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(written)]
    pieces = [written[begin:end] for begin, end in pairwise(bounds)]
    assert events(*filter(None, pieces)) == events(written)


def test_an_event_is_returned_as_soon_as_it_is_whole() -> None:
    lines, data = EventLines(), EventData()
    (line,) = lines.add(b"data: " + FIRST + b"\r")
    assert data.add(line) == FIRST


def test_the_size_of_an_event_in_several_lines_is_known() -> None:
    data = EventData()
    assert [data.add(b"data: {"), data.add(b'data: "a": 1')] == [b"", b""]
    assert data.held_bytes == len(b'{\n"a": 1\n')
    assert json.loads(data.add(b"data: }") or data.add(b"")) == {"a": 1}
    assert data.held_bytes == 0


BRACES = json.dumps({"text": "if x {"}).encode()


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b'data: {"a":{}\ndata: }\n\n', [b'{"a":{}\n}']),
        (b'data: {"a":{"b":1}\ndata: ,"c":{}\ndata: }\n\n', [b'{"a":{"b":1}\n,"c":{}\n}']),
        (b"data: " + BRACES + b"\ndata: " + BRACES + b"\n", [BRACES, BRACES]),
        (b'data: {"a":{}\n\ndata: ' + FIRST + b"\n\n", [b'{"a":{}', FIRST]),
        (b"data: ping\ndata: " + FIRST + b"\n", [b"ping", FIRST]),
        (b"data: [1,\ndata: " + FIRST + b"\n", [b"[1,", FIRST]),
    ],
    ids=["first_line", "two_lines", "braces_in_texts", "broken", "no_json", "no_object"],
)
def test_an_event_ends_where_its_object_does(stream: bytes, expected: list[bytes]) -> None:
    assert events(stream) == expected


def test_an_ordinary_event_is_not_parsed_to_find_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = list[bytes]()
    monkeypatch.setattr(event_lines, "reply_value", parsed.append)
    assert events(STREAM) == [FIRST, SECOND, DONE]
    assert parsed == []
    large = b'{"a": "{' + b"x" * QUICK_BYTES + b'"}'
    assert events(b"data: " + large + b"\n") == [large]
    assert parsed == []
    assert events(b"data: " + BRACES + b"\n") == [BRACES]
    assert parsed == [BRACES]
