"""The usage records of an attempt, its log line, and what the gateway learns from it."""

import asyncio
import logging
from decimal import Decimal

import structlog

from hocket.gateway.calls.attempts.hedged_request import UpstreamRequest
from hocket.gateway.calls.attempts.placement import reserved_request
from hocket.gateway.calls.call import Call
from hocket.gateway.calls.dependencies import CallDependencies
from hocket.gateway.core.calls import request_content
from hocket.gateway.core.calls.decisions import recorded
from hocket.gateway.core.calls.records import UsageKind, usage_record
from hocket.gateway.core.routing.history import Kind
from hocket.schemas.structs.usage import RecordedUsage

log = structlog.get_logger()


class AttemptRecords:
    """Creates and stores the usage records of attempts."""

    def __init__(self, on: CallDependencies) -> None:
        self._on = on

    def record(self, call: Call, lane: UpstreamRequest, usage: UsageKind) -> RecordedUsage:
        """Return the usage record of a request that was made."""
        slot = lane.slot
        assert slot is not None
        return usage_record(
            call.request,
            slot.spec,
            lane.completion,
            lane.error,
            suffix=lane.suffix,
            started_ms=lane.started_ms,
            latency_ms=lane.latency_ms,
            kind=usage,
            decision=recorded(
                call.request,
                slot.spec,
                slot.decision,
                queue_ms=slot.queue_ms,
                tried=lane.before,
                because=lane.because,
            ),
            experiment=call.experiment,
            arm=call.arm,
        )

    async def book(self, records: list[RecordedUsage]) -> None:
        """Store records; return once all are stored."""
        if len(records) == 1:
            await self._on.recorder.book(records[0])
        else:
            await asyncio.gather(*map(self._on.recorder.book, records))

    def learn(self, call: Call, kind: Kind, lane: UpstreamRequest, cost_usd: Decimal) -> None:
        """Learn from an answer about its replica and about the cost of such calls."""
        slot = lane.slot
        if slot is None:
            return
        if lane.error is None:
            cached_tokens = lane.completion.cached_tokens
            self._on.scheduler.caches.metered(slot.spec.key, slot.cached_tokens, cached_tokens)
        if not call.is_typical:
            return  # its one token tells neither the engine's speed nor what such calls cost
        if lane.error is None:
            is_timed = slot.spec.stops_on_disconnect and not lane.completion.estimated
            if is_timed and request_content.choices(call.request) == 1:  # engines may write fewer
                tokens = lane.completion.output_tokens
                self._on.spending.learn_speed(slot.spec.key, tokens, lane.latency_ms)
        read_on = lane.cancellation.asked and not lane.completion.estimated
        if cost_usd and (lane.error is None or read_on):
            reserved = reserved_request(call.request, (slot.spec,))
            self._on.spending.learn(reserved, kind, slot.spec.prices, cost_usd)


def log_finished(lane: UpstreamRequest | None, record: RecordedUsage) -> None:
    """Log an attempt; a successful one only at level `debug`,
    because its usage record says the same."""
    level = logging.DEBUG if record.status == "ok" else logging.INFO
    if lane is None or lane.slot is None or not log.is_enabled_for(level):
        return
    log.log(
        level,
        "call_finished",
        call_id=record.call_id,
        kind=record.kind,
        run_id=record.attribution.run_id,
        model=record.model,
        backend=lane.slot.spec.key,
        reason=lane.slot.decision.reason,
        because=lane.because,
        status=record.status,
        error_code=record.error_code,
        cost_usd=str(record.cost_usd),
        queue_ms=round(lane.slot.queue_ms, 3),
        latency_ms=round(record.latency_ms, 3),
    )
