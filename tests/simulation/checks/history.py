"""What every partition applied and committed, and a replay of it through the pure core.

Each owner's messages are recorded in the order in which it handled them; a commit says up to which
message they count. Replayed from the beginning, without any shell, they must give the rows in Postgres.
Runs that Postgres refused are ended at the point where their owner learnt of it; their rows may be
bare.
"""

import asyncio
import re
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pydantic_core import from_json

from hocket.coordinator.core.run.beginning import accept, refuse, reject
from hocket.coordinator.core.run.commands import RecordAttempt
from hocket.coordinator.core.run.constructs.reuse import Reuse, reuse_of
from hocket.coordinator.core.run.ends.aborting import aborted, altered
from hocket.coordinator.core.run.event_checks import plausible
from hocket.coordinator.core.run.faults import EventNotApplicable, RunNotStorable, reason_of
from hocket.coordinator.core.run.machine import apply
from hocket.coordinator.core.run.plan.nodes import PipelinePlan
from hocket.coordinator.core.run.plan.step_deadlines import PlanForecast
from hocket.coordinator.core.run.state.bare_rows import bare_run_row, bare_step_row
from hocket.coordinator.core.run.state.columns import RUN_COLUMNS, STEP_COLUMNS, completed
from hocket.coordinator.core.run.state.restore import restored
from hocket.coordinator.core.run.state.rows import run_row, step_row
from hocket.coordinator.core.run.state.run import RUN_REJECTED, Run
from hocket.coordinator.core.run.state.run import Owner as RunOwner
from hocket.coordinator.core.run.transition import Outcome
from hocket.coordinator.core.time.pipeline_forecasts import PipelineForecasts
from hocket.coordinator.partition.events.event_handler import EventHandler
from hocket.coordinator.partition.events.log_reader import LogMessage
from hocket.coordinator.partition.events.pending_events import PendingEvent
from hocket.coordinator.storage.commit_batch import Batch
from hocket.coordinator.storage.committer import Committer
from hocket.coordinator.storage.pending_changes import Ended, Refused
from hocket.coordinator.storage.store import Offset
from hocket.kit.nats.consumers.delivery import parse_ack_subject
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import (
    AttemptFinished,
    CancelRequested,
    LogEvent,
    OutlookChanged,
    RunAccepted,
    RunOrigin,
    read_log,
)
from simulation.engine.database import Database
from simulation.engine.swaps import swapped
from simulation.platform import hostile
from simulation.platform.compiled import for_runs, plan_of
from simulation.platform.forgeries import FORGED_STEP
from simulation.platform.platform import CAPABILITIES

RUN_ID = re.compile(rb"\br[0-9a-f]{24}\b")


class Placed(str):
    """The id of a message that is being applied, with its position among those of its owner."""

    place = 0


@dataclass(frozen=True, slots=True)
class SetAside:
    """A run of which Postgres refused a row after its owner had applied `place` messages. `at_ms` is
    None if the run's end was already written and stays."""

    run_id: str
    place: int
    error: ErrorInfo
    at_ms: float | None


Applied = LogMessage | SetAside | None
"""None: from here on another owner continues."""


@dataclass
class Owner:
    """What one partition applied under one epoch, and how much of it is committed."""

    applied: list[LogMessage] = field(default_factory=list)
    aside: list[SetAside] = field(default_factory=list)
    """Those that are not in a commit yet."""
    place: int = 0
    handling: LogMessage | None = None
    committed: bool = False

    def take(self, place: int) -> Iterator[Applied]:
        """Yield what a commit up to a position adds."""
        for number in range(self.place, place + 1):
            while self.aside and self.aside[0].place <= number:
                yield self.aside.pop(0)
            if number < min(place, len(self.applied)):  # an offset may be ahead, by a planted bug
                yield self.applied[number]
        self.place = place


class History:
    """The applied logs of all partitions."""

    def __init__(self) -> None:
        self.committed: dict[int, list[Applied]] = {}
        self._owners: dict[tuple[int, int], Owner] = {}
        self._torn: set[str] = set()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what partitions handle, and which runs are refused."""
        handle, open_ = EventHandler.handle, Committer.open

        async def handled(handler: EventHandler, message: LogMessage) -> None:
            owner = self._owner(handler._tenure.partition, handler._tenure.epoch)
            msg_id = Placed(message.msg_id)
            msg_id.place = len(owner.applied) + 1
            owner.handling = message
            try:
                await handle(handler, message._replace(msg_id=msg_id))
            except asyncio.CancelledError:  # the log was rewound and may have lost this message
                self._torn |= {name.decode() for name in RUN_ID.findall(message.body)}
                raise
            owner.applied.append(message)
            owner.handling = None

        def opened(
            committer: Committer, partition: int, offset: Offset, *, refused: Refused, **more: Any
        ) -> Any:
            owner = self._owner(partition, offset.epoch)

            def refused_(run: Run, error: Exception, late: bool) -> Ended | None:
                ended = refused(run, error, late)
                self._refused(owner, run.run_id, error, ended)
                return ended

            return open_(committer, partition, offset, refused=refused_, **more)

        with swapped((EventHandler, "handle", handled), (Committer, "open", opened)):
            yield

    def written(self, batch: Batch) -> None:
        """Process a commit."""
        for partition, (epoch, _, msg_id) in batch.offsets.items():
            owner = self._owner(partition, epoch)
            news = list(owner.take(max(owner.place, getattr(msg_id, "place", 0))))
            if news:
                committed = self.committed.setdefault(partition, [])
                committed += news if owner.committed else [None, *news]
                owner.committed = True

    def torn(self) -> set[str]:
        """Return the runs that were set aside while one of their messages was being handled, or beyond
        the committed part of the log: it is unknown after which of their events that was."""
        return self._torn | {one.run_id for owner in self._owners.values() for one in owner.aside}

    def _owner(self, partition: int, epoch: int) -> Owner:
        return self._owners.setdefault((partition, epoch), Owner())

    def _refused(self, owner: Owner, run_id: str, error: Exception, ended: Ended | None) -> None:
        info = RunNotStorable(reason=reason_of(error)).info()
        at_ms = None if ended is None else ended.run.finished_at_ms
        owner.aside.append(SetAside(run_id, len(owner.applied), info, at_ms))
        if owner.handling is not None and run_id.encode() in owner.handling.body:
            self._torn.add(run_id)


class Replay:
    """The rules of a partition, applied to its committed log without the shell."""

    def __init__(self, number: int, database: Database) -> None:
        self.runs: dict[str, Run] = {}
        self.late: list[RecordAttempt] = []
        self._number = number
        self._owner = RunOwner(number, 0, CAPABILITIES)
        self._database = database
        self._forecasts = PipelineForecasts()
        self._rejected: dict[str, float | None] = {}
        """When the task of each rejected run was stored."""
        self.bare: set[str] = set()
        """Runs that were set aside because of their rows, which may lack values."""
        self.without_origin: set[str] = set()
        """Runs of which the rows do not say what they reused."""
        self._orphans: dict[str, list[PendingEvent]] = {}

    def another_owner(self) -> None:
        """Forget the events that were held for runs to come, because each owner holds its own."""
        self._orphans.clear()

    def apply(self, message: LogMessage) -> None:
        for event in read_log(message.kind, message.body):
            self._event(plausible(event, message.at_ms), message.at_ms)

    def refuse(self, aside: SetAside) -> None:
        """End a run of which Postgres refused a row."""
        run = self.runs.get(aside.run_id)
        if run is None or aside.at_ms is None:
            return
        self.bare.add(aside.run_id)
        if run.has_ended:
            self._keep(altered(run, aside.error))
        else:
            self._keep(aborted(run, aside.error, now_ms=aside.at_ms))

    def _event(self, event: LogEvent, at_ms: float) -> None:
        if isinstance(event, AttemptFinished) and event.step.startswith(FORGED_STEP):
            return
        try:
            self._apply(event, at_ms)
        except hostile.PlantedFault as error:
            self._set_aside(event, at_ms, error)

    def _set_aside(self, event: LogEvent, at_ms: float, error: Exception) -> None:
        """End the run of an event that cannot be applied."""
        assert not isinstance(event, OutlookChanged)
        info = EventNotApplicable(kind=event.kind, reason=reason_of(error)).info()
        run = self.runs.get(event.run_id)
        if run is not None and not run.has_ended:
            self._keep(aborted(run, info, now_ms=at_ms))
        elif run is None and isinstance(event, RunAccepted):
            self._keep(refuse(event, info, self._owner, now_ms=at_ms))

    def _apply(self, event: LogEvent, at_ms: float) -> None:
        if isinstance(event, OutlookChanged):
            self._forecasts.change(event)
        elif isinstance(event, RunAccepted):
            self._accept(event, at_ms)
        elif event.run_id in self.runs:
            run = self.runs[event.run_id]
            if not run.version:  # it never began, and has ended
                return
            hostile.look_at(event, run.input.value)
            self._carry_out(apply(run, event, at_ms, self._known(run)[1]))
        elif isinstance(event, AttemptFinished | CancelRequested):
            self._orphans.setdefault(event.run_id, []).append(event)

    def _accept(self, event: RunAccepted, at_ms: float) -> None:
        row = self._database.runs.get(event.run_id)
        known = self.runs.get(event.run_id)
        if row is None or (known is not None and not self._comes_again(known, event)):
            return  # already seen, or refused: the comparison notices a missing run
        if event.rejected is not None:
            self._rejected[event.run_id] = _task_of(event)
            self._keep(reject(event, self._owner, now_ms=at_ms))
            return
        hostile.look_at(event, event.input)
        event = event.model_copy(update={"version": row["version"]})
        plan, forecast = self._known(event)
        # a sub-run whose origin had not ended when it was accepted has no origin
        has_origin = bool(row["facts"]) and "origin" in from_json(row["facts"])
        refused = event.run_id in self._database.refused
        if event.origin is not None and (refused or self._has_begun_again(event.origin, at_ms)):
            self.without_origin.add(event.run_id)
        reuse = self._reuse(event, plan) if has_origin else None
        self._carry_out(
            accept(event, plan, self._owner, now_ms=at_ms, forecast=forecast, reuse=reuse)
        )
        for early in self._orphans.pop(event.run_id, ()):
            self._apply(early, at_ms)

    def _has_begun_again(self, asked: RunOrigin, at_ms: float) -> bool:
        """Return whether the run that is repeated ended after the repeat began: it was rejected before,
        and a new task with its key began it."""
        row = self._database.runs.get(asked.run_id)
        finished_at = None if row is None else row["finished_at"]
        return finished_at is not None and finished_at > at_ms

    def _comes_again(self, known: Run, event: RunAccepted) -> bool:
        """Return whether a new task arrived with the key of a rejected run."""
        before = self._rejected.get(event.run_id)
        return known.status == RUN_REJECTED and (before is None or before != _task_of(event))

    def _reuse(self, event: RunAccepted, plan: PipelinePlan) -> Reuse | None:
        """Return what a run reuses, from the rows of the run that it repeats: of an ended run,
        only what it has spent may still grow."""
        asked = event.origin
        row = None if asked is None else self._database.runs.get(asked.run_id)
        if asked is None or row is None or row["finished_at"] is None:
            return None
        plan_before = plan_of(self._database, row["tenant"], row["pipeline"], row["version"])
        stored = self._database.stored(asked.run_id)
        assert stored is not None, asked.run_id
        return reuse_of(restored(stored, for_runs(plan_before), self._owner), plan, asked)

    def _known(self, run: Run | RunAccepted) -> tuple[PipelinePlan, PlanForecast]:
        plan = for_runs(plan_of(self._database, run.tenant, run.pipeline, run.version))
        return plan, self._forecasts.of(run.tenant, run.pipeline, run.version, plan)

    def _carry_out(self, outcome: Outcome) -> None:
        self._keep(outcome)
        for command in outcome.commands:
            hostile.carry_out(command, outcome.run)

    def _keep(self, outcome: Outcome) -> None:
        for step in outcome.changed:
            step.is_changed = False
        self.runs[outcome.run.run_id] = outcome.run


def _task_of(event: RunAccepted) -> float | None:
    return None if event.task_ack is None else parse_ack_subject(event.task_ack).stored_at_ms


def differences(
    database: Database, history: History, number: int, forged: Container[bytes] = ()
) -> list[str]:
    """Return the differences between a partition's rows in Postgres and its committed log, ignoring
    forged messages. For torn runs, only their existence is compared."""
    replay = Replay(number, database)
    for one in history.committed.get(number, ()):
        if one is None:
            replay.another_owner()
        elif isinstance(one, SetAside):
            replay.refuse(one)
        elif one.body not in forged:
            replay.apply(one)
    found: list[str] = []
    torn = history.torn()
    stored = {run_id for run_id, row in database.runs.items() if row["partition"] == number}
    for run_id in sorted(stored | replay.runs.keys()):
        if run_id in torn and run_id not in replay.runs:
            continue
        if run_id not in replay.runs or run_id not in stored:
            where = "Postgres" if run_id in stored else "the log"
            found.append(f"run {run_id} is in {where} only")
        elif run_id in replay.without_origin:
            continue
        elif run_id in replay.bare and run_id not in torn:
            found += _bare_differences(database, replay.runs[run_id])
        elif run_id not in torn:
            found += _differences(database, replay.runs[run_id])
    return found


def _differences(database: Database, run: Run) -> list[str]:
    row = database.runs[run.run_id]
    parked_until_ms = None if run.has_ended else row["parked_until"]  # decided by its owner alone
    values = run_row(run, parked_until_ms=parked_until_ms)
    found = _unequal(f"run {run.run_id}", RUN_COLUMNS, values, row)
    steps = database.steps.get(run.run_id, {})
    for key in sorted(steps.keys() | set(run.steps)):
        name = f"step {run.run_id} {key}"
        if key not in steps or key not in run.steps:
            found.append(f"{name} is in {'Postgres' if key in steps else 'the log'} only")
        else:
            values = step_row(run.run_id, run.steps[key])
            found += _unequal(name, STEP_COLUMNS, values, steps[key])
    return found


def _bare_differences(database: Database, run: Run) -> list[str]:
    """Return the differences of a run that was set aside. Its rows may be bare, and its steps' rows may
    also be as they were written before; the barest form is the run's own row only."""
    row, steps = database.runs[run.run_id], database.steps.get(run.run_id, {})
    found = [
        _unequal(f"run {run.run_id}", RUN_COLUMNS, values, row)
        for values in (
            bare_run_row(run, first=first, barest=barest)
            for first, barest in ((True, False), (False, False), (False, True))
        )
    ]
    if not steps and Decimal(row["spent_usd"]) < run.spent_usd:
        # another owner knows no steps of this run, and what they spend late is in the ledger only
        found[2] = [one for one in found[2] if ".spent_usd:" not in one]
    is_barest = not found[2]
    unequal = min(found, key=len)
    for key in sorted(steps.keys() | set(run.steps)):
        name = f"step {run.run_id} {key}"
        if key not in run.steps or (key not in steps and not is_barest):
            unequal.append(f"{name} is in {'Postgres' if key in steps else 'the log'} only")
        elif key in steps and not is_barest:
            step = run.steps[key]
            whole, bare = step_row(run.run_id, step), bare_step_row(run.run_id, step)
            unequal += min(
                (
                    _unequal(name, STEP_COLUMNS, values, steps[key])
                    for values in (whole, bare, completed(bare, whole))
                ),
                key=len,
            )
    return unequal


def _unequal(name: str, columns: Any, values: tuple[Any, ...], row: dict[str, Any]) -> list[str]:
    found = []
    for (column, kind), value in zip(columns.items(), values, strict=True):
        kept = row[column]
        if not _is_same(kind, value, kept):
            found.append(f"{name}.{column}: the log gives {value!r}, Postgres has {kept!r}")
    return found


def _is_same(kind: str, value: Any, kept: Any) -> bool:
    if value == kept:
        return True
    if kind == "jsonb" and value is not None and kept is not None:
        return bool(from_json(value) == from_json(kept))  # `jsonb` reorders keys
    return False
