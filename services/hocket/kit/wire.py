"""What NATS sends, read from the bytes: the parser that takes the place of nats-py's.

nats-py matches each message with regular expressions against a buffer that it cuts at the front, makes
a message with parsed headers, and puts it on a queue that a task of the subscription empties: 12 us and
a turn of the event loop per message. Here a chunk is walked through once, and a message for a
subscription in `direct` is handed over on the spot, its headers unread; everything else goes to the
client as before.

States: between lines, or waiting for the rest of a message whose length is known; `reset` begins anew
with a new connection. It fails with nats-py's ProtocolError, which makes the client reconnect.
"""

import json
from collections.abc import Callable
from typing import Any

import structlog
from nats.errors import ProtocolError

MAX_LINE_BYTES = 4_096
"""What the server may send without the end of a line."""
_CRLF = b"\r\n"
_MSG, _HMSG = b"MSG", b"HMSG"
_WITH_REPLY = {_MSG: 5, _HMSG: 6}
"""Words of a message's line where it has a subject for replies."""
_STATUS_FROM = len("NATS/1.0 ")
_STATUS_TO = _STATUS_FROM + 3
_SPACE = ord(" ")

log = structlog.get_logger(__name__)


class Frame:
    """One message as it came. `head` are its headers' bytes (none: empty)."""

    __slots__ = ("data", "head", "reply", "subject")

    def __init__(self, subject: str, reply: str, data: bytes, head: bytes) -> None:
        self.subject = subject
        self.reply = reply
        self.data = data
        self.head = head

    @property
    def headers(self) -> dict[str, str] | None:
        """The headers, read now; None where there are none. Of a status message `Status` and
        `Description` besides, as nats-py has them."""
        return headers_of(self.head) if self.head else None


Take = Callable[[Frame], None]


class Wire:
    """See the module. `client` is nats-py's; it calls `parse` and `reset`."""

    def __init__(self, client: Any) -> None:
        self.direct: dict[int, Take] = {}
        """Who takes the messages of which subscription, by its number."""
        self._client = client
        self._parts: list[bytes] = []
        self._missing = 0
        self._resets = 0

    def reset(self) -> None:
        """Forget what is half read, and what is read and not yet looked at."""
        self._parts, self._missing = [], 0
        self._resets += 1

    async def parse(self, chunk: bytes) -> None:
        """Read what came, and keep what is not complete for the next time."""
        if self._parts:
            self._parts.append(chunk)
            self._missing -= len(chunk)
            if self._missing > 0:
                return
            chunk = b"".join(self._parts)
            self._parts = []
        at, end, resets = 0, len(chunk), self._resets
        while at < end and resets == self._resets:
            line_end = chunk.find(_CRLF, at)
            if line_end < 0:
                if end - at > MAX_LINE_BYTES:
                    raise ProtocolError("nats: unknown protocol")
                self._keep(chunk[at:], 1)
                return
            words = chunk[at:line_end].split()
            verb = words[0] if words else b""
            if verb != _MSG and verb != _HMSG:
                await self._control(verb, chunk[at:line_end])
                at = line_end + 2
                continue
            body = line_end + 2
            try:
                size = int(words[-1])
                with_reply = len(words) == _WITH_REPLY[verb]
                headed = int(words[-2]) if verb == _HMSG else 0
                sid = int(words[2])
            except (ValueError, IndexError):
                raise ProtocolError("nats: malformed MSG") from None
            after = body + size + 2
            if after > end:
                self._keep(chunk[at:], after - end)
                return
            at = after
            reply = words[3] if with_reply else b""
            head, data = chunk[body : body + headed], chunk[body + headed : body + size]
            take = self.direct.get(sid)
            if take is None:
                await self._client._process_msg(sid, words[1], reply, data, head or None)
                continue
            try:
                take(Frame(words[1].decode(), reply.decode(), data, head))
            except Exception:  # it would end the client's reading
                log.exception("bus_message_unreadable", subject=words[1], data=data[:200])

    def _keep(self, rest: bytes, missing: int) -> None:
        self._parts, self._missing = [rest], missing

    async def _control(self, verb: bytes, line: bytes) -> None:
        """Let the client act on what is no message."""
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


def header_of(head: bytes, name: bytes) -> str:
    """Return one header of a message ("" where it is not there); `name` as the sender wrote it."""
    at = head.find(b"\r\n%b:" % name)
    if at < 0:
        return ""
    start = at + len(name) + 3
    return head[start : head.index(_CRLF, start)].decode().strip()


def headers_of(head: bytes) -> dict[str, str]:
    """Return the headers of a message; of those that come twice the last."""
    first, *lines = head.decode(errors="replace").split("\r\n")
    headers: dict[str, str] = {}
    if len(first) > _STATUS_FROM and ord(first[_STATUS_FROM - 1]) == _SPACE:
        headers["Status"] = first[_STATUS_FROM:_STATUS_TO].strip()
        if description := first[_STATUS_TO:].strip():
            headers["Description"] = description
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name] = value.strip()
    return headers
