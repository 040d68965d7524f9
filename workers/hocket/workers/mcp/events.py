"""Event streams as whole events, so that each can be checked before the SDK reads it. Pure.

Lines and events end where the SDK's reader has them end; what is not text in UTF-8 stays as it is.
Comments are left out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BREAK = re.compile(rb"\r\n|\n|\r")
_CR = b"\r"
_COMMENT = b":"
_RETRY = b"retry:"
_DIGITS = re.compile(rb"[0-9]+")
MAX_RETRY_MS = 300_000
"""The longest wait that a server may ask for before its stream is continued; the SDK waits for as long
as it is told."""


@dataclass(frozen=True, slots=True)
class Event:
    """A complete event: its bytes in the stream, the message in it, empty if it has none, and whether it
    has an id."""

    whole: bytes
    message: bytes
    has_id: bool

    def with_message(self, message: bytes) -> bytes:
        """Return the event's bytes with another message in it, which is one line."""
        lines = [
            line
            for line in self.whole.split(b"\n")
            if line.partition(b":")[0] not in (b"", b"data")
        ]
        return b"\n".join([*lines, b"data: " + message, b"", b""])


class Events:
    """Puts the parts of one stream together. An event that the stream does not complete is dropped."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._lines: list[bytes] = []
        self._held = b""
        """The last byte of a part, if it may be the first half of a line's end."""

    def completed(self, part: bytes) -> Iterator[Event]:
        """Yield the events that a part of the stream completes."""
        part = self._held + part
        self._held = _CR if part.endswith(_CR) else b""
        *lines, rest = _BREAK.split(part.removesuffix(_CR))
        for tail in lines:
            line = tail
            if self._line:
                line = bytes(self._line + tail)
                self._line.clear()
            if not line:
                if self._lines:
                    yield _event(self._lines)
                    self._lines = []
            elif not line.startswith(_COMMENT):
                self._lines.append(line)
        self._line += rest

    def at_end(self) -> Iterator[Event]:
        """Yield the event that the end of the stream completes."""
        return self.completed(b"\n") if self._held else iter(())


def _event(lines: list[bytes]) -> Event:
    lines = [_bounded(line) if line.startswith(_RETRY) else line for line in lines]
    fields = [line.partition(b":") for line in lines]
    kind = b"".join([_value(value) for name, _, value in fields if name == b"event"][-1:])
    data = [_value(value) for name, _, value in fields if name == b"data"]
    message = b"\n".join(data) if kind in (b"", b"message") else b""
    has_id = any(name == b"id" and value for name, _, value in fields)
    return Event(b"\n".join([*lines, b"", b""]), message, has_id)


def _bounded(line: bytes) -> bytes:
    """Return a line that says how long to wait, with at most MAX_RETRY_MS."""
    value = _value(line.removeprefix(_RETRY))
    if not _DIGITS.fullmatch(value):
        return _COMMENT
    return line if len(value) < 7 and int(value) <= MAX_RETRY_MS else b"retry: %d" % MAX_RETRY_MS


def _value(text: bytes) -> bytes:
    return text.removeprefix(b" ")
