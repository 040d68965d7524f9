"""Limits how many refused calls are recorded: a key can send thousands a second, each of which would be
kept for a week."""

from collections import Counter

MAX_OF_TENANT = 600
"""How many refusals of one tenant a gateway records within a minute of the clock."""
MAX_OF_ALL = 6_000
"""How many it records of all tenants: without keys, a caller names the tenant that he likes."""
MINUTE_MS = 60_000.0


class RecordedRefusals:
    """Counts the refusals that were recorded in the present minute."""

    def __init__(self) -> None:
        self._minute = -1
        self._of: Counter[str] = Counter()
        self._of_all = 0

    def takes(self, tenant: str, now_ms: float) -> bool:
        """Return whether one more refusal is to be recorded; if so, count it."""
        minute = int(now_ms // MINUTE_MS)
        if minute != self._minute:
            self._minute, self._of_all = minute, 0
            self._of.clear()
        if self._of[tenant] >= MAX_OF_TENANT or self._of_all >= MAX_OF_ALL:
            return False
        self._of[tenant] += 1
        self._of_all += 1
        return True
