"""Sends log lines from a worker to a ledger, in batches and separately from results.

Logging costs a handler one entry in a list. The queue is bounded; lines beyond the bound, and lines that
no ledger accepts in time, are dropped and counted in the process log, which has all lines anyway.
Without lines there is no task and no timer.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Iterator

import structlog

from hocket.kit.logs.log_limits import Reporting
from hocket.kit.logs.run_lines import RUNNING, Line
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import subjects
from hocket.schemas.messages import encoded
from hocket.schemas.tracing.log_lines import (
    MAX_BATCH_BYTES,
    MAX_BATCH_LINES,
    AttemptLines,
    LineBatch,
    LogLine,
)
from hocket.workers.runtime.lines.logged_attempt import LoggedAttempt

MAX_WAITING = 10_000
MAX_WAITING_CHARS = 8_000_000
FLUSH_S = 0.25
"""How long a line waits for others."""
PAUSE_S = 1.0
TIMEOUT_MS = 5_000.0
TRIES = 3
CLOSE_S = 2.0
BYTES_PER_CHAR = 6
"""The most bytes that one character takes in a message."""

log = structlog.get_logger()
_reporting = Reporting()
_Waiting = tuple[LoggedAttempt, LogLine]


class LineSender:
    """Sends the log lines of attempts; call `close` when none runs any longer."""

    def __init__(self, bus: Bus, worker: str) -> None:
        self._bus = bus
        self._worker = worker
        self._waiting: deque[_Waiting] = deque()
        self._chars = 0
        self._dropped = 0
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sending: asyncio.Task[None] | None = None
        self._is_asked = False

    def begin(self) -> None:
        """Start sending, on the current event loop."""
        self._loop = asyncio.get_running_loop()

    def take(self, attempt: LoggedAttempt, number: int, line: Line) -> None:
        """Queue a line, from any thread; drop it if the queue is full."""
        chars = len(line.text) + len(line.fields)
        with self._lock:
            full = len(self._waiting) >= MAX_WAITING or self._chars + chars > MAX_WAITING_CHARS
            if full or self._loop is None or self._loop.is_closed():
                self._dropped += 1
                return
            self._chars += chars
            self._waiting.append((attempt, _line(number, line)))
            if self._is_asked:
                return
            self._is_asked = True
        self._loop.call_soon_threadsafe(self._start)

    async def close(self) -> None:
        """Send the queued lines, within CLOSE_S."""
        if self._sending is None:
            return
        try:
            async with asyncio.timeout(CLOSE_S):
                await asyncio.shield(self._sending)
        except TimeoutError:
            self._sending.cancel()

    def _start(self) -> None:
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all(), name="log lines")

    async def _send_all(self) -> None:
        RUNNING.set(None)  # lines logged here belong to no handler
        while True:
            await asyncio.sleep(FLUSH_S)
            with self._lock:
                some = [self._waiting.popleft() for _ in range(len(self._waiting))]
                self._chars, dropped, self._dropped = 0, self._dropped, 0
                if not some:
                    self._is_asked = False
            for token, batch in _batches(some, self._worker):
                if not await self._sent(token, batch):
                    dropped += sum(len(one.lines) for one in batch)
            if dropped and (count := _reporting.due("log_lines_not_kept")):
                log.warning("log_lines_not_kept", lines=dropped, count=count)
            if not some:
                self._sending = None
                return

    async def _sent(self, token: str, batch: list[AttemptLines]) -> bool:
        body = encoded(LineBatch(attempts=tuple(batch)))
        for remaining in reversed(range(TRIES)):
            try:
                await self._bus.request(
                    f"{subjects.WORKER_LINES}.{token}", body, timeout_ms=TIMEOUT_MS
                )
            except BusUnavailable:
                if remaining:
                    await asyncio.sleep(PAUSE_S)
            else:
                return True
        return False


def _line(number: int, line: Line) -> LogLine:
    return LogLine(
        number=number, at_ms=line.at_ms, level=line.level, text=line.text, fields=line.fields
    )


def _batches(some: list[_Waiting], worker: str) -> Iterator[tuple[str, list[AttemptLines]]]:
    """Yield lines by the pool of their steps, in batches that fit into a message."""
    by_attempt: dict[str, dict[LoggedAttempt, list[LogLine]]] = {}
    for attempt, line in some:
        step = attempt.step
        token = subjects.pool_token(subjects.pool(step.type, step.queue))
        by_attempt.setdefault(token, {}).setdefault(attempt, []).append(line)
    for token, attempts in by_attempt.items():
        batch: list[AttemptLines] = []
        size = count = 0
        for attempt, lines in attempts.items():
            for part in _parts(lines):
                more = sum(len(line.text) + len(line.fields) for line in part) * BYTES_PER_CHAR
                if batch and (size + more > MAX_BATCH_BYTES or count + len(part) > MAX_BATCH_LINES):
                    yield token, batch
                    batch, size, count = [], 0, 0
                batch.append(_told(attempt, part, worker))
                size, count = size + more, count + len(part)
        if batch:
            yield token, batch


def _parts(lines: list[LogLine]) -> Iterator[tuple[LogLine, ...]]:
    """Yield lines in parts that each fit into a message."""
    part: list[LogLine] = []
    chars = 0
    for line in lines:
        more = len(line.text) + len(line.fields)
        if part and (
            (chars + more) * BYTES_PER_CHAR > MAX_BATCH_BYTES or len(part) >= MAX_BATCH_LINES
        ):
            yield tuple(part)
            part, chars = [], 0
        part.append(line)
        chars += more
    if part:
        yield tuple(part)


def _told(attempt: LoggedAttempt, lines: tuple[LogLine, ...], worker: str) -> AttemptLines:
    step = attempt.step
    return AttemptLines(
        tenant=step.tenant,
        run_id=step.run_id,
        step=step.step,
        attempt=step.attempt,
        delivery=attempt.delivery,
        dispatched_at_ms=step.dispatched_at_ms,
        capability=step.capability or "",
        worker=worker,
        lines=lines,
    )
