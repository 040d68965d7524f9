"""Bugs that were planted: each is one mistake that this code could make, as a patch of the real thing.

A bug is known by its name; `BUGS` tells what it is. Played with enough seeds, each must be caught
(`detection.py` tells by which check, and after how many seeds).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from hocket.coordinator.core.graph import containers, scopes
from hocket.coordinator.core.reuse import repeats
from hocket.coordinator.core.run import attempts, decide, transition
from hocket.coordinator.core.run.commands import CancelAttempt, CancelSubRun, EndRun
from hocket.coordinator.core.run.state import RunStatus, Step, StepState
from hocket.coordinator.dispatch import dispatcher
from hocket.coordinator.intake import intake
from hocket.coordinator.partition import decision_recorder, partition_set
from hocket.coordinator.partition.events import event_handler, event_reader, log_posts, log_reader
from hocket.coordinator.partition.runs import failed_runs, run_acceptance, run_loader, run_notifier
from hocket.coordinator.storage import committer, pending_changes
from hocket.coordinator.storage.batch import groups_of
from hocket.coordinator.storage.pending_changes import Kept
from hocket.coordinator.storage.tenure import Tenure
from hocket.kit.nats import ordered_consumer
from hocket.kit.nats.connection import durable_publisher
from hocket.kit.nats.kv import seals
from hocket.schemas import ids, messages, subjects
from hocket.schemas.messages import AttemptFinished
from hocket.workers.runtime.execution import runner, worker
from hocket.workers.runtime.results import reporter
from hocket.workers.runtime.transport import acks
from simulation.engine.database import Database, SimulatedStore

Patch = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Bug:
    """A mistake, and the patch that makes it."""

    text: str
    patch: Patch


def _both(*patches: Patch) -> Patch:
    @contextmanager
    def patched() -> Iterator[None]:
        with ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch())
            yield

    return patched


def _replaced(place: Any, name: str, make: Callable[[Any], Any]) -> Patch:
    """Return a patch that puts what `make` makes of the original into its place."""
    return lambda: mock.patch.object(place, name, make(getattr(place, name)))


def _nothing(_original: Any) -> Any:
    return lambda *arguments, **named: None


async def _wait_for_nothing(*arguments: Any, **named: Any) -> None:
    return


# ---- the coordinator's shell ---------------------------------------------------------------------


def _ack_at_once(_original: Any) -> Any:
    def ack(self: Any, event: Any) -> None:
        if event.task_ack is not None:
            self._services.bus.ack(event.task_ack)

    return ack


def _always_new(original: Any) -> Any:
    async def accept(self: Any, event: Any, at_ms: float) -> bool:
        self._runs.in_flight.pop(event.run_id, None)
        self._runs.forget(event.run_id)
        with mock.patch.object(type(self), "_may_be_old", return_value=False):
            return bool(await original(self, event, at_ms))

    return accept


def _offset_first(original: Any) -> Any:
    async def handle(self: Any, message: Any) -> None:
        self._tenure.applied(message.seq, message.msg_id, 0)
        await original(self, message)

    return handle


def _never_applying(_original: Any) -> Any:
    def take(self: Tenure) -> Any:
        part, self._pending = self._pending, None
        return part

    return take


def _believes_the_log(_original: Any) -> Any:
    async def start(self: Any) -> int:
        self._position.attached_at_ms = 0.0
        return int(self._position.applied_seq) + 1

    return start


def _gap_is_fine(original: Any) -> Any:
    def delivery_of(self: Any, message: Any) -> Any:
        if self._reading.stream == subjects.LOG and message.reply.startswith("$JS.ACK."):
            self._seq = int(message.reply.split(".")[6]) - 1
        return original(self, message)

    return delivery_of


def _knows_nothing(original: Any) -> Any:
    async def admit(self: Any, arrival: Any, known: Any) -> None:
        await original(self, arrival, {})

    return admit


def _before_the_end_is_committed(original: Any) -> Any:
    def record(self: Any, before: Any, decision: Any, **how: Any) -> None:
        original(self, before, decision, **how)
        if decision.run.ended and (before is None or not before.ended):
            for command in decision.commands:
                if hasattr(command, "finished"):
                    self.end_committed(decision.run, command.finished)

    return record


def _no_bound(original: Any) -> Any:
    def ended(self: Any, partition: int, since_ms: float) -> list[Any]:
        return []

    return ended


# ---- the core ------------------------------------------------------------------------------------


def _without(kinds: tuple[type, ...]) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def commit(u: Any, *arguments: Any) -> None:
            count = len(u.commands)
            original(u, *arguments)
            u.commands[count:] = [c for c in u.commands[count:] if not isinstance(c, kinds)]

        return commit

    return make


def _resumed_without_timer(original: Any) -> Any:
    def resume(run: Any, **named: Any) -> Any:
        decision = original(run, **named)
        kept = [c for c in decision.commands if type(c).__name__ != "Wake"]
        return replace(decision, commands=tuple(kept))

    return resume


def _resumed_with_all(original: Any) -> Any:
    def resume(run: Any, **named: Any) -> Any:
        decision = original(run, **named)
        u = transition.begin(run, **named)
        again = [
            attempts.redispatch(u, step)
            for _, step in sorted(run.steps.items())
            if step.state is StepState.SUCCEEDED and step.role == "leaf" and step.attempt
            if step.link == "node" and step.parent in u.scopes
        ]
        return replace(decision, commands=(*decision.commands, *again))

    return resume


def _longer_each_time(original: Any) -> Any:
    def dispatch(u: Any, step: Step, attempt: int) -> None:
        if attempt > 1:
            u.change(deadline_at_ms=u.run.deadline_at_ms + 1_000)
        original(u, step, attempt)

    return dispatch


def _reopened(original: Any) -> Any:
    def decided(run: Any, event: Any, **named: Any) -> Any:
        if run.ended and isinstance(event, AttemptFinished) and event.step in run.steps:
            return decide.Decision(
                replace(run, status=RunStatus.RUNNING, finished_at_ms=None), run_changed=True
            )
        return original(run, event, **named)

    return decided


def _forgetful_count(_original: Any) -> Any:
    def count(u: Any, step: Step, event: Any) -> Step:
        if event.spend.cost_usd:
            u.change(spent_usd=u.run.spent_usd + event.spend.cost_usd)
        return step

    return count


def _any_attempt(original: Any) -> Any:
    def finished(u: Any, event: Any) -> None:
        step = u.steps.get(event.step)
        if step is not None and step.state is StepState.DISPATCHED:
            event = event.model_copy(update={"attempt": step.attempt})
        original(u, event)

    return finished


def _one_need_is_enough(original: Any) -> Any:
    def settled(u: Any, work: Any) -> None:
        step = u.steps[work.key]
        scope = u.scopes.get(step.parent)
        if scope is not None:
            pending = scope.pending
            for name in u.node_plan(step).dependents:
                if pending[name] > 1:
                    pending = pending.set(name, 1)
            u.scopes[step.parent] = replace(scope, pending=pending)
        original(u, work)

    return settled


def _one_item_more(original: Any) -> Any:
    def start(u: Any, step: Any, plan: Any, index: int) -> None:
        original(u, step, plan, index)
        tally = u.tallies[step.key]
        if tally.started < len(step.input) and index == tally.started - 1:
            u.tallies[step.key] = replace(
                tally, started=tally.started + 1, running=tally.running + 1
            )
            original(u, step, plan, index + 1)

    return start


# ---- the bus and the workers ---------------------------------------------------------------------


def _acks_first(original: Any) -> Any:
    async def report(self: Any, attempt: Any, *arguments: Any) -> None:
        self._bus.ack(attempt.ack_subject)
        await original(self, attempt, *arguments)

    return report


def _believes_the_place(_original: Any) -> Any:
    def known(self: Any, attempt: Any) -> bool:
        attempt.losses = self._bus.losses
        return True

    return known


def _acks_what_is_posted(original: Any) -> Any:
    async def report(self: Any, attempt: Any, *arguments: Any) -> None:
        await original(self, attempt, *arguments)
        self._bus.ack(attempt.ack_subject)

    return report


# ---- Postgres ------------------------------------------------------------------------------------


def _no_fence(_original: Any) -> Any:
    def commit(self: Database, batch: Any) -> None:
        self.write(batch)
        self.tell("committed", batch)

    return commit


def _same_epoch(original: Any) -> Any:
    def own(self: Database, number: int, owner: str) -> Any:
        row = self.partitions.get(number)
        if row is not None:
            row.epoch = max(0, row.epoch - 1)
        return original(self, number, owner)

    return own


def _loses_steps(original: Any) -> Any:
    async def commit(self: Any, batch: Any) -> None:
        if len(batch.steps) > 3:
            batch.steps.pop()
        await original(self, batch)

    return commit


# ---- who may say what ----------------------------------------------------------------------------


def _true(_original: Any) -> Any:
    return lambda *arguments, **named: True


def _knowable_id(_original: Any) -> Any:
    return lambda msg_id, capability: msg_id


def _ends_the_reading(original: Any) -> Any:
    async def events_of(self: Any, message: Any) -> Any:
        return messages.read_log(message.kind, message.body)

    return events_of


# ---- faults of one run ---------------------------------------------------------------------------


def _names_a_neighbour(original: Any) -> Any:
    async def find(store: Any, batch: Any) -> Any:
        found = await original(store, batch)
        if found.by_key:
            others = [key for key in groups_of(batch) if isinstance(key, str)]
            for key in [key for key in others if key not in found.by_key][:1]:
                found.by_key[key] = next(iter(found.by_key.values()))
        return found

    return find


def _leaves_out(_original: Any) -> Any:
    def set_aside(tenure: Any, part: Any, run_id: str, error: Exception) -> None:
        part.aside[run_id] = Kept.NOTHING

    return set_aside


def _without_steps(original: Any) -> Any:
    def remains(*arguments: Any) -> Any:
        runs, _, attempts = original(*arguments)
        return runs, [], attempts

    return remains


def _tells_nobody(original: Any) -> Any:
    def aborted(*arguments: Any, **named: Any) -> Any:
        decision = original(*arguments, **named)
        kept = tuple(c for c in decision.commands if not isinstance(c, EndRun))
        return replace(decision, commands=kept)

    return aborted


BUGS: dict[str, Bug] = {
    "neighbour-set-aside": Bug(
        "of a batch that Postgres refuses a run is set aside that is not at fault",
        _replaced(committer, "find_refusals", _names_a_neighbour),
    ),
    "refused-run-left-out": Bug(
        "the offset is written without the rows of a run that Postgres refuses, and it does not end",
        _replaced(committer, "_set_aside", _leaves_out),
    ),
    "refused-run-without-steps": Bug(
        "of a run that Postgres refuses the steps are left out that it would have taken",
        _replaced(pending_changes, "_remains_of", _without_steps),
    ),
    "refused-for-ever": Bug(
        "a batch that Postgres refuses is written again for ever",
        _replaced(committer, "may_be_row_fault", lambda original: lambda error: False),
    ),
    "event-dropped": Bug(
        "an event that cannot be applied is set aside, and its run does not end",
        _replaced(failed_runs.FailedRuns, "give_up", _nothing),
    ),
    "set-aside-untold": Bug(
        "the end of a run that is set aside is told to nobody, nor to its parent",
        _replaced(failed_runs, "aborted", _tells_nobody),
    ),
    "result-of-anybody": Bug(
        "a result counts without the capability of its attempt",
        _both(
            _replaced(decide, "may_tell", _true),
            _replaced(event_handler, "may_tell", _true),
        ),
    ),
    "event-of-anybody": Bug(
        "a timer, a signal, a cancellation counts without a seal",
        _replaced(log_posts.LogPosts, "is_sealed", _true),
    ),
    "entry-of-anybody": Bug(
        "a lease or a sign of life counts without a seal",
        _replaced(seals.EntrySeals, "is_ours", _true),
    ),
    "id-that-can-be-known": Bug(
        "a result is posted under an id that others can know, and use before",
        _replaced(ids, "capable", _knowable_id),
    ),
    "junk-stops-the-log": Bug(
        "a message that cannot be read is tried again for ever",
        _replaced(event_reader.EventReader, "events_of", _ends_the_reading),
    ),
    "ack-before-commit": Bug(
        "a task is acknowledged when its run is decided, not when it is committed",
        _replaced(run_acceptance.RunAcceptance, "ack_after_commit", _ack_at_once),
    ),
    "no-epoch-guard": Bug(
        "commits are not fenced: an owner that was replaced still writes",
        _replaced(Database, "commit", _no_fence),
    ),
    "lease-without-fencing": Bug(
        "a takeover does not raise the epoch: two owners write under the same one",
        _replaced(Database, "own", _same_epoch),
    ),
    "early-result-forgotten": Bug(
        "a result that comes before its step is dispatched is dropped",
        _replaced(attempts, "_hold", _nothing),
    ),
    "double-dispatch-on-takeover": Bug(
        "a new owner also hands out the steps that have succeeded",
        _replaced(run_loader, "resume", _resumed_with_all),
    ),
    "timer-lost-on-restart": Bug(
        "a new owner does not ask for the next wake-up",
        _replaced(run_loader, "resume", _resumed_without_timer),
    ),
    "loser-not-cancelled": Bug(
        "the losers of a race are not told to stop",
        _replaced(containers, "_commit", _without((CancelAttempt, CancelSubRun))),
    ),
    "cancel-ignored": Bug(
        "workers take no notice of cancellations",
        _replaced(worker.Worker, "_on_cancel", lambda original: _wait_for_nothing),
    ),
    "result-acked-before-posted": Bug(
        "a step is acknowledged before its result is posted",
        _replaced(reporter.Reporter, "report", _acks_first),
    ),
    "result-acked-unheard": Bug(
        "a step is acknowledged when its result was sent, not when the log has it",
        _replaced(reporter.Reporter, "report", _acks_what_is_posted),
    ),
    "stale-ack": Bug(
        "a step is acknowledged by its place although the connection was lost since",
        _replaced(acks.Acks, "known", _believes_the_place),
    ),
    "effects-before-commit": Bug(
        "a step with effects outside is published before its commit",
        _replaced(decision_recorder, "has_effects", lambda original: lambda command: False),
    ),
    "effects-after-end": Bug(
        "a step with effects outside is published after its commit though its run has ended",
        _replaced(
            decision_recorder.DecisionRecorder,
            "_wants",
            lambda original: lambda self, request: True,
        ),
    ),
    "dedupe-by-message-id-only": Bug(
        "a task that comes again is known only while the stream remembers its message",
        _replaced(run_acceptance.RunAcceptance, "accept", _always_new),
    ),
    "keys-not-looked-up": Bug(
        "intake does not look up whether the run of a key exists",
        _replaced(intake.Intake, "_admit", _knows_nothing),
    ),
    "offset-ahead-of-state": Bug(
        "the offset is moved before the event is applied, and may be written without it",
        _both(
            _replaced(event_handler.EventHandler, "handle", _offset_first),
            _replaced(Tenure, "take", _never_applying),
        ),
    ),
    "half-an-event-committed": Bug(
        "a commit may take what an event changed without the offset behind it",
        _replaced(Tenure, "take", _never_applying),
    ),
    "rewind-not-detected": Bug(
        "reading goes on behind the last sequence, whatever message is there",
        _replaced(log_reader.LogReader, "_start_seq", _believes_the_log),
    ),
    "gap-not-detected": Bug(
        "a message that the log's consumer missed is not noticed",
        _replaced(ordered_consumer.OrderedConsumer, "delivery_of", _gap_is_fine),
    ),
    "deadline-extended-on-retry": Bug(
        "every further attempt moves the run's deadline",
        _replaced(attempts, "dispatch", _longer_each_time),
    ),
    "budget-check-skipped": Bug(
        "attempts are dispatched although the budget is spent",
        _replaced(attempts, "_is_spent", lambda original: lambda run: False),
    ),
    "spend-counted-twice": Bug(
        "what an attempt cost is added again when its result comes again",
        _replaced(attempts, "_count", _forgetful_count),
    ),
    "ended-run-reopened": Bug(
        "a late result opens a run that has ended",
        _replaced(event_handler, "decide", _reopened),
    ),
    "result-of-any-attempt": Bug(
        "the result of an earlier attempt is taken for the present one's",
        _replaced(decide, "finished", _any_attempt),
    ),
    "result-of-lost-history": Bug(
        "what was executed with another input, before the log lost its end, is taken",
        _replaced(attempts, "_is_of_another_input", lambda original: lambda step, event: False),
    ),
    "retry-pays-again": Bug(
        "a retry takes nothing over from the run that it repeats",
        _replaced(attempts, "kept_for", lambda original: lambda u, step: None),
    ),
    "rerun-takes-all-over": Bug(
        "a re-run also takes over the step that it was to run anew",
        _replaced(repeats, "_forced", lambda original: lambda *arguments: ()),
    ),
    "starts-before-parents": Bug(
        "a node starts when the first of its needs has ended",
        _replaced(decide, "node_settled", _one_need_is_enough),
    ),
    "map-too-wide": Bug(
        "a map has one item more under way than it may",
        _replaced(containers, "_start_item", _one_item_more),
    ),
    "nothing-handed-out-again": Bug(
        "after NATS came back, steps in flight are not handed out again",
        _replaced(partition_set.PartitionSet, "came_back", _nothing),
    ),
    "posts-not-repeated": Bug(
        "posts without acknowledgement are not published again",
        _replaced(durable_publisher.DurablePublisher, "_repeat", _nothing),
    ),
    "end-told-before-commit": Bug(
        "a run's end is told before it is committed",
        _replaced(decision_recorder.DecisionRecorder, "record", _before_the_end_is_committed),
    ),
    "end-not-told-after-takeover": Bug(
        "a new owner does not tell the ends that the former one may not have told",
        _replaced(Database, "ended_since", _no_bound),
    ),
    "lost-end-not-told-again": Bug(
        "after NATS came back, ends that it may have lost are not told again",
        _replaced(run_notifier.RunNotifier, "retell", _nothing),
    ),
    "timeout-not-armed": Bug(
        "a worker does not stop an attempt whose time is over",
        _replaced(runner.Runner, "_timed_out", _nothing),
    ),
    "slot-not-freed": Bug(
        "the gate does not hear that an attempt has ended",
        _replaced(dispatcher.Dispatcher, "finished", _nothing),
    ),
    "row-lost": Bug(
        "a large batch leaves a row out",
        _replaced(SimulatedStore, "commit", _loses_steps),
    ),
    "skipped-scope-open": Bug(
        "a scope that failed leaves its steps running",
        _replaced(scopes, "cancel_below", _nothing),
    ),
}
