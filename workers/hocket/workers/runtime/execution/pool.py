"""All attempts of one node type in this worker: its lanes, its slots, its results.

A step takes a slot from its start until its result is posted; its message is acknowledged only after
the result is. Whatever goes wrong in a handler becomes a typed error in a result. A handler that
ignores being cancelled, and a thread, are answered for after `STOP_GRACE_S`; their slot is held until
they end. A pool that has more than half of its slots held so is `overrun`.
"""

import asyncio
import contextvars
import decimal
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import ValidationError

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.delivery import parse_ack_subject
from hocket.kit.nats.protocol import RawMessage, header_of
from hocket.kit.process.clock import now_ms
from hocket.kit.process.memory import end_if_short
from hocket.schemas import ids, subjects
from hocket.schemas.errors import ErrorClass, ErrorInfo, HeldTooLong, HocketError
from hocket.schemas.messages import AttemptFinished, StepCancelled
from hocket.schemas.structs.steps import RequestedStep, read_step
from hocket.workers.errors import (
    AttemptCancelled,
    AttemptTimeout,
    DeadlinePassed,
    OutputTooLarge,
)
from hocket.workers.runtime.execution import results, undeliverable
from hocket.workers.runtime.execution.attempt import Attempt, State
from hocket.workers.runtime.execution.context import NOTHING_SPENT, Calls, Context
from hocket.workers.runtime.execution.failures import error_info
from hocket.workers.runtime.execution.held_slots import HeldSlots, LeftBehind
from hocket.workers.runtime.execution.metrics import TypeMeters
from hocket.workers.runtime.execution.probation import MAX_PASSED_ON, Probation, is_due
from hocket.workers.runtime.execution.spans import Spans
from hocket.workers.runtime.transport.acks import Acks
from hocket.workers.runtime.transport.cancellations import Cancellations
from hocket.workers.runtime.transport.consumers import MAX_DELIVERIES, ensure_consumers
from hocket.workers.runtime.transport.lanes import ReadyQueue, allot, latest_start_ms
from hocket.workers.runtime.transport.outbox import Outbox
from hocket.workers.runtime.transport.pull import LanePull
from hocket.workers.runtime.values.large_values import LargeValues

if TYPE_CHECKING:
    from hocket.kit.nats.connection.durable_publisher import PubAck

STOP_GRACE_S = 1.0
PASS_ON_S = 0.02
"""How long a step that came to a full worker waits for a slot before another worker may have it."""
REFERENCE_MARK = b'"$blob"'
"""Inputs without it are not searched for references."""

TRACEPARENT = b"traceparent"
W3C = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{0,128})?")
"""A trace's context, as https://www.w3.org/TR/trace-context/ has it."""
NO_HEADERS: Mapping[str, str] = {}
_DECIMAL = decimal.Context(prec=28)

log = structlog.get_logger()

Handler = Callable[[Context], Awaitable[Any]]


class Pool:
    """The slots of one node type. `start` it once; `stop_fetching` and `let_go` end it."""

    def __init__(
        self,
        bus: Bus,
        node_type: str,
        handler: Handler,
        *,
        slots: int,
        ack_wait_s: float,
        worker: str,
        acks: Acks,
        outbox: Outbox,
        calls: Calls,
        cancellations: Cancellations,
        large_values: LargeValues,
        spans: Spans,
        meters: TypeMeters,
        probation: Probation,
        slots_changed: Callable[[], None],
    ) -> None:
        self.node_type = node_type
        self.slots = slots
        self.attempts: dict[str, Attempt] = {}
        self._bus = bus
        self._handler = handler
        self._ack_wait_s = ack_wait_s
        self._worker = worker
        self._acks = acks
        self._outbox = outbox
        self._calls = calls
        self._cancellations = cancellations
        self._large_values = large_values
        self._spans = spans
        self._probation = probation
        probation.join(self)
        self._meters = meters
        meters.watch_running(lambda: self._taken)
        self._ready: ReadyQueue[Attempt] = ReadyQueue()
        self._running = 0
        self.held = HeldSlots(node_type, slots, self._held_changed)
        self._slots_changed = slots_changed
        self._fetching = False
        self._scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._posted: set[asyncio.Future[PubAck]] = set()
        self._loop = asyncio.get_running_loop()
        self._bare = contextvars.copy_context()
        self._lanes = {
            lane: LanePull(
                bus,
                node_type,
                lane,
                slots,
                ack_wait_s=ack_wait_s,
                deliver=self._take,
                changed=self.schedule,
            )
            for lane in subjects.LANES
        }
        self._demands = {name: lane.demand for name, lane in self._lanes.items()}

    @property
    def running(self) -> int:
        """Slots that are taken by attempts that still have their time."""
        return self._running

    @property
    def is_busy(self) -> bool:
        """Whether something runs, or has ended and may still be delivered again."""
        return self._running > 0 or bool(self._posted)

    @property
    def has_waiting(self) -> bool:
        """Whether steps wait here, or in the stream as far as is known."""
        return len(self._ready) > 0 or any(demand.pending for demand in self._demands.values())

    async def start(self) -> None:
        """Create the consumers and begin to fetch."""
        await ensure_consumers(self._bus, self.node_type, self._ack_wait_s)
        for lane in self._lanes.values():
            await lane.open()
        self._fetching = True
        self.schedule()

    async def stop_fetching(self) -> None:
        """Withdraw the requests; what still comes, and what has not started, goes back."""
        self._fetching = False
        for attempt in list(self.attempts.values()):
            if attempt.state is State.READY:
                self._give_back(attempt)
        await asyncio.gather(*(lane.close() for lane in self._lanes.values()))

    async def settled(self) -> None:
        """Wait until nothing runs any more and every posted result is acknowledged."""
        while self._tasks or self._posted:
            waiting: set[asyncio.Future[Any]] = {*self._tasks, *self._posted}
            await asyncio.wait(waiting)

    def give_all_back(self) -> int:
        """Stop every attempt without a result; return how many."""
        given = [attempt for attempt in self.attempts.values() if attempt.give_back()]
        for attempt in given:
            self._nak(attempt)
        return len(given)

    def cancel(self, cancelled: StepCancelled) -> int:
        """Stop the attempts that a cancellation concerns; return how many."""
        count = 0
        for attempt in list(self.attempts.values()):
            if _concerns(cancelled, attempt.step):
                stopped = AttemptCancelled(reason=cancelled.reason or "no reason given")
                count += self._stop(attempt, stopped)
        return count

    def reopen(self) -> None:
        """Ask anew after a reconnect; what was asked before is void."""
        for attempt in self.attempts.values():
            self._spawn(self._recognise(attempt))
        if self._fetching:
            for lane in self._lanes.values():
                lane.reopen()

    def keep_alive(self, older_than_s: float) -> None:
        """Tell the server about attempts it has not heard of for so long; check the requests."""
        now_s = self._loop.time()
        for attempt in self.attempts.values():
            if now_s - attempt.touched_s >= older_than_s and self._acks.known(attempt):
                attempt.touched_s = now_s
                self._bus.publish_nowait(attempt.ack_subject, b"+WPI")
        if self._fetching:
            for lane in self._lanes.values():
                lane.check()

    # ---- steps come -------------------------------------------------------------------------

    def _take(self, msg: RawMessage, lane: LanePull) -> None:
        delivery = parse_ack_subject(msg.reply)
        lane.demand.pending = delivery.pending
        try:
            step = read_step(msg.data)
        except ValidationError as error:
            self._spawn(undeliverable.bury_malformed(self._bus, msg, error, self._worker))
            return
        attempt = Attempt(
            step,
            msg.reply,
            delivery,
            _trace_headers(msg.head),
            self._loop.time(),
            lane.losses,
            has_references=REFERENCE_MARK in msg.data,
        )
        if not self._fetching:
            self._nak(attempt)
            return
        held = self.attempts.get(attempt.key)
        if held is not None:  # its calls have the first delivery's count in their ids
            held.ack_subject, held.touched_s = attempt.ack_subject, attempt.touched_s
            held.losses = attempt.losses
            return
        if delivery.deliveries >= MAX_DELIVERIES:
            self._spawn(undeliverable.bury_undeliverable(self._bus, msg, delivery, self._worker))
            return
        self.attempts[attempt.key] = attempt
        if is_due(delivery.deliveries):
            self._probation.add(self, msg, attempt)
            return
        self._ready.push(latest_start_ms(step, delivery.stored_at_ms), attempt)
        is_full = self._probation.is_closed or self._taken + len(self._ready) > self.slots
        if is_full and delivery.deliveries <= MAX_PASSED_ON:
            self._loop.call_later(PASS_ON_S, self._pass_on, attempt, lane)

    def _pass_on(self, attempt: Attempt, lane: LanePull) -> None:
        """Give a step back that still waits for a slot: to a worker that asked before we do again."""
        waits = attempt.state is State.READY and not attempt.let_go
        if waits and self._fetching and self._bus.connected and lane.is_open:
            self._give_back(attempt)
            lane.ask(1)

    def schedule(self) -> None:
        """Start what is ready and ask for more, once per turn of the event loop."""
        if not self._scheduled:
            self._loop.call_soon(self._turn)
            self._scheduled = True

    def _turn(self) -> None:
        self._scheduled = False
        if self._probation.is_serving:
            self._probation.turned()
            if self._probation.is_closed:
                return
        while len(self._ready) and self._taken < self.slots:
            attempt = self._ready.pop()
            if attempt.let_go or attempt.state is not State.READY:
                continue
            self.begin(attempt)
        if not self._fetching or not self._bus.connected:
            return
        if self.held.count >= self.slots:  # what came would find no slot
            return
        wanted = allot(self.slots, self._taken + len(self._ready), self._demands)
        for name, count in wanted.items():
            if count and self._lanes[name].is_open:
                self._lanes[name].ask(count)

    def begin(self, attempt: Attempt) -> None:
        """Run an attempt that is ready, in a slot."""
        self._running += 1
        attempt.state = State.RUNNING
        attempt.task = self._spawn(self._run(attempt))

    async def bury(self, msg: RawMessage, attempt: Attempt, deaths: int) -> None:
        """Dead-letter a step under which its worker ended so often; where that fails, it comes again."""
        try:
            await undeliverable.bury_ending_worker(
                self._bus, msg, attempt.delivery, deaths, self._worker
            )
            if self._acks.known(attempt):
                self._bus.publish_nowait(attempt.ack_subject, undeliverable.TERM)
        finally:
            self.attempts.pop(attempt.key, None)

    # ---- an attempt runs --------------------------------------------------------------------

    async def _run(self, attempt: Attempt) -> None:
        attempt.started_at_ms = now_ms()
        attempt.input_digest = ids.input_digest(attempt.step.input)  # its handler may change it
        context: Context | None = None
        output: Any = None
        error: BaseException | None = self._refusal(attempt, attempt.started_at_ms)
        if error is None and not attempt.let_go:
            try:
                context = await self._context(attempt)
                decimal.setcontext(_DECIMAL.copy())  # else a handler would change everybody's
                self._arm(attempt, context.deadline_at_ms)
                with self._spans.attempt(attempt, context):
                    output = await self._handler(context)
            except BaseException as raised:
                end_if_short(raised)  # its step comes again
                error = raised
        if attempt.stopped is not None or attempt.let_go:
            _forget_cancellation()
            error = attempt.stopped
        left_behind = None if context is None else context.left_behind
        if attempt.let_go:
            self._finish(attempt, left_behind)
            self.attempts.pop(attempt.key, None)
        elif attempt.conclude():
            try:
                await self._report(attempt, context, output, error)
            except (
                BaseException
            ) as fault:  # of what the handler left: its task may be cancelled still
                again = None if isinstance(fault, asyncio.CancelledError) else fault
                self._spawn(self._report_again(attempt, context, output, again or error))
            self._finish(attempt, left_behind)

    async def _report_again(
        self, attempt: Attempt, context: Context | None, output: Any, error: BaseException | None
    ) -> None:
        """Report in a task that no handler knows; an attempt is answered for, whatever it left."""
        try:
            await self._report(attempt, context, output, error)
        except asyncio.CancelledError:
            raise
        except BaseException as fault:
            await self._report(attempt, None, None, fault)

    def _refusal(self, attempt: Attempt, at_ms: float) -> HocketError | None:
        """Return why the attempt must not run at all."""
        step = attempt.step
        if attempt.stopped is not None:
            return attempt.stopped
        reason = self._cancellations.reason_for(
            step.run_id,
            step.step,
            step.attempt,
            sent_at_ms=attempt.delivery.stored_at_ms,
            now_ms=at_ms,
            capability=step.capability,
        )
        if reason is not None:
            return AttemptCancelled(reason=reason)
        limit_ms = _limit_ms(step)
        if at_ms >= limit_ms:
            return DeadlinePassed(late_ms=round(at_ms - limit_ms))
        if step.start_by_at_ms is not None and at_ms > step.start_by_at_ms:
            return HeldTooLong()
        return None

    async def _context(self, attempt: Attempt) -> Context:
        step, step_input = attempt.step, attempt.step.input
        if attempt.has_references:
            in_time_ms = max(_limit_ms(step) - attempt.started_at_ms, 0.0)
            attempt.timer = self._loop.call_later(
                in_time_ms / 1000, lambda: self._stop(attempt, DeadlinePassed(late_ms=0))
            )
            resolved = await self._large_values.resolved(step.tenant, step_input)
            step_input, attempt.held_bytes = resolved
            attempt.disarm()
            attempt.started_at_ms = now_ms()  # its time begins when its input is there
        return Context(
            step,
            step_input,
            attempt_id=attempt.id,
            delivery=attempt.delivery.deliveries,
            deadline_at_ms=min(attempt.started_at_ms + step.timeout_ms, _limit_ms(step)),
            calls=self._calls,
            traceparent=attempt.headers.get("traceparent"),
        )

    def _arm(self, attempt: Attempt, deadline_at_ms: float) -> None:
        """Stop the attempt when its time is over."""
        timeout_ms = deadline_at_ms - attempt.started_at_ms
        attempt.timer = self._loop.call_later(
            timeout_ms / 1000,
            lambda: self._stop(attempt, AttemptTimeout(timeout_ms=round(timeout_ms))),
        )

    def _stop(self, attempt: Attempt, error: HocketError) -> bool:
        stopped = attempt.stop(error)
        if stopped and attempt.state is State.RUNNING:
            attempt.disarm()
            attempt.timer = self._loop.call_later(STOP_GRACE_S, self._answer_for, attempt)
        return stopped

    def _answer_for(self, attempt: Attempt) -> None:
        """Conclude an attempt whose handler did not end when it was cancelled."""
        if attempt.conclude():
            log.warning("handler_ignores_cancellation", attempt_id=attempt.id)
            self._spawn(self._answer(attempt))

    async def _answer(self, attempt: Attempt) -> None:
        await self._report(attempt, None, None, attempt.stopped)
        self._finish(attempt, attempt.task)

    def _finish(self, attempt: Attempt, left_behind: LeftBehind | None = None) -> None:
        attempt.disarm()
        self._running -= 1
        held_bytes, attempt.held_bytes = attempt.held_bytes, 0
        free = partial(self._large_values.room.give_back, held_bytes)
        if left_behind is not None and not left_behind.done():
            self.held.hold(left_behind, free)
        elif held_bytes:
            free()
        self.schedule()

    def _held_changed(self) -> None:
        self._slots_changed()
        self.schedule()

    @property
    def _taken(self) -> int:
        """Slots that nothing can start in."""
        return self._running + self.held.count

    # ---- its result leaves ------------------------------------------------------------------

    async def _report(
        self, attempt: Attempt, context: Context | None, output: Any, error: BaseException | None
    ) -> None:
        step = attempt.step
        info = None if error is None else error_info(error)
        finished = AttemptFinished(
            run_id=step.run_id,
            step=step.step,
            attempt=step.attempt,
            output=None if info else output,
            error=info,
            started_at_ms=attempt.started_at_ms,
            finished_at_ms=now_ms(),
            queued_at_ms=attempt.delivery.stored_at_ms - step.held_ms,
            delivery=attempt.delivery.deliveries,
            worker=self._worker,
            spend=context.spend if context else NOTHING_SPENT,
            timing=context.timing if context else None,
            dispatched_at_ms=step.dispatched_at_ms,
            input_digest=attempt.input_digest,
            capability=step.capability,
        )
        payload, info = await self._encoded(step.tenant, finished)
        self._meters.finished(info, finished.finished_at_ms - finished.started_at_ms)
        if info is not None:
            _log_failure(attempt, context, info)
        await self._bus.wait_for_capacity()
        msg_id = ids.result_id(attempt.id, step.dispatched_at_ms)
        msg_id = ids.capable(msg_id, step.capability)
        posted = self._outbox.post(step.partition, payload, msg_id)
        self._posted.add(posted)
        posted.add_done_callback(lambda ack: self._acknowledged(attempt, ack))

    async def _encoded(
        self, tenant: str, finished: AttemptFinished
    ) -> tuple[bytes, ErrorInfo | None]:
        """Return the result's message and its error, where it has one after all."""
        try:
            payload = results.encode(finished)
            if len(payload) > results.MAX_RESULT_BYTES and finished.error is None:
                payload = await self._large_values.spilled(tenant, finished, payload)
            results.check_size(payload)
        except OutputTooLarge as error:
            info = results.shortened(finished.error) if finished.error else error.info()
        except (
            BaseException
        ) as error:  # what a handler gives back may raise anything when it is read
            if _is_stopping():
                raise
            info = error_info(error)
        else:
            return payload, finished.error
        failed = finished.model_copy(update={"output": None, "error": info})
        return results.encode(failed), info

    def _acknowledged(self, attempt: Attempt, posted: "asyncio.Future[PubAck]") -> None:
        self._posted.discard(posted)
        self.attempts.pop(attempt.key, None)
        if self._probation.is_serving:
            self._loop.call_soon(self._probation.turned)
        if posted.cancelled() or posted.exception() is not None:
            log.warning("result_not_posted", attempt_id=attempt.id, cancelled=posted.cancelled())
            return
        if self._acks.known(attempt):
            self._acks.add(attempt)
        else:
            self._spawn(self._ack_recognised(attempt))

    async def _recognise(self, attempt: Attempt) -> None:
        await self._acks.recognise(attempt)

    async def _ack_recognised(self, attempt: Attempt) -> None:
        if await self._acks.recognise(attempt):
            self._acks.add(attempt)

    def _give_back(self, attempt: Attempt) -> None:
        attempt.let_go = True
        self.attempts.pop(attempt.key, None)
        self._nak(attempt)

    def _nak(self, attempt: Attempt) -> None:
        if self._acks.known(attempt):
            self._bus.publish_nowait(attempt.ack_subject, b"-NAK")

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        """Start a task without what a handler, in whose turn that may be, put into its context."""
        task: asyncio.Task[None] = self._loop.create_task(coroutine, context=self._bare.copy())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("worker_task_failed", type=self.node_type, exc_info=error)


def _trace_headers(head: bytes) -> Mapping[str, str]:
    """Return what of a step's headers matters here: its trace, where it is one (the task's publisher
    may have written anything)."""
    traceparent = header_of(head, TRACEPARENT)
    return {"traceparent": traceparent} if W3C.fullmatch(traceparent) else NO_HEADERS


def _limit_ms(step: RequestedStep) -> float:
    """Return until when an attempt may run at the latest (epoch ms)."""
    return step.deadline_at_ms if step.run_deadline_at_ms is None else step.run_deadline_at_ms


def _concerns(cancelled: StepCancelled, step: RequestedStep) -> bool:
    return (
        cancelled.run_id == step.run_id
        and step.capability in (None, cancelled.capability)
        and cancelled.step in (None, step.step)
        and cancelled.attempt in (None, step.attempt)
    )


def _is_stopping() -> bool:
    """Tell whether the present task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _forget_cancellation() -> None:
    """Take back the cancel of a stopped handler, so that what follows in its task can wait."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


def _log_failure(attempt: Attempt, context: Context | None, info: ErrorInfo) -> None:
    step = attempt.step
    logger = context.log if context else log.bind(run_id=step.run_id, step=step.step)
    emit = logger.info if info.error_class is ErrorClass.CANCELLED else logger.warning
    emit(
        "step_failed",
        type=step.type,
        code=info.code,
        error_class=info.error_class,
        message=info.message,
        latency_ms=round(now_ms() - attempt.started_at_ms, 1),
    )
