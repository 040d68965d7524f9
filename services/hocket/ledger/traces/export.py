"""Exports the traces of ended runs; the stream EVENTS, from which ends are read, serves as the
queue.

For each end of a run at the top, the sampling rule decides by the run's row, and by whether a run
below failed; sub-runs are sent with it, and never alone. A chosen trace waits SETTLE_S until the
run's calls are booked, and is then read completely and sent; only after that is the end
acknowledged. While the endpoint accepts nothing, at most MAX_WAITING traces wait here, and EVENTS
keeps the other ends. A trace that is refused while others are accepted is dropped and counted, and
so is one that cannot be read or built while others can. Spans that the endpoint refuses in a
request that it accepts are counted, and not sent again. Nothing else in the ledger waits for any of
this.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import asyncpg
import structlog
from prometheus_client import CollectorRegistry, Counter

from hocket.kit.nats import cloudevents
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.record_pull import RecordPull
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.postgres.database import said
from hocket.kit.postgres.errors import STATEMENT_ERRORS
from hocket.kit.process.clock import monotonic_ms
from hocket.kit.process.limits.memory import end_if_short
from hocket.kit.traces.assembly import Trace, traces_of
from hocket.kit.traces.reads import ENDED_RUNS, FAILED_BELOW, read_rows
from hocket.ledger.traces.otlp import OtlpSender, Sent, span_count
from hocket.schemas import subjects
from hocket.schemas.messages import RunFinished
from hocket.schemas.tracing.sampling import FAILED, EndedRun, SamplingRule

SETTLE_S = 5.0
"""How long after a run's end its trace is read; its calls are booked by then."""
MAX_WAITING = 1_000
"""The most traces that wait here."""
AT_ONCE = 25
"""The most traces read and sent together."""
PROBES = 3
"""How many traces are tried one by one before the endpoint counts as unavailable."""
ACK_WAIT_MS = 600_000.0
"""After this time, an unacknowledged end is delivered again."""
PULL_MS, GATHER_MS = 1_000.0, 100.0
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 30.0
QUERY_TIMEOUT_S = 10.0

_AWAY: tuple[type[Exception], ...] = (BusUnavailable, TimeoutError, *STATEMENT_ERRORS)

log = structlog.get_logger(__name__)


class TraceMetrics:
    """Traces exported (by reason) and dropped, and spans sent and refused."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.exported = Counter(
            "hocket_traces_exported",
            "Traces sent to the OTLP endpoint, by the reason for which they were selected.",
            ["reason"],
            registry=registry,
        )
        self.dropped = Counter(
            "hocket_traces_dropped",
            "Selected traces not sent because the endpoint refused them or they cannot be read.",
            registry=registry,
        )
        self.spans = Counter(
            "hocket_spans_exported", "Spans sent to the OTLP endpoint.", registry=registry
        )
        self.refused_spans = Counter(
            "hocket_spans_refused",
            "Spans that the OTLP endpoint refused in requests that it accepted otherwise.",
            registry=registry,
        )


@dataclass(slots=True)
class _Chosen:
    """A run whose trace is to be sent: why, from when on, and how to acknowledge its end."""

    run_id: str
    reason: str
    due_ms: float
    ack: str


class _TooLarge(Exception):
    """Traces that were read together have more than one reading gives."""


class TraceExport:
    """Sends the traces that a rule chooses; call `run`."""

    def __init__(
        self,
        bus: Bus,
        pool: "asyncpg.Pool[asyncpg.Record]",
        rule: SamplingRule,
        sender: OtlpSender,
        metrics: TraceMetrics,
        *,
        settle_s: float = SETTLE_S,
        acknowledge: Callable[[str], None] | None = None,
    ) -> None:
        self._pool = pool
        self._rule = rule
        self._sender = sender
        self._metrics = metrics
        self._settle_ms = settle_s * 1_000
        self._acknowledge = acknowledge or bus.ack
        subject = subjects.event("*", "*", RunFinished.kind)
        self._pull = RecordPull(
            bus, subjects.EVENTS, subject, ack_wait_ms=ACK_WAIT_MS, only_new=True
        )
        self._waiting: deque[_Chosen] = deque()
        self._known: dict[str, _Chosen] = {}
        self._warning = ""
        """The last warning of the endpoint."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Export until `stopping`; whatever still waits is exported by the next ledger."""
        pause_s = FIRST_PAUSE_S
        while not stopping.is_set():
            try:
                if len(self._waiting) < MAX_WAITING:
                    await self._choose(await self._pull.batch(PULL_MS, GATHER_MS))
                is_well = await self._send_due()
            except _AWAY as error:
                log.warning("traces_wait", reason=said(error))
                is_well = False
            except Exception as error:  # a failure here must not stop the rest of the ledger
                end_if_short(error)
                log.exception("traces_failed")
                is_well = False
            if is_well:
                pause_s = FIRST_PAUSE_S
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), pause_s)
                pause_s = min(2 * pause_s, MAX_PAUSE_S)
        await self._pull.close()
        self._sender.close()

    async def _choose(self, batch: Sequence[RawMessage]) -> None:
        """Queue the runs whose traces are to be sent, and acknowledge the other ends."""
        ends: dict[str, str] = {}
        for message in batch:
            run_id = _run_of(message)
            if run_id is None or run_id in ends:
                self._acknowledge(message.reply)
            elif (known := self._known.get(run_id)) is not None:
                known.ack = message.reply  # it was delivered again
            else:
                ends[run_id] = message.reply
        if not ends:
            return
        reasons = await self._reasons(list(ends))
        due_ms = monotonic_ms() + self._settle_ms
        for run_id, ack in ends.items():
            if (reason := reasons.get(run_id)) is None:
                self._acknowledge(ack)
            else:
                chosen = self._known[run_id] = _Chosen(run_id, reason, due_ms, ack)
                self._waiting.append(chosen)

    async def _reasons(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Return why traces are sent, by the run at the top."""
        rows = await self._pool.fetch(ENDED_RUNS, run_ids, timeout=QUERY_TIMEOUT_S)
        reasons: dict[str, str] = {}
        others = []
        for row in rows:
            run = EndedRun(**dict(row))
            if (reason := self._rule.reason(run)) is not None:
                reasons[run.run_id] = reason
            elif not run.is_sub_run:
                others.append(run.run_id)
        if others:
            failed = await self._pool.fetch(
                FAILED_BELOW, others, list(FAILED), timeout=QUERY_TIMEOUT_S
            )
            reasons |= {row["root"]: "error" for row in failed}
        return reasons

    async def _send_due(self) -> bool:
        """Send the traces that are due; return whether the endpoint accepts any."""
        while self._waiting and self._waiting[0].due_ms <= monotonic_ms():
            some = [
                self._waiting[place]
                for place in range(min(AT_ONCE, len(self._waiting)))
                if self._waiting[place].due_ms <= monotonic_ms()
            ]
            some, found = await self._read(some)
            if some and not await self._sent(some, found):
                return False
        return True

    async def _read(self, some: list[_Chosen]) -> tuple[list[_Chosen], dict[str, Trace]]:
        """Return the readable runs and their traces.

        They are read one by one if together they are too large or cannot be read. A trace that
        cannot be read even alone, while Postgres answers, is dropped.
        """
        try:
            return some, await self._traces(some, whole=len(some) > 1)
        except Exception as error:
            await self._raise_if_away(error)
        found: dict[str, Trace] = {}
        readable = []
        for one in some:
            try:
                found |= await self._traces([one], whole=False)
            except Exception as error:
                await self._raise_if_away(error)
                self._drop(one, said(error))
            else:
                readable.append(one)
        return readable, found

    async def _traces(self, some: Sequence[_Chosen], *, whole: bool) -> dict[str, Trace]:
        """Return traces by run id.

        With `whole`, raises _TooLarge if one reading does not return everything, because a large
        run would then leave others incomplete.
        """
        rows = await read_rows(self._pool, [one.run_id for one in some])
        if whole and rows.truncated:
            raise _TooLarge
        # in a thread, because long runs take seconds, during which nothing would be booked
        made = await asyncio.to_thread(traces_of, rows)
        return {trace.run_id: trace for trace in made}

    async def _raise_if_away(self, error: Exception) -> None:
        """Re-raise an error, unless Postgres answers, in which case the data caused it."""
        end_if_short(error)
        try:
            await self._pool.fetchval("SELECT 1", timeout=QUERY_TIMEOUT_S)
        except _AWAY:
            raise error from None

    async def _sent(self, some: Sequence[_Chosen], found: dict[str, Trace]) -> bool:
        """Send traces together, or one by one if that is refused; return whether any was accepted.

        A trace that is refused while others are accepted is dropped; if none is accepted, they are
        tried again after the others.
        """
        sent = await self._sender.send(list(found.values()))
        if sent.accepted:
            self._done(some, found, sent)
            return True
        refused: list[_Chosen] = []
        taken = 0
        for one in some:
            if one.run_id not in found:  # retention deleted the run first
                self._leave(one)
            elif len(some) > 1 and await self._sent_alone(one, found):
                taken += 1
            else:
                refused.append(one)
                if not taken and len(refused) >= PROBES:
                    break
        for one in refused:
            if not taken:
                self._waiting.remove(one)
                self._waiting.append(one)
            elif not await self._sent_alone(one, found):  # the endpoint has not just recovered
                self._drop(one, "the endpoint refused it")
        return bool(taken)

    async def _sent_alone(self, one: _Chosen, found: dict[str, Trace]) -> bool:
        sent = await self._sender.send([found[one.run_id]])
        if sent.accepted:
            self._done([one], found, sent)
        return sent.accepted

    def _done(self, some: Sequence[_Chosen], found: dict[str, Trace], sent: Sent) -> None:
        """Count what was sent. Which traces refused spans belong to is not told: unless it is all of
        them, the traces count as sent."""
        spans = span_count(found[one.run_id] for one in some if one.run_id in found)
        if sent.refused_spans:
            self._metrics.refused_spans.inc(sent.refused_spans)
            log.warning("spans_refused", spans=sent.refused_spans, of=spans, reason=sent.message)
        elif sent.message and sent.message != self._warning:
            self._warning = sent.message  # once, because it may come with each answer
            log.warning("endpoint_warns", reason=sent.message)
        for one in some:
            if one.run_id not in found:  # retention deleted the run first
                self._leave(one)
            elif 0 < spans <= sent.refused_spans:
                self._drop(one, sent.message or "the endpoint refused its spans")
            else:
                self._leave(one)
                self._metrics.exported.labels(one.reason).inc()
        self._metrics.spans.inc(spans - sent.refused_spans)

    def _drop(self, one: _Chosen, reason: str) -> None:
        self._leave(one)
        self._metrics.dropped.inc()
        log.warning("trace_dropped", run_id=one.run_id, reason=reason)

    def _leave(self, one: _Chosen) -> None:
        del self._known[one.run_id]
        self._waiting.remove(one)
        self._acknowledge(one.ack)


def _run_of(message: RawMessage) -> str | None:
    return (message.headers or {}).get(cloudevents.SUBJECT)
