"""Announces the end of a run to everybody who waits for it: events, callers, parent runs.

An end is announced after its commit, at least once: what may not have been announced
(`notification_watermark.py`) is announced again by the partition's next owner and when the server
comes back. Streams drop the repeats (docs/decisions/0004-ends-are-told-at-least-once.md).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import structlog

from hocket.coordinator.core.run.ends.notification_watermark import (
    NotificationTracker,
    NotificationWatermark,
)
from hocket.coordinator.core.run.faults import reason_of
from hocket.coordinator.core.run.state.run import RUN_REJECTED, Run
from hocket.coordinator.partition.runs.caller_replies import CallerReplies
from hocket.coordinator.partition.runs.end_publisher import EndPublisher
from hocket.coordinator.storage.store import Store
from hocket.kit.access.key_book import KeyBook
from hocket.kit.logs.run_lines import of_run
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.connection.post_answers import PubAck
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process.clock import monotonic_ms, now_ms
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import (
    AttemptFinished,
    RunParent,
)

PAUSE_S = 0.2
TOLD_AT_ONCE = 100
"""How many ends are told again before everything else has its turn."""

log = structlog.get_logger(__name__)


class RunNotifier:
    """Announces the ends of one partition's runs, in one tenure. `told` is the watermark that the
    former owner kept; `keep` writes a new one, and returns when it is written. `key_book`: which
    keys may see outputs."""

    def __init__(
        self,
        number: int,
        *,
        bus: Bus,
        store: Store,
        told: NotificationWatermark,
        keep: Callable[[NotificationWatermark], Awaitable[None]],
        capabilities: Capabilities | None = None,
        key_book: KeyBook | None = None,
    ) -> None:
        self._number = number
        self._bus = bus
        self._store = store
        self._keep = keep
        self._publisher = EndPublisher(bus, capabilities, CallerReplies(bus, key_book))
        self._tracker = NotificationTracker(_seen_here(told))
        self._all_told = asyncio.Event()
        self._retelling: asyncio.Task[None] | None = None
        self._losses = bus.losses
        """How often the connection had been lost when everything that may have been lost with it
        was announced again."""

    def decided(self, run_id: str, finished_at_ms: float) -> None:
        """Note that a run's end waits for its commit, after which `committed` must be called."""
        self._tracker.decided(run_id, finished_at_ms)

    def committed(self, run: Run) -> None:
        """Announce an end that Postgres has now."""
        try:
            self.tell(run)
        finally:  # an end that cannot be announced holds back no other
            self._told(run.run_id, lasting=True)  # Postgres loses nothing

    def tell(self, run: Run, parent: RunParent | None = None) -> None:
        """Announce a run's end to everybody; `parent`: the step that asks now."""
        assert run.finished_at_ms is not None, run.run_id
        told = self._publisher.publish(run, parent)
        self._tracker.ended(run.run_id, run.finished_at_ms, len(told))
        for post in told:
            post.add_done_callback(partial(self._post_ended, run.run_id))

    def tell_again(self, run: Run) -> None:
        """Announce an end that the former owner may not have announced; a failure is logged and
        holds back no other."""
        try:
            self.tell(run)
        except BusUnavailable:
            raise
        except Exception:
            log.exception("end_not_told", **of_run(run.run_id, run.traceparent))

    def answer_again(self, run: Run, parent: RunParent | None = None) -> None:
        """Answer a repeated task. The public fact is posted again only if its stream may not have
        it: the stream drops repeats for five minutes only, and a rewound log has the tasks of a
        whole day."""
        if run.status == RUN_REJECTED or not self._has_told(run):
            self.tell(run, parent)
        else:
            self._publisher.answer(run, parent)

    def tell_parent(self, parent: RunParent, result: AttemptFinished) -> None:
        """Tell a step of another run how its sub-run ended."""
        self._publisher.tell_parent(parent, result)

    def retell(self) -> None:
        """Announce the ends of the last seconds again, because the server came back and may have
        lost them."""
        self.stop()
        self._losses = self._bus.losses
        self._retelling = asyncio.create_task(self._retell())

    async def all_told(self) -> None:
        """Wait until the streams have every end that is committed."""
        self._all_told.clear()
        if self._tracker:
            await self._all_told.wait()

    def news(self, applied_ms: float) -> NotificationWatermark | None:
        """Return the watermark to store, or None if it has not changed; the log is applied up to
        `applied_ms`."""
        retold = self._retelling is None or self._retelling.done()
        if not retold or self._bus.losses != self._losses:
            return None  # the server may have lost what it acknowledged last
        news = self._tracker.news(min(now_ms(), applied_ms), monotonic_ms())
        return None if news is None else _by_the_clock(news)

    def stop(self) -> None:
        """Stop announcing ends again."""
        if self._retelling is not None:
            self._retelling.cancel()

    async def _retell(self) -> None:
        if self._tracker.marked:
            # before what was lost is stored again: the next owner must not rely on the mark
            await self._keep(NotificationWatermark(self._tracker.kept_ms))
            self._tracker.unmarked()
        while True:
            ended = await _ended_since(self._store, self._number, self._tracker.kept_ms)
            if ended is not None:
                break
            await asyncio.sleep(PAUSE_S)
        for count, run in enumerate(ended, 1):
            if count % TOLD_AT_ONCE == 0:
                await asyncio.sleep(0)
            if not self._has_told(run):
                await self._bus.wait_for_capacity()
                try:
                    self.tell(run)
                except Exception:  # the other ends are announced all the same
                    log.exception("end_not_told", **of_run(run.run_id, run.traceparent))

    def _has_told(self, run: Run) -> bool:
        assert run.finished_at_ms is not None, run.run_id
        return self._tracker.has_told(run.run_id, run.finished_at_ms)

    def _post_ended(self, run_id: str, told: "asyncio.Future[PubAck]") -> None:
        lasting = False
        if not told.cancelled() and told.exception() is None:
            acknowledged = told.result()
            lasting = acknowledged.duplicate and not acknowledged.repeated
        self._told(run_id, lasting=lasting)

    def _told(self, run_id: str, *, lasting: bool) -> None:
        self._tracker.told(run_id, monotonic_ms(), lasting=lasting)
        if not self._tracker:
            self._all_told.set()


def _by_the_clock(told: NotificationWatermark) -> NotificationWatermark:
    """Return a watermark with the time of its mark by the clock that coordinators share (epoch ms)."""
    if not told.acked_ms:
        return told
    return replace(told, acked_at_ms=now_ms() - (monotonic_ms() - told.acked_at_ms))


def _seen_here(told: NotificationWatermark) -> NotificationWatermark:
    """Return a former owner's watermark, with the time of its mark by our own clock (monotonic)."""
    return replace(told, acked_at_ms=monotonic_ms() - (now_ms() - told.acked_at_ms))


async def _ended_since(store: Store, partition: int, since_ms: float) -> list[Run] | None:
    """Return the runs whose ends may not be announced; None if Postgres does not tell now."""
    try:
        return await store.ended_since(partition, since_ms)
    except Exception as error:  # it is away, or refuses everything: it passes
        log.warning("ends_not_retold", partition=partition, reason=reason_of(error))
        return None
