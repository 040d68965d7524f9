"""One reply, read from pieces of any size."""

import pytest

from hocket.gateway.backends.http_reply import (
    MAX_HEAD_BYTES,
    ReplyBroken,
    ReplyEncoded,
    ReplyReader,
    ReplyTooLarge,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\ntidal"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntid\r\n2\r\nal\r\n0\r\n\r\n"


@pytest.mark.parametrize("size", [1, 7, 1_000])
@pytest.mark.parametrize("said", [OK, b"HTTP/1.1 100 Continue\r\n\r\n" + OK, CHUNKED])
def test_a_reply_is_the_same_in_pieces_of_any_size(said: bytes, size: int) -> None:
    reply = ReplyReader(100)
    for begin in range(0, len(said), size):
        assert not reply.whole
        assert reply.feed(said[begin : begin + size]) is None
    assert (reply.whole, reply.persists, reply.ends_with_connection) == (True, True, False)
    response = reply.response()
    assert (response.status, response.content) == (200, b"tidal")
    assert "continue" not in response.headers


def test_a_reader_reads_one_reply_after_the_other() -> None:
    reply = ReplyReader(5)
    for _ in range(2):
        reply.begin()
        assert reply.feed(OK) is None
        assert reply.response().content == b"tidal"


def test_a_reply_without_a_length_ends_with_its_connection() -> None:
    reply = ReplyReader(100)
    assert reply.feed(b"HTTP/1.1 200 OK\r\n\r\ntidal") is None
    assert (reply.whole, reply.ends_with_connection) == (False, True)
    assert reply.response().content == b"tidal"


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", ReplyBroken),
        (OK.replace(b"5", b"101") + b"x" * 100, ReplyTooLarge),
        (b"HTTP/1.1 200 OK\r\nX-A: " + b"x" * (MAX_HEAD_BYTES + 1), ReplyBroken),
    ],
)
def test_what_is_no_reply_or_too_large_is_said(said: bytes, fault: type[Exception]) -> None:
    reply = ReplyReader(100)
    assert isinstance(reply.feed(said), fault)
    assert not reply.whole


def test_a_second_reply_to_one_request_ends_the_use_of_the_connection() -> None:
    reply = ReplyReader(100)
    reply.feed(OK + OK)
    assert (reply.whole, reply.persists) == (True, False)
    assert reply.response().content == b"tidal"


def test_a_reply_that_is_encoded_is_refused() -> None:
    reply = ReplyReader(100)
    reply.feed(OK.replace(b"X-A: b", b"Content-Encoding: gzip"))
    with pytest.raises(ReplyEncoded, match="encoded as gzip"):
        reply.response()


def test_a_reply_that_was_taken_is_not_held_by_a_reader_that_waits_for_the_next() -> None:
    reply = ReplyReader(100)
    reply.feed(OK)
    assert reply.bytes_expected == len(b"tidal")
    assert reply.response().content == b"tidal"
    assert (reply._body, bytes(reply._more)) == ([], b"")


@pytest.mark.parametrize(
    ("length", "expected"), [(b"90", 90), (b"2" * 30, 0)], ids=["declared", "too_large"]
)
def test_a_reply_is_as_large_as_its_length_says_once_some_of_it_is_there(
    length: bytes, expected: int
) -> None:
    reply = ReplyReader(100)
    head, _, _ = OK.replace(b"5", length).partition(b"tidal")
    reply.feed(head)
    assert reply.bytes_expected == 0
    reply.feed(b"t")
    assert reply.bytes_expected == expected
