"""Admission when there is more work than the workers can do: tasks begin, are kept waiting, or are
refused.

Each task is judged by its predicted completion (`core/scheduling/load_prediction.py`). One that
must wait stays unacknowledged in TASKS and is reported as in progress; it is judged again several
times a second, by class and deadline, until it can begin or cannot make its deadline any more. The
number of waiting tasks is bounded, in total and per tenant, and a large one takes several places
(`waiting_inputs.py`); beyond that, tasks are refused. If all places are taken, the newest task is
refused, unless its tenant has fewer than another: then tasks of the tenant with the most give up
their places. A process that ends gives its waiting tasks back.
"""

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from hocket.coordinator.core.scheduling.load_prediction import (
    ON_OVERLOAD,
    Prediction,
    TooManyTasksWait,
    Verdict,
    is_lost,
    judge,
    retry_after_ms,
    unreachable,
)
from hocket.coordinator.core.scheduling.priority_queue import CLASSES
from hocket.coordinator.dispatch.workload import Load
from hocket.coordinator.intake.waiting_inputs import Inputs, places_of, with_inputs, without_inputs
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.storage.pipelines.duration_stats import Durations
from hocket.kit.nats.bus import Bus
from hocket.kit.process.clock import now_ms
from hocket.kit.process.limits.memory import end_if_short
from hocket.schemas.errors import ErrorInfo, HocketError
from hocket.schemas.messages import RunAccepted
from hocket.schemas.pipeline.plan import Plan

MAX_WAITING_TASKS = 2_000
MAX_WAITING_PER_TENANT = 1_000
TICK_S = 0.1
KEEP_ALIVE_EVERY = 15
"""Ticks between reports that waiting tasks are in progress: well within intake's ack wait."""
MAX_WORK = 4_000
"""What may be done in a tick, in nodes of the plans that are walked or laid out: a few hundredths of a
second if all of them are laid out."""
MAX_WORK_OF_TENANT = MAX_WORK // 2
LOOK_WORK = 4
"""What a look costs beside the nodes of its task's plan."""
MAX_PASSED_OVER = 8
"""Once this many tasks of one pipeline, class and tenant have to keep waiting, the rest are not
looked at."""

log = structlog.get_logger(__name__)

Group = tuple[int, str, str, int]
"""Class (its rank), tenant, pipeline and version: tasks that differ only in their deadlines."""


class Candidate(NamedTuple):
    """A task that may begin, as it would be accepted."""

    accepted: RunAccepted
    partition: int
    plan: Plan
    msg_id: str
    """The message id of its acceptance."""
    inputs: Inputs | None = None
    """The inputs of its acceptance as text, while it waits: then the acceptance has none."""

    @property
    def places(self) -> int:
        """How many places it takes while it waits."""
        return places_of(self.inputs)


@dataclass(slots=True)
class _Waiting:
    by_group: dict[Group, list[tuple[float, str]]] = field(default_factory=dict)
    """Heaps ordered by deadline."""
    by_run: dict[str, Candidate] = field(default_factory=dict)
    places: int = 0
    """How many places are taken."""
    by_tenant: dict[str, int] = field(default_factory=dict)
    """The same for each tenant."""
    looked_at: set[Group] = field(default_factory=set)
    """Groups that are not looked at again before all others of their tenant."""
    missed: dict[str, int] = field(default_factory=dict)
    """How many ticks did not come to a tenant, in a row."""

    def in_turn(self) -> list[Group]:
        """Return the groups that are looked at next, in their order."""
        return sorted(
            self.by_group.keys() - self.looked_at,
            key=lambda group: (-self.missed.get(group[1], 0), group[0], self.by_group[group][0]),
        )

    def remove(self, candidate: Candidate) -> None:
        """Forget a task that has left the heap of its group."""
        tenant = candidate.accepted.tenant
        del self.by_run[candidate.accepted.run_id]
        self.places -= candidate.places
        self.by_tenant[tenant] -= candidate.places
        if not self.by_tenant[tenant]:
            del self.by_tenant[tenant]


class Overload:
    """Admits tasks by class and deadline while there is too much to do. `post` gets each task that
    begins, and each that is refused, with its error."""

    def __init__(
        self,
        bus: Bus,
        durations: Durations,
        load: Load,
        metrics: CoordinatorMetrics,
        *,
        post: Callable[[Candidate, ErrorInfo | None], None],
    ) -> None:
        self._bus = bus
        self._durations = durations
        self._load = load
        self._metrics = metrics
        self._post = post
        self._waiting = _Waiting()

    def take(self, candidate: Candidate) -> None:
        """Decide about a task that has arrived; one that is already waiting is only updated."""
        known = self._waiting.by_run.get(candidate.accepted.run_id)
        if known is not None:
            self._waiting.by_run[known.accepted.run_id] = _again(known, candidate)
            return
        verdict, prediction = self._judge(candidate)
        if verdict is Verdict.ADMIT:
            self._admit(candidate)
        elif verdict is Verdict.REJECT:
            self._refuse(candidate, unreachable(prediction, _left_ms(candidate)))
        elif self._makes_room(stripped := _stripped(candidate)):
            self._wait(stripped)
        else:
            self._refuse(candidate, self._too_many(candidate, prediction))

    def waiting(self, run_id: str) -> RunAccepted | None:
        """Return the acceptance that waits here for a run, if one does."""
        known = self._waiting.by_run.get(run_id)
        return None if known is None else known.accepted

    async def run(self) -> None:
        """Judge waiting tasks repeatedly; cancel to stop, which gives them back."""
        ticks = 0
        try:
            while True:
                await asyncio.sleep(TICK_S)
                await self._bus.wait_for_capacity()
                ticks += 1
                self.look_again()
                if ticks % KEEP_ALIVE_EVERY == 0:
                    self._tell_all(b"+WPI")
        finally:
            self._tell_all(b"-NAK")

    def look_again(self) -> None:
        """Judge the waiting tasks, by class and deadline. If that is too much for one tick, the next
        ones go on with the tenants, and with the groups of each, that it did not come to."""
        waiting, total = self._waiting, 0
        spent: dict[str, int] = {}
        unfinished: set[str] = set()
        for group in waiting.in_turn():
            tenant = group[1]
            left = min(MAX_WORK - total, MAX_WORK_OF_TENANT - spent.get(tenant, 0))
            if left <= 0:
                unfinished.add(tenant)
                continue
            waiting.looked_at.add(group)
            work = self._look_at(group, left)
            spent[tenant] = spent.get(tenant, 0) + work
            total += work
        waiting.looked_at = {
            group
            for group in waiting.looked_at
            if group[1] in unfinished and group in waiting.by_group
        }
        waiting.missed = {
            tenant: waiting.missed.get(tenant, 0) + 1 for tenant in unfinished - spent.keys()
        }
        self._metrics.tasks_waiting(len(waiting.by_run))

    def _look_at(self, group: Group, max_work: int) -> int:
        """Judge the first tasks of a group, and return what that cost."""
        heap = self._waiting.by_group[group]
        passed_over: list[tuple[float, str]] = []
        work = 0
        while heap and len(passed_over) < MAX_PASSED_OVER and work < max_work:
            entry = heapq.heappop(heap)
            candidate = self._waiting.by_run[entry[1]]
            work += LOOK_WORK + len(candidate.plan.by_path)
            if self._keeps_waiting(candidate):
                passed_over.append(entry)
        for entry in passed_over:
            heapq.heappush(heap, entry)
        if not heap:
            del self._waiting.by_group[group]
        return work

    def _keeps_waiting(self, candidate: Candidate) -> bool:
        """Judge a waiting task, and tell whether it has to keep waiting. One that fails no longer
        waits here: it is delivered again, and delays nobody."""
        try:
            verdict, prediction = self._judge(candidate)
            left_ms = _left_ms(candidate)
            if is_lost(prediction, left_ms) or left_ms <= 0:
                self._refuse(candidate, unreachable(prediction, left_ms))
            elif verdict is Verdict.ADMIT:
                self._admit(candidate)
            else:
                return True
        except Exception as error:
            end_if_short(error)
            log.exception("waiting_task_not_judged", run_id=candidate.accepted.run_id)
        self._waiting.remove(candidate)
        return False

    def _judge(self, candidate: Candidate) -> tuple[Verdict, Prediction]:
        accepted, plan = candidate.accepted, candidate.plan
        outlook = self._durations.outlook(
            accepted.tenant, accepted.pipeline, accepted.version, plan
        )
        prediction = self._load.predict(accepted, plan, outlook)
        policy = plan.pipeline.on_overload or ON_OVERLOAD[accepted.priority]
        return judge(prediction, _left_ms(candidate), policy), prediction

    def _admit(self, candidate: Candidate) -> None:
        accepted = candidate.accepted
        outlook = self._durations.outlook(
            accepted.tenant, accepted.pipeline, accepted.version, candidate.plan
        )
        self._load.admitted(accepted, candidate.partition, candidate.plan, outlook)
        self._metrics.task("accepted")
        if self._durations.wants_probe(accepted.tenant, accepted.pipeline):
            accepted = accepted.model_copy(update={"probe": True})
            candidate = candidate._replace(accepted=accepted)
        self._post(_whole(candidate), None)

    def _refuse(self, candidate: Candidate, error: HocketError) -> None:
        self._metrics.task("unreachable")
        self._post(_whole(candidate), error.info())

    # ---- waiting ----------------------------------------------------------------------------

    def _makes_room(self, candidate: Candidate) -> bool:
        """Tell whether a task may wait, if need be in the place of one whose tenant has more."""
        waiting, by_tenant = self._waiting, self._waiting.by_tenant
        wanted = by_tenant.get(candidate.accepted.tenant, 0) + candidate.places
        if wanted > MAX_WAITING_PER_TENANT:
            return False
        while waiting.places + candidate.places > MAX_WAITING_TASKS:
            largest = max(by_tenant, key=lambda tenant: (by_tenant[tenant], tenant))
            if by_tenant[largest] <= wanted:
                return False
            displaced = self._take_out(largest)
            self._refuse(displaced, self._too_many(displaced, self._judge(displaced)[1]))
        return True

    def _take_out(self, tenant: str) -> Candidate:
        """Remove a waiting task of a tenant: one of its lowest class, and not an urgent one."""
        by_group = self._waiting.by_group
        group = max(group for group in by_group if group[1] == tenant)
        _, run_id = by_group[group].pop()  # a leaf, so that the heap stays valid
        if not by_group[group]:
            del by_group[group]
        candidate = self._waiting.by_run[run_id]
        self._waiting.remove(candidate)
        return candidate

    def _too_many(self, candidate: Candidate, prediction: Prediction) -> HocketError:
        return TooManyTasksWait(
            waiting=len(self._waiting.by_run),
            limited_by=prediction.limited_by,
            retry_after_ms=retry_after_ms(prediction, _left_ms(candidate)),
        )

    def _wait(self, candidate: Candidate) -> None:
        waiting, accepted = self._waiting, candidate.accepted
        self._metrics.task("waiting")
        waiting.by_run[accepted.run_id] = candidate
        waiting.places += candidate.places
        taken = waiting.by_tenant.get(accepted.tenant, 0)
        waiting.by_tenant[accepted.tenant] = taken + candidate.places
        heap = waiting.by_group.setdefault(_group(accepted), [])
        heapq.heappush(heap, (accepted.deadline_at_ms, accepted.run_id))

    def _tell_all(self, word: bytes) -> None:
        for candidate in self._waiting.by_run.values():
            if candidate.accepted.task_ack is not None:
                self._bus.publish_nowait(candidate.accepted.task_ack, word)


def _group(accepted: RunAccepted) -> Group:
    return (
        CLASSES.index(accepted.priority),
        accepted.tenant,
        accepted.pipeline,
        accepted.version,
    )


def _again(known: Candidate, delivered: Candidate) -> Candidate:
    """Return a waiting task as it was first accepted, with what a newer delivery changes."""
    newer = delivered.accepted
    changed = {"task_ack": newer.task_ack, "checked_at_ms": newer.checked_at_ms}
    return known._replace(
        accepted=known.accepted.model_copy(update=changed), msg_id=delivered.msg_id
    )


def _stripped(candidate: Candidate) -> Candidate:
    accepted, inputs = without_inputs(candidate.accepted)
    return candidate._replace(accepted=accepted, inputs=inputs)


def _whole(candidate: Candidate) -> Candidate:
    if candidate.inputs is None:
        return candidate
    accepted = with_inputs(candidate.accepted, candidate.inputs)
    return candidate._replace(accepted=accepted, inputs=None)


def _left_ms(candidate: Candidate) -> float:
    return candidate.accepted.deadline_at_ms - now_ms()
