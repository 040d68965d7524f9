"""What all who follow runs share."""

import asyncio

LOOKS_AT_ONCE = 2
"""Pages of steps that are read at once for all who follow runs, of the ten connections there are."""
MAX_SEEN_STEPS = 1_000_000
"""Steps that are remembered for all of them, about 250 bytes each."""


class Followers:
    """The places for looking, and how many steps are remembered as shown."""

    def __init__(self) -> None:
        self.looking = asyncio.Semaphore(LOOKS_AT_ONCE)
        self.seen = 0

    @property
    def has_room(self) -> bool:
        """Whether more steps may be remembered; without room, streams end with `timeout`."""
        return self.seen < MAX_SEEN_STEPS
