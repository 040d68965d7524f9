"""Recently sent replies, so that a call delivered twice is made only once.

A worker that lost a reply sends the same call again; it gets the remembered reply. Bounded by
count, bytes and age; a call whose reply was evicted is simply made again.
"""

from collections import OrderedDict
from collections.abc import Hashable
from sys import getsizeof
from typing import Generic, TypeVar

from hocket.gateway.core.protocols.value_size import held_if_few
from hocket.schemas.messages import CallReply

MAX_REPLIES = 4_096
MAX_BYTES = 64 * 1024 * 1024
MAX_AGE_MS = 120_000.0
FEW_VALUES = 1_000
"""Values, with names of fields, that are counted at once."""
_BYTES_PER_NUMBER = 40
_BYTES_PER_REPLY = 2_048

Reply = TypeVar("Reply")


class RecentReplies(Generic[Reply]):
    """Replies by call key, oldest first."""

    def __init__(
        self,
        *,
        max_replies: int = MAX_REPLIES,
        max_bytes: int = MAX_BYTES,
        max_age_ms: float = MAX_AGE_MS,
    ) -> None:
        self._max_replies = max_replies
        self._max_bytes = max_bytes
        self._max_age_ms = max_age_ms
        self._replies: OrderedDict[Hashable, tuple[float, int, Reply]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._replies)

    def keep(self, key: Hashable, reply: Reply, size_bytes: int, now_ms: float) -> None:
        """Remember a reply, and forget the oldest ones beyond the limits."""
        self._forget(key)
        self._replies[key] = (now_ms, size_bytes, reply)
        self._bytes += size_bytes
        while self._replies and self._over(now_ms):
            self._forget(next(iter(self._replies)))

    def find(self, key: Hashable, now_ms: float) -> Reply | None:
        """Return the reply to a call, or None if it is no longer remembered."""
        kept = self._replies.get(key)
        if kept is None or now_ms - kept[0] > self._max_age_ms:
            return None
        return kept[2]

    def _over(self, now_ms: float) -> bool:
        oldest_ms, _, _ = next(iter(self._replies.values()))
        return (
            len(self._replies) > self._max_replies
            or self._bytes > self._max_bytes
            or now_ms - oldest_ms > self._max_age_ms
        )

    def _forget(self, key: Hashable) -> None:
        kept = self._replies.pop(key, None)
        if kept is not None:
            self._bytes -= kept[1]


def size_bytes(reply: CallReply, most_values: int = FEW_VALUES) -> int | None:
    """Return the size of a remembered reply; None if it holds more than so many values, besides its
    embeddings."""
    content = held_if_few((reply.openai, reply.data, reply.tool_calls), most_values)
    if content is None:
        return None
    numbers = sum(map(len, reply.embeddings))
    texts = getsizeof(reply.text) + getsizeof(reply.finish_reason)
    return _BYTES_PER_REPLY + _BYTES_PER_NUMBER * numbers + texts + content
