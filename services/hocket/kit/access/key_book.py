"""The valid keys, in the memory of a process.

States: not loaded yet (every key is refused with 503), loaded, and behind (the source does not answer:
the known keys remain valid, and the process reports it). Changes are read every EVERY_S, all keys every
WHOLE_S. A key that is unknown here, or comes with another secret, is looked up at the source before it
is refused, so that a key is valid everywhere as soon as it is made. Requests that wait for this share a
lookup, and lookups are at least LOOK_GAP_S apart.

Requests that are open when their key is revoked are ended: `open_requests.py`.
"""

import asyncio
import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from hocket.kit.access.held_keys import HeldKeys
from hocket.kit.access.key_source import KeySource
from hocket.kit.access.key_store import MAX_KEYS
from hocket.kit.access.open_requests import OpenRequests
from hocket.kit.postgres.database import said
from hocket.kit.process import clock
from hocket.schemas.access.key_messages import KeyRow
from hocket.schemas.access.keys import (
    UNKNOWN,
    KeyMissing,
    KeyRefused,
    Principal,
    hashed,
    parts_of,
)
from hocket.schemas.errors import ErrorClass, HocketError

EVERY_S = 1.0
"""How often changes are read: a revoked key is refused everywhere after this time and one query."""
WHOLE_S = 60.0
"""How often all keys are read, in case somebody changed the table by hand."""
LOOK_GAP_S = 0.1
"""The minimum time between two lookups, however many unknown keys arrive."""
MAX_WAITING = 256
"""Requests with an unknown key that may wait for a lookup at the same time; others are refused without
one."""
LOOK_TIMEOUT_S = 3.0
QUERY_TIMEOUT_S = 2.5
BEHIND_S = 5.0
"""How long the source may not answer before the process reports that it may be missing revocations."""
USE_EVERY_S = 10.0
"""How often the times at which keys were used are written."""
COMPONENT = "keys"


class KeysNotLoaded(HocketError):
    """The keys are not known here yet. Try again in a moment."""

    code = "keys_not_loaded"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class KeyBook:
    """The keys that a process knows, kept up to date inside `running`."""

    def __init__(
        self, source: KeySource, report: Callable[..., None] = lambda *_, **__: None
    ) -> None:
        self._source = source
        self._report = report
        requests = OpenRequests()
        self.open = requests.open
        """Open a block in which the current task is cancelled if the key is revoked; the block then
        raises KeyRefused."""
        self._held = HeldKeys(requests)
        self._keys = self._held.by_id
        self._accepted: dict[str, Principal] = {}
        """By the text of a whole key, its bearer, for at most WHOLE_S. An entry is valid while the same
        object is in `_keys`."""
        self._change = -1
        self._loaded = False
        self._whole_s = self._used_s = self._heard_s = 0.0
        self._used: dict[str, float] = {}
        self._look = asyncio.Event()
        self._next: asyncio.Future[None] | None = None
        self._waiting = 0
        self.lost = self._held.lost
        """Set whenever a secret that was known here is no longer valid."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the keys up to date inside the block."""
        task = asyncio.create_task(self._keep(), name="keys")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            with suppress(Exception):
                await self._write_used()

    async def bearer(self, text: str) -> Principal:
        """Return the bearer of a key. Looks it up at the source before it is refused. Raises KeyMissing,
        KeyRefused or KeysNotLoaded."""
        try:
            return self.known(text)
        except (KeyRefused, KeysNotLoaded):
            if parts_of(text) is None or self._waiting >= MAX_WAITING:
                raise
        await self.looked()
        return self.known(text)

    def known(self, text: str) -> Principal:
        """Return the bearer of a key from memory alone, with the errors of `bearer`; of a former secret,
        the bearer until that ends. A key that was accepted before is found by its text: to hash it takes
        1 % of a model call over HTTP."""
        now_s = clock.now_ms() / 1000
        accepted = self._accepted.get(text)
        if (
            accepted is not None
            and self._keys.get(accepted.key_id) is accepted
            and now_s < accepted.expires_at_s
        ):
            self._used[accepted.key_id] = now_s
            return accepted
        parts = parts_of(text)
        if parts is None:
            if not text:
                raise KeyMissing
            raise KeyRefused(reason="it is not of the form hk_<id>_<secret>")
        key_id, secret = parts
        found = self._keys.get(key_id)
        if found is None:
            raise KeyRefused(reason=UNKNOWN) if self._loaded else KeysNotLoaded
        if refused := found.accepts(secret, now_s):
            raise KeyRefused(reason=refused)
        self._used[key_id] = now_s
        if not hmac.compare_digest(hashed(secret), found.secret_sha256):
            return found.by_former()
        if len(self._accepted) >= MAX_KEYS:
            self._accepted.clear()
        self._accepted[text] = found
        return found

    def still_counts(self, key_id: str, mark: str) -> bool:
        """Tell whether a key's secret is still valid; `mark` is the beginning of the secret's hash in
        hex. While the keys are not loaded, an unknown key counts as valid."""
        found = self._keys.get(key_id)
        if found is None:
            return not self._loaded
        now_s = clock.now_ms() / 1000
        return now_s < found.expires_at_s and (
            found.secret_sha256.hex().startswith(mark)
            or (now_s < found.former_until_s and found.former_sha256.hex().startswith(mark))
        )

    def of(self, key_id: str) -> Principal | None:
        """Return the bearer of the key with an id, None if it is not known here."""
        return self._keys.get(key_id)

    def holder(self, key_id: str) -> Principal:
        """Return the bearer of the key with an id, for callers that have authenticated it in another
        way. Raises KeyRefused or KeysNotLoaded."""
        found = self._keys.get(key_id)
        if found is None:
            raise KeyRefused(reason=UNKNOWN) if self._loaded else KeysNotLoaded
        self._used[key_id] = clock.now_ms() / 1000
        return found

    async def present(self, key_id: str) -> Principal:
        """Return the same as `holder`, but look the key up at the source before it is refused."""
        with suppress(KeyRefused, KeysNotLoaded):
            return self.holder(key_id)
        if self._waiting < MAX_WAITING:
            await self.looked()
        return self.holder(key_id)

    # ---- reading ------------------------------------------------------------------------------

    async def looked(self) -> None:
        """Wait until the keys have been read again, with a read that begins after this call; at most
        LOOK_TIMEOUT_S."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        self._look.set()
        self._waiting += 1
        try:
            await asyncio.wait({self._next}, timeout=LOOK_TIMEOUT_S)
        finally:
            self._waiting -= 1

    async def _keep(self) -> None:
        while True:
            self._look.clear()
            looking, self._next = self._next, None
            try:
                await self._read()
            except Exception as error:  # whatever it is, the next round tries again
                self._fall_behind(said(error))
            else:
                self._heard_s = clock.monotonic_ms() / 1000
                self._report(COMPONENT, True)
            if looking is not None:
                looking.set_result(None)
            await asyncio.sleep(LOOK_GAP_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S - LOOK_GAP_S):
                    await self._look.wait()

    async def _read(self) -> None:
        now_s = clock.monotonic_ms() / 1000
        whole = self._change < 0 or now_s - self._whole_s > WHOLE_S
        last, found = await self._pages(whole=whole)
        gone = self._keys.keys() - {row.key_id for row in found} if whole else set()
        if whole:
            self._whole_s, self._loaded = now_s, True
            self._accepted.clear()  # texts of keys that nobody sends any more
        for row in found:
            self._held.take(row)
        for key_id in gone:
            self._held.drop(key_id)
        self._change = last
        self._held.end_expired()
        if self._used and now_s - self._used_s > USE_EVERY_S:
            self._used_s = now_s
            await self._write_used()

    async def _pages(self, *, whole: bool) -> tuple[int, list[KeyRow]]:
        """Return the number of the latest change, and the keys that changed up to it. (With `whole`, it
        is the latest as of the first page: what changes in the meantime is read next time.)"""
        found: list[KeyRow] = []
        after, last = 0 if whole else self._change, -1
        while True:
            page = await self._source.page(after, whole=whole)
            found += page.keys
            after = max(after, *(row.change for row in page.keys)) if page.keys else after
            last = page.last if last < 0 else last
            if not page.more or len(found) >= 2 * MAX_KEYS:
                return (last if whole else max(after, self._change)), found

    def _fall_behind(self, reason: str) -> None:
        silent_s = clock.monotonic_ms() / 1000 - self._heard_s
        if silent_s > BEHIND_S:
            detail = f"revocations are not known yet: {reason}"
            self._report(COMPONENT, True, detail, degraded=True)

    async def _write_used(self) -> None:
        used, self._used = self._used, {}
        if used:
            await self._source.note_used(used)
