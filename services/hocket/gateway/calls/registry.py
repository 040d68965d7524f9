"""The calls in progress at this gateway: one per call id and owner (`CallKey`), no matter which API
received it or how often.

A call that is repeated while in progress joins the first; one repeated shortly afterwards gets the
same reply. Calls beyond `max_calls` are refused with a typed error. `leave` stops a call once nobody
waits for it any more, and `drain` ends all calls within a time limit.

Each cost is counted once: by the caller that gets it with the reply, or by the run's coordinator,
which the gateway tells it (`run_charges.py`). If the caller may no longer be there, because the call
was stopped or is out of time, the reply tells a cost of 0 and the run is charged.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

import structlog

from hocket.gateway.accounting.run_charges import is_charged_when_booked
from hocket.gateway.backends.protocol import Chunks
from hocket.gateway.calls.call_owners import CallOwners
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.calls.lifecycle import Calls
from hocket.gateway.calls.tracing import TracedCall
from hocket.gateway.capacity.rejections import BUSY_RETRY_MS
from hocket.gateway.core.calls.call_key import CallKey
from hocket.gateway.core.calls.reply_cache import RecentReplies, size_bytes
from hocket.gateway.core.calls.request_content import PREFILL
from hocket.gateway.core.config.table import RoutingTable
from hocket.gateway.core.errors import GatewayBroken, GatewayFull, TenantFull
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.process import clock
from hocket.kit.process.limits.memory import end_if_short
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import (
    Attribution,
    CallCancelled,
    CallReply,
    CallRequest,
    StepCancelled,
)

MAX_CALLS = 1_366
"""The most calls that one gateway holds at once, including queued ones;
at most 1,024 of them for one tenant."""
TENANT_FACTOR = 3
"""A tenant may hold at most this many times the number of free places. Alone it gets three quarters
of all places, so that no tenant can leave the next one without any."""

LAST_MOMENT_MS = 50.0
"""An error that comes this shortly before the deadline of its call may find its caller gone."""

Tell = Callable[[CallReply], None]

log = structlog.get_logger()


Keeps = Callable[[CallReply], bool]


@dataclass(eq=False, slots=True)
class _Making:
    """A call in progress, and how many callers wait for it.

    Its reply may be set before its task ends, if the task goes on reading an answer that nobody
    waits for.
    """

    task: asyncio.Task[None]
    cancellation: Cancellation
    reply: "asyncio.Future[CallReply]"
    callers: int = 1


class CallRegistry:
    """Starts, finds and stops calls."""

    def __init__(
        self,
        calls: Calls,
        metrics: GatewayMetrics,
        *,
        max_calls: int = MAX_CALLS,
        learn: Callable[[str, Attribution], None] | None = None,
        record: Callable[[CallRequest, CallReply], None] | None = None,
        check: Callable[[CallRequest], None] | None = None,
    ) -> None:
        self._calls = calls
        self._metrics = metrics
        self._max_calls = max_calls
        self._learn = learn
        """Called with the model and the attribution of each call."""
        self._record = record
        """Called with each call that reached a backend, and its reply."""
        self._check = check
        """Raises an error if a call must not be made."""
        self._held: set[_Making] = set()
        """All calls in progress."""
        self._making: dict[CallKey, _Making] = {}
        """Those that a repeat joins; after their callers have left, it is a new call."""
        self._of_tenant: Counter[str] = Counter()
        self._owners = CallOwners()
        self._replies: RecentReplies[CallReply] = RecentReplies()
        metrics.in_flight.set_function(lambda: len(self._held))
        metrics.waiting.set_function(lambda: len(calls.scheduler.queue))

    @property
    def table(self) -> RoutingTable:
        """The routing table in force."""
        return self._calls.routes.table

    def begin(
        self,
        request: CallRequest,
        headers: Mapping[str, str] | None = None,
        chunks: Chunks | None = None,
        tell: Tell | None = None,
        *,
        ended: Callable[[], None] | None = None,
        keeps: Keeps = lambda _: True,
    ) -> asyncio.Future[CallReply]:
        """Start a call, or join one already known, and return its future reply; give it up with
        `leave`, never by cancelling the future.

        `headers` may carry the caller's trace context. `chunks` receives the answer as it is
        produced, but not if the call had already been started. `tell` receives the reply as soon as
        it exists; exceptions it raises are logged. `ended` is called when nothing of the request is
        needed any more, which may be later than the reply. `keeps` tells whether a repeat shortly
        afterwards gets a reply too. The future never fails: errors are typed errors of the reply.
        Raises GatewayFull, its subclass TenantFull, and whatever `check` raises.
        """
        who, key = request.attribution, CallKey.of(request)
        if self._check is not None:
            self._check(request)
        known = self.find(key)
        if known is not None and known.done() and not keeps(known.result()):
            known = None
            if self._making.pop(key, None) is not None:  # it is only read on
                self._owners.remove(key, who)
        if known is not None:
            if key in self._making:
                self._making[key].callers += 1
            _join(known, tell, ended)
            return known
        self._check_room(who.tenant)
        reply: asyncio.Future[CallReply] = asyncio.get_running_loop().create_future()
        cancellation = Cancellation(partial(_let_go, request, reply, tell))
        task = asyncio.create_task(
            self._made(request, cancellation, headers or {}, chunks, reply, tell, keeps),
            name=f"call {request.call_id}",
        )
        making = self._making[key] = _Making(task, cancellation, reply)
        self._held.add(making)
        self._of_tenant[who.tenant] += 1
        if self._learn is not None:
            self._learn(request.model, who)
        self._owners.add(key, who, request.capability)
        task.add_done_callback(lambda _: self._ended(key, making, who))
        if ended is not None:
            task.add_done_callback(lambda _: ended())
        return reply

    def knows(self, request: CallRequest) -> bool:
        """Tell whether a call is in progress or recent here."""
        return self.find(CallKey.of(request)) is not None

    def find(self, key: CallKey) -> asyncio.Future[CallReply] | None:
        """Return the future reply of a call that is in progress or recent, or None."""
        if (making := self._making.get(key)) is not None:
            self._metrics.repeated.inc()
            return making.reply
        given = self._replies.find(key, clock.now_ms())
        if given is None:
            return None
        self._metrics.repeated.inc()
        known: asyncio.Future[CallReply] = asyncio.get_running_loop().create_future()
        known.set_result(given)
        return known

    def leave(self, request: CallRequest, reason: str) -> None:
        """Wait no more for a call; if nobody else does, it is stopped, and its reply holds the typed
        error."""
        key = CallKey.of(request)
        making = self._making.get(key)
        if making is None:
            return
        making.callers -= 1
        if making.callers <= 0:
            del self._making[key]
            self._owners.remove(key, request.attribution)
            making.cancellation.cancel(reason)

    def cancel_from_outside(self, cancelled: CallCancelled) -> None:
        """Stop the calls that somebody names, as far as their capability allows it."""
        wanted = cancelled.tenant, cancelled.call_id, cancelled.capability
        for key in self._owners.calls_with(*wanted):
            self._cancel(key, "someone asked for it")

    def cancel_attempt(self, cancelled: StepCancelled) -> None:
        """Stop the calls of a cancelled attempt, without waiting for its worker to ask."""
        for key in self._owners.calls_of(cancelled):
            self._cancel(key, cancelled.reason or "its step was cancelled")

    def refused(self, code: str) -> None:
        """Count a call that was refused before any backend was asked."""
        self._metrics.refused.labels(code).inc()

    async def drain(self, *, drain_ms: float, flush_ms: float) -> None:
        """Wait up to `drain_ms` for calls, and for replies read only for their usage, to end.

        Then stop the rest and allow `flush_ms` for recording them.
        """
        until_ms = clock.monotonic_ms() + drain_ms
        await self._settle(drain_ms)
        left_ms = max(until_ms - clock.monotonic_ms(), 0.0)
        for making in tuple(self._held):
            making.cancellation.cancel("the gateway stops")
            making.cancellation.hurry()
        await asyncio.gather(self._settle(flush_ms), self._calls.settle_trailing(left_ms, flush_ms))
        if self._held:
            log.error("calls_abandoned", calls=len(self._held))

    async def _settle(self, timeout_ms: float) -> None:
        making = {one.task for one in self._held}
        if making:
            await asyncio.wait(making, timeout=timeout_ms / 1000)

    def _cancel(self, key: CallKey, reason: str) -> None:
        making = self._making.get(key)
        if making is not None:
            making.cancellation.cancel(reason)

    def _check_room(self, tenant: str) -> None:
        """Raise GatewayFull or TenantFull if there is no room for another call of this tenant."""
        free = self._max_calls - len(self._held)
        held = self._of_tenant.get(tenant, 0)
        retry_at_ms = clock.now_ms() + BUSY_RETRY_MS
        if free <= 0:
            raise GatewayFull(limit=self._max_calls, component="gateway", retry_at_ms=retry_at_ms)
        if held >= TENANT_FACTOR * free:
            raise TenantFull(limit=held, component="gateway", retry_at_ms=retry_at_ms)

    def _ended(self, key: CallKey, making: _Making, who: Attribution) -> None:
        self._held.remove(making)
        if self._making.get(key) is making:
            del self._making[key]
            self._owners.remove(key, who)
        self._of_tenant[who.tenant] -= 1
        if not self._of_tenant[who.tenant]:
            del self._of_tenant[who.tenant]
        if not making.reply.done():
            making.reply.cancel()

    async def _made(
        self,
        request: CallRequest,
        cancellation: Cancellation,
        headers: Mapping[str, str],
        chunks: Chunks | None,
        told: "asyncio.Future[CallReply]",
        tell: Tell | None,
        keeps: Keeps,
    ) -> None:
        """Make the call and deliver its reply; remember the reply if a backend was asked."""
        TracedCall(request, headers).enter()
        try:
            reply = await self._calls.make(request, cancellation, chunks)
        except Exception as error:
            end_if_short(error)
            log.exception("call_crashed", call_id=request.call_id)
            broken = GatewayBroken(reason=type(error).__name__, component="gateway")
            reply = CallReply(call_id=request.call_id, model=request.model, error=broken.info())
        charge, cost_usd = self._calls.charge, reply.cost_usd
        if charge is not None and _is_charged(request, reply, cancellation, told):
            reply = reply.model_copy(update={"cost_usd": Decimal(0)})
        else:
            charge = None
        _answer(told, reply, tell)
        if self._record is not None and reply.backend:
            self._record(request, reply)
        if not reply.backend:
            self.refused(reply.error.code if reply.error else "")
        elif keeps(reply):
            self._replies.keep(CallKey.of(request), reply, size_bytes(reply), clock.now_ms())
        if charge is not None:
            await charge(request.call_id, request.attribution, cost_usd)


def _is_charged(
    request: CallRequest,
    reply: CallReply,
    cancellation: Cancellation,
    told: "asyncio.Future[CallReply]",
) -> bool:
    """Tell whether the run of a call is charged for it, because its caller may not learn the cost."""
    if not reply.cost_usd or request.attribution.run_id is None:
        return False
    if is_charged_when_booked(request.call_id):
        return False
    left_ms = request.deadline_at_ms - clock.now_ms()
    is_late = left_ms <= (0.0 if reply.error is None else LAST_MOMENT_MS)
    return told.done() or cancellation.asked or is_late or request.task == PREFILL


def _answer(told: "asyncio.Future[CallReply]", reply: CallReply, tell: Tell | None) -> None:
    """Give the caller a reply if it does not have one yet."""
    if told.done():
        return
    told.set_result(reply)
    if tell is not None:
        try:
            tell(reply)
        except Exception:  # the caller asks again and gets the remembered reply
            log.exception("reply_not_told", call_id=reply.call_id)


def _join(
    known: asyncio.Future[CallReply], tell: Tell | None, ended: Callable[[], None] | None
) -> None:
    """Tell one more caller of a call's reply; nothing of its own request is needed any more."""
    if ended is not None:
        ended()
    if tell is not None:
        known.add_done_callback(lambda made: tell(made.result()))


def _let_go(
    request: CallRequest,
    told: "asyncio.Future[CallReply]",
    tell: Tell | None,
    error: HocketError,
) -> None:
    """Answer the caller of a stopped call whose reply is still being read."""
    if not told.done():
        log.info("call_read_on", call_id=request.call_id, reason=str(error))
    reply = CallReply(call_id=request.call_id, model=request.model, error=error.info())
    _answer(told, reply, tell)
