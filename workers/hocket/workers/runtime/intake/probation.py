"""Probation: steps whose workers died several times while running them are each tried alone, so that the
step that kills its worker is found and does no more harm to the others.

Which steps are on probation is decided in `after_worker_death.py`. A worker runs one such step at a
time, starting with the tenant whose steps were started least often. It first starts nothing new and
waits for running steps to end (GATHER_S at most), and then starts nothing beside the step (ALONE_S at
most). Afterwards it is open to other steps for as long as it was closed. A restarted worker, whose
predecessor such a step may have killed, is open to other steps for OPEN_S first, and for twice as long
after each death under a step of the same kind that ran alone.

A step is undeliverable once its worker died MAX_DEATHS_ALONE times while it ran alone, or MAX_BEGUN
times in all. From then on all steps of its *kind* (what runs, for which tenant) are on probation from
their first delivery. So are the steps of a kind that was running at the deaths of two workers, until
enough of them end well (`suspicion.py`). A worker that merely stops takes back what it recorded, because
stopping is no death.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from hocket.kit.process.clock import now_ms
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas.errors import HocketError
from hocket.workers.runtime.execution.attempt import Attempt, State
from hocket.workers.runtime.intake.isolation import OPEN_S, Isolation, Slots
from hocket.workers.runtime.intake.known_kinds import KnownKinds
from hocket.workers.runtime.intake.suspicion import MAX_DOUBLINGS
from hocket.workers.runtime.transport.acks import Acks
from hocket.workers.runtime.transport.held_steps import ALONE, RUNS, HeldSteps
from hocket.workers.runtime.transport.probation_records import (
    NOTHING,
    ProbationRecords,
    Record,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hocket.kit.nats.protocol import RawMessage

MAX_DEATHS_ALONE = 3
"""Two can be chance: where workers are killed twice a minute, a step that takes seconds and was alone
both times was given up once in a thousand faults."""
MAX_BEGUN = 16
"""A step is also given up after it was started this often on probation and its worker died each time."""
GATHER_S = 30.0
GATHER_PART = 8
"""If steps of its kind killed workers while alone, the wait for running steps is at most this fraction
(1/8) of the wait before; if others still run then, the step is put off, at most MAX_PUT_OFF times."""
MAX_PUT_OFF = 3
ALONE_S = 60.0
MAX_TIMES_ALONE = 4
"""A step whose worker died while others ran beside it runs alone for longer the next time, up to this
many times as long."""
MAX_SUSPECTS = 256
"""The most steps that wait in a worker for their turn; further ones go back to the stream for
AGAIN_AFTER_S."""
AGAIN_AFTER_S = 30.0
SETTLE_S = 0.2
"""How often to check again whether other steps wait or run."""
CLOSE_S = 5.0
"""How long a stopping worker waits for its records to be taken back."""

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class Suspect:
    """A step on probation that waits for its turn."""

    pool: Slots
    msg: "RawMessage"
    attempt: Attempt
    record: Record | None = None
    """None until it has been read."""
    put_off: int = 0
    """How often its turn was put off because others ran for too long."""

    @property
    def begun(self) -> int:
        """How often it was started on probation."""
        return self.record.begun if self.record else 0

    @property
    def is_over(self) -> bool:
        """Whether it was stopped or is past its latest end, so that it is reported without running."""
        return self.attempt.stopped is not None or now_ms() >= self.attempt.latest_end_ms

    @property
    def costs(self) -> bool:
        """Whether its turn may kill the worker."""
        return not self.is_lost and not self.is_over

    @property
    def is_lost(self) -> bool:
        """Whether too many workers have died under it."""
        record = self.record or NOTHING
        return record.deaths_alone >= MAX_DEATHS_ALONE or record.begun >= MAX_BEGUN

    @property
    def waits(self) -> bool:
        """Whether it is still waiting to start here."""
        return self.attempt.state is State.READY and not self.attempt.let_go


def alone_s(record: Record) -> float:
    """Return for how long nothing is started beside a step. Each time the worker died after that time
    makes it longer, because the step may have been the cause."""
    not_alone = record.begun - record.deaths_alone
    return ALONE_S * min(1 + not_alone, MAX_TIMES_ALONE)


def next_of(
    waiting: Sequence[Suspect], doublings: "Callable[[Suspect], int]" = lambda _suspect: 0
) -> Suspect:
    """Return the next step: first one that will not be run; then one of the kind with the shortest wait
    (`doublings`); then one of the tenant, and of the run, whose steps here were started least often in
    total, so that many steps that kill their worker do not keep those of others waiting."""
    tenants, runs = Counter[str](), Counter[str]()
    for suspect in waiting:
        tenants[suspect.attempt.step.tenant] += suspect.begun
        runs[suspect.attempt.step.run_id] += suspect.begun

    def turn(suspect: Suspect) -> tuple[bool, int, int, int, int, float, int]:
        attempt, step = suspect.attempt, suspect.attempt.step
        begun = tenants[step.tenant], runs[step.run_id], suspect.begun
        sent = attempt.delivery.stored_at_ms, attempt.delivery.stream_seq
        return (suspect.costs, doublings(suspect), *begun, *sent)

    return min(waiting, key=turn)


class Probation:
    """The steps on probation in one worker, of all node types; `isolation` keeps other steps from
    starting beside them."""

    def __init__(
        self,
        records: ProbationRecords,
        acks: Acks,
        isolation: Isolation,
        held: HeldSteps,
    ) -> None:
        self.is_serving = False
        """Whether there are steps on probation; if so, `Isolation.turned` must be called."""
        self._records = records
        self._acks = acks
        self._isolation = isolation
        self._waiting: list[Suspect] = []
        self._serving: asyncio.Task[None] | None = None
        self._taking_back: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._held = held
        self.kinds = KnownKinds(records, held)

    @property
    def is_recorded(self) -> bool:
        """Whether records of steps are kept."""
        return self._records.are_kept

    @property
    def is_full(self) -> bool:
        """Whether no more steps may wait here."""
        return len(self._waiting) >= MAX_SUSPECTS

    def add(self, pool: Slots, msg: "RawMessage", attempt: Attempt) -> None:
        """Queue a step: it is started when its turn comes, or its pool gives it up."""
        self._waiting.append(Suspect(pool, msg, attempt))
        if not self.is_serving:
            self.is_serving = True
            self._serving = self._loop.create_task(self._serve(), name="probation")

    async def close(self) -> None:
        """Start no more steps, and take back the record of the running one: its worker merely stops."""
        if self._serving is not None:
            await stop_tasks([self._serving], CLOSE_S)
        if self._taking_back is not None:
            await asyncio.wait({self._taking_back}, timeout=CLOSE_S)

    async def _serve(self) -> None:
        while self._waiting:
            while unread := [new for new in self._waiting if new.record is None]:
                unread[0].record = await self._records.read(unread[0].attempt.step)
            self._waiting = [suspect for suspect in self._waiting if suspect.waits]
            if not self._waiting:
                break
            suspect = next_of(self._waiting, self._doublings)
            if not await self._is_its_turn(suspect):
                continue
            self._waiting.remove(suspect)
            try:
                await self._serve_one(suspect)
            except Exception:  # such as an unknown answer of the server
                log.exception("probation_failed", attempt_id=suspect.attempt.id)
                self._isolation.open()
                if suspect.waits:
                    suspect.pool.begin(suspect.attempt)
        self.is_serving = False

    async def _serve_one(self, suspect: Suspect) -> None:
        attempt, record = suspect.attempt, suspect.record or NOTHING
        if suspect.is_lost:
            await self._bury(suspect, record)
            return
        if suspect.is_over:  # the pool reports it without running it
            suspect.pool.begin(attempt)
            return
        self._isolation.close()
        doublings = self._doublings(suspect)
        within_s = min(GATHER_S, OPEN_S * 2**doublings / GATHER_PART) if doublings else GATHER_S
        alone = await self._isolation.until(lambda: not self._isolation.is_busy, within_s)
        if not alone and doublings and suspect.put_off < MAX_PUT_OFF:
            suspect.put_off += 1
            self._waiting.append(suspect)
            self._isolation.open()
            return
        self._acks.send()  # so that steps that have ended are not redelivered
        try:
            await self._records.write(attempt.step, record.after_death(alone=alone))
            if suspect.waits:
                await self._run(suspect, record, alone=alone)
        except asyncio.CancelledError:  # the worker stops
            await self._take_back(attempt, record)
            raise
        self._isolation.open()
        await self._take_back(attempt, record)
        if attempt.state is State.CONCLUDED:
            await self.kinds.ended_on_probation(attempt)

    async def _bury(self, suspect: Suspect, record: Record) -> None:
        """Give up a step whose workers died too often. If it was alone then, its kind becomes
        suspect."""
        attempt = suspect.attempt
        if record.deaths_alone:
            await self.kinds.ended_worker(attempt.step)
        try:
            await suspect.pool.bury(suspect.msg, attempt, record.deaths_alone)
        except HocketError as error:  # it is redelivered, and given up then
            log.warning("step_not_buried", attempt_id=attempt.id, reason=str(error))

    async def _is_its_turn(self, suspect: Suspect) -> bool:
        """Wait briefly while other steps may start, and tell whether the step's turn has come then."""
        if not suspect.costs:
            return True
        doublings = self._doublings(suspect)
        left_s = self._isolation.left_s(OPEN_S * 2**doublings if doublings else 0.0)
        if left_s <= 0:
            return True
        await asyncio.sleep(min(SETTLE_S, left_s))
        return self._isolation.is_quiet and not doublings and suspect.waits

    def _doublings(self, suspect: Suspect) -> int:
        doublings = self.kinds.doublings(suspect.attempt.step)
        return min(doublings + suspect.put_off, MAX_DOUBLINGS)

    async def _take_back(self, attempt: Attempt, record: Record) -> None:
        """Record that the worker did not die under the step; remove the record of a step that ended."""
        left = NOTHING if attempt.state is State.CONCLUDED else record
        self._taking_back = self._loop.create_task(self._records.write(attempt.step, left))
        await asyncio.shield(self._taking_back)

    async def _run(self, suspect: Suspect, record: Record, *, alone: bool) -> None:
        attempt = suspect.attempt
        log.warning(
            "step_on_probation",
            run_id=attempt.step.run_id,
            step=attempt.step.step,
            deliveries=attempt.delivery.deliveries,
            deaths_alone=record.deaths_alone,
            alone=alone,
        )
        suspect.pool.begin(attempt)
        if alone:
            self._held.set(attempt.place, ALONE)

        def ended() -> bool:
            gone = attempt.task is None or attempt.task.done()
            return gone or attempt.state is State.CONCLUDED

        if not alone or not await self._isolation.until(ended, alone_s(record)):
            if alone:  # from here on another step may be what kills the worker
                self._held.set(attempt.place, RUNS)
                await self._records.write(attempt.step, record.after_death(alone=False))
            self._isolation.open()
            await self._isolation.until(ended, None)
