"""Sends prompts and answers that are to be kept to a ledger, in batches, without delaying calls.

Keeping a call costs its caller only a policy lookup, a look at the beginnings of its texts and an
entry in a list. Waiting content is bounded; beyond the bound, if it takes too long to mask, or if no
ledger takes it in time, content is dropped and counted, because it matters less than the call itself.
Personal data is masked in a thread before anything leaves the process.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry, Counter

from hocket.gateway.core.budgets.named_run import names_run, with_pipeline
from hocket.gateway.core.content.kept import HeldContent, held_content, kept_content
from hocket.gateway.core.content.policy import ContentPolicy
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process import clock
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities, sealed
from hocket.schemas.messages import CallReply, CallRequest, encoded
from hocket.schemas.tracing.content import MAX_BATCH, CallContent, ContentBatch, Kept

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAX_WAITING = 2_000
MAX_WAITING_BYTES = 32_000_000
"""The most memory of content that waits or is on its way to a ledger."""
MASK_S = 1.0
"""How much time of a processor the content of one call may take."""
MAX_BATCH_BYTES = 512 * 1024
FLUSH_S = 0.5
TIMEOUT_MS = 5_000.0
TRIES = 3
CLOSE_S = 2.0

log = structlog.get_logger()
_reporting = Reporting()


class ContentRecorder:
    """Keeps content according to the current policy."""

    def __init__(
        self,
        bus: Bus,
        policy: Callable[[], ContentPolicy],
        registry: CollectorRegistry,
        seals: Capabilities | None = None,
        *,
        pipeline_of: Callable[[CallRequest], str | None] = lambda _: None,
    ) -> None:
        self._bus = bus
        self._policy = policy
        self._seals = seals
        self._pipeline_of = pipeline_of
        """Returns the pipeline of the run that a call over HTTP names; None if it is not known."""
        self._waiting: deque[HeldContent] = deque()
        self._bytes = 0
        self._taken = 0
        """Calls taken from those that wait, and neither kept nor dropped yet."""
        self._kept = Counter(
            "hocket_content_kept", "Calls whose content was stored by a ledger.", registry=registry
        )
        self._dropped = Counter(
            "hocket_content_dropped",
            "Calls whose content was dropped instead of stored: no room, no ledger in time, or not "
            "possible to prepare.",
            registry=registry,
        )

    def record(self, request: CallRequest, reply: CallReply) -> None:
        """Queue the content of a call to be kept, if the policy says so."""
        request, kept = self._kept_of(request)
        if kept is None:
            return
        if len(self._waiting) < MAX_WAITING:
            held = held_content(request, reply, kept, clock.now_ms() - reply.latency_ms)
            if self._bytes + held.held_bytes <= MAX_WAITING_BYTES:
                self._bytes += held.held_bytes
                self._waiting.append(held)
                return
        self._dropped.inc()

    @asynccontextmanager
    async def running(self) -> "AsyncIterator[None]":
        """Send content inside the block; at its end, send what is waiting within CLOSE_S."""
        closing = asyncio.Event()
        task = asyncio.create_task(self._run(closing), name="content")
        try:
            yield
        finally:
            closing.set()
            await asyncio.wait({task}, timeout=CLOSE_S)
            await stop_tasks([task])
            self._dropped.inc(len(self._waiting) + self._taken)

    def _kept_of(self, request: CallRequest) -> tuple[CallRequest, Kept | None]:
        """Return a call with the pipeline of its run, and how it is kept: as that pipeline's rule says,
        or, if it names another pipeline, as the stricter of the two rules. A run of ours that is not
        known may be of any pipeline, so nothing is kept that the rule of one of them forbids."""
        policy = self._policy()
        if names_run(request):
            pipeline = self._pipeline_of(request)
            if pipeline is None:
                return request, policy.strictest_of(request.attribution.tenant)
            named, request = request.attribution, with_pipeline(request, pipeline)
            if named.pipeline:
                return request, policy.stricter_of(request.attribution, named)
        return request, policy.of(request.attribution)

    async def _run(self, closing: asyncio.Event) -> None:
        is_last = False
        while not is_last:
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_S):
                    await closing.wait()
            is_last = closing.is_set()
            await self._flush()

    async def _flush(self) -> None:
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
            self._taken = len(some)
            batches = await asyncio.to_thread(_batches, some)
            self._dropped.inc(len(some) - sum(map(len, batches)))
            self._taken = sum(map(len, batches))
            for batch in batches:
                await self._send(batch)
                self._taken -= len(batch)
            self._bytes -= sum(one.held_bytes for one in some)

    async def _send(self, calls: list[CallContent]) -> None:
        body = encoded(ContentBatch(calls=tuple(calls)))
        headers = sealed(self._seals, subjects.LEDGER_CONTENT, body)
        reason = ""
        for _ in range(TRIES):
            try:
                await self._bus.request(
                    subjects.LEDGER_CONTENT, body, timeout_ms=TIMEOUT_MS, headers=headers
                )
            except BusUnavailable as error:
                reason = str(error)
                await asyncio.sleep(FLUSH_S)
            else:
                self._kept.inc(len(calls))
                return
        self._dropped.inc(len(calls))
        if count := _reporting.due("content_not_kept"):
            log.warning("content_not_kept", reason=reason, count=count)


def _batches(some: list[HeldContent]) -> list[list[CallContent]]:
    """Return content in batches that fit into a message;
    content that cannot be prepared is left out."""
    batches: list[list[CallContent]] = [[]]
    size = 0
    for held in some:
        is_late = partial(_is_past, time.thread_time() + MASK_S)
        try:
            content = kept_content(held, is_late)
            length = len(encoded(content))
        except Exception as error:  # content that could not be masked must not be kept
            log.warning("content_not_made", call_id=held.call_id, reason=repr(error))
            continue
        if size + length > MAX_BATCH_BYTES and batches[-1]:
            batches.append([])
            size = 0
        batches[-1].append(content)
        size += length
    return [batch for batch in batches if batch]


def _is_past(late_s: float) -> bool:
    return time.thread_time() > late_s
