"""Reads one HTTP/1.1 reply piece by piece: status, headers and body, all of limited size."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

MAX_PIECES = 1_024
"""How many pieces of a body are held before they are joined."""
MAX_HEAD_BYTES = 64 * 1024
"""The most bytes in the headers of one reply."""
MAX_LENGTH_DIGITS = 20
_INFORMATIONAL = range(100, 200)
OK = 200


class ReplyBroken(Exception):
    """The server's reply is not HTTP, or not whole; the text says why.

    `read_bytes` is how much of the answer arrived; None if none had begun, which needs a status 200.
    """

    def __init__(self, reason: str, read_bytes: int | None = None) -> None:
        super().__init__(reason)
        self.read_bytes = read_bytes


class ReplyEncoded(Exception):
    """The reply is encoded, although that was not asked for; the text says how."""


class ReplyTooLarge(Exception):
    """The reply, of which this is the head, is larger than was allowed."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Response:
    """A complete reply; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


def encoding_of(headers: Mapping[str, str]) -> str | None:
    """Return the encoding of a reply that did not ask for any; None if it is plain."""
    encoding = headers.get("content-encoding", "").strip()
    return None if encoding.lower() in ("", "identity") else encoding


class ReplyReader:
    """Reads the replies of one connection; the parser calls the `on_*` methods."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parser: Any = HttpResponseParser(self)
        self.begin()

    def begin(self) -> None:
        """Expect another reply."""
        self.whole = False
        """Whether the reply has been read to its end."""
        self.head_too_large = False
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._more = bytearray()
        self._head_bytes = self._body_bytes = self._unread_head_bytes = self._length = 0
        self._read_head = self._bounded = self._persists = self._unkept = False
        self._fault: Exception | None = None

    @property
    def persists(self) -> bool:
        """Whether the connection can be used again."""
        return self._persists and not self._unkept

    @property
    def bytes_expected(self) -> int:
        """How large the body is, once some of it has arrived, as far as that is known."""
        return max(self._body_bytes, self._length) if self._body_bytes else 0

    @property
    def ends_with_connection(self) -> bool:
        """Whether only the end of the connection marks the end of the reply."""
        return self._read_head and not self._bounded

    def feed(self, data: bytes) -> Exception | None:
        """Parse received data; return what is wrong with the reply, if anything."""
        fault: Exception | None = None
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._unkept = True
            if not self.whole:
                fault = self._fault or self.broken(f"it is not HTTP: {error}")
        if not self._read_head:
            self._unread_head_bytes += len(data)
            if self._unread_head_bytes > MAX_HEAD_BYTES:  # the parser reports only complete headers
                self.head_too_large = True
                fault = fault or ReplyBroken(f"its headers have more than {MAX_HEAD_BYTES} bytes")
        return fault

    def broken(self, reason: str) -> ReplyBroken:
        """Return the error for a reply that goes no further."""
        began = self._read_head and self._status == OK
        return ReplyBroken(reason, self._body_bytes if began else None)

    def response(self) -> Response:
        """Return the reply that was read; raise ReplyEncoded if its answer is encoded.

        The status of a failure says enough without its body.
        """
        encoding = encoding_of(self._headers)
        if encoding is None:
            content = b"".join((self._more, *self._body))
            self._more, self._body = bytearray(), []  # the reader may stay for long
        elif self._status == OK:
            raise ReplyEncoded(f"it is encoded as {encoding[:40]}, which was not asked for")
        else:
            content = b""
        return Response(self._status, self._headers, content)

    def on_message_begin(self) -> None:
        if self.whole:
            self._unkept = True  # a second reply to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(self.broken(f"its headers have more than {MAX_HEAD_BYTES} bytes"))
        if not self.whole:
            self._headers[name.decode("latin-1").lower()] = value.decode("utf-8", "replace")

    def on_headers_complete(self) -> None:
        if self.whole:
            return
        self._status = self._parser.get_status_code()
        self._read_head = self._status not in _INFORMATIONAL
        length = self._headers.get("content-length")
        self._bounded = length is not None or "transfer-encoding" in self._headers
        if length is not None and length.isdecimal():
            self._length = min(int(length[:MAX_LENGTH_DIGITS]), self._max_bytes)

    def on_body(self, body: bytes) -> None:
        if self.whole:
            return
        self._body_bytes += len(body)
        if self._body_bytes > self._max_bytes:
            self._refuse(ReplyTooLarge(self._status, self._headers))
        self._body.append(body)
        if (
            len(self._body) >= MAX_PIECES
        ):  # very many small pieces take much more memory than their content
            self._more += b"".join(self._body)
            self._body.clear()

    def on_message_complete(self) -> None:
        if self._read_head:
            self._persists = self._parser.should_keep_alive()
            self.whole = True
        else:  # "100 Continue" and the like: the reply is still to come
            self._headers = {}

    def _refuse(self, fault: Exception) -> None:
        self._fault = fault
        raise fault  # the parser stops
