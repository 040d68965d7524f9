"""Planted bugs: each is one mistake that this code could contain, as a patch of the real code.

A bug is known by its name; `BUGS` describes it. Played with enough seeds, each must be caught
(`detection.py` finds out by which check, and after how many seeds).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from hocket.coordinator.core.run import machine, work
from hocket.coordinator.core.run.commands import CancelAttempt, CancelSubRun, Wake
from hocket.coordinator.core.run.constructs import graph, leaf, results, reuse
from hocket.coordinator.core.run.constructs.containers import maps, races
from hocket.coordinator.core.run.state.messages import EndRun
from hocket.coordinator.core.run.state.run import DISPATCHED, RUNNING, SUCCEEDED, Step
from hocket.coordinator.core.run.transition import Outcome, Transition
from hocket.coordinator.dispatch import bundles, dispatcher
from hocket.coordinator.intake import task_admission
from hocket.coordinator.partition import decision_recorder, partition_set
from hocket.coordinator.partition.events import (
    attempt_reports,
    event_application,
    event_handler,
    event_reader,
    log_posts,
    log_reader,
)
from hocket.coordinator.partition.runs import (
    failed_runs,
    run_acceptance,
    run_cache,
    run_loader,
    run_notifier,
    task_acknowledgement,
)
from hocket.coordinator.storage import committer, pending_changes
from hocket.coordinator.storage.commit_batch import groups_of
from hocket.coordinator.storage.pending_changes import Kept
from hocket.coordinator.storage.unwritten_changes import UnwrittenChanges
from hocket.kit.nats.connection import durable_publisher
from hocket.kit.nats.consumers import ordered_consumer
from hocket.kit.nats.kv import seals
from hocket.schemas import ids, messages, subjects
from hocket.schemas.messages import AttemptFinished
from hocket.workers.runtime.execution import runner, worker
from hocket.workers.runtime.results import reporter
from hocket.workers.runtime.transport import acks, settlement
from simulation.engine.database import Database, SimulatedStore
from simulation.platform.bundles import BUNDLES

Patch = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Bug:
    """A mistake, the patch that makes it, and the kind of plays that reveal it."""

    text: str
    patch: Patch
    kind: str = ""


def _both(*patches: Patch) -> Patch:
    @contextmanager
    def patched() -> Iterator[None]:
        with ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch())
            yield

    return patched


def _replaced(place: Any, name: str, make: Callable[[Any], Any]) -> Patch:
    """Return a patch that replaces the original by what `make` returns for it."""
    return lambda: mock.patch.object(place, name, make(getattr(place, name)))


def _nothing(_original: Any) -> Any:
    return lambda *arguments, **named: None


async def _wait_for_nothing(*arguments: Any, **named: Any) -> None:
    return


# ---- the coordinator's shell ---------------------------------------------------------------------


def _ack_at_once(_original: Any) -> Any:
    def ack(self: Any, event: Any) -> None:
        if event.task_ack is not None:
            self._done(event.task_ack)

    return ack


def _always_new(original: Any) -> Any:
    async def accept(self: Any, event: Any, at_ms: float) -> bool:
        self._runs.in_flight.pop(event.run_id, None)
        self._runs.forget(event.run_id)
        with mock.patch.object(type(self.known), "_may_be_old", return_value=False):
            return bool(await original(self, event, at_ms))

    return accept


def _offset_first(original: Any) -> Any:
    async def handle(self: Any, message: Any) -> None:
        self._tenure.applied(message.seq, message.msg_id, 0)
        await original(self, message)

    return handle


def _never_applying(_original: Any) -> Any:
    def take(self: UnwrittenChanges) -> Any:
        part, self.pending = self.pending, None
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
    async def admit(self: Any, arrival: Any, known: Any, *more: Any) -> None:
        await original(self, arrival, {}, *more)

    return admit


def _before_the_end_is_committed(original: Any) -> Any:
    def record(self: Any, outcome: Outcome, **how: Any) -> None:
        original(self, outcome, **how)
        for command in outcome.commands:
            if isinstance(command, EndRun):
                self.end_committed(outcome.run)

    return record


def _no_bound(original: Any) -> Any:
    def ended(self: Any, partition: int, since_ms: float) -> list[Any]:
        return []

    return ended


# ---- the core ------------------------------------------------------------------------------------


def _without(kinds: tuple[type, ...]) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def win(t: Transition, *arguments: Any) -> None:
            count = len(t.commands)
            original(t, *arguments)
            t.commands[count:] = [c for c in t.commands[count:] if not isinstance(c, kinds)]

        return win

    return make


def _resumed_without_timer(original: Any) -> Any:
    def resume(*arguments: Any) -> Outcome:
        outcome: Outcome = original(*arguments)
        outcome.commands = [c for c in outcome.commands if not isinstance(c, Wake)]
        return outcome

    return resume


def _resumed_with_all(original: Any) -> Any:
    def resume(run: Any, now_ms: float, forecast: Any) -> Outcome:
        outcome: Outcome = original(run, now_ms, forecast)
        t = Transition(run, forecast, now_ms)
        outcome.commands += [
            leaf.dispatch_again(t, step)
            for _, step in sorted(run.steps.items())
            if step.state == SUCCEEDED and step.role == "leaf" and step.attempt
            if step.link == "node" and step.within.is_open
        ]
        return outcome

    return resume


def _longer_each_time(original: Any) -> Any:
    def dispatch(t: Transition, step: Step, attempt: int, **how: Any) -> Any:
        if attempt > 1:
            t.run.deadline_at_ms += 1_000
            t.run_changed = True
        return original(t, step, attempt, **how)

    return dispatch


def _reopened(original: Any) -> Any:
    def apply(run: Any, event: Any, *how: Any, **named: Any) -> Any:
        if run.has_ended and isinstance(event, AttemptFinished) and event.step in run.steps:
            run.status, run.finished_at_ms = RUNNING, None
            outcome = Outcome(run)
            outcome.run_changed = True
            return outcome
        return original(run, event, *how, **named)

    return apply


def _forgetful_count(_original: Any) -> Any:
    def count(t: Transition, step: Step, event: Any) -> None:
        t.run.spent_usd += event.spend.cost_usd
        t.run_changed = True

    return count


def _any_attempt(original: Any) -> Any:
    def finished(t: Transition, event: Any) -> None:
        step = t.run.steps.get(event.step)
        if step is not None and step.state == DISPATCHED:
            event = event.model_copy(update={"attempt": step.attempt})
        original(t, event)

    return finished


def _one_need_is_enough(original: Any) -> Any:
    def settled(t: Transition, step: Step) -> None:
        pending = step.within.pending
        for place in step.node.dependents:
            pending[place] = min(pending[place], 1)
        original(t, step)

    return settled


def _one_item_more(original: Any) -> Any:
    def start(t: Transition, step: Step, index: int) -> None:
        original(t, step, index)
        children = step.children
        assert children is not None
        if children.started < len(step.input.value) and index == children.started - 1:
            children.started += 1
            children.running += 1
            original(t, step, index + 1)

    return start


# ---- the bus and the workers ---------------------------------------------------------------------


def _acks_first(original: Any) -> Any:
    async def report(self: Any, attempt: Any, *arguments: Any) -> None:
        self._bus.ack(attempt.ack_subject)
        await original(self, attempt, *arguments)

    return report


def _believes_the_place(_original: Any) -> Any:
    def known(self: Any, message: Any) -> bool:
        message.losses = self._bus.losses
        return True

    return known


def _acks_what_is_posted(original: Any) -> Any:
    async def report(self: Any, attempt: Any, *arguments: Any) -> None:
        await original(self, attempt, *arguments)
        self._bus.ack(attempt.ack_subject)

    return report


def _acks_with_the_first(original: Any) -> Any:
    def settle(self: Any, message: Any) -> None:
        message.open = min(message.open, 1)
        original(self, message)

    return settle


def _forgets_bundle(_original: Any) -> Any:
    def take_apart(self: Any, bundle: Any) -> None:
        for attempt_id in (bundle.first, *bundle.left):
            self._sent.pop(attempt_id, None)
        bundle.left = {}

    return take_apart


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
    def aborted(*arguments: Any, **named: Any) -> Outcome:
        outcome: Outcome = original(*arguments, **named)
        outcome.commands = [c for c in outcome.commands if not isinstance(c, EndRun)]
        return outcome

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
            _replaced(machine, "may_tell", _true),
            _replaced(attempt_reports, "may_tell", _true),
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
        _replaced(task_acknowledgement.TaskAcknowledgement, "after_commit", _ack_at_once),
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
        _replaced(results, "_hold", _nothing),
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
        _replaced(races, "_win", _without((CancelAttempt, CancelSubRun))),
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
    "bundle-acked-with-first": Bug(
        "a bundle is acknowledged when the first of its steps has ended",
        _replaced(settlement.Settlement, "settle", _acks_with_the_first),
        BUNDLES,
    ),
    "bundle-not-taken": Bug(
        "what a worker that knows no bundles did not see is not handed out again",
        _replaced(bundles.Bundles, "_take_apart", _forgets_bundle),
        BUNDLES,
    ),
    "returned-ignored": Bug(
        "a step that a worker gives back is not handed out again",
        _replaced(machine, "returned", _nothing),
        BUNDLES,
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
        _replaced(task_admission.TaskAdmission, "admit", _knows_nothing),
    ),
    "offset-ahead-of-state": Bug(
        "the offset is moved before the event is applied, and may be written without it",
        _both(
            _replaced(event_handler.EventHandler, "handle", _offset_first),
            _replaced(UnwrittenChanges, "take", _never_applying),
        ),
    ),
    "half-an-event-committed": Bug(
        "a commit may take what an event changed without the offset behind it",
        _replaced(UnwrittenChanges, "take", _never_applying),
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
        _replaced(results, "dispatch", _longer_each_time),
    ),
    "budget-check-skipped": Bug(
        "attempts are dispatched although the budget is spent",
        _replaced(leaf, "_is_spent", lambda original: lambda run: False),
    ),
    "spend-counted-twice": Bug(
        "what an attempt cost is added again when its result comes again",
        _replaced(results, "count_spend", _forgetful_count),
    ),
    "ended-run-reopened": Bug(
        "a late result opens a run that has ended",
        _replaced(event_application, "apply", _reopened),
    ),
    "result-of-any-attempt": Bug(
        "the result of an earlier attempt is taken for the present one's",
        _replaced(machine, "finished", _any_attempt),
    ),
    "result-of-lost-history": Bug(
        "what was executed with another input, before the log lost its end, is taken",
        _replaced(results, "is_of_another_input", lambda original: lambda step, event: False),
    ),
    "retry-pays-again": Bug(
        "a retry takes nothing over from the run that it repeats",
        _replaced(leaf, "kept_for", lambda original: lambda run, step: None),
    ),
    "rerun-takes-all-over": Bug(
        "a re-run also takes over the step that it was to run anew",
        _replaced(reuse, "_forced", lambda original: lambda *arguments: ()),
    ),
    "starts-before-parents": Bug(
        "a node starts when the first of its needs has ended",
        _replaced(work, "node_settled", _one_need_is_enough),
    ),
    "map-too-wide": Bug(
        "a map has one item more under way than it may",
        _replaced(maps, "_start_item", _one_item_more),
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
    "half-changed-run-kept": Bug(
        "a run that an exception left half changed stays in memory",
        _replaced(run_cache.Runs, "drop", _nothing),
    ),
    "read-back-without-unwritten": Bug(
        "a run that an exception left half changed is read back without what is not written yet",
        _replaced(UnwrittenChanges, "of", lambda original: lambda self, run_id: []),
    ),
    "skipped-scope-open": Bug(
        "a scope that failed leaves its steps running",
        _replaced(graph, "cancel_below", _nothing),
    ),
}
