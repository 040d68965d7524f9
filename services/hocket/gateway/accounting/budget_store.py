"""The gateways' bucket of budgets: the shared part of each account, and the cost history of each
kind of call.

Keys are read when needed, never watched, and written on condition that nobody wrote in between. A
key that is not written for its time to live (`ttl_s`) expires. With seals, a value is ignored (and
overwritten) unless a gateway wrote it directly over the preceding value.
"""

import asyncio
import hashlib
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from typing import Any

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable, PublishRefused
from hocket.kit.nats.kv.entry import RevisionPassed
from hocket.kit.nats.streams import StreamRefused
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities

MAX_KEYS = 100_000
"""The most accounts and kinds of calls in the bucket; further accounts are not shared."""
RUN_KEYS = 80_000
HISTORY_KEYS = 50_000
"""How many keys the bucket may have when the account of a run, or the history of a kind of call, is
added: callers choose the names of runs and nodes, and must not use up the room of other accounts."""
COUNTED_S = 1.0
"""How old a count of the keys may be."""
MAX_VALUE_BYTES = 16 * 1024
TIMEOUT_MS = 2_000.0
DEDUP_WINDOW_S = 30
HASH_BYTES = 12
MAX_DIGITS = 19
_NS = 1_000_000_000
_NOT_FOUND = 404
_EXISTS = 10_058
_WRONG_REVISION = 10_071
_FULL = "maximum messages exceeded"
"""The server's message for a bucket that already has its maximum of keys."""
_STREAM = f"KV_{subjects.BUDGETS}"


class BudgetStore:
    """Reads and writes keys; creates the bucket if it is missing."""

    def __init__(self, bus: Bus, seals: Capabilities | None = None, *, replicas: int = 1) -> None:
        self._bus = bus
        self._seals = seals
        self._replicas = replicas
        self._keys = 0
        self._counted_at_s = float("-inf")

    async def open(self) -> None:
        """Create the bucket if it is missing; raise BusUnavailable or StreamRefused."""
        config: Mapping[str, Any] = {
            "name": _STREAM,
            "subjects": [f"$KV.{subjects.BUDGETS}.>"],
            "max_msgs_per_subject": 1,
            "max_msgs": MAX_KEYS,
            "max_msg_size": MAX_VALUE_BYTES,
            "storage": "file",
            "num_replicas": self._replicas,
            "discard": "new",
            "allow_msg_ttl": True,
            "allow_direct": True,
            "duplicate_window": DEDUP_WINDOW_S * _NS,
            **({"persist_mode": "async"} if self._replicas == 1 else {}),
        }
        answer = await self._bus.api(f"STREAM.CREATE.{_STREAM}", config, timeout_ms=TIMEOUT_MS)
        error = answer.get("error", {})
        if error and error.get("err_code") != _EXISTS:
            raise StreamRefused(stream=_STREAM, reason=error.get("description", ""))

    async def get(self, key: str, after: int = 0) -> tuple[bytes | None, int]:
        """Return the value of a key (None if there is no valid one) and its revision (0 if there is
        none at all).

        A value written over a revision older than `after` is not valid any more.
        """
        subject = _subject(key)
        answer = await self._bus.api(
            f"STREAM.MSG.GET.{_STREAM}", {"last_by_subj": subject}, timeout_ms=TIMEOUT_MS
        )
        message = answer.get("message")
        if message is None:
            if answer.get("error", {}).get("code") != _NOT_FOUND:
                raise BusUnavailable(reason=f"{_STREAM}: {answer.get('error')}")
            return None, 0
        revision = int(message["seq"])
        try:
            value = b64decode(message.get("data", ""))
        except NotBase64:
            return None, revision
        return self._opened(subject, value, revision, after), revision

    async def put(
        self, key: str, content: bytes, revision: int, ttl_s: float, most: int | None = None
    ) -> int:
        """Write a key over a given revision (0: the key does not exist), and return the new
        revision. A key that does not exist is added only while there are fewer than `most`.

        Raises RevisionPassed, BusUnavailable, and PublishRefused if the bucket is full.
        """
        subject = _subject(key)
        if most is not None and not revision and await self._count() >= most:
            raise PublishRefused(subject=subject, reason=f"it has {most} keys, of any kind")
        seal = self._seals.seal(_sealed(subject, revision), content) if self._seals else ""
        headers = {
            "Nats-Expected-Last-Subject-Sequence": str(revision),
            "Nats-TTL": f"{max(int(ttl_s), 1)}s",
        }
        value = b"%d %s\n%s" % (revision, seal.encode(), content)
        try:
            return await self._put(subject, value, headers)
        except BusUnavailable as error:
            if _FULL in str(error):
                raise PublishRefused(subject=subject, reason=_FULL) from None
            if not self._bus.connected:
                raise
        await self.open()  # the bucket was removed
        return await self._put(subject, value, headers)

    async def _count(self) -> int:
        """Return how many keys the bucket has, or had COUNTED_S ago; raise BusUnavailable."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._counted_at_s > COUNTED_S:
            self._counted_at_s = now_s
            answer = await self._bus.api(f"STREAM.INFO.{_STREAM}", {}, timeout_ms=TIMEOUT_MS)
            self._keys = int(answer.get("state", {}).get("messages", 0))
        return self._keys

    async def _put(self, subject: str, value: bytes, headers: Mapping[str, str]) -> int:
        try:
            ack = await self._bus.publish(subject, value, headers=headers, timeout_ms=TIMEOUT_MS)
        except PublishRefused as error:
            if error.fields.get("err_code") == _WRONG_REVISION:
                raise RevisionPassed(key=subject) from None
            raise
        return ack.seq

    def _opened(self, subject: str, value: bytes, revision: int, after: int) -> bytes | None:
        """Return the content of a value; None unless a gateway wrote it over the preceding one."""
        head, _, content = value.partition(b"\n")
        before, _, seal = head.decode("ascii", "replace").partition(" ")
        if not (before.isascii() and before.isdecimal() and len(before) <= MAX_DIGITS):
            return None
        over = int(before)
        if over >= revision or over < after < revision:
            return None
        if self._seals is None or self._seals.is_sealed(seal, _sealed(subject, over), content):
            return content
        return None


def key_of(kind: str, *names: str) -> str:
    """Return the key of something identified by names."""
    told = "\0".join(names).encode("utf-8", "surrogatepass")
    return f"{kind}.{hashlib.blake2b(told, digest_size=HASH_BYTES).hexdigest()}"


def _subject(key: str) -> str:
    return f"$KV.{subjects.BUDGETS}.{key}"


def _sealed(subject: str, before: int) -> str:
    return f"{subject}\x1f{before}"
