"""Dead letters as the API shows them."""

from hocket.kit import dead_letters
from hocket.kit.bus import Bus
from hocket.schemas.rest import DeadLetter

PAYLOAD_SHOWN_CHARS = 500
"""Of each payload in a list."""


async def list_latest(bus: Bus, limit: int) -> tuple[DeadLetter, ...]:
    """Return the latest dead letters, each with the beginning of its payload."""
    letters = await dead_letters.list_(bus, limit)
    return tuple(letter for letter in letters)


async def show(bus: Bus, seq: int) -> DeadLetter:
    """Return one dead letter whole."""
    return await dead_letters.show(bus, seq)
