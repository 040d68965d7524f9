"""The lines of a stream of server-sent events, however its bytes are cut on their way."""


class EventLines:
    """Takes pieces, gives whole lines without their ends."""

    def __init__(self) -> None:
        self._left = bytearray()

    @property
    def left_bytes(self) -> int:
        """Return how much there is of a line that has not ended."""
        return len(self._left)

    def add(self, received: bytes) -> list[bytes]:
        """Return the lines that end with a piece. What is there of a line is not copied for each of the
        many pieces that it may come in."""
        if b"\n" not in received:
            self._left += received
            return []
        *lines, rest = (bytes(self._left) + received).split(b"\n")
        self._left = bytearray(rest)
        return lines
