"""A bucket of small values under keys, with revisions, in one of NATS's key-value stores.

`put` may demand the revision that it replaces. Inside `watching`, all entries are kept in memory: an
ephemeral push consumer delivers them and every change, and each change sets `changed`. States of the
watch: current (since `current_since_s`), or behind (NATS is away, a message was missed, or nothing was
heard for SILENCE_S). When it is behind, the watch is restarted, and the entries are replaced by what the
bucket holds. A missing bucket is created.

Anybody who can reach NATS may write anything there. An entry that `expected` rejects, or that has no
valid seal although there are `capabilities`, is foreign: a foreign key is not kept, and is removed; a
foreign value leaves the former one in force (`overwritten` tells its owner, who writes it again). A
warning is logged at a limited rate.

A deletion is an entry as well. After FORGET_S, nobody has it in memory any more; after REMOVE_S, it is
removed from the stream by the process that wrote it, or by the next one that begins to watch.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import Any

import structlog

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.ordered_consumer import (
    MessageMissed,
    OrderedConsumer,
    Reading,
    StreamMissing,
)
from hocket.kit.nats.consumers.silence import is_silent_before
from hocket.kit.nats.errors import BusUnavailable, PublishRefused
from hocket.kit.nats.kv.entry import Entry, Expected, RevisionPassed
from hocket.kit.nats.kv.litter import Litter
from hocket.kit.nats.kv.seals import EntrySeals
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.nats.streams import StreamRefused
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas.capabilities import SEAL, Capabilities

HEARTBEAT_S = 1.0
SILENCE_S = 3.0
RETRY_S = 0.25
API_TIMEOUT_MS = 5_000.0
DEDUP_WINDOW_S = 30
MAX_VALUE_BYTES = 4_096
MAX_KEYS = 10_000
"""How many keys are kept, besides as many deleted ones; further ones are ignored until some are
deleted."""
FORGET_S = 30.0
"""How long a deletion is kept in memory."""
REMOVE_S = 60.0
"""After what time a deletion is removed from the stream: everybody must have forgotten it by then,
because the next value of its key is sealed as one that replaces nothing."""
_NS = 1_000_000_000
_EXISTS = 10_058
_WRONG_REVISION = 10_071
_NEVER = float("-inf")

log = structlog.get_logger(__name__)


class Bucket:
    """One bucket; `watching` keeps its entries in memory."""

    def __init__(
        self,
        bus: Bus,
        name: str,
        *,
        replicas: int = 1,
        expected: Expected = lambda _key, _value: True,
        capabilities: Capabilities | None = None,
    ) -> None:
        self.changed = asyncio.Event()
        self.current_since_s = _NEVER
        """Since when every change was heard, on the loop's clock; -inf while the watch is behind."""
        self._bus = bus
        self._stream = f"KV_{name}"
        self._prefix = f"$KV.{name}."
        self._replicas = replicas
        self._expected = expected
        self._seals = EntrySeals(self._prefix, capabilities)
        self._litter = Litter(bus, self._stream, self._prefix)
        self._reading = Reading(
            stream=self._stream,
            name="watch",
            filter_subject=self._prefix + ">",
            start={"deliver_policy": "last_per_subject"},
            heartbeat_s=HEARTBEAT_S,
        )
        self._entries: dict[str, Entry] = {}
        self._fresh: dict[str, Entry] = {}
        self._deleted: dict[str, None] = {}
        """The keys of the entries that are deletions, the oldest first: of `_fresh` while the watch is
        behind."""
        self._consumer: OrderedConsumer | None = None
        self._server_ahead_s: float | None = None
        """The server's clock minus the loop's; None until the server has told its time."""
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
        """Write a key (None deletes it) and return its new revision. With `revision` (0: the key does
        not exist yet), raise RevisionPassed if that is not its last one."""
        assert value is None or len(value) <= MAX_VALUE_BYTES, key
        headers = {} if value is not None else {"KV-Operation": "DEL"}
        if revision is not None:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(revision)
        subject = self._prefix + key
        known = self._entries.get(key)
        after = known.revision if revision is None and known is not None else revision or 0
        if (seal := self._seals.seal(key, value, after)) is not None:
            headers[SEAL] = seal
        try:
            ack = await self._bus.publish(
                subject, value or b"", headers=headers, timeout_ms=timeout_ms
            )
        except PublishRefused as error:
            if error.fields.get("err_code") == _WRONG_REVISION:
                raise RevisionPassed(key=key) from None
            raise
        self._seals.wrote(key, ack.seq)
        if value is None:
            loop = asyncio.get_running_loop()
            loop.call_later(REMOVE_S, self._litter.remove_later, key, ack.seq)
        return ack.seq

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Keep `entries` up to date inside the block."""
        tasks = {
            asyncio.create_task(self._watch(), name=f"watch {self._stream}"),
            asyncio.create_task(self._litter.remove_forever(), name=f"sweep {self._stream}"),
        }
        try:
            yield
        finally:
            await stop_tasks(tasks)

    async def _watch(self) -> None:
        self._bus.on_reconnect.append(self._broken.set)
        consumer: OrderedConsumer | None = None
        try:
            while True:
                self._broken.clear()
                try:
                    consumer = await self._attach()
                except (BusUnavailable, StreamRefused) as error:
                    log.warning("bucket_not_watched", stream=self._stream, reason=str(error))
                    await asyncio.sleep(RETRY_S)
                    continue
                except Exception:  # the server answers in a way that we do not know
                    log.exception("bucket_watch_failed", stream=self._stream)
                    await asyncio.sleep(RETRY_S)
                    continue
                await self._until_broken(consumer)
                self._fall_behind()
                await _unsubscribe(consumer)
                consumer = None
        finally:
            self._bus.on_reconnect.remove(self._broken.set)
            self._fall_behind()
            await _unsubscribe(consumer)

    def _fall_behind(self) -> None:
        self._consumer = None
        self.current_since_s = _NEVER

    async def _until_broken(self, consumer: OrderedConsumer) -> None:
        if await is_silent_before(self._broken, SILENCE_S, lambda: consumer.silent_s):
            log.warning("bucket_silent", stream=self._stream)

    async def _attach(self) -> OrderedConsumer:
        self._fresh, self._all_told, self._server_ahead_s = {}, False, None
        self._deleted.clear()
        self._seals.forget()  # revisions may start again at 1

        def received(message: RawMessage) -> None:
            if consumer is self._consumer:
                self._received(consumer, message)

        consumer = self._consumer = OrderedConsumer(self._bus, self._reading, received)
        await consumer.subscribe()
        try:
            answer = await self._create(consumer)
        except BaseException:
            await _unsubscribe(consumer)
            raise
        server_s = datetime.fromisoformat(answer["ts"]).timestamp()
        self._server_ahead_s = server_s - asyncio.get_running_loop().time()
        if self._all_told or answer["num_pending"] == 0:
            self._current()
        return consumer

    async def _create(self, consumer: OrderedConsumer) -> Any:
        try:
            return await consumer.create()
        except StreamMissing:
            await self._make()
            return await consumer.create()

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
        if self._replicas == 1:  # living processes rewrite what is lost with the machine
            config["persist_mode"] = "async"
        answer = await self._bus.api(
            f"STREAM.CREATE.{self._stream}", config, timeout_ms=API_TIMEOUT_MS
        )
        error = answer.get("error", {})
        if error and error.get("err_code") != _EXISTS:
            raise StreamRefused(stream=self._stream, reason=error.get("description", ""))

    def _received(self, consumer: OrderedConsumer, message: RawMessage) -> None:
        try:
            delivery = consumer.delivery_of(message)
        except (MessageMissed, ValueError) as error:  # ValueError: it is not from the server
            self._broken.set()
            if not isinstance(error, MessageMissed) or error.seq is not None:
                self._fall_behind()
            return
        if delivery is None:
            return
        if self.current_since_s != _NEVER:
            self._forget_deleted(consumer.heard_at_s)
            self._keep(self._entries, message, delivery.stream_seq, consumer.heard_at_s)
            self.changed.set()
            return
        # on the server's clock until `_current` converts it
        self._keep(self._fresh, message, delivery.stream_seq, delivery.stored_ns / _NS)
        if delivery.pending == 0:
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
            self._litter.ignore(key)
            if not deleted:
                self._litter.remove_later(key)
        elif key not in entries and len(entries) - len(self._deleted) >= MAX_KEYS:
            self._litter.ignore(key)
        elif self._is_ours(key, value, revision, headers.get(SEAL, "")):
            entries[key] = Entry(key, value, revision, written_at_s)
            self._seals.accept(key, revision)
            self._deleted.pop(key, None)
            if deleted:
                self._deleted[key] = None
        else:
            self._litter.ignore(key)
            self._deleted.pop(key, None)
            known = entries.get(key) or Entry(key, None, revision, _NEVER)
            since_s = written_at_s if known.overwritten_at_s is None else known.overwritten_at_s
            entries[key] = replace(known, revision=revision, overwritten_at_s=since_s)

    def _is_ours(self, key: str, value: bytes | None, revision: int, seal: str) -> bool:
        """Tell whether one of the platform's processes wrote a value, as far as can be determined."""
        if value is not None and (len(value) > MAX_VALUE_BYTES or not self._expected(key, value)):
            return False
        return self._seals.is_ours(key, value, revision, seal)

    def _current(self) -> None:
        """Replace the entries by those delivered since the watch began, which are now all that exist."""
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
        for key in self._deleted:
            if self._entries[key].written_at_s <= now_s - REMOVE_S:
                self._litter.remove_later(key, self._entries[key].revision)
        self._forget_deleted(now_s)
        self.current_since_s = now_s
        self.changed.set()

    def _forget_deleted(self, now_s: float) -> None:
        """Drop the deletions that are older than FORGET_S, and those beyond MAX_KEYS, from memory."""

        def is_surplus(number_and_key: tuple[int, str]) -> bool:
            number, key = number_and_key
            is_old = self._entries[key].written_at_s <= now_s - FORGET_S
            return is_old or len(self._deleted) - number > MAX_KEYS

        for _, key in list(takewhile(is_surplus, enumerate(self._deleted))):
            del self._deleted[key], self._entries[key]
            self._seals.forget_key(key)


async def _unsubscribe(consumer: OrderedConsumer | None) -> None:
    if consumer is None:
        return
    try:
        await consumer.unsubscribe()
    except Exception as error:  # the server removes the consumer after a while
        log.debug("bucket_not_unsubscribed", error=str(error))
