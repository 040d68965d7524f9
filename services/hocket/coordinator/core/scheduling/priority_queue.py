"""The order in which ready steps of one node type get the slots that become free.

1. By class: interactive before standard before batch. A class that has been passed over
   `TURN_AFTER` times in a row has a turn, so that none starves.
2. By tenant, weighted: of two tenants that both have steps waiting, each gets expected slot time in
   proportion to its weight, however many steps the other has (start-time fair queueing: Goyal, Vin
   and Cheng 1996).
3. By run: a run that holds its share of the slots or more yields to those that hold less, so that a
   wide run does not shut out small ones. A run that can no longer make its deadline yields to those
   that can; it has a turn when it has been passed over `LATE_TURN_AFTER` times.
4. By slack: of the remaining runs, the one whose step must start earliest. Of the steps of one run
that
   must start at about the same time, the one whose join waits for the fewest others.

Every operation costs O(log n) in the number of waiting steps. Stale entries (a step was cancelled,
a run's place changed) are dropped when they come to the top, and swept out before they outnumber
the others.
"""

import heapq
from collections.abc import Mapping
from typing import Any

from hocket.schemas.messages import Priority

CLASSES = (Priority.INTERACTIVE, Priority.STANDARD, Priority.BATCH)
TURN_AFTER: Mapping[Priority, int] = {Priority.STANDARD: 4, Priority.BATCH: 16}
LATE_TURN_AFTER = 8
SIBLING_GRAIN_MS = 50.0
"""Steps of one run whose latest starts differ by less than this are ordered by their joins."""
MIN_CHARGE_MS = 1.0
"""The least that a tenant is charged for a step."""
MAX_CREDITS = 1_024
"""How many tenants without waiting steps have their account remembered, if it is ahead of the others."""
SPARE_ENTRIES = 64
"""How many stale entries a heap may hold beyond its number of good ones."""


class Ready:
    """An attempt that can start; immutable by convention. `latest_start_at_ms` is when it must
    start for its run to keep its deadline (least slack first), `latest_feasible_start_at_ms` when
    even the expected path misses it, `expected_ms` how long it will hold a slot, `join_left` how
    many steps, including this one, the next join of its run still waits for. `item` is what the
    caller wants back when the step goes out, `again` whether a former owner of its run may have
    sent it to a worker."""

    __slots__ = (
        "again",
        "attempt_id",
        "expected_ms",
        "item",
        "join_left",
        "latest_feasible_start_at_ms",
        "latest_start_at_ms",
        "partition",
        "priority",
        "run_id",
        "tenant",
        "type",
    )

    def __init__(
        self,
        attempt_id: str,
        type: str,  # noqa: A002 (the field's name)
        run_id: str,
        tenant: str,
        priority: Priority,
        partition: int,
        latest_start_at_ms: float,
        latest_feasible_start_at_ms: float,
        expected_ms: float,
        join_left: int,
        item: Any,
        again: bool = False,
    ) -> None:
        self.attempt_id = attempt_id
        self.type = type
        self.run_id = run_id
        self.tenant = tenant
        self.priority = priority
        self.partition = partition
        self.latest_start_at_ms = latest_start_at_ms
        self.latest_feasible_start_at_ms = latest_feasible_start_at_ms
        self.expected_ms = expected_ms
        self.join_left = join_left
        self.item = item
        self.again = again


class Waiting:
    """The waiting steps of one node type. `weights` are those of tenants; a tenant without one has 1."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self.held: dict[str, Ready] = {}
        """The waiting steps, by attempt; only for reading."""
        self._by_run: dict[str, int] = {}
        self._count = 0
        self._classes = {priority: _Class(weights) for priority in CLASSES}
        self._passed_over = dict.fromkeys(CLASSES, 0)

    def __len__(self) -> int:
        return len(self.held)

    def __contains__(self, attempt_id: str) -> bool:
        return attempt_id in self.held

    @property
    def runs(self) -> int:
        """How many runs have steps here."""
        return len(self._by_run)

    def has_right_of_way(self, barred: str | None) -> bool:
        """Tell whether the next step may have a slot that is kept for interactive ones: it is
        interactive itself, or its class has been passed over often enough."""
        return (
            self._classes[Priority.INTERACTIVE].ready(barred) > 0
            or self._class_due(barred) is not None
        )

    def push(self, step: Ready) -> None:
        """Add a step; one that is already waiting keeps its place."""
        if step.attempt_id in self.held:
            return
        self._count += 1
        self._by_run[step.run_id] = self._by_run.get(step.run_id, 0) + 1
        self.held[step.attempt_id] = step
        self._classes[step.priority].push(step, self._count)

    def pop(
        self, now_ms: float, out: Mapping[str, int], share: float, barred: str | None = None
    ) -> Ready | None:
        """Remove and return the step that goes next; None if only steps of the `barred` tenant
        wait. `out`: slots in use by run; `share`: how many each run may use before it yields."""
        chosen = self._class_to_serve(barred)
        if chosen is None:
            return None
        step = self._classes[chosen].pop(now_ms, out, share, self.held, barred)
        del self.held[step.attempt_id]
        self._left(step)
        return step

    def remove(self, attempt_id: str) -> Ready | None:
        """Remove a step that is no longer to go out; return it, or None if it does not wait here."""
        step = self.held.pop(attempt_id, None)
        if step is not None:
            self._left(step)
            self._classes[step.priority].removed(step, self.held)
        return step

    def place_again(self, run: Ready) -> None:
        """Place the run of `run` again, because it has given a slot back."""
        self._classes[run.priority].place_again(run, self.held)

    def steps(self) -> list[Ready]:
        """Return the waiting steps, in no particular order."""
        return list(self.held.values())

    def _left(self, step: Ready) -> None:
        count = self._by_run[step.run_id] - 1
        if count:
            self._by_run[step.run_id] = count
        else:
            del self._by_run[step.run_id]

    def _class_to_serve(self, barred: str | None) -> Priority | None:
        waiting = [priority for priority in CLASSES if self._classes[priority].ready(barred)]
        if not waiting:
            return None
        chosen = self._class_due(barred) or waiting[0]
        for priority in waiting:
            self._passed_over[priority] += 1
        self._passed_over[chosen] = 0
        return chosen

    def _class_due(self, barred: str | None) -> Priority | None:
        """Return the class whose turn it is because it has been passed over, if any."""
        for priority in (Priority.BATCH, Priority.STANDARD):
            due = self._passed_over[priority] >= TURN_AFTER[priority]
            if due and self._classes[priority].ready(barred):
                return priority
        return None


class _Class:
    """Tenants by account: the one that has been charged least goes next."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.count = 0
        self._weights = weights
        self._tenants: dict[str, _Tenant] = {}
        self._accounts: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._level = 0.0
        self._turn = 0

    def ready(self, barred: str | None) -> int:
        """Return how many steps wait here, not counting those of a barred tenant."""
        if barred is None or barred not in self._tenants:
            return self.count
        return self.count - self._tenants[barred].count

    def push(self, step: Ready, number: int) -> None:
        tenant = self._tenants.get(step.tenant)
        if tenant is None:
            tenant = self._tenants[step.tenant] = _Tenant()
            account = max(self._level, self._accounts.pop(step.tenant, 0.0))
            self._line_up(step.tenant, account)
        tenant.push(step, number)
        self.count += 1

    def pop(
        self,
        now_ms: float,
        out: Mapping[str, int],
        share: float,
        held: Mapping[str, Ready],
        barred: str | None,
    ) -> Ready:
        passed: tuple[float, int, str] | None = None
        while True:
            account, turn, name = heapq.heappop(self._heap)
            tenant = self._tenants[name]
            if tenant.count and name == barred:
                passed = account, turn, name
                continue
            if tenant.count:
                break
            del self._tenants[name]  # all of its steps were cancelled
            self._remember(name, account)
        if passed is not None:
            heapq.heappush(self._heap, passed)
        self._level = max(self._level, account)
        step = tenant.pop(now_ms, out, share, held)
        self.count -= 1
        charge = max(MIN_CHARGE_MS, step.expected_ms) / self._weights.get(name, 1.0)
        if tenant.count:
            self._line_up(name, account + charge)
        else:
            del self._tenants[name]
            self._remember(name, account + charge)
        return step

    def removed(self, step: Ready, held: Mapping[str, Ready]) -> None:
        self._tenants[step.tenant].removed(step, held)
        self.count -= 1

    def place_again(self, run: Ready, held: Mapping[str, Ready]) -> None:
        tenant = self._tenants.get(run.tenant)
        if tenant is not None:
            tenant.place_again(run.run_id, held)

    def _line_up(self, name: str, account: float) -> None:
        self._turn += 1
        heapq.heappush(self._heap, (account, self._turn, name))

    def _remember(self, name: str, account: float) -> None:
        """Keep an account that is ahead; any other has no effect when its tenant comes back."""
        if account > self._level:
            self._accounts[name] = account
        if len(self._accounts) > MAX_CREDITS:
            ahead = sorted(self._accounts.items(), key=lambda entry: entry[1])
            kept = [entry for entry in ahead if entry[1] > self._level]
            self._accounts = dict(kept[-MAX_CREDITS // 2 :])


class _Run:
    """The waiting steps of one run; `place` identifies its one valid entry in its tenant's heaps."""

    __slots__ = ("count", "place", "run_id", "steps")

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.steps: list[tuple[int, int, float, int, Ready]] = []
        self.count = 0
        self.place = 0

    def push(self, step: Ready, number: int) -> None:
        grain = int(step.latest_start_at_ms // SIBLING_GRAIN_MS)
        entry = (grain, step.join_left, step.latest_start_at_ms, number, step)
        heapq.heappush(self.steps, entry)
        self.count += 1

    def first(self, held: Mapping[str, Ready]) -> Ready:
        while True:
            step = self.steps[0][4]
            if held.get(step.attempt_id) is step:
                return step
            heapq.heappop(self.steps)

    def sweep(self, held: Mapping[str, Ready]) -> None:
        if len(self.steps) > 2 * self.count + SPARE_ENTRIES:
            self.steps = [e for e in self.steps if held.get(e[4].attempt_id) is e[4]]
            heapq.heapify(self.steps)


_Entry = tuple[float, int, _Run]
"""A run in a heap: the latest start of its first step, and the place for which this entry is valid."""


class _Tenant:
    """Runs by the latest start of their first step, in three heaps: below their share of the slots,
    at or above it, and too late."""

    def __init__(self) -> None:
        self.count = 0
        self._runs: dict[str, _Run] = {}
        self._below: list[_Entry] = []
        self._above: list[_Entry] = []
        self._late: list[_Entry] = []
        self._places = 0
        self._passed_over = 0

    def push(self, step: Ready, number: int) -> None:
        run = self._runs.get(step.run_id)
        if run is None:
            run = self._runs[step.run_id] = _Run(step.run_id)
        run.push(step, number)
        self.count += 1
        if run.count == 1 or step is run.steps[0][4]:
            self._enter(
                self._below, run, step
            )  # it is moved to the right heap when it comes to the top

    def pop(
        self, now_ms: float, out: Mapping[str, int], share: float, held: Mapping[str, Ready]
    ) -> Ready:
        run = self._next(now_ms, out, share, held)
        step = run.first(held)
        heapq.heappop(run.steps)
        self._less(run)
        if run.count:
            self._enter(self._below, run, run.first(held))
        return step

    def removed(self, step: Ready, held: Mapping[str, Ready]) -> None:
        run = self._runs[step.run_id]
        self._less(run)
        run.sweep(held)

    def place_again(self, run_id: str, held: Mapping[str, Ready]) -> None:
        run = self._runs.get(run_id)
        if run is not None:
            self._enter(self._below, run, run.first(held))

    def _next(
        self, now_ms: float, out: Mapping[str, int], share: float, held: Mapping[str, Ready]
    ) -> _Run:
        self._sort(now_ms, out, share, held)
        late = self._top(self._late)
        if late is not None and self._passed_over >= LATE_TURN_AFTER:
            self._passed_over = 0
            return late
        for heap in (self._below, self._above):
            run = self._top(heap)
            if run is not None:
                self._passed_over += late is not None
                return run
        assert late is not None, "a tenant without waiting steps is not asked"
        self._passed_over = 0
        return late

    def _sort(
        self, now_ms: float, out: Mapping[str, int], share: float, held: Mapping[str, Ready]
    ) -> None:
        """Move the runs at the top of the heaps to where they belong, until the top ones are in
        place."""
        for heap in (self._below, self._above):
            while (run := self._top(heap)) is not None:
                first = run.first(held)
                if first.latest_feasible_start_at_ms < now_ms:
                    self._enter(self._late, run, first)
                elif heap is self._below and out.get(run.run_id, 0) >= share:
                    self._enter(self._above, run, first)
                elif first.latest_start_at_ms != heap[0][0]:  # its first step was cancelled
                    self._enter(heap, run, first)
                else:
                    break

    def _top(self, heap: list[_Entry]) -> _Run | None:
        while heap:
            _, place, run = heap[0]
            if run.place == place and run.count:
                return run
            heapq.heappop(heap)
        return None

    def _enter(self, heap: list[_Entry], run: _Run, first: Ready) -> None:
        self._places += 1
        run.place = self._places
        heapq.heappush(heap, (first.latest_start_at_ms, run.place, run))
        entries = len(self._below) + len(self._above) + len(self._late)
        if entries > 2 * len(self._runs) + SPARE_ENTRIES:
            for some in (self._below, self._above, self._late):
                some[:] = [e for e in some if e[2].place == e[1] and e[2].count]
                heapq.heapify(some)

    def _less(self, run: _Run) -> None:
        run.count -= 1
        self.count -= 1
        if not run.count:
            del self._runs[run.run_id]
