"""The calls in progress at this gateway: one per call id and owner (`CallKey`), no matter which API
received it or how often.

A call that is repeated while in progress joins the first; one repeated shortly afterwards gets the
same reply. Asking something else under the id of a call in progress is refused, except in a step:
after a crash, a second worker may make other calls than the first did, and these are made. The first
worker may still live, so its call goes on too, and both are stopped with their step. Calls beyond
`max_calls` are refused with a typed error. `leave` stops a call once nobody waits for it any more, and
`drain` ends all calls within a time limit.

Each cost is counted once: by the caller that gets it with the reply, or by the run's coordinator,
which the gateway tells it (`run_charges.py`). If the caller may no longer be there, because the call
was stopped or is out of time, the reply tells a cost of 0 and the run is charged.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

import structlog

from hocket.gateway.backends.large_requests import converted, is_large
from hocket.gateway.backends.protocol import Chunks
from hocket.gateway.calls.call_owners import CallOwners
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.calls.lifecycle import Calls
from hocket.gateway.calls.replies import (
    RememberedReplies,
    Tell,
    answer,
    future_of,
    is_charged,
    join,
    let_go,
)
from hocket.gateway.calls.tracing import TracedCall
from hocket.gateway.capacity.rejections import BUSY_RETRY_MS
from hocket.gateway.core.calls.call_key import CallKey, asks_the_same, digest
from hocket.gateway.core.config.table import RoutingTable
from hocket.gateway.core.errors import CallIdReused, GatewayBroken, GatewayFull, TenantFull
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.process import clock
from hocket.kit.process.limits.memory import end_if_short
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
OUTLASTS_MS = 2_000.0
"""How much more time than a request a call has that outlasts it."""

log = structlog.get_logger()

Keeps = Callable[[CallReply], bool]


@dataclass(eq=False, slots=True)
class _Making:
    """A call in progress, and how many callers wait for it.

    Its reply may be set before its task ends, if the task goes on reading an answer that nobody
    waits for.
    """

    request: CallRequest
    task: asyncio.Task[None]
    cancellation: Cancellation
    reply: "asyncio.Future[CallReply]"
    callers: int = 1
    digesting: "asyncio.Task[str | None] | None" = None
    """Makes the digest of a large request from its beginning, so that it is there when a peer asks."""

    async def question(self) -> str | None:
        """Return the digest of what it asks."""
        if self.digesting is None:
            return digest(self.request)
        return await asyncio.shield(self.digesting)


class _Joinable:
    """The calls that a repeat joins; after their callers have left, it is a new call. Those of one key
    ask different things, the latest last: only a step has several in progress."""

    def __init__(self) -> None:
        self.owners = CallOwners()
        self._of_key: dict[CallKey, list[_Making]] = {}

    def add(self, key: CallKey, making: _Making) -> None:
        """Add a call that begins."""
        self.owners.add(key, making.request.attribution, making.request.capability)
        self._of_key.setdefault(key, []).append(making)

    def remove(self, key: CallKey, making: _Making) -> None:
        """Remove a call, if it is there."""
        same = self._of_key.get(key, [])
        if making not in same:
            return
        same.remove(making)
        if not same:
            del self._of_key[key]
            self.owners.remove(key, making.request.attribution)

    def of(self, key: CallKey) -> tuple[_Making, ...]:
        """Return the calls of a key."""
        return tuple(self._of_key.get(key, ()))

    def asking(self, request: CallRequest) -> _Making | None:
        """Return the call that a request repeats; None if there is none."""
        for making in self._of_key.get(CallKey.of(request), ()):
            if asks_the_same(making.request, request):
                return making
        return None

    def cancel(self, key: CallKey, reason: str) -> None:
        """Stop the calls of a key."""
        for making in self.of(key):
            making.cancellation.cancel(reason)


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
        shown: Callable[[CallRequest, CallReply], CallReply] | None = None,
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
        self._shown = shown
        """Returns what the caller may see of a reply that is an error."""
        self._held: set[_Making] = set()
        """All calls in progress."""
        self._making = _Joinable()
        self._of_tenant: Counter[str] = Counter()
        self._replies = RememberedReplies()
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
        Raises CallIdReused, GatewayFull, its subclass TenantFull, and whatever `check` raises.
        """
        who, key = request.attribution, CallKey.of(request)
        if self._check is not None:
            self._check(request)
        known = self._repeated(key, request, keeps)
        if known is not None:
            self._metrics.repeated.inc()
            join(known, tell, ended)
            return known
        self._check_room(who.tenant)
        reply: asyncio.Future[CallReply] = asyncio.get_running_loop().create_future()
        cancellation = Cancellation(partial(let_go, request, reply, tell))
        task = asyncio.create_task(
            self._made(request, cancellation, headers or {}, chunks, reply, tell, keeps),
            name=f"call {request.call_id}",
        )
        making = _Making(request, task, cancellation, reply)
        if is_large(request):
            making.digesting = asyncio.create_task(converted(request, digest), name="call digest")
        self._making.add(key, making)
        self._held.add(making)
        self._of_tenant[who.tenant] += 1
        if self._learn is not None:
            self._learn(request.model, who)
        task.add_done_callback(lambda _: self._ended(key, making, who))
        if ended is not None:
            task.add_done_callback(lambda _: ended())
        return reply

    def knows(self, request: CallRequest) -> bool:
        """Tell whether a call is in progress or recent here."""
        if self._making.asking(request) is not None:
            return True
        return self._replies.of(request) is not None

    def outlasts(self, request: CallRequest) -> bool:
        """Tell whether the call in progress that a request has joined has considerably more time."""
        making = self._making.asking(request)
        if making is None:
            return False
        return making.request.deadline_at_ms - request.deadline_at_ms >= OUTLASTS_MS

    async def find(
        self, key: CallKey, question: str | None = None
    ) -> asyncio.Future[CallReply] | None:
        """Return the future reply of a call that is in progress or recent, or None. If a `question` is
        given, it is that of the call (`digest`)."""
        known = None
        for making in self._making.of(key):
            if question is None or question == await making.question():
                known = making.reply
        if known is None and (given := self._replies.find(key, question)) is not None:
            known = future_of(given)
        if known is not None:
            self._metrics.repeated.inc()
        return known

    def leave(self, request: CallRequest, reason: str) -> bool:
        """Wait no more for a call, and tell whether others do; if nobody does, it is stopped, and its
        reply holds the typed error, or the answer if that has already been made."""
        making = self._making.asking(request)
        if making is None:
            return False
        making.callers -= 1
        if making.callers > 0:
            return True
        self._making.remove(CallKey.of(request), making)
        making.cancellation.cancel(reason)
        return False

    def cancel_from_outside(self, cancelled: CallCancelled) -> None:
        """Stop the calls that somebody names, as far as their capability allows it."""
        wanted = cancelled.tenant, cancelled.call_id, cancelled.capability
        for key in self._making.owners.calls_with(*wanted):
            self._making.cancel(key, "someone asked for it")

    def cancel_attempt(self, cancelled: StepCancelled) -> None:
        """Stop the calls of a cancelled attempt, without waiting for its worker to ask."""
        for key in self._making.owners.calls_of(cancelled):
            self._making.cancel(key, cancelled.reason or "its step was cancelled")

    def refused(self, code: str) -> None:
        """Count a call that was refused before any backend was asked."""
        self._metrics.refused.labels(code).inc()

    async def drain(self, *, drain_ms: float, flush_ms: float) -> None:
        """Wait up to `drain_ms` for calls, and for replies read only for their usage, to end.

        Then stop the rest and allow `flush_ms` for recording them.
        """
        until_ms = clock.monotonic_ms() + drain_ms
        await _settled(self._held, drain_ms)
        left_ms = max(until_ms - clock.monotonic_ms(), 0.0)
        for making in tuple(self._held):
            making.cancellation.cancel("the gateway stops")
            making.cancellation.hurry()
        settling = self._calls.settle_trailing(left_ms, flush_ms)
        await asyncio.gather(_settled(self._held, flush_ms), settling)
        if self._held:
            log.error("calls_abandoned", calls=len(self._held))

    def _repeated(
        self, key: CallKey, request: CallRequest, keeps: Keeps
    ) -> asyncio.Future[CallReply] | None:
        """Return the future reply of the call that a request repeats; None if it is to be made."""
        making = self._making.asking(request)
        if making is not None:
            if not making.reply.done() or keeps(making.reply.result()):
                making.callers += 1
                return making.reply
            self._making.remove(key, making)  # it is only read on
            return None
        if not _is_of_a_step(request) and any(not one.reply.done() for one in self._making.of(key)):
            raise CallIdReused(call_id=request.call_id, field="call_id", component="gateway")
        given = self._replies.of(request)
        return future_of(given) if given is not None and keeps(given) else None

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
        self._making.remove(key, making)
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
        """Make the call and deliver its reply; remember the reply if a backend was asked, unless its
        callers left, and the same was asked anew."""
        TracedCall(request, headers).enter()
        try:
            reply = await self._calls.make(request, cancellation, chunks)
        except Exception as error:
            end_if_short(error)
            log.exception("call_crashed", call_id=request.call_id)
            broken = GatewayBroken(reason=type(error).__name__, component="gateway")
            reply = CallReply(call_id=request.call_id, model=request.model, error=broken.info())
        if self._shown is not None and reply.error is not None:
            reply = self._shown(request, reply)
        charge, cost_usd = self._calls.charge, reply.cost_usd
        if charge is not None and is_charged(request, reply, cancellation, told):
            reply = reply.model_copy(update={"cost_usd": Decimal(0)})
        else:
            charge = None
        answer(told, reply, tell)
        if self._record is not None and reply.backend:
            self._record(request, reply)
        if not reply.backend:
            self.refused(reply.error.code if reply.error else "")
        elif keeps(reply):
            making = self._making.asking(request)
            if making is None or making.reply is told:
                await _keep(self._replies, request, reply, making)
        if charge is not None:
            await charge(request.call_id, request.attribution, cost_usd)


async def _keep(
    replies: RememberedReplies, request: CallRequest, reply: CallReply, making: _Making | None
) -> None:
    """Remember a reply by the question, whose digest is made once. That may take a while, but the call
    is still found by those who repeat it."""
    asked = converted(request, digest) if making is None else making.question()
    await replies.keep(request, reply, await asked, replaces=making is not None)


def _is_of_a_step(request: CallRequest) -> bool:
    """Tell whether a step's attempt makes a call, which has numbered it."""
    return request.dispatched_at_ms is not None


async def _settled(held: Iterable[_Making], timeout_ms: float) -> None:
    """Wait for calls to end, but not for longer than `timeout_ms`."""
    making = {one.task for one in held}
    if making:
        await asyncio.wait(making, timeout=timeout_ms / 1000)
