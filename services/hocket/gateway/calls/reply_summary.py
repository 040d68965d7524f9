"""Totals of a whole call for its reply: time, cost, and what an error leaves of time and money."""

from typing import Any

from hocket.gateway.calls.call import Call
from hocket.gateway.calls.dependencies import CallDependencies
from hocket.gateway.calls.recorded_refusals import RecordedRefusals
from hocket.gateway.core.calls.records import call_refused
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import CallReply


class ReplySummary:
    """Completes replies with the totals of their calls."""

    def __init__(self, dependencies: CallDependencies) -> None:
        self._scheduler = dependencies.scheduler
        self._spending = dependencies.spending
        self._books = dependencies.recorder
        self._gateway = dependencies.gateway
        self._metrics = dependencies.metrics
        self._now_ms = dependencies.now_ms
        self._recorded = RecordedRefusals()

    def refused(self, call: Call, error: ErrorInfo) -> CallReply:
        """Return the reply of a call that failed; record it as refused if no backend was asked, or only
        count it if very many of its tenant were."""
        request, now_ms = call.request, self._now_ms()
        if not call.attempts and self._recorded.takes(request.attribution.tenant, now_ms):
            self._books.refuse(call_refused(request, error, gateway=self._gateway, now_ms=now_ms))
        elif not call.attempts and self._metrics is not None:
            self._metrics.refusals_unrecorded.inc()
        return CallReply(
            call_id=request.call_id, model=request.model, backend=call.backend, error=error
        )

    def summed(self, call: Call, reply: CallReply) -> CallReply:
        """Return a reply with the time and cost of the whole call, over all attempts.

        An error also gets the time and money that are left, so that the caller can decide what to
        do next.
        """
        now_ms = self._now_ms()
        changes: dict[str, Any] = {
            "latency_ms": now_ms - call.started_ms,
            "cost_usd": call.cost_usd,
            "queue_ms": call.queue_ms,
        }
        if reply.error is not None:
            changes["error"] = reply.error.model_copy(update=self._left(call, reply.error, now_ms))
        return reply.model_copy(update=changes)

    def _left(self, call: Call, error: ErrorInfo, now_ms: float) -> dict[str, Any]:
        usual_ms = self._scheduler.durations.of_kind(call.kind, 0.5) or 0.0
        left: dict[str, Any] = {"slack_ms": call.request.deadline_at_ms - now_ms - usual_ms}
        if error.budget_left_usd is None:
            left_usd = self._spending.left_usd(call.request)
            left["budget_left_usd"] = None if left_usd is None else str(left_usd)
        return left
