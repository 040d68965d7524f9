"""A bucket of small values under keys, with revisions, as NATS' key-value stores keep them.

`put` may demand the revision that it replaces. Whoever is inside `watching` has all entries in memory,
as of `current_since_s`: an ephemeral push consumer tells them and every change, and sets `changed`.
States of the watch: current, or behind (NATS is away, a message was missed, nothing was heard for
SILENCE_S): then it is begun anew and the entries are replaced by what the bucket holds. The bucket is
made where it is missing.

Anybody who reaches NATS may write anything there. What `expected` does not take, or has no seal where
there are `capabilities`, is not ours: such a key
is not kept and is removed, such a value leaves the former one in force (`overwritten` tells its owner,
who writes it again), and a warning says so now and then.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

import structlog
from nats.aio.subscription import Subscription

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.delivery import ACK_PREFIX, parse_ack_subject
from hocket.kit.nats.errors import BusUnavailable, PublishRefused
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.nats.streams import StreamRefused
from hocket.schemas.capabilities import SEAL, Capabilities
from hocket.schemas.errors import ErrorClass, HocketError

HEARTBEAT_S = 1.0
SILENCE_S = 3.0
RETRY_S = 0.25
API_TIMEOUT_MS = 5_000.0
INACTIVE_S = 30
DEDUP_WINDOW_S = 30
MAX_VALUE_BYTES = 4_096
MAX_KEYS = 10_000
"""Keys that are kept; further ones are ignored until some are deleted."""
MAX_LITTER = 1_000
"""Foreign keys that wait for their removal; what is beyond is removed after it is seen again."""
SWEEP_S = 0.05
"""Between two removals of foreign keys."""
REPORT_S = 10.0
"""At most this often is it said that there was something foreign."""
_NS = 1_000_000_000
_NOT_FOUND = 404
_EXISTS = 10_058
_WRONG_REVISION = 10_071
_NEVER = float("-inf")
MAX_DIGITS = 19
"""Of a revision."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_=/-]+(\.[A-Za-z0-9_=/-]+)*")
"""A key that names itself only: a subject may have `*` and `>` in it, which a removal takes for many."""

log = structlog.get_logger(__name__)


class RevisionPassed(HocketError):
    """The key `{key}` was changed by somebody else. Look at it again before you change it."""

    code = "revision_passed"
    error_class = ErrorClass.TRANSIENT
    retryable = True


@dataclass(frozen=True, slots=True)
class Entry:
    """What a key holds: None after a deletion. `written_at_s` is on this process' loop clock, as far
    as the server's clock tells."""

    key: str
    value: bytes | None
    revision: int
    written_at_s: float
    overwritten_at_s: float | None = None
    """When something foreign was written over it first: `value` is the one before (None where that is
    not known), `revision` the newest."""

    @property
    def overwritten(self) -> bool:
        """Whether something foreign stands there."""
        return self.overwritten_at_s is not None


class Leases(Protocol):
    """What ownership needs of a bucket."""

    changed: asyncio.Event
    current_since_s: float

    @property
    def entries(self) -> dict[str, Entry]: ...

    async def put(
        self, key: str, value: bytes | None, *, revision: int | None, timeout_ms: float
    ) -> int: ...


async def until_changed(leases: Leases, timeout_s: float) -> None:
    """Wait until something changed, or the time is over."""
    try:
        async with asyncio.timeout(timeout_s):
            await leases.changed.wait()
    except TimeoutError:
        return


Expected = Callable[[str, bytes | None], bool]
"""Whether a key may hold a value; with None, whether there may be such a key."""


class Bucket:
    """See the module."""

    def __init__(
        self,
        bus: Bus,
        name: str,
        *,
        replicas: int = 1,
        expected: Expected = lambda _key, _value: True,
        capabilities: Capabilities | None = None,
    ) -> None:
        self._capabilities = capabilities
        self._sealed_at: dict[str, int] = {}
        """By key: the revision of the newest entry that was ours; an older one is not ours again."""
        self.changed = asyncio.Event()
        self.current_since_s = _NEVER
        """Since when every change was heard, on the loop's clock; -inf where the watch is behind."""
        self._bus = bus
        self._stream = f"KV_{name}"
        self._prefix = f"$KV.{name}."
        self._replicas = replicas
        self._expected = expected
        self._litter: dict[str, None] = {}
        self._littered = asyncio.Event()
        self._ignored = 0
        self._reported_at_s = _NEVER
        self._entries: dict[str, Entry] = {}
        self._fresh: dict[str, Entry] = {}
        self._generation = 0
        self._consumer_seq = 0
        self._heard_at_s = _NEVER
        self._server_ahead_s: float | None = None
        """The server's clock less the loop's; None until the server has told its clock."""
        self._all_told = False
        self._broken = asyncio.Event()

    @property
    def entries(self) -> dict[str, Entry]:
        """All entries by key, as last heard."""
        return self._entries

    async def put(
        self,
        key: str,
        value: bytes | None,
        *,
        revision: int | None = None,
        timeout_ms: float = API_TIMEOUT_MS,
    ) -> int:
        """Write a key (None deletes it) and return its new revision. With `revision` (0: the key is
        not there yet) raise RevisionPassed where that is not its last one."""
        assert value is None or len(value) <= MAX_VALUE_BYTES, key
        headers = {} if value is not None else {"KV-Operation": "DEL"}
        if revision is not None:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(revision)
        subject = self._prefix + key
        if self._capabilities is not None:
            known = self._entries.get(key)
            after = known.revision if revision is None and known is not None else revision or 0
            headers[SEAL] = f"{after}.{self._seal(self._capabilities, key, value, after)}"
        try:
            ack = await self._bus.publish(
                subject, value or b"", headers=headers, timeout_ms=timeout_ms
            )
        except PublishRefused as error:
            if error.fields.get("err_code") == _WRONG_REVISION:
                raise RevisionPassed(key=key) from None
            raise
        return ack.seq

    def _seal(self, capabilities: Capabilities, key: str, value: bytes | None, after: int) -> str:
        """Return the seal of a value that is written over a revision."""
        return capabilities.seal(f"{self._prefix}{key}\x1f{after}", value or b"")

    def _is_ours(self, key: str, value: bytes | None, revision: int, seal: str) -> bool:
        """Tell whether a value is from who may write it, and written over what was there last: not one
        of before that somebody writes again."""
        if self._capabilities is None:
            return True
        number, _, sealed = seal.partition(".")
        if not number.isdecimal() or len(number) > MAX_DIGITS:
            return False
        after = int(number)
        if not self._sealed_at.get(key, 0) <= after < revision:
            return False
        subject = f"{self._prefix}{key}\x1f{after}"
        return self._capabilities.is_sealed(sealed, subject, value or b"")

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Keep `entries` up to date inside the block."""
        tasks = {
            asyncio.create_task(self._watch(), name=f"watch {self._stream}"),
            asyncio.create_task(self._sweep(), name=f"sweep {self._stream}"),
        }
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _watch(self) -> None:
        self._bus.on_reconnect.append(self._broken.set)
        subscription: Subscription | None = None
        try:
            while True:
                self._broken.clear()
                try:
                    subscription = await self._attach()
                except (BusUnavailable, StreamRefused) as error:
                    log.warning("bucket_not_watched", stream=self._stream, reason=str(error))
                    await asyncio.sleep(RETRY_S)
                    continue
                except Exception:  # a server that answers otherwise than we know
                    log.exception("bucket_watch_failed", stream=self._stream)
                    await asyncio.sleep(RETRY_S)
                    continue
                await self._until_broken()
                self._fall_behind()
                await _unsubscribe(subscription)
                subscription = None
        finally:
            self._bus.on_reconnect.remove(self._broken.set)
            self._fall_behind()
            await _unsubscribe(subscription)

    def _fall_behind(self) -> None:
        self._generation += 1
        self.current_since_s = _NEVER

    async def _until_broken(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._broken.is_set():
            try:
                async with asyncio.timeout(SILENCE_S):
                    await self._broken.wait()
            except TimeoutError:
                if loop.time() - self._heard_at_s > SILENCE_S:
                    log.warning("bucket_silent", stream=self._stream)
                    return

    async def _attach(self) -> Subscription:
        self._generation += 1
        generation = self._generation
        self._consumer_seq = 0
        self._fresh, self._all_told, self._server_ahead_s = {}, False, None
        self._sealed_at.clear()  # revisions may begin anew
        loop = asyncio.get_running_loop()
        self._heard_at_s = loop.time()
        inbox = self._bus.nc.new_inbox()

        def received(message: RawMessage) -> None:
            if generation == self._generation:
                self._received(message)

        subscription = await self._bus.subscribe_raw(inbox, received, confirmed=False)
        try:
            answer = await self._consume(inbox)
        except BaseException:
            await _unsubscribe(subscription)
            raise
        server_s = datetime.fromisoformat(answer["ts"]).timestamp()
        self._server_ahead_s = server_s - loop.time()
        if self._all_told or answer["num_pending"] == 0:
            self._current()
        return subscription

    async def _consume(self, inbox: str) -> Any:
        name = "watch-" + inbox.rsplit(".", 1)[1]
        config = {
            "name": name,
            "deliver_subject": inbox,
            "deliver_policy": "last_per_subject",
            "ack_policy": "none",
            "max_deliver": 1,
            "filter_subject": self._prefix + ">",
            "replay_policy": "instant",
            "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT_S * _NS),
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": INACTIVE_S * _NS,
        }
        request = {"stream_name": self._stream, "config": config, "action": "create"}
        subject = f"CONSUMER.CREATE.{self._stream}.{name}"
        answer = await self._bus.api(subject, request, timeout_ms=API_TIMEOUT_MS)
        if answer.get("error", {}).get("code") == _NOT_FOUND:
            await self._make()
            answer = await self._bus.api(subject, request, timeout_ms=API_TIMEOUT_MS)
        if "error" in answer:
            raise BusUnavailable(reason=answer["error"].get("description", "no consumer"))
        return answer

    async def _make(self) -> None:
        config: dict[str, Any] = {
            "name": self._stream,
            "subjects": [self._prefix + ">"],
            "max_msgs_per_subject": 1,
            "max_msgs": 2 * MAX_KEYS,
            "max_msg_size": 2 * MAX_VALUE_BYTES,
            "storage": "file",
            "num_replicas": self._replicas,
            "discard": "new",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "allow_direct": True,
            "duplicate_window": DEDUP_WINDOW_S * _NS,
        }
        if self._replicas == 1:  # what is lost with the machine is written again by who lives
            config["persist_mode"] = "async"
        answer = await self._bus.api(
            f"STREAM.CREATE.{self._stream}", config, timeout_ms=API_TIMEOUT_MS
        )
        error = answer.get("error", {})
        if error and error.get("err_code") != _EXISTS:
            raise StreamRefused(stream=self._stream, reason=error.get("description", ""))

    def _received(self, message: RawMessage) -> None:
        self._heard_at_s = asyncio.get_running_loop().time()
        if not message.reply.startswith(ACK_PREFIX):
            self._control(message)
            return
        try:
            place = parse_ack_subject(message.reply)
        except ValueError:  # none of the server's
            place = None
        if place is None or place.consumer_seq != self._consumer_seq + 1:
            self._broken.set()
            self._fall_behind()
            return
        self._consumer_seq = place.consumer_seq
        if self.current_since_s != _NEVER:
            self._keep(self._entries, message, place.stream_seq, self._heard_at_s)
            self.changed.set()
            return
        # the server's clock yet
        self._keep(self._fresh, message, place.stream_seq, place.stored_ns / _NS)
        if place.pending == 0:
            self._all_told = True
            if self._server_ahead_s is not None:
                self._current()

    def _keep(
        self, entries: dict[str, Entry], message: RawMessage, revision: int, written_at_s: float
    ) -> None:
        key = message.subject.removeprefix(self._prefix)
        headers = message.headers or {}
        deleted = headers.get("KV-Operation") in ("DEL", "PURGE")
        value = None if deleted else message.data
        if not self._expected(key, None):
            self._ignore(key)
            if not deleted:
                self._litter_with(key)
        elif key not in entries and len(entries) >= MAX_KEYS:
            self._ignore(key)
        elif (
            value is None or (len(value) <= MAX_VALUE_BYTES and self._expected(key, value))
        ) and self._is_ours(key, value, revision, headers.get(SEAL, "")):
            entries[key] = Entry(key, value, revision, written_at_s)
            self._sealed_at[key] = revision
        else:
            self._ignore(key)
            known = entries.get(key) or Entry(key, None, revision, _NEVER)
            since_s = written_at_s if known.overwritten_at_s is None else known.overwritten_at_s
            entries[key] = replace(known, revision=revision, overwritten_at_s=since_s)

    def _ignore(self, key: str) -> None:
        """Count what is not ours, and say so now and then."""
        self._ignored += 1
        now_s = asyncio.get_running_loop().time()
        if now_s - self._reported_at_s >= REPORT_S:
            log.warning(
                "bucket_entry_ignored", stream=self._stream, key=key[:200], count=self._ignored
            )
            self._reported_at_s, self._ignored = now_s, 0

    def _litter_with(self, key: str) -> None:
        if _PLAIN_KEY.fullmatch(key) and len(self._litter) < MAX_LITTER:
            self._litter[key] = None
            self._littered.set()

    async def _sweep(self) -> None:
        """Remove foreign keys, one at a time."""
        while True:
            await self._littered.wait()
            key = next(iter(self._litter), None)
            if key is None:
                self._littered.clear()
                continue
            try:
                await self._bus.api(
                    f"STREAM.PURGE.{self._stream}",
                    {"filter": self._prefix + key},
                    timeout_ms=API_TIMEOUT_MS,
                )
            except BusUnavailable as error:
                log.debug("bucket_not_swept", stream=self._stream, reason=str(error))
            except Exception:  # a server that answers otherwise than we know
                log.exception("bucket_sweep_failed", stream=self._stream)
            self._litter.pop(key, None)
            await asyncio.sleep(SWEEP_S)

    def _current(self) -> None:
        """What was told since the watch began is all there is."""
        assert self._server_ahead_s is not None, "the server has not answered yet"
        now_s, ahead_s = asyncio.get_running_loop().time(), self._server_ahead_s

        def here_s(server_s: float) -> float:
            return min(now_s, server_s - ahead_s)

        def told(entry: Entry) -> Entry:
            hidden_s = entry.overwritten_at_s
            return replace(
                entry,
                written_at_s=here_s(entry.written_at_s),
                overwritten_at_s=None if hidden_s is None else here_s(hidden_s),
            )

        self._entries = {key: told(entry) for key, entry in self._fresh.items()}
        self._fresh = {}
        self.current_since_s = now_s
        self.changed.set()

    def _control(self, message: RawMessage) -> None:
        """Answer the server's flow control; a heartbeat says that nothing was missed."""
        if message.reply:
            self._bus.publish_nowait(message.reply, b"")
            return
        headers: dict[str, Any] = message.headers or {}
        stalled = headers.get("Nats-Consumer-Stalled")
        if stalled:
            self._bus.publish_nowait(stalled, b"")
        last = headers.get("Nats-Last-Consumer")
        if last is not None and int(last) > self._consumer_seq:
            self._broken.set()


async def _unsubscribe(subscription: Subscription | None) -> None:
    if subscription is None:
        return
    try:
        await subscription.unsubscribe()
    except Exception as error:  # the consumer goes by itself after INACTIVE_S
        log.debug("bucket_not_unsubscribed", error=str(error))
