"""Places of which some are held: how many in all, and how many by each name."""

from collections import Counter


class HeldPlaces:
    """Counts the places that are held. Who gets one is up to the kinds of places."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._taken = 0
        self._held: Counter[str] = Counter()

    def enter(self, name: str) -> None:
        """Take a place."""
        self._taken += 1
        self._held[name] += 1

    def leave(self, name: str) -> None:
        """Give a place back."""
        self._taken -= 1
        self._held[name] -= 1
        if not self._held[name]:
            del self._held[name]
