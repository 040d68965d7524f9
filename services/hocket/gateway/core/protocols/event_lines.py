"""Splits a stream of server-sent events into lines, however its bytes are chunked, and puts the lines
of each event's data together."""

from hocket.gateway.core.protocols.json_size import QUICK_BYTES
from hocket.gateway.core.protocols.reply_json import reply_value

DONE = b"[DONE]"
"""The data of the event that ends a stream of OpenAI's API."""

_MARK = b"\xef\xbb\xbf"
"""The mark with which a text in UTF-8 may begin; it is no part of the first line."""


class EventLines:
    """Takes pieces of bytes and returns complete lines without their line ends.

    A line ends with a line feed, a carriage return, or both.
    """

    def __init__(self) -> None:
        self._left = bytearray()
        self._is_first = True
        self._after_return = False
        """Whether the piece before ended with a carriage return, whose line feed may follow."""

    @property
    def left_bytes(self) -> int:
        """The number of bytes buffered of an unfinished line."""
        return len(self._left)

    def add(self, received: bytes) -> list[bytes]:
        """Return the lines that a piece completes.

        An unfinished line is not copied again for each of its pieces, of which there may be many.
        """
        if self._after_return:
            received = received.removeprefix(b"\n")
        self._after_return = received.endswith(b"\r")
        if b"\r" in received:
            received = received.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in received:
            self._left += received
            return []
        *lines, rest = (bytes(self._left) + received).split(b"\n")
        self._left = bytearray(rest)
        if self._is_first:
            self._is_first = False
            lines[0] = lines[0].removeprefix(_MARK)
        return lines


class EventData:
    """Takes lines and returns the data of the events in them: JSON objects, and DONE.

    The data of an event may be in several lines, and ends with an empty one. What is whole in its first
    line is returned at once, because some servers send no empty lines: an object, and all that is none.
    """

    def __init__(self) -> None:
        self._held = bytearray()

    @property
    def held_bytes(self) -> int:
        """The number of bytes held of an event that is not whole."""
        return len(self._held)

    def add(self, line: bytes) -> bytes:
        """Return the data of the event that a line completes; nothing if it completes none."""
        if not line:
            return self._ended() if self._held else b""
        data = line[5:].strip() if line.startswith(b"data:") else b""
        if not data:
            return b""  # a comment, a sign of life, or a field not used here
        if not self._held and (not data.startswith(b"{") or _is_whole(data)):
            return data
        self._held += data + b"\n"
        return b""

    def _ended(self) -> bytes:
        data = bytes(self._held)
        self._held.clear()
        return data.removesuffix(b"\n")


def _is_whole(data: bytes) -> bool:
    """Tell whether the first line of an object holds all of it.

    As a rule the braces tell. If some in its texts have no partner, it is parsed, unless that takes
    long.
    """
    if not data.endswith(b"}"):
        return False
    if data.count(b"{") == data.count(b"}") or len(data) > QUICK_BYTES:
        return True
    try:
        reply_value(data)
    except ValueError:
        return False
    return True
