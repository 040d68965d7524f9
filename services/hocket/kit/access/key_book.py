"""The keys that count, in the memory of a process, and what asks for them.

States: not loaded yet (every key is refused with 503), loaded, behind (Postgres does not answer: what is
known goes on counting, and the process says so). What changed is read every EVERY_S, all keys every
WHOLE_S. A key that is not known here, or has another secret, is looked for in Postgres before it is
refused, so that a key counts everywhere from the moment it is made; those who wait for that share a
look, and there are few looks.

Requests that are open when their key goes (a stream, a wait) are ended.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime

import asyncpg
import structlog

from hocket.kit.access.key_store import IN_FORCE, MAX_KEYS, permissions_of
from hocket.kit.postgres.database import said
from hocket.kit.process import clock
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
"""After how long without an answer of Postgres the process says that it may miss revocations."""
USE_EVERY_S = 10.0
"""How often it is written when keys were used."""
COMPONENT = "keys"

COLUMNS = """
key_id, name, tenant, role, scopes, models, requests_per_s, expires_at, revoked_at, secret_sha256,
former_sha256, former_until, change
"""
WHOLE = (
    f"SELECT {COLUMNS} FROM hocket.api_key WHERE {IN_FORCE} ORDER BY change LIMIT {2 * MAX_KEYS}"
)
CHANGED = f"SELECT {COLUMNS} FROM hocket.api_key WHERE change > $1 ORDER BY change"
LAST_CHANGE = "SELECT coalesce(max(change), 0) FROM hocket.api_key"
USED = """
UPDATE hocket.api_key k SET last_used_at = greatest(coalesce(k.last_used_at, u.at), u.at)
FROM unnest($1::text[], $2::timestamptz[]) AS u (key_id, at)
WHERE k.key_id = u.key_id
"""

log = structlog.get_logger(__name__)


class KeysNotLoaded(HocketError):
    """The keys are not read from Postgres yet. Try again in a moment."""

    code = "keys_not_loaded"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class KeyBook:
    """The keys of a process; kept up to date inside `running`."""

    def __init__(
        self, pool: asyncpg.Pool, report: Callable[..., None] = lambda *_, **__: None
    ) -> None:
        self._pool = pool
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
        await self._looked()
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

    def holder(self, key_id: str) -> Principal:
        """Return the bearer of the key with an id, for whoever knows in another way that it was shown;
        raise KeyRefused or KeysNotLoaded."""
        found = self._keys.get(key_id)
        if found is None:
            raise KeyRefused(reason=UNKNOWN) if self._loaded else KeysNotLoaded
        self._used[key_id] = clock.now_ms() / 1000
        return found

    @contextmanager
    def open(self, bearer: Principal) -> Iterator[None]:
        """End the present task where the key goes inside the block; then raise KeyRefused."""
        task = asyncio.current_task()
        assert task is not None, "requests are answered in tasks"
        tasks = self._open.setdefault(bearer.key_id, set())
        tasks.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if task in tasks:
                raise
            task.uncancel()
            raise KeyRefused(reason=UNKNOWN) from None
        finally:
            tasks.discard(task)
            if not tasks and self._open.get(bearer.key_id) is tasks:
                del self._open[bearer.key_id]

    # ---- reading ------------------------------------------------------------------------------

    async def _looked(self) -> None:
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
        if self._change < 0 or now_s - self._whole_s > WHOLE_S:
            last = await self._pool.fetchval(LAST_CHANGE, timeout=QUERY_TIMEOUT_S)
            found = await self._pool.fetch(WHOLE, timeout=QUERY_TIMEOUT_S)
            gone = self._keys.keys() - {row["key_id"] for row in found}
            self._whole_s, self._loaded = now_s, True
        else:
            last, gone = self._change, set()
            found = await self._pool.fetch(CHANGED, self._change, timeout=QUERY_TIMEOUT_S)
        for row in found:
            last = max(last, row["change"])
            self._take(row)
        for key_id in gone:
            self._drop(key_id)
        self._change = last
        self._drop_expired()
        if self._used and now_s - self._used_s > USE_EVERY_S:
            self._used_s = now_s
            await self._write_used()

    def _take(self, row: asyncpg.Record) -> None:
        key_id = row["key_id"]
        if row["revoked_at"] is not None:
            self._drop(key_id)
            return
        found = self._keys[key_id] = _principal(row)
        if found.expires_at_s != float("inf"):
            heapq.heappush(self._ends, (found.expires_at_s, key_id))

    def _drop_expired(self) -> None:
        now_s = clock.now_ms() / 1000
        while self._ends and self._ends[0][0] <= now_s:
            _, key_id = heapq.heappop(self._ends)
            found = self._keys.get(key_id)
            if found is not None and found.expires_at_s <= now_s:
                self._end_requests(key_id)

    def _drop(self, key_id: str) -> None:
        self._keys.pop(key_id, None)
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
            detail = f"Postgres does not answer ({reason}): revocations are not known yet"
            self._report(COMPONENT, True, detail, degraded=True)

    async def _write_used(self) -> None:
        used, self._used = self._used, {}
        if used:
            names = sorted(used)
            moments = [datetime.fromtimestamp(used[name], UTC) for name in names]
            await self._pool.execute(USED, names, moments, timeout=QUERY_TIMEOUT_S)


def _principal(row: asyncpg.Record) -> Principal:
    expires_at, former_until = row["expires_at"], row["former_until"]
    models = row["models"]
    return Principal(
        key_id=row["key_id"],
        name=row["name"],
        tenant=row["tenant"],
        role=row["role"],
        permissions=permissions_of(row["role"], row["scopes"]),
        models=None if models is None else frozenset(models),
        requests_per_s=row["requests_per_s"],
        expires_at_s=float("inf") if expires_at is None else expires_at.timestamp(),
        secret_sha256=row["secret_sha256"],
        former_sha256=row["former_sha256"] or b"",
        former_until_s=0.0 if former_until is None else former_until.timestamp(),
    )
