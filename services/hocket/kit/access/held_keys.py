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
            self._requests.end(row.key_id, kept=(found.secret_sha256, found.former_sha256))
        if known is not None and known.groups != found.groups:
            self._requests.end(row.key_id)
        for ends_at_s in _ends_of(found) - _ends_of(known):
            heapq.heappush(self._ends, (ends_at_s, row.key_id))

    def end_expired(self) -> None:
        """End the requests that are open with expired keys, or with former secrets that have ended."""
        now_s = clock.now_ms() / 1000
        while self._ends and self._ends[0][0] <= now_s:
            _, key_id = heapq.heappop(self._ends)
            found = self.by_id.get(key_id)
            if found is not None and found.expires_at_s <= now_s:
                self._requests.end(key_id)
            elif found is not None:
                is_over = found.former_until_s <= now_s
                former = found.secret_sha256 if is_over else found.former_sha256
                self._requests.end(key_id, kept=(found.secret_sha256, former))

    def drop(self, key_id: str) -> None:
        """Remove a key, and end the requests that are open with it."""
        if self.by_id.pop(key_id, None) is not None:
            self.lost.set()
        self._requests.end(key_id)


def _ends_of(bearer: Principal | None) -> set[float]:
    """Return the times at which a key, or its former secret, ends."""
    if bearer is None:
        return set()
    return {bearer.expires_at_s, bearer.former_until_s} - {0.0, float("inf")}
