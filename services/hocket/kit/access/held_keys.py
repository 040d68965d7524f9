"""The keys that a process holds, updated from the rows that it reads."""

import asyncio
import heapq

from hocket.kit.access.open_requests import OpenRequests
from hocket.kit.process import clock
from hocket.schemas.access.key_messages import KeyRow
from hocket.schemas.access.keys import Principal


class HeldKeys:
    """Keys by their id. When a key is removed, the open `requests` that use it are ended."""

    def __init__(self, requests: OpenRequests) -> None:
        self.by_id: dict[str, Principal] = {}
        self.lost = asyncio.Event()
        """Set whenever a secret that was known here is no longer valid."""
        self._requests = requests
        self._ends: list[tuple[float, str]] = []

    def take(self, row: KeyRow) -> None:
        """Add or update a key from its row; remove it if the row says that it was revoked."""
        if row.revoked:
            self.drop(row.key_id)
            return
        known = self.by_id.get(row.key_id)
        found = self.by_id[row.key_id] = row.principal()
        if known is not None and known.secret_sha256 != found.secret_sha256:
            self.lost.set()
        if known is not None and _ends_sessions(known, found):
            self._requests.end(row.key_id)
        if found.expires_at_s != float("inf"):
            heapq.heappush(self._ends, (found.expires_at_s, row.key_id))

    def end_expired(self) -> None:
        """End the requests that are open with expired keys."""
        now_s = clock.now_ms() / 1000
        while self._ends and self._ends[0][0] <= now_s:
            _, key_id = heapq.heappop(self._ends)
            found = self.by_id.get(key_id)
            if found is not None and found.expires_at_s <= now_s:
                self._requests.end(key_id)

    def drop(self, key_id: str) -> None:
        """Remove a key, and end the requests that are open with it."""
        if self.by_id.pop(key_id, None) is not None:
            self.lost.set()
        self._requests.end(key_id)


def _ends_sessions(known: Principal, found: Principal) -> bool:
    """Tell whether requests that are open with a key must end: the groups of a person changed, or the
    former secret is no longer valid."""
    replaced = known.secret_sha256 not in (found.secret_sha256, found.former_sha256)
    return replaced or known.groups != found.groups
