"""Sends one request of a call to the replica whose slot it holds, through the hooks."""

from hocket.gateway.backends.protocol import Backend, BackendError, BackendUnreachable
from hocket.gateway.calls.attempts import upstream
from hocket.gateway.calls.attempts.hedged_request import UpstreamRequest
from hocket.gateway.calls.call import Call
from hocket.gateway.calls.dependencies import CallDependencies
from hocket.gateway.capacity.slot import Slot
from hocket.gateway.core.calls.request_content import limited
from hocket.gateway.core.errors import CallStopped, HookFailed
from hocket.gateway.hooks.builder import hooks_for
from hocket.gateway.hooks.chain import Listening, Prepared, prepared
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import CallRequest

MIN_TIMEOUT_MS = 1.0
"""The least time that a request gets; to HTTP clients, 0 and less would mean any time."""


class ReplicaRequests:
    """Sends requests to replicas."""

    def __init__(self, on: CallDependencies) -> None:
        self._on = on

    async def prepare(self, call: Call, lane: UpstreamRequest, slot: Slot) -> None:
        """Run the call through the hooks of a replica.

        If a hook blocks it, raises HookFailed and releases the slot.
        """
        routes = self._on.routes()
        if not routes.hooks:
            return
        table = routes.table
        names = {table.canonical(name) for name in (call.model, call.request.model)}
        names |= table.models_with(slot.spec)
        hooks = hooks_for(routes.hooks, slot.spec, names)
        if not hooks:
            return
        key = tuple(one.rule.where for one in hooks)
        try:
            lane.prepared = call.prepared.get(key)
            if lane.prepared is None:
                lane.prepared = await prepared(hooks, call.request, self._on.metrics)
                call.prepared[key] = lane.prepared
        except BaseException:
            slot.release(unused=True)
            raise

    async def ask(self, call: Call, lane: UpstreamRequest) -> None:
        """Ask the replica of a lane once, store the result in the lane, and release its slot."""
        slot = lane.slot
        assert slot is not None
        spec = slot.spec
        if spec.stops_on_disconnect:
            self._on.spending.recall_speed(spec.key)
        if lane.relay is not None:
            slot.held_up_ms = lane.relay.held_up_ms
        lane.before = tuple(call.tried)
        call.tried.append(spec.key)
        lane.started_ms = self._on.now_ms()
        served = self._on.routes().served.get(spec.key)
        try:
            if served is None:
                lane.error = BackendUnreachable(
                    component=spec.name,
                    reason="it has just been removed from the configuration",
                    unconnected=True,
                )
                return
            async with served as backend:
                left_ms = max(call.request.deadline_at_ms - lane.started_ms, MIN_TIMEOUT_MS)
                timeout_ms = min(left_ms, spec.timeout_ms)
                if lane.prepared is None:
                    request = _limited(call.request, lane)
                    lane.completion, lane.error = await upstream.asked(
                        backend, request, lane, timeout_ms, lane.relay
                    )
                else:
                    await self._ask_prepared(backend, lane, lane.prepared, timeout_ms)
        except BaseException:
            lane.error = CallStopped(reason="the gateway gave up")
            raise
        finally:
            lane.latency_ms = self._on.now_ms() - lane.started_ms
            if lane.completion.estimated:
                request = _limited(call.request, lane)
                lane.completion = upstream.used(request, lane, self._on.spending.speeds)
            if isinstance(lane.error, HookFailed):
                lane.completion = upstream.without_content(lane.completion)
            if lane.error is not None:
                self._note_rest(spec.key, lane.error)
            slot.release(lane.error)

    async def _ask_prepared(
        self, backend: Backend, lane: UpstreamRequest, call: Prepared, timeout_ms: float
    ) -> None:
        """Send a call as rewritten by the hooks, and pass the answer through them."""
        listening = Listening(call, self._on.metrics)
        chunks = None if lane.relay is None else listening.relayed(lane.relay)
        lane.completion, lane.error = await upstream.asked(
            backend, _limited(call.request, lane), lane, timeout_ms, chunks
        )
        if lane.error is None:
            try:
                lane.completion = await listening.finished(lane.completion, lane.relay)
            except HookFailed as error:
                lane.error = error

    def _note_rest(self, key: str, error: HocketError) -> None:
        retry_at_ms = error.fields.get("retry_at_ms")
        if isinstance(error, BackendError) and retry_at_ms is not None:
            self._on.scheduler.health.rest(key, retry_at_ms)


def _limited(request: CallRequest, lane: UpstreamRequest) -> CallRequest:
    """Return a request with the limit that the replica of a lane gives an answer, if it sets none."""
    assert lane.slot is not None
    spec = lane.slot.spec
    limits = spec.limits(is_bounded=lane.is_bounded)
    return limited(request, spec.answer_tokens) if limits else request
