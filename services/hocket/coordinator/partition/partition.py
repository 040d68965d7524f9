"""One partition's loop: an event of its log in, `decide`, the commands out, the change to the committer.

Commands are published at once, without waiting for the database; what must come after the commit
(ends, replies, acks of TASKS, steps with effects outside) is handed to the committer. States: owning
(its runs in flight are loaded and handed out again), reading, leaving (nothing is read any more, what
was decided is written and told), over: another coordinator owns it, or nobody. Each tenure is an
object of its own; nothing of one is left in the next.

A run that an event cannot be applied to, whose rows Postgres refuses, or that cannot be read back, ends
with that error; the event is kept as a dead letter, and the partition goes on
(docs/explanation/isolation.md).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import structlog
from immutables import Map
from pydantic_core import to_json

from hocket.coordinator.core.rows.records import restore
from hocket.coordinator.core.run.aborting import (
    EventNotApplicable,
    RunNotRestorable,
    RunNotStorable,
    aborted,
    altered,
    reason_of,
    unsendable,
)
from hocket.coordinator.core.run.attempts import may_tell
from hocket.coordinator.core.run.commands import (
    Announce,
    CancelAttempt,
    CancelSubRun,
    Command,
    Dispatch,
    EndRun,
    FillCache,
    ForetellPrompt,
    LookUpCache,
    RecordAttempt,
    ReleaseCache,
    StartSubRun,
    Wake,
)
from hocket.coordinator.core.run.decide import Decision, accept, decide, refuse, reject, resume
from hocket.coordinator.core.run.ending import finished_of
from hocket.coordinator.core.run.event_checks import doubt, plausible
from hocket.coordinator.core.run.feasibility import was_given_up
from hocket.coordinator.core.run.notification_watermark import NOTHING, NotificationWatermark
from hocket.coordinator.core.run.state import ParentRelation, Role, Run, RunStatus, Step, StepState
from hocket.coordinator.core.structures.frozen import replace
from hocket.coordinator.core.time.deadlines import HOP, UNIT, DurationForecast
from hocket.coordinator.core.time.forecasts import Outlooks
from hocket.coordinator.core.time.hop_times import hop_ms
from hocket.coordinator.dispatch.demand_publisher import Foretelling
from hocket.coordinator.dispatch.dispatcher import Dispatcher
from hocket.coordinator.dispatch.workload import Load
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.partition.log_posts import LogPosts
from hocket.coordinator.partition.log_reader import LogMessage, LogReader, stored_at_ms
from hocket.coordinator.partition.pending_events import Orphans
from hocket.coordinator.partition.run_cache import Held, Runs
from hocket.coordinator.partition.run_notifier import Ends, result_for
from hocket.coordinator.partition.timers import Timers
from hocket.coordinator.storage.committer import Committer
from hocket.coordinator.storage.duration_stats import Durations
from hocket.coordinator.storage.pending_changes import Ended
from hocket.coordinator.storage.pipeline_catalog import Catalog, Entry
from hocket.coordinator.storage.source_runs import Origins
from hocket.coordinator.storage.step_cache import StepCache
from hocket.coordinator.storage.store import Store
from hocket.coordinator.storage.tenure import Tenure
from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus, BusUnavailable
from hocket.kit.nats.cloudevents import IDEMPOTENCY_KEY
from hocket.kit.postgres.errors import AWAY, fails_alone
from hocket.kit.process.clock import monotonic_ms, now_ms
from hocket.kit.process.log_limits import Reporting
from hocket.schemas import ids, subjects
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError, PayloadTooLarge
from hocket.schemas.messages import (
    AttemptFinished,
    CancelRequested,
    LogEvent,
    OutlookChanged,
    RunAccepted,
    RunEvent,
    RunFinished,
    StepRequested,
    TimerFired,
    encoded,
    read_log,
)
from hocket.schemas.pipeline.plan import check_input

WAKE_EVERY_S = 5.0
"""How often Postgres is asked for parked runs whose time comes."""
MAX_WOKEN = 5_000
MAX_REJECTED = 5_000
"""Tasks whose rejection is remembered, to know them when they are delivered again."""
FORGOTTEN_MS = 15_000.0
"""A look-up of intake that is not later than this after a run was begun or ended may have missed it."""
PAUSE_S = 0.2
MAX_CUT_BYTES = 64 * 1024
"""What is kept of an event that is too large for a dead letter."""
MAX_REASON_CHARS = 1_000
MAX_UNREADABLE = 20
"""Unreadable messages that become dead letters in REPORT_S: more would drive out what others need."""

log = structlog.get_logger(__name__)


class Partition:
    """See the module."""

    def __init__(
        self,
        number: int,
        *,
        partitions: int,
        bus: Bus,
        store: Store,
        catalog: Catalog,
        durations: Durations,
        committer: Committer,
        step_cache: StepCache,
        dispatcher: Dispatcher,
        load: Load,
        metrics: CoordinatorMetrics,
        capabilities: Capabilities | None = None,
        asks_for_seals: bool = True,
    ) -> None:
        self.number = number
        self._posting = LogPosts(bus, capabilities, asks=asks_for_seals)
        self._capabilities = capabilities
        self._partitions = partitions
        self._bus = bus
        self._store = store
        self._catalog = catalog
        self._durations = durations
        self._origins = Origins(store, catalog)
        self._foretelling = Foretelling(bus)
        self._committer = committer
        self._step_cache = step_cache
        self._dispatcher = dispatcher
        self._present_load = load
        self._metrics = metrics
        self._epoch = 0
        self._ends = self._telling(NOTHING)
        self._outlooks = Outlooks()
        self._in_use: set[tuple[str, str]] = set()
        self._runs = Runs()
        self._waking: set[str] = set()
        """Parked runs whose time comes soon."""
        self._rejected: OrderedDict[str, float] = OrderedDict()
        """When the tasks of rejected runs were stored: a key may come again with a new task."""
        self._orphans = Orphans()
        self._reporting = Reporting()
        self._unreadable = Reporting(at_once=MAX_UNREADABLE)
        self._timers = Timers(self._fire, is_wanted=self._is_awaited)
        self._redispatching: asyncio.Task[None] | None = None
        self._reader: LogReader | None = None
        self._tenure: Tenure | None = None

    def _telling(self, told: NotificationWatermark) -> Ends:
        return Ends(
            self.number,
            bus=self._bus,
            store=self._store,
            told=told,
            keep=self._keep_told,
            capabilities=self._capabilities,
        )

    @property
    def in_flight(self) -> int:
        """Runs in memory."""
        return len(self._runs.in_flight)

    @property
    def in_flight_bytes(self) -> int:
        """How much they count."""
        return self._runs.in_flight_bytes

    @property
    def held_by_tenant(self) -> Mapping[str, Held]:
        """What the runs in memory count, by tenant."""
        return self._runs.by_tenant

    async def own(
        self, owner: str, *, cause: str = "start", lost: Callable[[], None] = lambda: None
    ) -> None:
        """Take the partition over: fence its former owner, load what is in flight, go on with it. `lost`
        is called when another coordinator has done the same to us."""
        begun_ms = monotonic_ms()
        offset = await self._store.own(self.number, owner)
        fenced_ms = monotonic_ms()
        self._epoch = offset.epoch
        self._tenure = self._committer.open(self.number, offset, lost=lost, refused=self._refused)
        self._ends = self._telling(offset.told)
        self._reader = LogReader(
            self._bus,
            self.number,
            handle=self.handle,
            rewound=self._rewound,
            applied_seq=offset.applied_seq,
            applied_msg_id=offset.applied_msg_id,
        )
        kept, in_flight, ended = await asyncio.gather(
            self._store.outlook(self.number),
            self._store.in_flight(self.number),
            self._store.ended_since(self.number, offset.told.told_ms),
        )
        self._outlooks = Outlooks(kept)
        self._dispatcher.took(self.number)
        for run, steps in in_flight:
            await self._load(run, steps)
        for run in ended:
            self._runs.remember(run)
            self._tell_again(run)
        took_ms = monotonic_ms() - begun_ms
        self._metrics.taken(cause, took_ms)
        log.info(
            "partition_owned",
            partition=self.number,
            cause=cause,
            epoch=self._epoch,
            applied_seq=offset.applied_seq,
            runs=self.in_flight,
            fence_ms=round(fenced_ms - begun_ms, 1),
            latency_ms=round(took_ms, 1),
        )

    async def read(self) -> None:
        """Apply the log for ever; cancel to stop."""
        assert self._reader is not None, "own the partition first"
        try:
            await self._reader.run()
        finally:
            self._timers.clear()

    async def leave(self) -> None:
        """Write what was decided and wait until it is told, so that the next owner finds all in
        Postgres. The log is not read any more when this is called."""
        assert self._tenure is not None, "own the partition first"
        await self._tenure.flush()
        await self._ends.all_told()
        self.keep_told()
        await self._tenure.flush()

    def end(self) -> None:
        """Drop everything: what is not written is decided again by the next owner."""
        if self._tenure is not None:
            self._tenure.end()
            self._dispatcher.lost(self.number)
        self._ends.stop()
        if self._redispatching is not None:
            self._redispatching.cancel()
        self._timers.clear()
        self._runs = Runs()

    def redispatch(self) -> None:
        """Hand every attempt in flight out again: the server came back and may have lost steps.
        Streams drop what they still have; a step that was lost runs."""
        without_plan: list[str] = []
        for run in list(self._runs.in_flight.values()):
            entry = self._catalog.ready(run.tenant, run.pipeline, run.version)
            if entry is None:
                without_plan.append(run.run_id)
            else:
                self._resume(run, entry)
        if without_plan:  # more versions are in flight than plans are kept
            self._redispatching = asyncio.create_task(self._redispatch(without_plan))

    async def _redispatch(self, run_ids: list[str]) -> None:
        for run_id in run_ids:
            while (run := self._runs.in_flight.get(run_id)) is not None:
                try:
                    entry = await self._catalog.entry(run.tenant, run.pipeline, run.version)
                except Exception as error:
                    log.warning("plan_not_read", run_id=run_id, reason=reason_of(error))
                    if await fails_alone(error, self._ask_postgres):
                        self._not_restored(run, list(run.steps.values()), error)
                        break
                    await asyncio.sleep(PAUSE_S)
                    continue
                if self._runs.in_flight.get(run_id) is run:
                    self._resume(run, entry)
                    break

    def retell(self) -> None:
        """Tell the ends of the last seconds again: the server came back and may have lost them."""
        self._ends.retell()

    def keep_told(self) -> None:
        """Keep up to when the ends of runs are known to be told, where that is news."""
        assert self._reader is not None, "own the partition first"
        told = self._ends.news(self._reader.applied_ms)
        if told is not None:
            self._decisions.keep_watermark(told)

    async def _keep_told(self, told: NotificationWatermark) -> None:
        self._decisions.keep_watermark(told)
        await self._decisions.flush()

    def tell_durations(self) -> None:
        """Post what was measured of the pipelines in use since the last time, where it is news."""
        in_use, self._in_use = self._in_use, set()
        for tenant, pipeline in sorted(in_use):
            measured = self._durations.of(tenant, pipeline)
            event = self._outlooks.news(tenant, pipeline, measured)
            if event is not None:
                self._posting.post(self.number, event.kind, encoded(event))

    async def handle(self, message: LogMessage) -> None:
        """Apply one message of the log."""
        tenure = self._decisions
        await self._committer.wait_for_capacity()
        await self._bus.room()
        tenure.begin_event()
        try:
            events = await self._events_of(message)
            for event in self._believed(events, message):
                self._metrics.applied(message.kind)
                await self._apply_surely(event, message)
            self._dispatcher.release()
        finally:
            tenure.end_event()
        tenure.applied(message.seq, message.msg_id, len(message.body))
        for event in events:
            if not isinstance(event, OutlookChanged):
                self._runs.grew(event.run_id, len(message.body) // len(events))

    @property
    def _decisions(self) -> Tenure:
        assert self._tenure is not None, "own the partition first"
        return self._tenure

    # ---- events -----------------------------------------------------------------------------

    def _believed(self, events: tuple[LogEvent, ...], message: LogMessage) -> Iterator[LogEvent]:
        """Give the events that can be what they say, from who may say it; the others change nothing."""
        sealed = self._posting.is_sealed(message)
        for event in events:
            reason = doubt(
                event,
                partition=self.number,
                partitions=self._partitions,
                now_ms=message.at_ms,
            )
            if reason is None and not sealed:
                reason = "it has no seal of this platform"
            if reason is None:
                yield plausible(event, message.at_ms)
            elif count := self._reporting.due(reason):
                log.warning(
                    "log_event_not_believed",
                    partition=self.number,
                    seq=message.seq,
                    kind=message.kind,
                    reason=reason,
                    count=count,
                )

    async def _events_of(self, message: LogMessage) -> tuple[LogEvent, ...]:
        try:
            return read_log(message.kind, message.body)
        except ValueError as error:
            if not (count := self._unreadable.due("")):
                return ()  # of many that come side by side some are kept to look at
            subject = subjects.log(self.number, message.kind)
            reason = str(error)[:MAX_REASON_CHARS]
            log.error(
                "log_event_unreadable",
                subject=subject,
                seq=message.seq,
                reason=reason,
                count=count,
            )
            info = ErrorInfo(
                code="log_event_unreadable",
                message=reason,
                error_class=ErrorClass.INVALID,
            )
            await self._bury(message, info)
            return ()

    async def _apply_surely(self, event: LogEvent, message: LogMessage) -> None:
        """Apply an event; wait while Postgres is away; set one aside that our rules cannot take."""
        while True:
            try:
                await self._apply(event, message.at_ms)
                return
            except (*AWAY, BusUnavailable) as error:
                if isinstance(error, BusUnavailable):
                    raise  # the process ends
                log.warning("log_waits", partition=self.number, seq=message.seq, reason=str(error))
                await asyncio.sleep(PAUSE_S)
            except Exception as error:
                log.exception("log_event_failed", partition=self.number, seq=message.seq)
                if await fails_alone(error, self._ask_postgres):
                    await self._set_aside(event, message, error)
                    return
                await asyncio.sleep(PAUSE_S)

    async def _ask_postgres(self) -> None:
        await self._store.known(["-"])

    async def _set_aside(self, event: LogEvent, message: LogMessage, error: Exception) -> None:
        """Keep an event that cannot be applied as a dead letter, and end its run; others go on."""
        info = EventNotApplicable(kind=event.kind, reason=reason_of(error)).info()
        await self._bury(message, info)
        self._metrics.set_aside("event")
        if isinstance(event, OutlookChanged):
            return
        run = self._runs.get(event.run_id)
        if run is not None and not run.ended:
            self._give_up(run, info, message.at_ms)
        if isinstance(event, RunAccepted):
            if run is None:
                decision = refuse(event, info, partition=self.number, now_ms=message.at_ms)
                self._carry_out(None, decision, surely=True)
            self._ack_after_commit(event)

    def _give_up(self, run: Run, error: ErrorInfo, now_ms: float, *, closes: bool = False) -> None:
        """End a run that cannot go on. `closes`: Postgres may have steps of it that are not here."""
        entry = self._catalog.ready(run.tenant, run.pipeline, run.version)
        plan = None if entry is None else entry.plan
        decision = aborted(run, error, now_ms=now_ms, plan=plan, epoch=self._epoch)
        self._carry_out(run, decision, surely=True, closes=closes)

    def _refused(self, run: Run, error: Exception, late: bool) -> Ended | None:
        """End a run whose rows Postgres refuses, as far as it came meanwhile."""
        info = RunNotStorable(reason=reason_of(error)).info()
        self._metrics.set_aside("run")
        self._bury_run(run, info)
        if late:
            return None
        run = self._runs.get(run.run_id) or run
        if run.ended:
            decision = altered(run, info)
        else:
            entry = self._catalog.ready(run.tenant, run.pipeline, run.version)
            plan = None if entry is None else entry.plan
            decision = aborted(run, info, now_ms=now_ms(), plan=plan, epoch=self._epoch)
        ended, finished = decision.run, finished_of(decision.run)
        if not run.ended:
            self._ends.decided(ended.run_id, finished.finished_at_ms)
        self._present_load.ended(ended.run_id)
        self._runs.put(ended)
        self._runs.remember(ended)
        for command in decision.commands:
            if not isinstance(command, EndRun | RecordAttempt):
                self._execute_surely(command)
        return Ended(ended, decision.changed, partial(self._ended_committed, ended, finished))

    def _bury_run(self, run: Run, info: ErrorInfo) -> None:
        """Keep what is known of a run that was set aside."""
        try:
            dead_letters.post_run(
                self._bus,
                run_id=run.run_id,
                tenant=run.tenant,
                pipeline=run.pipeline,
                error=info,
                capabilities=self._capabilities,
            )
        except Exception:
            log.exception("dead_letter_not_kept", run_id=run.run_id)

    async def _bury(self, message: LogMessage, info: ErrorInfo) -> None:
        """Keep an event as a dead letter; of one that does not fit beside its error the beginning."""
        subject = subjects.log(self.number, message.kind)
        for payload in (message.body, message.body[:MAX_CUT_BYTES]):
            try:
                await dead_letters.bury(
                    self._bus, "log", subject=subject, payload=payload, headers=None, error=info
                )
                return
            except BusUnavailable:
                raise
            except Exception:
                log.exception("dead_letter_not_kept", partition=self.number, seq=message.seq)

    async def _apply(self, event: LogEvent, at_ms: float) -> None:
        if isinstance(event, RunAccepted):
            await self._accept(event, at_ms)
            return
        if isinstance(event, OutlookChanged):
            self._decisions.expects(self._outlooks.change(event))
            return
        run = self._runs.get(event.run_id) or await self._read(event.run_id)
        if isinstance(event, AttemptFinished) and (
            run is None or may_tell(run, event, self._capabilities)
        ):
            self._dispatcher.finished(event)
        if run is None:
            if isinstance(event, AttemptFinished | CancelRequested):
                self._orphans.hold(event)
            return
        entry = await self._catalog.entry(run.tenant, run.pipeline, run.version)
        run = self._runs.get(run.run_id) or run  # it may have been set aside meanwhile
        decision = decide(
            run,
            event,
            now_ms=at_ms,
            plan=entry.plan,
            outlook=self._outlook(run, entry),
            epoch=self._epoch,
            capabilities=self._capabilities,
        )
        self._carry_out(run, decision)
        self._measure(decision, event)
        if entry.plan.pipeline.on_infeasible == "degrade" and isinstance(event, AttemptFinished):
            self._measure_hop(decision.run, event)

    async def _accept(self, event: RunAccepted, at_ms: float) -> None:
        known = self._runs.get(event.run_id)
        if known is None and self._may_be_old(event):
            known = (await self._store.known([event.run_id])).get(event.run_id)
        if known is not None and known.status is RunStatus.REJECTED and self._is_new(event):
            known = None
            self._runs.forget(event.run_id)
        if known is not None:
            if known.ended:  # its end may be waiting for its commit still
                asked = known if event.parent is None else replace(known, parent=event.parent)
                self._decisions.after_commit(partial(self._ends.answer_again, asked))
            self._ack_after_commit(event)
            return
        if event.rejected is not None:
            self._reject(event, at_ms)
            return
        try:
            entry = await self._entry_for(event)
        except HocketError as error:
            await self._refuse(event, error, at_ms)
            return
        reuse = await self._origins.reuse(event.tenant, event.origin, entry.plan)
        outlook = self._outlook(event, entry)
        decision = accept(
            event.model_copy(update={"version": entry.version}),
            partition=self.number,
            now_ms=at_ms,
            plan=entry.plan,
            outlook=outlook,
            epoch=self._epoch,
            reuse=reuse,
            capabilities=self._capabilities,
        )
        self._runs.put(decision.run)
        self._present_load.begun(decision.run, entry.plan, outlook)
        self._foretelling.accepted(decision.run, entry, outlook)
        self._carry_out(None, decision)
        self._ack_after_commit(event)
        for early in self._orphans.take(event.run_id):
            await self._apply(early, at_ms)

    def _reject(self, event: RunAccepted, at_ms: float) -> None:
        """End a run that was rejected: recorded, told and acknowledged like any other end."""
        if event.task_ack is not None:
            self._rejected[event.run_id] = stored_at_ms(event.task_ack)
            if len(self._rejected) > MAX_REJECTED:
                self._rejected.popitem(last=False)
        decision = reject(event, partition=self.number, now_ms=at_ms)
        self._runs.remember(decision.run)
        self._carry_out(None, decision)
        self._ack_after_commit(event)

    def _is_new(self, event: RunAccepted) -> bool:
        """Tell whether a task whose run was rejected is not that very task, delivered again."""
        before = self._rejected.get(event.run_id)
        return before is None or event.task_ack is None or before != stored_at_ms(event.task_ack)

    def _may_be_old(self, event: RunAccepted) -> bool:
        """Tell whether a run that is not in memory may stand in Postgres: its task was stored before we
        began to read the log, which a restored server may deliver as if it were new; or intake looked
        it up before what is not in memory any more was surely written. Other tasks are new; sub-runs
        come without a task."""
        assert self._reader is not None, "own the partition first"
        if event.task_ack is None:
            return True
        checked_at_ms = event.checked_at_ms
        if checked_at_ms is not None and checked_at_ms < self._runs.forgotten_ms + FORGOTTEN_MS:
            return True
        return stored_at_ms(event.task_ack) <= self._reader.attached_at_ms

    def _ack_after_commit(self, event: RunAccepted) -> None:
        """Acknowledge the task with the commit that holds its run; only once the run is decided, for
        an earlier commit must not take the task away."""
        if event.task_ack is not None:
            self._decisions.after_commit(partial(self._bus.ack, event.task_ack))

    async def _entry_for(self, event: RunAccepted) -> Entry:
        entry = await self._catalog.entry(event.tenant, event.pipeline, event.version)
        if event.parent is not None:
            check_input(entry.plan, event.input)
        return entry

    async def _refuse(self, event: RunAccepted, error: HocketError, at_ms: float) -> None:
        """Answer for a run that cannot be: its pipeline went away, or a sub-run's input is wrong. A
        task is kept as a dead letter, to be redriven when its pipeline is back, and rejected."""
        log.error("run_refused", run_id=event.run_id, code=error.code, reason=str(error))
        if event.parent is not None:
            self._ends.tell_parent(event.parent, result_for(event.parent, error=error.info()))
            return
        key = event.idempotency_key
        await dead_letters.bury(
            self._bus,
            "task",
            subject=subjects.task(event.tenant, event.pipeline),
            payload=to_json(event.input),
            headers=None if key is None else {IDEMPOTENCY_KEY: key},
            error=error.info(),
        )
        self._reject(event.model_copy(update={"rejected": error.info()}), at_ms)

    # ---- decisions --------------------------------------------------------------------------

    def _carry_out(
        self, before: Run | None, decision: Decision, *, surely: bool = False, closes: bool = False
    ) -> None:
        """Keep a decision and do what it asks for; `surely`: where something of that fails, the rest is
        done all the same. `closes`: see `_give_up`."""
        run = decision.run
        if run.ended:
            self._present_load.ended(run.run_id)
            if was_given_up(run):
                self._durations.gave_up(run.tenant, run.pipeline)
        self._runs.put(run)
        attempts = [c for c in decision.commands if isinstance(c, RecordAttempt)]
        after = [c for c in decision.commands if _has_effects(c)]
        # first of all it is kept: what fails below finds the run as it is now
        if decision.changed or decision.run_changed or attempts:
            marked = run.run_id in self._runs.marked
            self._runs.marked.discard(run.run_id)
            self._decisions.add(
                run,
                changed=decision.changed,
                run_changed=decision.run_changed or marked,
                first=before is None,
                attempts=attempts,
                urgent=bool(after),
                closes=closes,
                size_bytes=run.size_bytes - (0 if before is None else before.size_bytes),
            )
        execute = self._execute_surely if surely else self._execute
        for command in decision.commands:
            if isinstance(command, EndRun):
                self._ends.decided(run.run_id, command.finished.finished_at_ms)
                ended = partial(self._ended_committed, run, command.finished)
                self._decisions.after_commit(ended, run_id=run.run_id, urgent=True)
            elif _has_effects(command):
                action = partial(self._execute_committed, command)
                self._decisions.after_commit(action, run_id=run.run_id, urgent=True)
            elif not isinstance(command, RecordAttempt):
                execute(command)

    def _execute_surely(self, command: Command) -> None:
        try:
            self._execute(command)
        except Exception:  # the run has ended; who is not told finds out by its time limit
            log.exception("command_failed", command=type(command).__name__)

    def _execute_committed(self, command: Command) -> None:
        """Carry out what waited for its commit, unless the run has gone on without it by now."""
        if isinstance(command, Dispatch) and not self._wants(command.request):
            return
        self._execute(command)

    def _wants(self, request: StepRequested) -> bool:
        run = self._runs.in_flight.get(request.run_id)
        step = None if run is None else run.steps.get(request.step)
        wanted = (StepState.DISPATCHED, request.attempt)
        return step is not None and (step.state, step.attempt) == wanted

    def _execute(self, command: Command) -> None:
        if self._decisions.over:
            return  # an event was half applied when the partition was lost; its new owner decides
        if isinstance(command, Dispatch):
            self._dispatcher.dispatch(command)
        elif isinstance(command, Wake):
            self._timers.arm(command.run_id, command.at_ms)
        elif isinstance(command, CancelAttempt):
            self._dispatcher.cancel(command)
        elif isinstance(command, Announce):
            self._announce(command)
        elif isinstance(command, ForetellPrompt):
            self._foretelling.prompt(command.expected)
        elif isinstance(command, LookUpCache):
            self._step_cache.look_up(command)
        elif isinstance(command, FillCache):
            self._step_cache.fill(command)
        elif isinstance(command, ReleaseCache):
            self._step_cache.release(command)
        elif isinstance(command, StartSubRun):
            self._start_sub_run(command.accepted)
        elif isinstance(command, CancelSubRun):
            cancel = CancelRequested(run_id=command.run_id, reason=command.reason, by="parent run")
            self._post_log(cancel)
        else:
            raise AssertionError(f"no rule for {type(command).__name__}")

    def _ended_committed(self, run: Run, finished: RunFinished) -> None:
        duration_ms = finished.finished_at_ms - finished.accepted_at_ms
        self._metrics.ended(finished.status, run.priority, duration_ms)
        self._ends.committed(run, finished)

    def _announce(self, command: Announce) -> None:
        """Tell a caller of its run's progress; what cannot be said of it is left out."""
        try:
            self._bus.tell(command.reply_to, encoded(command.change))
        except (HocketError, ValueError) as error:
            log.warning("progress_not_told", run_id=command.change.run_id, reason=reason_of(error))

    def _start_sub_run(self, accepted: RunAccepted) -> None:
        parent = accepted.parent
        assert parent is not None, accepted.run_id
        try:
            self._post_log(accepted, ids.accepted_id(accepted.run_id, parent.dispatched_at_ms))
        except (PayloadTooLarge, ValueError) as error:
            self._ends.tell_parent(parent, result_for(parent, error=unsendable(error)))

    def _post_log(self, event: RunEvent, msg_id: str | None = None) -> None:
        partition = ids.partition_of(event.run_id, self._partitions)
        self._posting.post(partition, event.kind, encoded(event), msg_id=msg_id)

    def _fire(self, run_id: str, due_at_ms: float) -> None:
        self._waking.discard(run_id)
        event = TimerFired(run_id=run_id, due_at_ms=due_at_ms)
        self._post_log(event, f"{run_id}:timer:{due_at_ms}:{self._epoch}")

    def _outlook(self, run: Run | RunAccepted, entry: Entry) -> DurationForecast:
        self._in_use.add((run.tenant, run.pipeline))
        return self._outlooks.of(run.tenant, run.pipeline, entry.version, entry.plan)

    def _measure(self, decision: Decision, event: RunEvent) -> None:
        run = decision.run
        for key in decision.changed:
            step = run.steps[key]
            if step.state is not StepState.SUCCEEDED or step.source is not None or step.home:
                continue
            if run.origin is not None and step.role not in (Role.LEAF, Role.SUBRUN):
                continue  # what is inside it was taken over, at least in part
            path = step.path
            if step.link in (ParentRelation.ITEM, ParentRelation.ROUND):
                if step.role is not Role.LEAF:
                    continue
                path += UNIT
            duration_ms = _duration_ms(step, event)
            self._durations.measured(run.tenant, run.pipeline, path, duration_ms)

    def _measure_hop(self, run: Run, event: AttemptFinished) -> None:
        step = run.steps.get(event.step)
        if step is not None and step.state is StepState.SUCCEEDED and step.attempt == event.attempt:
            hop = hop_ms(run, step, event)
            if hop is not None:
                self._durations.measured(run.tenant, run.pipeline, HOP, hop)

    # ---- parking ----------------------------------------------------------------------------

    def park(self) -> None:
        """Let runs that rest leave the memory; call it now and then."""
        for run, until_ms in self._runs.resting(now_ms()):
            self._runs.marked.add(run.run_id)
            self._decisions.add(
                run,
                changed=(),
                run_changed=True,
                first=False,
                attempts=[],
                urgent=False,
                parked_until_ms=until_ms,
            )
            self._decisions.after_commit(partial(self._parked, run), run_id=run.run_id)

    def _parked(self, run: Run) -> None:
        if self._runs.park(run):
            self._present_load.ended(run.run_id)
            self._metrics.parked()

    async def wake_parked(self) -> None:
        """Ask for the timers of parked runs whose time comes soon; call it every WAKE_EVERY_S."""
        until_ms = now_ms() + 2_000 * WAKE_EVERY_S
        for run_id, at_ms in await self._store.parked(self.number, until_ms, MAX_WOKEN):
            if run_id not in self._waking and not self._decisions.over:
                self._waking.add(run_id)
                self._timers.arm(run_id, at_ms)

    def _is_awaited(self, run_id: str) -> bool:
        return run_id in self._runs.in_flight or run_id in self._waking

    async def _read(self, run_id: str) -> Run | None:
        """Return a run that is not in memory: it is parked, and comes back, or it ended before."""
        stored = await self._store.stored(run_id)
        if stored is None:
            return None
        found, steps = stored
        if found.ended:
            kept = {} if isinstance(steps, Exception) else {step.key: step for step in steps}
            ended = replace(found, steps=Map(kept))
            self._runs.remember(ended)
            return ended
        self._runs.marked.add(run_id)
        await self._load(found, steps)
        self._metrics.woken()
        return self._runs.get(run_id)

    # ---- taking over ------------------------------------------------------------------------

    async def _load(self, run: Run, steps: list[Step] | Exception) -> None:
        """Go on with a run that Postgres has; one that cannot be read back ends with an error."""
        try:
            if isinstance(steps, Exception):
                raise steps
            await self._go_on(run, steps)
        except (*AWAY, BusUnavailable):
            raise
        except Exception as error:
            if not await fails_alone(error, self._ask_postgres):
                raise
            log.exception("run_not_restored", run_id=run.run_id)
            self._not_restored(run, steps if isinstance(steps, list) else [], error)

    async def _go_on(self, run: Run, steps: list[Step]) -> None:
        entry = await self._catalog.entry(run.tenant, run.pipeline, run.version)
        restored = restore(run, steps, entry.plan)
        reuse = await self._origins.reuse(run.tenant, run.origin, entry.plan)
        self._resume(replace(restored, reuse=reuse), entry)

    def _not_restored(self, run: Run, steps: list[Step], error: Exception) -> None:
        info = RunNotRestorable(run_id=run.run_id, reason=reason_of(error)).info()
        self._metrics.set_aside("run")
        self._bury_run(run, info)
        known = replace(run, steps=Map({step.key: step for step in steps}))
        self._give_up(known, info, now_ms(), closes=True)

    def _tell_again(self, run: Run) -> None:
        try:
            self._ends.tell(run, finished_of(run))
        except BusUnavailable:
            raise
        except Exception:
            log.exception("end_not_told", run_id=run.run_id)

    async def _rewound(self) -> None:
        """The log lost its tail: hand out again what is in flight."""
        self._metrics.taken("rewind", 0.0)
        self.redispatch()

    def _resume(self, run: Run, entry: Entry) -> None:
        """Hand out again what is in flight of a run; one whose rules cannot say what that is ends."""
        try:
            outlook = self._outlook(run, entry)
            self._present_load.resumed(run, entry.plan, outlook)
            decision = resume(
                run,
                now_ms=now_ms(),
                plan=entry.plan,
                outlook=outlook,
                epoch=self._epoch,
                capabilities=self._capabilities,
            )
        except Exception as error:
            log.exception("run_not_resumed", run_id=run.run_id)
            self._not_restored(run, list(run.steps.values()), error)
            return
        self._runs.put(decision.run)
        for command in decision.commands:
            if _has_effects(command):  # what was decided last may not be committed yet
                action = partial(self._execute_committed, command)
                self._decisions.after_commit(action, run_id=run.run_id, urgent=True)
            else:
                self._execute_surely(command)


def _duration_ms(step: Step, event: RunEvent) -> float:
    """Return how long a step took, without the time that its last attempt waited for a worker: that
    is the load's and not the node's."""
    assert step.finished_at_ms is not None
    ran = (
        step.role is Role.LEAF
        and isinstance(event, AttemptFinished)
        and event.step == step.key
        and event.started_at_ms > 0
    )
    if not ran:
        return step.finished_at_ms - step.ready_at_ms
    assert isinstance(event, AttemptFinished)
    assert step.dispatched_at_ms is not None
    before_ms = step.dispatched_at_ms - step.ready_at_ms
    return before_ms + max(0.0, event.finished_at_ms - event.started_at_ms)


def _has_effects(command: Command) -> bool:
    return isinstance(command, Dispatch) and command.request.effects_external
