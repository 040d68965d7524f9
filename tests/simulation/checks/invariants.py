"""The invariants of every play; the first check that fails ends it.

Facts come from sources that the product cannot change: the handlers' journal, the server's streams, the
database's commits, and what users were told. Most checks are made at the moment of the event, some at
the end.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from nats.errors import Error as NatsError
from pydantic_core import from_json

from hocket.coordinator.core.run.state.columns import RUN_COLUMNS, STEP_COLUMNS
from hocket.coordinator.flow.places import FlowQueue
from hocket.coordinator.storage.commit_batch import Batch
from hocket.kit.nats import cloudevents
from hocket.kit.nats.connection.durable_publisher import ACK_TIMEOUT_S
from hocket.kit.nats.consumers.delivery import parse_ack_subject
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.postgres.errors import AWAY
from hocket.schemas import ids, subjects
from hocket.schemas.messages import (
    AttemptFinished,
    AttemptReturned,
    AttemptsFinished,
    CacheAnswered,
    RunAccepted,
    RunFinished,
    RunsAccepted,
    TaskRejected,
)
from simulation.checks.funded_attempts import FundedAttempts
from simulation.checks.history import History, differences
from simulation.checks.progress import stood_still
from simulation.engine.database import as_jsonb
from simulation.engine.jetstream import NS, Stored, Stream
from simulation.engine.swaps import swapped
from simulation.platform import hostile
from simulation.platform.compiled import plan_of
from simulation.platform.faults import Faults
from simulation.platform.journal import Execution
from simulation.platform.platform import Platform
from simulation.platform.user import TENANT, User

if TYPE_CHECKING:
    from simulation.platform.scenario import Plan

SETTLED_S = 3.0
"""Time after the end of the faults until every connection is up again."""
MAX_LOST_S = 5.0
"""Maximum age of a public event that a crash loses and that must be published again."""
CANCEL_WITHIN_S = 0.5
STOP_WITHIN_MS = 500.0
EXPECTED_EXITS = (BusUnavailable, NatsError, *AWAY)
"""A process may end with these errors when a server is down."""
EXPECTED_ALARMS = frozenset(
    {
        "log_rewound",
        "run_refused",
        "step_dead_lettered",
        "bus_messages_dropped",
        "log_event_unreadable",
    }
)
UNDER = tuple("/[#~!")


class Checks:
    """The invariants of every play."""

    def __init__(
        self, platform: Platform, user: User, faults: Faults, plan: "Plan", raised: list[str]
    ) -> None:
        self.violation: tuple[str, str] | None = None
        self.history = History()
        self._platform = platform
        self._world = platform.world
        self._database = platform.database
        self._journal = platform.journal
        self._user = user
        self._faults = faults
        self._plan = plan
        self._raised = raised
        """Runs for which a rule raised, one entry each time."""
        self._failed = Counter[str]()
        """Number of alarms of those kinds that the fault of one run may cause."""
        self._settled_s = plan.faults_until_s + SETTLED_S
        self._tasks: dict[str, str] = {}
        """Runs requested in TASKS: the pipeline by run id."""
        self._tasks_left = Counter[str]()
        """How many messages in TASKS request each run: a repeat may be acknowledged before the first."""
        self._tasks_unacked = set[int]()
        self._tasks_once_acked = set[int]()
        """Those whose acknowledgement a crash took away may be removed all the same."""
        """Sequences of messages in TASKS that nobody has acknowledged."""
        self._refused: set[str] = set()
        self._posted: dict[str, float] = {}
        """When the result of each attempt was first stored."""
        self._took: dict[str, bool] = {}
        """Whether the worker also took the other steps of the attempt's message."""
        self._in_stream = Counter[str]()
        """Number of messages in STEPS that contain each attempt."""
        self._returned: set[str] = set()
        """Attempts that a worker returned through the log."""
        self._deadlines: dict[str, float] = {}
        self._ends: dict[str, dict[str, Any]] = {}
        """The row with which each run ended, and the epoch that ended it."""
        self._end_epochs: dict[str, int] = {}
        self._frozen: dict[str, dict[str, Any]] = {}
        self._rejected: dict[str, float | None] = {}
        """For each run with a rejection in the log: when the rejected task was stored."""
        self._told = Counter[str]()
        """How often the end of each run is in EVENTS."""
        self._dispatches: set[str] = set()
        self._funded = FundedAttempts()
        self._tail_lost = False
        """Whether the tail of a log was ever lost."""
        self._alarms = 0
        self._exits = 0
        platform.journal.ended = self._execution_ended
        platform.server.jetstream.observers.append(self._stream)
        platform.database.observers.append(self._commit)

    def fail(self, check: str, text: str) -> None:
        if self.violation is None:
            self.violation = (check, f"at {self._world.now_s:.3f} s: {text}")
            self._world.note("check", f"{check}: {text}")
            self._world.stop()

    def statuses(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for run_id in sorted(self._database.runs):
            status = self._database.runs[run_id]["status"]
            counts[status] = counts.get(status, 0) + 1
        return counts

    def is_over(self) -> bool:
        """Return whether nothing more is to come. Also checks the alarms that have been collected so
        far."""
        self._look_at_alarms()
        if not self._user.done or not self._faults.calm:
            return False
        runs = self._database.runs
        if any(row["finished_at"] is None for row in runs.values()) or any(
            run_id not in runs and run_id not in self._refused for run_id in self._tasks
        ):
            return False
        # an end's message may have been dropped; it is then posted again
        patient = self._world.now_s < self._settled_s + ACK_TIMEOUT_S
        return not patient or all(self._told[run_id] > 0 for run_id in runs)

    @contextmanager
    def watching(self, bus: Any) -> Iterator[None]:
        """Watch what processes do as they do it."""
        post = bus.publish_durable

        def posted(self_: Any, subject: str, payload: bytes, **more: Any) -> Any:
            if subject.startswith("hocket.step."):
                for request in _Request.all_in(payload):
                    self._dispatched(request)
            return post(self_, subject, payload, **more)

        with swapped((bus, "publish_durable", posted)), self.history.recording():
            yield

    # ---- during the play --------------------------------------------------------------------

    def _stream(self, what: str, stream: Stream, stored: Stored, why: str) -> None:
        if stored.data in self._platform.forger.written:
            if stream.name == subjects.STEPS:
                self._count_copied(what, stored)
            return
        rule = getattr(self, f"_{stream.name.lower()}_{what}", None)
        if rule is not None:
            rule(stored, why)

    def _count_copied(self, what: str, stored: Stored) -> None:
        """Count the copies of real steps in a forged message: a worker may hold them from it."""
        try:
            copied = list(map(_attempt, _Request.all_in(stored.data)[1:]))
        except (ValueError, LookupError, TypeError, AttributeError):
            return
        if what in ("stored", "back"):
            self._in_stream.update(copied)
        else:
            self._in_stream.subtract(copied)

    def _tasks_stored(self, stored: Stored, why: str) -> None:
        run_id = self._requested(stored)
        self._tasks[run_id] = stored.subject.rsplit(".", 1)[1]
        self._tasks_left[run_id] += 1
        self._tasks_unacked.add(stored.seq)
        self._tasks_once_acked.discard(stored.seq)

    def _tasks_back(self, stored: Stored, why: str) -> None:
        self._tasks_unacked.add(stored.seq)
        self._tasks_left[self._requested(stored)] += 1

    def _tasks_removed(self, stored: Stored, why: str) -> None:
        if stored.seq in self._tasks_unacked and stored.seq not in self._tasks_once_acked:
            self.fail("task-lost", f"the task of {self._requested(stored)} was removed by {why}")

    def _tasks_acked(self, stored: Stored, why: str) -> None:
        self._tasks_unacked.discard(stored.seq)
        self._tasks_once_acked.add(stored.seq)
        run_id = self._requested(stored)
        self._tasks_left[run_id] -= 1
        if not (
            self._tasks_left[run_id] or run_id in self._database.runs or run_id in self._refused
        ):
            self.fail("task-lost", f"the task of {run_id} was acknowledged and no run committed")

    def _dlq_stored(self, stored: Stored, why: str) -> None:
        fields = self._fields(stored)
        if stored.subject.startswith("hocket.dlq.task."):
            key = fields.get(cloudevents.IDEMPOTENCY_KEY)
            if key is not None:
                self._refused.add(ids.run_id(TENANT, key))
        if not self._is_due(stored, fields):
            self.fail("dead-letter", f"{stored.subject}: {fields.get('Hocket-Dead-Error')}")

    def _is_due(self, stored: Stored, fields: dict[str, str]) -> bool:
        """Return whether a dead letter is about something that is itself at fault."""
        source = stored.subject.split(".")[2]
        if source == "task":
            key = fields.get(cloudevents.IDEMPOTENCY_KEY)
            return any(task.key == key and task.body is not None for task in self._plan.hostile)
        code = from_json(fields["Hocket-Dead-Error"])["code"]
        if source == "log" and code == "event_not_applicable":
            told = from_json(stored.data)
            of = [told, *told.get("results", ()), *told.get("runs", ())]
            runs = {*(one.get("run_id") for one in of), *told.get("others", ())}
            return not runs.isdisjoint(self._raised)
        if source == "run" and code == "run_not_storable":
            return from_json(stored.data)["run_id"] in self._database.refused
        return False

    def _log_stored(self, stored: Stored, why: str) -> None:
        kind = stored.subject.rsplit(".", 1)[1]
        told = from_json(stored.data)
        if kind in (RunAccepted.kind, RunsAccepted.kind):
            for accepted in told.get("runs", (told,)):
                self._accepted_again(accepted)
                known = self._deadlines.get(accepted["run_id"], 0.0)
                self._deadlines[accepted["run_id"]] = max(known, accepted["deadline_at_ms"])
            return
        if kind == AttemptReturned.kind:
            self._returned.add(ids.attempt_id(told["run_id"], told["step"], told["attempt"]))
        if kind in (AttemptFinished.kind, CacheAnswered.kind):
            results = [told]
        else:
            results = told["results"] if kind == AttemptsFinished.kind else []
        for result in results:
            attempt = result.get("attempt", 0)  # answers of the cache have no attempt
            name = ids.attempt_id(result["run_id"], result["step"], attempt)
            self._posted.setdefault(name, self._world.now_s)
            self._took[name] = self._took.get(name, True) and result.get("took", 0) > 0

    def _accepted_again(self, accepted: dict[str, Any]) -> None:
        """A key whose task was rejected may be used by a new task: its run begins then."""
        run_id = accepted["run_id"]
        if accepted.get("rejected") is not None:
            self._rejected[run_id] = _task_of(accepted)
            return
        ended, before = self._ends.get(run_id), self._rejected.get(run_id)
        if ended is not None and ended["status"] == "rejected" and before != _task_of(accepted):
            del self._ends[run_id], self._end_epochs[run_id], self._frozen[run_id]
            self._told[run_id] = 0

    def _log_lost(self, stored: Stored, why: str) -> None:
        self._tail_lost = True

    def _steps_stored(self, stored: Stored, why: str) -> None:
        requests = _Request.all_in(stored.data)
        self._in_stream.update(map(_attempt, requests))
        for request in requests:
            if not request.effects_external:
                continue
            row = self._database.steps.get(request.run_id, {}).get(request.step)
            if row is None or row["attempt"] < request.attempt:
                self.fail(
                    "effects-before-commit",
                    f"{_attempt(request)} is out and Postgres has {row and row['attempt']}",
                )
            if len(requests) > 1:
                self.fail("effects-bundled", f"{_attempt(request)} is out with others")

    def _steps_removed(self, stored: Stored, why: str) -> None:
        first, *others = names = list(map(_attempt, _Request.all_in(stored.data)))
        self._in_stream.subtract(names)
        if why != "+ACK":
            return
        for name in names if self._took.get(first, True) else [first]:
            # a step of a bundle may also have a message of its own
            elsewhere = name in self._returned or (bool(others) and self._in_stream[name] > 0)
            if name not in self._posted and not elsewhere:
                self.fail("acked-before-posted", f"{name} has no result in the log")

    def _steps_back(self, stored: Stored, why: str) -> None:
        self._in_stream.update(map(_attempt, _Request.all_in(stored.data)))

    def _steps_lost(self, stored: Stored, why: str) -> None:
        self._in_stream.subtract(map(_attempt, _Request.all_in(stored.data)))

    def _events_stored(self, stored: Stored, why: str) -> None:
        run_id = _told_of(stored)
        if run_id is not None:
            self._told[run_id] += 1
        if stored.subject.endswith(RunFinished.kind):
            self._compare_end("told-before-commit", from_json(stored.data))

    def _events_lost(self, stored: Stored, why: str) -> None:
        """The tail that a crash loses is determined by a number of messages. A real crash would not
        lose old ones, so events older than MAX_LOST_S still count as published."""
        jetstream = self._platform.server.jetstream
        age_s = jetstream.epoch_s + jetstream.now_s - stored.time_ns / NS
        run_id = _told_of(stored)
        if run_id is not None and age_s < MAX_LOST_S:
            self._told[run_id] -= 1

    def _compare_end(self, check: str, told: dict[str, Any]) -> None:
        row = self._ends.get(told["run_id"])
        if row is None:
            self.fail(check, f"{told['run_id']} was told to have ended and has not")
        elif row["status"] != told["status"] or _json(row["output"]) != as_jsonb(told["output"]):
            self.fail("two-ends", f"{told['run_id']} is {row['status']}, told was {told['status']}")

    def _dispatched(self, request: "_Request") -> None:
        run_id = request.run_id
        ended_by = self._end_epochs.get(run_id)
        if ended_by is not None and request.epoch >= ended_by:
            self.fail("starts-after-end", f"{_attempt(request)} is dispatched after the run's end")
        row = self._database.steps.get(run_id, {}).get(request.step)
        epoch = self._database.partitions[request.partition].epoch
        if row is not None and row["finished_at"] is not None and request.epoch == epoch:
            self.fail("again", f"{_attempt(request)} is dispatched and its step had ended")
        if self._is_beyond(run_id, request.deadline_at_ms):
            self.fail("deadline-moved", f"{_attempt(request)} may take longer than its run")
        name = _attempt(request)
        if name not in self._dispatches:  # a repeated dispatch was granted before
            self._dispatches.add(name)
            left, run = request.budget_left_usd, self._database.runs.get(run_id)
            overdrawn = left is not None and left <= 0 and run is not None and run["spent_usd"] > 0
            if overdrawn and not self._funded.has(name):
                self.fail("budget", f"{name} is dispatched and nothing is left of the budget")

    def _execution_ended(self, execution: Execution) -> None:
        """Check that no execution exceeds its attempt's time limit, once processes are no longer
        paused."""
        if execution.begun_s < self._settled_s or execution.stubborn:
            return
        took_ms = 1_000 * (self._world.now_s - execution.begun_s)
        if took_ms > execution.timeout_ms + STOP_WITHIN_MS:
            self.fail("too-long", f"{execution.id} took {took_ms} of {execution.timeout_ms} ms")

    def _commit(self, what: str, detail: Any) -> None:
        if what == "owned":
            self._check_replay(detail[0])
            return
        batch: Batch = detail
        self.history.written(batch)
        self._funded.committed(batch)
        for partition, (epoch, _, _) in batch.offsets.items():
            if epoch != self._database.partitions[partition].epoch:
                self.fail(
                    "fence", f"epoch {epoch} of partition {partition} was written after its end"
                )
        for values in batch.runs:
            self._run_committed(dict(zip(RUN_COLUMNS, values, strict=True)), batch)
        for values in batch.steps:
            self._step_committed(dict(zip(STEP_COLUMNS, values, strict=True)))
        self._check_flow()

    def _check_flow(self) -> None:
        """Check that no key has more runs in progress than its limit, and that every run that has begun
        has passed."""
        begun: dict[FlowQueue, list[str]] = {}
        for (run_id, _), place in self._database.flow.places.items():
            if self._database.steps.get(run_id):
                begun.setdefault(place.queue, []).append(run_id)
                if place.state != "passed":
                    self.fail("flow-order", f"{run_id} has begun and is {place.state}")
                limit = 1 if "mode" in place.rule else place.rule.get("limit")
                if limit is not None and len(begun[place.queue]) > limit:
                    self.fail("flow-limit", f"{' '.join(begun[place.queue])} are under way at once")

    def _run_committed(self, row: dict[str, Any], batch: Batch) -> None:
        run_id = row["run_id"]
        ended = self._ends.get(run_id)
        if ended is not None:
            if (row["status"], row["output"]) != (ended["status"], ended["output"]):
                self.fail("two-ends", f"{run_id} was {ended['status']} and is {row['status']}")
        elif row["finished_at"] is not None:
            self._ends[run_id] = row
            self._end_epochs[run_id] = batch.offsets[row["partition"]][0]
            self._frozen[run_id] = {
                key: step["state"] for key, step in self._database.steps.get(run_id, {}).items()
            }
        if self._is_beyond(run_id, row["deadline_at"]):
            self.fail("deadline-moved", f"{run_id} may take longer than it was given")

    def _step_committed(self, row: dict[str, Any]) -> None:
        run_id, key = row["run_id"], row["key"]
        frozen = self._frozen.get(run_id)
        if frozen is not None and frozen.get(key) != row["state"]:
            self.fail("starts-after-end", f"{run_id} has ended and its step {key} changed")
        if row["state"] == "cancelled":
            self._must_stop(row)
        if "[" in key and row["finished_at"] is None:
            self._check_concurrency(run_id, row)

    def _check_concurrency(self, run_id: str, row: dict[str, Any]) -> None:
        """Check that no more items of a map are in progress than it allows."""
        facts = _json(row["facts"]) or {}
        if facts.get("link") != "item" or "home" in facts:
            return
        run = self._database.runs[run_id]
        plan = plan_of(self._database, TENANT, run["pipeline"], run["version"])
        spec = plan.by_path[row["path"]].node.map
        assert spec is not None, row["path"]
        under_way = [
            other["key"]
            for other in self._database.steps.get(run_id, {}).values()
            if other["parent"] == row["parent"] and other["finished_at"] is None
        ]
        if len(under_way) > spec.concurrency:
            self.fail("concurrency", f"{run_id} has {under_way} under way at once")

    def _must_stop(self, row: dict[str, Any]) -> None:
        """Check, once the faults are over, that executions of a cancelled step stop soon. Dispatches
        that were lost with the tail of a log are exempt, because nobody knows of them any more, and so
        are attempts that were dispatched again after that: the result of the first may have counted.
        The commit may be long after the cancellation, which the network may have lost."""
        cancelled_s = row["finished_at"] / 1_000 - self._platform.server.jetstream.epoch_s
        if min(self._world.now_s, cancelled_s) < self._settled_s:
            return
        running = [
            execution
            for execution in self._journal.running.values()
            if (execution.run_id, execution.step) == (row["run_id"], row["key"])
            and not (self._tail_lost and execution.dispatched_at_ms != row["dispatched_at"])
            and not (self._tail_lost and self._is_repeated(execution))
        ]
        if running:
            self._world.after(CANCEL_WITHIN_S, self._has_stopped, running)

    def _is_repeated(self, execution: Execution) -> bool:
        others = self._journal.of_attempt.get(execution.id, ())
        return any(other.dispatched_at_ms != execution.dispatched_at_ms for other in others)

    def _has_stopped(self, executions: list[Any]) -> None:
        for execution in executions:
            if execution.runs and not execution.stubborn:
                self.fail("left-running", f"{execution.id} runs on after it was cancelled")

    def _look_at_alarms(self) -> None:
        alarms, failures = self._world.alarms, self._platform.failures
        for who, event, rest in alarms[self._alarms :]:
            self._failed[event] += 1
            if event not in EXPECTED_ALARMS and not self._is_of_a_fault(event, rest):
                self.fail("alarm", f"{who} logged {event}: {rest}")
        self._alarms = len(alarms)
        for who, error in failures[self._exits :]:
            if not isinstance(error, EXPECTED_EXITS):
                self.fail("exit", f"{who} ended with {type(error).__name__}: {error}")
        self._exits = len(failures)

    def _is_of_a_fault(self, event: str, rest: str) -> bool:
        """Return whether an alarm is about a run that is itself at fault."""
        if event == "log_event_failed":
            return self._failed[event] <= len(self._raised)
        if event == "batch_refused":
            return self._failed[event] <= self._database.refusals
        if event == "run_refused_by_postgres":
            return any(f"run_id={run_id} " in rest for run_id in self._database.refused)
        return False

    # ---- at the end -------------------------------------------------------------------------

    def at_end(self, *, ended: bool) -> None:
        self._look_at_alarms()
        if not ended:
            self._fail_unended()
            return
        self._check_tasks()
        for run_id, _ in sorted(self._database.flow.places):
            self.fail("flow-left", f"{run_id} has ended and holds a place")
        for run_id in sorted(self._database.runs):
            self._check_run(run_id)
        for heard in self._user.heard:
            if "finished_at_ms" in heard.body:
                self._compare_end("told-before-commit", heard.body)
        for number in sorted(self._database.partitions):
            self._check_replay(number)

    def _check_replay(self, number: int) -> None:
        """Check that Postgres has what a partition's log gives, as far as it is committed."""
        forged = self._platform.forger.written
        for difference in differences(self._database, self.history, number, forged):
            self.fail("replay", difference)

    def _fail_unended(self) -> None:
        rows = self._database.runs
        for run_id in sorted(self._tasks):
            if run_id not in rows and run_id not in self._refused:
                self.fail("task-lost", f"the task of {run_id} never became a run")
        for run_id in sorted(rows):
            if rows[run_id]["finished_at"] is None:
                steps = self._database.steps.get(run_id, {})
                live = {k: s["state"] for k, s in steps.items() if s["finished_at"] is None}
                self.fail("stuck", f"{run_id} never ended; its steps: {live}")
        self.fail("stuck", f"the users are not done: {self._user.done}")

    def _check_tasks(self) -> None:
        for key in sorted(self._user.published):
            run_id = ids.run_id(TENANT, key)
            if run_id not in self._database.runs and run_id not in self._refused:
                self.fail("task-lost", f"task {key} was published and there is no run {run_id}")
        bare = sum(1 for row in self._database.runs.values() if not row["parent"])
        named = sum(
            1 for key in self._user.published if ids.run_id(TENANT, key) not in self._refused
        )
        if bare - named < self._user.bare:
            self.fail("task-lost", f"{self._user.bare} tasks without a key gave fewer runs")

    def _check_run(self, run_id: str) -> None:
        row = self._database.runs[run_id]
        steps = self._database.steps.get(run_id, {})
        if not self._told[run_id]:
            self.fail("untold", f"{run_id} ended and nobody was told")
        spent, metered = Decimal(row["spent_usd"]), self._spent(run_id)
        if spent > metered + self._spent_by_strays(run_id):
            self.fail("spend", f"{run_id} has spent {spent} and its calls cost {metered}")
        if self._plan.gentle and row["status"] == "expired" and stood_still(self._database, row):
            live = {k: s["state"] for k, s in steps.items() if s["state"] == "cancelled"}
            self.fail("stuck", f"{run_id} stood still until its deadline: {live}")
        self._check_fault(run_id, row)
        self._check_path(run_id, row, steps)
        self._check_repeat(run_id, row, steps)
        if not steps:  # it never began
            return
        plan = plan_of(self._database, TENANT, row["pipeline"], row["version"])
        for key, step in steps.items():
            if step["finished_at"] is None:
                self.fail("stuck", f"{run_id} has ended and its step {key} is {step['state']}")
            facts = _json(step["facts"]) or {}
            if step["role"] == "leaf":
                emitted = "home" in facts
                node = None if emitted else plan.by_path[step["path"]].node
                external = node.type if node is not None and node.effects == "external" else None
                self._check_leaf(run_id, key, step, external=external)
            is_node = "link" not in facts and "home" not in facts
            if is_node and step["state"] != "skipped" and not self._is_barest(run_id):
                self._check_needs(run_id, key, step, plan.by_path[step["path"]])

    def _check_fault(self, run_id: str, row: dict[str, Any]) -> None:
        """Check that a run at fault ends with an error, and that no other run ends with that error."""
        code = (_json(row["error"]) or {}).get("code")
        succeeded = row["status"] in ("succeeded", "degraded")
        if code in hostile.SET_ASIDE and not self._is_at_fault(run_id):
            self.fail("neighbour", f"{run_id} was set aside with {code} and is not at fault")
        # what the log lost may turn out differently, and a late attempt changes no end
        if self._database.refused.get(run_id) == "run" and succeeded and not self._tail_lost:
            self.fail("fault", f"{run_id} was refused by Postgres and {row['status']}")

    def _is_barest(self, run_id: str) -> bool:
        """Return whether nothing but its end is written of a run that was set aside: no path, and not
        all of its steps. If that is too little, the rows differ from the log (`replay`)."""
        row = self._database.runs[run_id]
        return run_id in self._database.refused and row["critical_path"] is None

    def _is_at_fault(self, run_id: str) -> bool:
        """Return whether a run, or a sub-run of it, caused its being set aside."""
        if run_id in self._database.refused or run_id in self._raised:
            return True
        return any(
            (_json(row["parent"]) or {}).get("run_id") == run_id and self._is_at_fault(child)
            for child, row in self._database.runs.items()
        )

    def _is_bare(self, run_id: str, step: dict[str, Any]) -> bool:
        """Return whether a step may have been written without its values because its run was set aside.
        Its input stays as far as Postgres had it."""
        return run_id in self._database.refused and step["output"] is None

    def _check_path(self, run_id: str, row: dict[str, Any], steps: dict[str, Any]) -> None:
        """Check that the pieces of the critical path are steps of the run, and that they add up to its
        duration; a run that never began has none."""
        if self._is_barest(run_id):
            return
        path = _json(row["critical_path"]) or []
        took_us = round(1_000 * (row["finished_at"] - row["accepted_at"])) if steps else 0
        if sum(piece[4] for piece in path) != max(0, took_us):
            self.fail("path", f"{run_id} took {took_us} us and its critical path is {path}")
        if strangers := {piece[0] for piece in path} - set(steps):
            self.fail("path", f"{run_id} has {strangers} on its critical path and not in it")

    def _check_repeat(self, run_id: str, row: dict[str, Any], steps: dict[str, Any]) -> None:
        """Check that a run does not execute what it reuses, that it does not reuse what it was asked to
        execute again, and that a retry reuses everything that had succeeded."""
        origin = (_json(row["facts"]) or {}).get("origin")
        ran = {each.step for each in self._journal.executions if each.run_id == run_id}
        for key, step in steps.items():
            taken = _is_taken_over(step)
            if taken and key in ran:
                self.fail("paid-twice", f"{run_id} took {key} over and ran it all the same")
            if taken and origin is None and run_id not in self._database.refused:  # bare: no facts
                self.fail("paid-twice", f"{run_id} took {key} over and repeats no run")
            if origin is None or row["parent"] is not None:
                continue
            chosen = origin.get("from_step") if origin["operation"] == "rerun" else None
            if chosen and _is_under(key, chosen) and taken:
                self.fail("not-run-again", f"{run_id} was to run {key} and took it over")
            if origin["operation"] == "retry" and key in ran:
                self._check_retried(run_id, row, key, step, origin["run_id"])

    def _check_retried(
        self, run_id: str, row: dict[str, Any], key: str, step: dict[str, Any], origin: str
    ) -> None:
        """Check that a step executed by a retry had not succeeded before, or had a different input."""
        steps, before = self._database.steps.get(origin, {}), self._database.runs[origin]
        known = steps.get(key)
        if known is not None and self._is_bare(origin, known):
            return
        if known is None or known["state"] != "succeeded" or before["version"] != row["version"]:
            return
        replaced = any(f"{key}!{number}" in steps for number in range(3))
        degraded = (_json(known["facts"]) or {}).get("degraded", False)
        if not replaced and not degraded and _json(known["input"]) == _json(step["input"]):
            self.fail("paid-twice", f"{run_id} ran {key}, which {origin} had paid for")

    def _spent(self, run_id: str) -> Decimal:
        own = self._journal.spent(run_id)
        for child, row in self._database.runs.items():
            parent = _json(row["parent"])
            if parent is not None and parent["run_id"] == run_id:
                own += self._spent(child)
        return own

    def _spent_by_strays(self, run_id: str) -> Decimal:
        """Return what runs spent whose rows were refused, so that they do not say whose sub-runs they
        are."""
        runs, refused = self._database.runs, set(self._database.refused) - {run_id}
        strays = [one for one in refused if one not in runs or not runs[one]["parent"]]
        return sum(map(self._journal.spent, strays), Decimal(0))

    def _check_leaf(
        self, run_id: str, key: str, step: dict[str, Any], *, external: str | None
    ) -> None:
        """Check that a step's row has the input and output of its executions. `external`: the type of
        its node if that has effects outside. An execution of another type, or one before the run was
        accepted, is of a task with the same key that was lost, for another pipeline or version."""
        if self._is_bare(run_id, step):
            return
        wanted, taken = _json(step["input"]), _json(step["output"])
        accepted_ms = self._database.runs[run_id]["accepted_at"]
        for number in range(1, step["attempt"] + 1):
            for execution in self._journal.of_attempt.get(ids.attempt_id(run_id, key, number), ()):
                if as_jsonb(execution.input) == wanted:
                    continue
                # what was decided before a log lost its tail may be decided differently afterwards
                used = execution.outcome == "ok" and as_jsonb(execution.output) == taken
                effects = execution.type == external and execution.dispatched_at_ms >= accepted_ms
                if used or effects or not self._tail_lost:
                    self.fail("wrong-input", f"{execution.id} got {execution.input}, not {wanted}")
        facts = _json(step["facts"]) or {}
        if step["state"] == "succeeded" and "emitted" not in facts:
            source = facts.get("source")
            if source is None:
                given = self._given(run_id, key, step["attempt"])
            else:
                given = self._given(source["run_id"], source["step"], None)
            if taken not in given:
                self.fail("wrong-output", f"{run_id} {key} has an output that no execution gave")

    def _given(self, run_id: str, key: str, attempt: int | None) -> list[Any]:
        """Return the outputs of a step's executions (of one attempt, or of all) and of its fallbacks."""
        outputs = [
            as_jsonb(execution.output)
            for execution in self._journal.executions
            if (execution.run_id, execution.step) == (run_id, key)
            and attempt in (None, execution.attempt)
            and execution.outcome == "ok"
        ]
        return outputs + [
            _json(other["output"])
            for other in self._database.steps.get(run_id, {}).values()
            if other["parent"] == key and other["state"] == "succeeded"
        ]

    def _check_needs(self, run_id: str, key: str, step: dict[str, Any], node: Any) -> None:
        steps = self._database.steps[run_id]
        facts = _json(self._database.runs[run_id]["facts"]) or {}
        edited = facts.get("origin", {}).get("from_step")  # its input may have been given by hand
        scope = step["parent"]
        begun = [
            execution.begun_s
            for execution in self._journal.executions
            if execution.run_id == run_id
            and _is_under(execution.step, key)
            # of what was decided before a log lost its tail, only what is still valid
            and (not self._tail_lost or _is_latest(execution, steps.get(execution.step)))
        ]
        for need in node.needs:
            need_key = f"{scope}/{need}" if scope else need
            needed = steps.get(need_key)
            if needed is None:
                self.fail("order", f"{run_id} {key} ran and {need_key} never did")
                return
            given = _json(step["input"])
            default = step["role"] == "leaf" and node.input is None and isinstance(given, dict)
            if (
                default
                and not self._is_bare(run_id, needed)
                and key != edited
                and given.get(need) != _json(needed["output"])
            ):
                self.fail("wrong-input", f"{run_id} {key} got another output of {need_key}")
            for other_key, other in steps.items():
                if not begun or not _is_under(other_key, need_key) or other["role"] != "leaf":
                    continue
                if other["state"] != "succeeded" or _is_taken_over(other):
                    continue
                if other["attempt"] == 0 and self._is_bare(run_id, other):
                    continue  # it was reused, and its row may not say from where
                if f"{other_key}!0" in steps:  # its fast variant served, and is checked itself
                    continue
                # what was decided before a log lost its tail may have been based on an earlier attempt
                first = 1 if self._tail_lost else other["attempt"]
                attempts = range(min(first, other["attempt"]), other["attempt"] + 1)
                names = [ids.attempt_id(run_id, other_key, number) for number in attempts]
                # and the step that needs it may have begun in both histories
                latest = max(begun) if self._tail_lost else min(begun)
                if min(self._posted.get(name, float("inf")) for name in names) > latest:
                    self.fail("order", f"{run_id} {key} began before {names[-1]} had ended")

    def _is_beyond(self, run_id: str, deadline_at_ms: float) -> bool:
        """Return whether a deadline is later than the one with which the run was accepted."""
        accepted = self._deadlines.get(run_id)
        if accepted is None or self._pauses(run_id):
            return False
        return deadline_at_ms > accepted + 0.01

    def _pauses(self, run_id: str) -> bool:
        """Return whether a pipeline may pause its runs' deadlines."""
        return any('"approval"' in text for text in self._texts())

    def _texts(self) -> list[str]:
        return [
            text for versions in self._database.pipelines.values() for text in versions.values()
        ]

    def _requested(self, stored: Stored) -> str:
        """Return the id of the run that a task requests."""
        identity = cloudevents.task_identity(self._fields(stored), stored.seq, stored.time_ns)
        return ids.run_id(TENANT, identity.key)

    def _fields(self, stored: Stored) -> dict[str, str]:
        from simulation.engine.nats_server import parse_headers

        return parse_headers(stored.headers) if stored.headers else {}


def _task_of(accepted: dict[str, Any]) -> float | None:
    """Return when an accepted run's task was stored (Unix ms)."""
    ack = accepted.get("task_ack")
    return None if ack is None else parse_ack_subject(ack).stored_at_ms


def _told_of(stored: Stored) -> str | None:
    """Return the id of the run whose end an event reports."""
    if stored.subject.endswith(RunFinished.kind):
        return str(from_json(stored.data)["run_id"])
    if stored.subject.endswith(TaskRejected.kind):
        return str(from_json(stored.data)["task_id"])
    return None


@dataclass(slots=True)
class _Request:
    """The fields of a step's message that are checked."""

    run_id: str
    step: str
    attempt: int
    partition: int
    epoch: int
    deadline_at_ms: float
    effects_external: bool
    budget_left_usd: Decimal | None

    @staticmethod
    def all_in(payload: bytes) -> "list[_Request]":
        """Return all steps that a message requests."""
        fields = from_json(payload)
        return [_Request.read(one) for one in (fields, *fields.get("more", ()))]

    @staticmethod
    def read(fields: dict[str, Any]) -> "_Request":
        left = fields.get("budget_left_usd")
        return _Request(
            fields["run_id"],
            fields["step"],
            fields["attempt"],
            fields["partition"],
            fields["epoch"],
            fields["deadline_at_ms"],
            fields["effects_external"],
            None if left is None else Decimal(left),
        )


def _attempt(request: _Request) -> str:
    return ids.attempt_id(request.run_id, request.step, request.attempt)


def _is_taken_over(step: dict[str, Any]) -> bool:
    source = (_json(step["facts"]) or {}).get("source") or {}
    return bool(source.get("kind") == "run")


def _is_under(key: str, top: str) -> bool:
    return key == top or (key.startswith(top) and key[len(top) : len(top) + 1] in UNDER)


def _json(text: str | None) -> Any:
    return None if text is None else as_jsonb(from_json(text))


def _is_latest(execution: Execution, step: dict[str, Any] | None) -> bool:
    """Tell whether an execution is of the last attempt of its step, as it was dispatched last."""
    if step is None:
        return False
    latest = int(step["attempt"]), step["dispatched_at"]
    return (execution.attempt, execution.dispatched_at_ms) == latest
