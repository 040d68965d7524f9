"""All attempts of one node type in this worker: those that are fetched, and those that run in its slots.

A step takes a slot from its start until its result is posted; its message is acknowledged only after
the result has been acknowledged.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from hocket.kit.nats.protocol import RawMessage
from hocket.schemas.messages import StepCancelled
from hocket.workers.errors import AttemptCancelled
from hocket.workers.runtime.execution.attempt import Attempt
from hocket.workers.runtime.execution.attempts import Attempts
from hocket.workers.runtime.execution.background import Background
from hocket.workers.runtime.execution.metrics import TypeMeters
from hocket.workers.runtime.execution.parts import Parts
from hocket.workers.runtime.execution.runner import Handler, Runner
from hocket.workers.runtime.execution.slots import LeftBehind, Slots
from hocket.workers.runtime.intake.arrivals import Arrivals
from hocket.workers.runtime.results.reporter import Reporter
from hocket.workers.runtime.transport.fetching import Fetching
from hocket.workers.runtime.transport.held_steps import RUNS, WAITS
from hocket.workers.runtime.transport.settlement import Settlement


class Pool:
    """The slots of one node type. `start` it once; `stop_fetching` and `give_all_back` end it."""

    def __init__(
        self,
        parts: Parts,
        node_type: str,
        handler: Handler,
        *,
        slots: int,
        ack_wait_s: float,
        meters: TypeMeters,
        slots_changed: Callable[[], None],
    ) -> None:
        def held_changed() -> None:
            slots_changed()
            self.schedule()

        self.node_type = node_type
        self.slots = Slots(node_type, slots, held_changed)
        self._large_values = parts.large_values
        self._probation = parts.probation
        self._isolation = parts.isolation
        self._background = Background(node_type)
        self._held = parts.held
        settlement = Settlement(parts.bus, parts.acks, self._background)
        self.attempts = Attempts(settlement, parts.held)
        self._reporter = Reporter(parts, self.attempts, settlement, meters)
        self._runner = Runner(parts, handler, self._background, self._reporter, self._ended)
        self._arrivals = Arrivals(
            parts,
            self.attempts,
            settlement,
            self.slots,
            self._background,
            suspect=partial(parts.probation.add, self),
        )
        self._fetching = Fetching(
            parts.bus,
            node_type,
            slots,
            ack_wait_s=ack_wait_s,
            deliver=self._arrivals.take,
            changed=self.schedule,
        )
        self._scheduled = False
        self._loop = asyncio.get_running_loop()
        parts.isolation.join(self)
        meters.watch_running(lambda: self.slots.taken)

    @property
    def is_busy(self) -> bool:
        """Whether something runs, or has ended but may still be redelivered."""
        return self.slots.running > 0 or self._reporter.unacknowledged > 0

    @property
    def has_waiting(self) -> bool:
        """Whether steps wait here, or are known to wait in the stream."""
        return len(self._arrivals.ready) > 0 or self._fetching.has_pending

    async def start(self) -> None:
        """Create the consumers and start fetching."""
        await self._fetching.open()
        self._arrivals.open()
        self.schedule()

    async def stop_fetching(self) -> None:
        """Withdraw the requests; steps that still arrive, or have not started, go back to the stream."""
        self._arrivals.close()
        await self._fetching.close()

    async def settled(self) -> None:
        """Wait until nothing is running and every posted result is acknowledged."""
        while self._background.is_busy or self._reporter.unacknowledged:
            await self._background.ended()
            await self._reporter.all_acknowledged()

    def give_all_back(self) -> int:
        """Stop every attempt that has no result yet, and return it to the stream; return how many."""
        return self.attempts.stop_all()

    def cancel(self, cancelled: StepCancelled) -> int:
        """Stop the attempts that a cancellation applies to; return how many."""
        count = 0
        for attempt in self.attempts:
            if attempt.is_concerned(cancelled):
                stopped = AttemptCancelled(reason=cancelled.reason or "no reason given")
                count += self._runner.stop(attempt, stopped)
        return count

    def reopen(self) -> None:
        """Request steps again after a reconnect; earlier requests are void."""
        self.attempts.recognise_all()
        if self._arrivals.is_open:
            self._fetching.reopen()

    def keep_alive(self, older_than_s: float) -> None:
        """Report attempts as in progress if the server was last told longer ago than this, and check the
        requests."""
        self.attempts.keep_alive(older_than_s)
        if self._arrivals.is_open:
            self._fetching.check()

    def schedule(self) -> None:
        """Start ready attempts and request more, at most once per turn of the event loop."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def begin(self, attempt: Attempt) -> None:
        """Run a ready attempt in a slot."""
        self.slots.begin()
        self._held.set(attempt.place, RUNS)
        self._runner.begin(attempt)

    async def bury(self, msg: RawMessage, attempt: Attempt, deaths: int) -> None:
        """Give up a step whose workers died `deaths` times."""
        await self._arrivals.give_up(msg, attempt, deaths)

    def _turn(self) -> None:
        self._scheduled = False
        if self._probation.is_serving:
            self._isolation.turned()
            if self._isolation.is_closed:
                return
        slots, arrivals = self.slots, self._arrivals
        for _ in range(slots.total - slots.taken):
            attempt = arrivals.next()
            if attempt is None:
                break
            self.begin(attempt)
        if arrivals.is_open and slots.held < slots.total:  # otherwise steps would find no slot
            self._fetching.ask(slots.taken + len(arrivals.ready))

    def _ended(self, attempt: Attempt, left_behind: LeftBehind | None) -> None:
        """Release what an attempt held, when its time is over."""
        if attempt.let_go:
            self.attempts.drop(attempt)
        else:
            self._held.set(attempt.place, WAITS)
            self._probation.kinds.ended(attempt)
        if left_behind is None and not attempt.held_bytes:
            attempt.is_over = True
            self.slots.end()
        else:  # only when the slot is free: what was left behind may take more room until then
            give_back = self._large_values.give_back
            self.slots.end(
                left_behind, partial(give_back, attempt.step.tenant, attempt.released_bytes)
            )
        self.schedule()
