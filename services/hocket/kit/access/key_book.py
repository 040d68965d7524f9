"""The keys that count, in the memory of a process.

States: not loaded yet (every key is refused with 503), loaded, behind (its source does not answer: what
is known goes on counting, and the process says so). What changed is read every EVERY_S, all keys every
WHOLE_S. A key that is not known here, or has another secret, is looked for at the source before it is
refused, so that a key counts everywhere from the moment it is made; those who wait for that share a
look, and there are few looks.

Requests that are open when their key goes (a stream, a wait) are ended.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import structlog

from hocket.kit.access.key_source import KeySource
from hocket.kit.access.key_store import MAX_KEYS
from hocket.kit.postgres.database import said
from hocket.kit.process import clock
from hocket.schemas.access.key_messages import KeyRow
from hocket.schemas.access.keys import UNKNOWN, KeyMissing, KeyRefused, Principal, parts_of
from hocket.schemas.errors import ErrorClass, HocketError

EVERY_S = 1.0
"""How often what changed is read: a revoked key is out of every door after that, and one query."""
WHOLE_S = 60.0
"""How often all keys are read, in case somebody wrote to the table by hand."""
LOOK_GAP_S = 0.1
"""The least time between two looks, however many unknown keys come."""
MAX_WAITING = 256
"""Requests with an unknown key that wait for a look at once; others are refused without one."""
LOOK_TIMEOUT_S = 3.0
QUERY_TIMEOUT_S = 2.5
BEHIND_S = 5.0
"""After how long without an answer of its source the process says that it may miss revocations."""
MAX_TIMER_S = 86_400.0
"""For how long a request with a token may be open at most."""
USE_EVERY_S = 10.0
"""How often it is written when keys were used."""
COMPONENT = "keys"

log = structlog.get_logger(__name__)


class KeysNotLoaded(HocketError):
    """The keys are not known here yet. Try again in a moment."""

    code = "keys_not_loaded"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class KeyBook:
    """The keys of a process; kept up to date inside `running`."""

    def __init__(
        self, source: KeySource, report: Callable[..., None] = lambda *_, **__: None
    ) -> None:
        self._source = source
        self._report = report
        self._keys: dict[str, Principal] = {}
        self._change = -1
        self._loaded = False
        self._whole_s = self._used_s = self._heard_s = 0.0
        self._used: dict[str, float] = {}
        self._ends: list[tuple[float, str]] = []
        self._open: dict[str, set[asyncio.Task[object]]] = {}
        self._look = asyncio.Event()
        self._next: asyncio.Future[None] | None = None
        self._waiting = 0
        self.lost = asyncio.Event()
        """Set whenever a secret that was known here counts no more."""

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
        """Return the bearer of a key; raise KeyMissing, KeyRefused or KeysNotLoaded."""
        try:
            return self.known(text)
        except (KeyRefused, KeysNotLoaded):
            if parts_of(text) is None or self._waiting >= MAX_WAITING:
                raise
        await self.looked()
        return self.known(text)

    def known(self, text: str) -> Principal:
        """Do the same by what is in memory."""
        parts = parts_of(text)
        if parts is None:
            if not text:
                raise KeyMissing
            raise KeyRefused(reason="it is not of the form hk_<id>_<secret>")
        key_id, secret = parts
        found = self._keys.get(key_id)
        if found is None:
            raise KeyRefused(reason=UNKNOWN) if self._loaded else KeysNotLoaded
        now_s = clock.now_ms() / 1000
        if refused := found.accepts(secret, now_s):
            raise KeyRefused(reason=refused)
        self._used[key_id] = now_s
        return found

    def still_counts(self, key_id: str, mark: str) -> bool:
        """Tell whether the secret counts of which `mark` is the beginning of the hash."""
        found = self._keys.get(key_id)
        if found is None:
            return not self._loaded
        now_s = clock.now_ms() / 1000
        return now_s < found.expires_at_s and (
            found.secret_sha256.hex().startswith(mark)
            or (now_s < found.former_until_s and found.former_sha256.hex().startswith(mark))
        )

    def of(self, key_id: str) -> Principal | None:
        """Return the bearer of the key with an id, as far as it is known here."""
        return self._keys.get(key_id)

    def holder(self, key_id: str) -> Principal:
        """Return the bearer of the key with an id, for whoever knows in another way that it was shown;
        raise KeyRefused or KeysNotLoaded."""
        found = self._keys.get(key_id)
        if found is None:
            raise KeyRefused(reason=UNKNOWN) if self._loaded else KeysNotLoaded
        self._used[key_id] = clock.now_ms() / 1000
        return found

    async def present(self, key_id: str) -> Principal:
        """Do the same, and look at the source before a key is refused."""
        with suppress(KeyRefused, KeysNotLoaded):
            return self.holder(key_id)
        if self._waiting < MAX_WAITING:
            await self.looked()
        return self.holder(key_id)

    @contextmanager
    def open(self, bearer: Principal) -> Iterator[None]:
        """End the present task where the key goes inside the block; then raise KeyRefused."""
        task = asyncio.current_task()
        assert task is not None, "requests are answered in tasks"
        key_id = bearer.row_id or bearer.key_id
        tasks = self._open.setdefault(key_id, set())
        tasks.add(task)
        ending = self._ends_by_itself(bearer, key_id, task)
        try:
            yield
        except asyncio.CancelledError:
            if task in tasks:
                raise
            task.uncancel()
            raise KeyRefused(reason=UNKNOWN) from None
        finally:
            if ending is not None:
                ending.cancel()
            tasks.discard(task)
            if not tasks and self._open.get(key_id) is tasks:
                del self._open[key_id]

    def _ends_by_itself(
        self, bearer: Principal, key_id: str, task: asyncio.Task[object]
    ) -> asyncio.TimerHandle | None:
        """End a request when the token ends that it came with, of which nobody else tells."""
        if not bearer.is_token:
            return None
        left_s = max(bearer.expires_at_s - clock.now_ms() / 1000, 0.0)
        return asyncio.get_running_loop().call_later(
            min(left_s, MAX_TIMER_S), self._end_request, key_id, task
        )

    def _end_request(self, key_id: str, task: asyncio.Task[object]) -> None:
        self._open.get(key_id, set()).discard(task)
        log.info("request_ended", reason="its token has expired", key=key_id)
        task.cancel()

    # ---- reading ------------------------------------------------------------------------------

    async def looked(self) -> None:
        """Wait for a look that begins from now on."""
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
            except Exception as error:  # whatever it is, it is asked again
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
        for row in found:
            self._take(row)
        for key_id in gone:
            self._drop(key_id)
        self._change = last
        self._drop_expired()
        if self._used and now_s - self._used_s > USE_EVERY_S:
            self._used_s = now_s
            await self._write_used()

    async def _pages(self, *, whole: bool) -> tuple[int, list[KeyRow]]:
        """Return the latest change that is known of, and what changed until then. (All keys are those of
        the first page's time: what changes meanwhile is read next.)"""
        found: list[KeyRow] = []
        after, last = 0 if whole else self._change, -1
        while True:
            page = await self._source.page(after, whole=whole)
            found += page.keys
            after = max(after, *(row.change for row in page.keys)) if page.keys else after
            last = page.last if last < 0 else last
            if not page.more or len(found) >= 2 * MAX_KEYS:
                return (last if whole else max(after, self._change)), found

    def _take(self, row: KeyRow) -> None:
        if row.revoked:
            self._drop(row.key_id)
            return
        known = self._keys.get(row.key_id)
        found = self._keys[row.key_id] = row.principal()
        if known is not None and known.secret_sha256 != found.secret_sha256:
            self.lost.set()
        if known is not None and _ends_sessions(known, found):
            self._end_requests(row.key_id)
        if found.expires_at_s != float("inf"):
            heapq.heappush(self._ends, (found.expires_at_s, row.key_id))

    def _drop_expired(self) -> None:
        now_s = clock.now_ms() / 1000
        while self._ends and self._ends[0][0] <= now_s:
            _, key_id = heapq.heappop(self._ends)
            found = self._keys.get(key_id)
            if found is not None and found.expires_at_s <= now_s:
                self._end_requests(key_id)

    def _drop(self, key_id: str) -> None:
        if self._keys.pop(key_id, None) is not None:
            self.lost.set()
        self._end_requests(key_id)

    def _end_requests(self, key_id: str) -> None:
        tasks = self._open.pop(key_id, set())
        ending = list(tasks)
        tasks.clear()
        for task in ending:
            log.info("request_ended", reason="its key does not count any more", key=key_id)
            task.cancel()

    def _fall_behind(self, reason: str) -> None:
        silent_s = clock.monotonic_ms() / 1000 - self._heard_s
        if silent_s > BEHIND_S:
            detail = f"revocations are not known yet: {reason}"
            self._report(COMPONENT, True, detail, degraded=True)

    async def _write_used(self) -> None:
        used, self._used = self._used, {}
        if used:
            await self._source.note_used(used)


def _ends_sessions(known: Principal, found: Principal) -> bool:
    """Tell whether what is open with a key must end: a person has other groups, or the secret was
    replaced and counts no more."""
    replaced = known.secret_sha256 not in (found.secret_sha256, found.former_sha256)
    return replaced or known.groups != found.groups
