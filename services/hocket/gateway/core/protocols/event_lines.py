"""Splits a stream of server-sent events into lines, however its bytes are chunked."""


class EventLines:
    """Takes pieces of bytes and returns complete lines without their line ends."""

    def __init__(self) -> None:
        self._left = bytearray()

    @property
    def left_bytes(self) -> int:
        """The number of bytes buffered of an unfinished line."""
        return len(self._left)

    def add(self, received: bytes) -> list[bytes]:
        """Return the lines that a piece completes.

        An unfinished line is not copied again for each of its pieces, of which there may be many.
        """
        if b"\n" not in received:
            self._left += received
            return []
        *lines, rest = (bytes(self._left) + received).split(b"\n")
        self._left = bytearray(rest)
        return lines
