"""How often the same trouble of a connection is logged."""

import asyncio

REPORT_S = 10.0
"""At most this often is the same trouble logged."""
MAX_REPORTS = 64


class ReportLimit:
    """Keeps when which trouble was logged, so that none is logged more often than every REPORT_S."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def due(self, trouble: str) -> bool:
        """Tell whether a trouble is to be logged now; it counts as logged then."""
        now = asyncio.get_running_loop().time()
        if now - self._at.get(trouble, -REPORT_S) < REPORT_S:
            return False
        if len(self._at) >= MAX_REPORTS:
            self._at.clear()
        self._at[trouble] = now
        return True
