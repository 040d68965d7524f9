"""The parser of what NATS sends, which replaces nats-py's.

nats-py matches each message with regular expressions against a buffer that it cuts at the front, makes
a message with parsed headers, and puts it on a queue that a task of the subscription empties: 12 us and
an iteration of the event loop per message. Here a chunk is scanned once, and a message for a
subscription in `direct` is handed over immediately, its headers unparsed; everything else goes to the
client as before.

States: between lines, or waiting for the rest of a message whose length is known; `reset` starts over
for a new connection. Errors are nats-py's ProtocolError, which makes the client reconnect.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from nats.errors import ProtocolError

from hocket.kit.logs.log_limits import Reporting

MAX_LINE_BYTES = 64 * 1024
"""Bytes that the server may send without ending a line: a line holds up to two subjects of 4 KiB and
more."""
_CRLF = b"\r\n"
_MSG, _HMSG = b"MSG", b"HMSG"
_WITH_REPLY = {_MSG: 5, _HMSG: 6}
"""Number of words in a message's line that includes a reply subject."""
_STATUS_FROM = len("NATS/1.0 ")
_STATUS_TO = _STATUS_FROM + 3
_SPACE = ord(" ")

log = structlog.get_logger(__name__)


class RawMessage:
    """One message as it arrived. `head` holds the bytes of its headers, empty if it has none."""

    __slots__ = ("data", "head", "reply", "subject")

    def __init__(self, subject: str, reply: str, data: bytes, head: bytes) -> None:
        self.subject = subject
        self.reply = reply
        self.data = data
        self.head = head

    @property
    def headers(self) -> dict[str, str] | None:
        """The headers, parsed on each access; None if there are none. A status message also has `Status`
        and `Description`, as in nats-py."""
        return headers_of(self.head) if self.head else None


RawCallback = Callable[[RawMessage], None]


class Wire:
    """Parses what the server sends for a client of nats-py, which calls `parse` and `reset`."""

    def __init__(self, client: Any) -> None:
        self.direct: dict[int, RawCallback] = {}
        """By a subscription's id, the function that gets its messages."""
        self._client = client
        self._parts: list[bytes] = []
        self._missing = 0
        self._resets = 0
        self._reports = Reporting()

    def reset(self) -> None:
        """Forget what is partly read, and what is read but not yet parsed."""
        self._parts, self._missing = [], 0
        self._resets += 1

    async def parse(self, chunk: bytes) -> None:
        """Parse a chunk of bytes, and keep an incomplete message or line for the next call."""
        if self._parts:
            self._parts.append(chunk)
            self._missing -= len(chunk)
            if self._missing > 0:
                return
            chunk = b"".join(self._parts)
            self._parts = []
        at, end, resets = 0, len(chunk), self._resets
        while resets == self._resets and (at := self._taken(chunk, at)) < end:
            line_end = chunk.find(_CRLF, at)
            if line_end < 0:
                if end - at > MAX_LINE_BYTES:
                    raise ProtocolError("nats: unknown protocol")
                self._keep(chunk[at:], 1)
                return
            words = chunk[at:line_end].split(b" ")
            if words[0] not in _WITH_REPLY:
                await self._control(words[0], chunk[at:line_end])
                at = line_end + 2
                continue
            sid, headed, size = _numbers(words)
            body = line_end + 2
            after = body + size + 2
            if after > end:
                self._keep(chunk[at:], after - end)
                return
            head, data = chunk[body : body + headed], chunk[body + headed : body + size]
            await self._pass_on(sid, words, head, data)
            at = after

    async def _pass_on(self, sid: int, words: Sequence[bytes], head: bytes, data: bytes) -> None:
        """Pass a message to the client if no function in `direct` takes it."""
        reply = words[3] if len(words) == _WITH_REPLY[words[0]] else b""
        try:
            await self._client._process_msg(sid, words[1], reply, data, head or None)
        except Exception:  # it would end the client's read loop
            self._unreadable(words[1], data)

    def _taken(self, chunk: bytes, at: int) -> int:
        """Hand over consecutive messages for `direct`, starting at an offset. Return the offset of the
        first thing that is for somebody else, incomplete or malformed, or the end of the chunk."""
        end, direct = len(chunk), self.direct
        while at < end:
            line_end = chunk.find(_CRLF, at)
            if line_end < 0:
                break
            words = chunk[at:line_end].split(b" ")
            with_reply = _WITH_REPLY.get(words[0])
            if with_reply is None:
                break
            try:  # as `_numbers`, without a call for each message
                sid, size = int(words[2]), int(words[-1])
                headed = int(words[-2]) if words[0] == _HMSG else 0
            except (ValueError, IndexError):
                break
            callback = direct.get(sid)
            body = line_end + 2
            after = body + size + 2
            if callback is None or after > end or not 0 <= headed <= size:
                break
            at = after
            reply = words[3].decode("utf-8", "replace") if len(words) == with_reply else ""
            data = chunk[body + headed : body + size]
            head = chunk[body : body + headed] if headed else b""
            try:
                subject = words[1].decode("utf-8", "replace")
                callback(RawMessage(subject, reply, data, head))
            except Exception:  # it would end the client's read loop
                self._unreadable(words[1], data)
        return at

    def _unreadable(self, subject: bytes, data: bytes) -> None:
        """Log a message whose recipient raised, at a limited rate: anybody may send many of them."""
        if count := self._reports.due("unreadable"):
            log.exception(
                "bus_message_unreadable", subject=subject[:200], data=data[:200], count=count
            )

    def _keep(self, rest: bytes, missing: int) -> None:
        self._parts, self._missing = [rest], missing

    async def _control(self, verb: bytes, line: bytes) -> None:
        """Let the client handle a line that is not a message."""
        client = self._client
        if verb == b"PING":
            await client._process_ping()
        elif verb == b"PONG":
            await client._process_pong()
        elif verb == b"INFO":
            await client._process_info(json.loads(line[len(b"INFO ") :]))
        elif verb == b"-ERR":
            await client._process_err(line[len(b"-ERR") :].strip().decode().lower())
        elif verb != b"+OK":
            raise ProtocolError("nats: unknown protocol")


def _numbers(words: Sequence[bytes]) -> tuple[int, int, int]:
    """Return the subscription's id, the headers' size and the total size (bytes) from a message's
    line."""
    try:
        sid, size = int(words[2]), int(words[-1])
        headed = int(words[-2]) if words[0] == _HMSG else 0
    except (ValueError, IndexError):
        headed, size = 1, 0
    if not 0 <= headed <= size:
        raise ProtocolError("nats: malformed MSG")
    return sid, headed, size


def text_of(raw: bytes) -> str:
    """Return bytes from the server as text, without failing: a client may have written any bytes."""
    return raw.decode(errors="replace")


def header_of(head: bytes, name: bytes) -> str:
    """Return one header of a message, "" if it is absent; `name` is spelled as the sender wrote it."""
    at = head.find(b"\r\n%b:" % name)
    if at < 0:
        return ""
    start = at + len(name) + 3
    end = head.find(_CRLF, start)
    return text_of(head[start : end if end >= 0 else None]).strip()


def headers_of(head: bytes) -> dict[str, str]:
    """Return the headers of a message, without line breaks; if one is repeated, the last counts."""
    first, *lines = head.decode(errors="replace").split("\r\n")
    headers: dict[str, str] = {}
    if len(first) > _STATUS_FROM and ord(first[_STATUS_FROM - 1]) == _SPACE:
        headers["Status"] = first[_STATUS_FROM:_STATUS_TO].strip()
        if description := first[_STATUS_TO:].strip():
            headers["Description"] = description
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and name:
            headers[_one_line(name)] = _one_line(value)
    return headers


def _one_line(text: str) -> str:
    """Replace the line breaks in a part of a header, so that it can be sent on: the protocol lets lone
    CR and LF through."""
    if "\n" in text or "\r" in text:
        text = text.replace("\n", " ").replace("\r", " ")
    return text.strip()
