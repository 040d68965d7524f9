"""The questions that a ledger is answering, by tenant, so that no tenant keeps the others from being
answered. Pure."""

from collections import Counter

MAX_ANSWERING = 64
"""The most questions processed at once; to further ones, the answer is that the ledger is busy."""
FREE_FACTOR = 3
"""A tenant may have at most as many questions in progress as places are free, divided by this."""


class OpenQuestions:
    """The questions in progress."""

    def __init__(self, limit: int = MAX_ANSWERING) -> None:
        self._limit = limit
        self._total = 0
        self._of: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._total

    def begin(self, tenant: str) -> bool:
        """Take a place for a question of a tenant; return whether there was one."""
        if self._of[tenant] * FREE_FACTOR >= self._limit - self._total:
            if not self._of[tenant]:
                del self._of[tenant]
            return False
        self._of[tenant] += 1
        self._total += 1
        return True

    def end(self, tenant: str) -> None:
        """Give a place back."""
        self._total -= 1
        self._of[tenant] -= 1
        if not self._of[tenant]:
            del self._of[tenant]
