"""Turns messages of STEPS into attempts that wait for a slot, or for their turn on probation. Messages
that cannot be read, or were delivered too often, are given up."""

import asyncio
from collections.abc import Callable

from pydantic import ValidationError

from hocket.kit.nats.consumers.delivery import parse_ack_subject
from hocket.kit.nats.protocol import RawMessage
from hocket.schemas.structs.steps import read_step
from hocket.workers.runtime.execution.attempt import READY, Attempt
from hocket.workers.runtime.execution.attempts import Attempts
from hocket.workers.runtime.execution.background import Background
from hocket.workers.runtime.execution.parts import Parts
from hocket.workers.runtime.execution.slots import Slots
from hocket.workers.runtime.intake import undeliverable
from hocket.workers.runtime.intake.after_worker_death import (
    GOES_ON,
    MAX_PASSED_ON,
    Course,
    course_of,
)
from hocket.workers.runtime.intake.bundles import (
    Unpacked,
    attempt_of,
    goes_back,
    held_bundle,
    message_of,
    unpacked,
)
from hocket.workers.runtime.intake.probation import AGAIN_AFTER_S
from hocket.workers.runtime.transport.lanes import ReadyQueue, latest_start_ms
from hocket.workers.runtime.transport.pull import LanePull
from hocket.workers.runtime.transport.settlement import Settlement

PASS_ON_S = 0.02
"""How long a step that arrives at a full worker waits for a slot before it is passed on to another."""


class Arrivals:
    """The arriving steps of one node type. `suspect` receives those on probation, with their
    messages."""

    def __init__(
        self,
        parts: Parts,
        attempts: Attempts,
        settlement: Settlement,
        slots: Slots,
        background: Background,
        *,
        suspect: Callable[[RawMessage, Attempt], None],
    ) -> None:
        self.is_open = False
        """Whether arriving steps are accepted; otherwise they go back to the stream."""
        self.ready: ReadyQueue[Attempt] = ReadyQueue()
        self._bus = parts.bus
        self._attempts = attempts
        self._settlement = settlement
        self._slots = slots
        self._probation = parts.probation
        self._is_recorded = parts.probation.is_recorded
        self._isolation = parts.isolation
        self._background = background
        self._takes_bundles = parts.bus.identity.takes_bundles
        self._suspect = suspect
        self._worker = parts.worker
        self._loop = asyncio.get_running_loop()

    def open(self) -> None:
        """Accept arriving steps from now on."""
        self.is_open = True

    def close(self) -> None:
        """Send back steps that arrive from now on, and those that have arrived but not started."""
        self.is_open = False
        self._attempts.give_ready_back()

    def take(self, msg: RawMessage, lane: LanePull) -> None:
        """Handle a message that arrived in a lane."""
        delivery = parse_ack_subject(msg.reply)
        lane.demand.pending = delivery.pending
        try:
            step = read_step(msg.data)
        except ValidationError as error:
            bury = undeliverable.bury_malformed(self._bus, msg, error, self._worker)
            self._background.start(bury)
            return
        message = message_of(msg, lane.losses, self._loop.time())
        if step.more and self._takes_bundles:
            self._take_bundle(unpacked(msg, step, message, delivery), lane)
        else:
            self._take(msg, attempt_of(msg, step, message, delivery), lane)

    def next(self) -> Attempt | None:
        """Return the waiting attempt that must start first, if any."""
        while (attempt := self.ready.pop()) is not None:
            if attempt.state is READY and not attempt.let_go:
                return attempt
        return None

    async def give_up(self, msg: RawMessage, attempt: Attempt, deaths: int) -> None:
        """Dead-letter a step whose workers died `deaths` times; if that fails, it is redelivered."""
        try:
            await undeliverable.bury_ending_worker(
                self._bus, msg, attempt.delivery, deaths, self._worker
            )
            self._settlement.end(attempt)
        finally:
            self._attempts.drop(attempt)

    def _take_bundle(self, bundle: Unpacked, lane: LanePull) -> None:
        """Accept the steps of a bundle, unless it is held, and give up those that cannot be read."""
        held = held_bundle(self._attempts, bundle)
        if held is not None:
            held.delivered_again(bundle.message)
            self._attempts.moved(held)
            return
        for msg, attempt in bundle.arrived:
            self._take(msg, attempt, lane)
        for msg, error in bundle.unreadable:
            self._background.start(self._bury_member(msg, error, bundle))

    def _take(self, msg: RawMessage, attempt: Attempt, lane: LanePull) -> None:
        """Accept an attempt, send it back, or note another delivery of one that is held."""
        held = self._attempts.find(attempt.key)
        if not self.is_open or (held is None and goes_back(attempt.message, attempt.delivery)):
            self._settlement.send_back(attempt)
        elif held is not None:
            self._attempts.came_again(held, attempt)
        else:
            self._go_on(msg, attempt, lane)

    async def _bury_member(self, msg: RawMessage, error: ValidationError, bundle: Unpacked) -> None:
        await undeliverable.bury_malformed_member(self._bus, msg, error, self._worker)
        self._settlement.settle(bundle.message)

    def _go_on(self, msg: RawMessage, attempt: Attempt, lane: LanePull) -> None:
        """Queue a step that is not held here yet, put it on probation, or give it up."""
        step, delivery = attempt.step, attempt.delivery
        probation = self._probation
        course = course_of(
            step, delivery.deliveries, probation.kinds, is_recorded=self._is_recorded
        )
        if course is GOES_ON:
            self._attempts.add(attempt)
            self.ready.push(latest_start_ms(step, attempt.sent_at_ms), attempt)
            if delivery.deliveries <= MAX_PASSED_ON and self._is_full():
                self._loop.call_later(PASS_ON_S, self._pass_on, attempt, lane)
        elif course is Course.GIVEN_UP:
            bury = undeliverable.bury_undeliverable(self._bus, msg, delivery, self._worker)
            self._background.start(bury)
        elif probation.is_full:
            self._settlement.send_back(attempt, AGAIN_AFTER_S)
        else:
            self._attempts.add(attempt)
            self._suspect(msg, attempt)

    def _is_full(self) -> bool:
        slots = self._slots
        return self._isolation.is_closed or slots.taken + len(self.ready) > slots.total

    def _pass_on(self, attempt: Attempt, lane: LanePull) -> None:
        """Give back a step that still waits for a slot. The server passes it to a worker whose request
        is older than the one that replaces it here."""
        waits = attempt.state is READY and not attempt.let_go
        if waits and self.is_open and self._bus.connected and lane.is_open:
            self._attempts.give_back(attempt)
            if not attempt.message.asked_again:  # several steps of a bundle may be passed on
                attempt.message.asked_again = True
                lane.ask(1)
