"""Event streams as whole events, so that each can be checked before the SDK reads it. Pure.

Lines and events end where the SDK's reader has them end; what is not text in UTF-8 stays as it is.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BREAK = re.compile(rb"\r\n|\n|\r")
_CR = b"\r"


@dataclass(frozen=True, slots=True)
class Event:
    """A complete event: its bytes in the stream, and the message in it, empty if it has none."""

    whole: bytes
    message: bytes


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
        for line in lines:
            self._line += line
            self._lines.append(bytes(self._line))
            self._line.clear()
            if not self._lines[-1]:
                yield _event(self._lines)
                self._lines = []
        self._line += rest

    def at_end(self) -> Iterator[Event]:
        """Yield the event that the end of the stream completes."""
        return self.completed(b"\n") if self._held else iter(())


def _event(lines: list[bytes]) -> Event:
    fields = [line.partition(b":") for line in lines]
    kind = b"".join([_value(value) for name, _, value in fields if name == b"event"][-1:])
    data = [_value(value) for name, _, value in fields if name == b"data"]
    message = b"\n".join(data) if kind in (b"", b"message") else b""
    return Event(b"\n".join([*lines, b""]), message)


def _value(text: bytes) -> bytes:
    return text.removeprefix(b" ")
