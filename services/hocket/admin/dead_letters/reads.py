"""Dead letters as the API shows them."""

from hocket.kit import dead_letters
from hocket.kit.bus import Bus
from hocket.schemas.rest import DeadLetter

PAYLOAD_SHOWN_BYTES = 500
"""Of each payload in a list."""


async def list_latest(bus: Bus, limit: int, source: str | None) -> tuple[DeadLetter, ...]:
    """Return the latest dead letters (of one source), each with the beginning of its payload."""
    letters = await dead_letters.list_(bus, limit, source=source)
    return tuple(_shown(letter, PAYLOAD_SHOWN_BYTES) for letter in letters)


async def show(bus: Bus, seq: int) -> DeadLetter:
    """Return one dead letter whole, or raise DeadLetterUnknown."""
    letter = await dead_letters.show(bus, seq)
    return _shown(letter, len(letter.payload))


def _shown(letter: dead_letters.DeadLetter, payload_bytes: int) -> DeadLetter:
    return DeadLetter(
        seq=letter.seq,
        source=letter.source,
        subject=letter.subject,
        error=letter.error,
        context=letter.context,
        buried_at=letter.buried_at or None,
        payload=letter.payload[:payload_bytes].decode("utf-8", "replace"),
        payload_bytes=len(letter.payload),
        payload_truncated=len(letter.payload) > payload_bytes,
        headers=letter.headers,
    )
