"""The new core as the shadow of the coordinator's: it gets every event of a play, and what it does is
compared at once.

The old core's runs are frozen: each decision gives a new one. A run of the new core belongs to the
latest of them; one that has none (it was read from Postgres, or an event was half applied and its run
was decided anew) is read back from the rows of the frozen one. So takeovers, rewinds and crashes in the
middle of an event are compared like everything else.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any

from hocket.coordinator.core.machine import (
    aborting,
    beginning,
    critical_path,
    machine,
    parking,
    work,
)
from hocket.coordinator.core.machine.constructs import reuse as reusing
from hocket.coordinator.core.machine.plan.forecasts import PlanForecast
from hocket.coordinator.core.machine.plan.nodes import PipelinePlan
from hocket.coordinator.core.machine.state import restore
from hocket.coordinator.core.machine.state.run import Owner
from hocket.coordinator.core.machine.state.run import Run as Machine
from hocket.coordinator.core.machine.transition import Outcome, Transition
from hocket.coordinator.core.run import decide as old_rules
from hocket.coordinator.core.run.decide import Decision
from hocket.coordinator.core.run.state import Run
from hocket.coordinator.core.time import critical_path as old_path
from hocket.coordinator.core.waiting.parking import rests_until
from hocket.coordinator.partition.events import event_handler
from hocket.coordinator.partition.runs import failed_runs, run_acceptance, run_loader
from hocket.coordinator.storage import source_runs
from hocket.schemas.pipeline.plan import Plan
from simulation.engine.swaps import swapped
from simulation.oracle.constructs import constructs_of
from simulation.oracle.views import (
    derived_view,
    first_difference,
    orders_of,
    run_view,
    step_views,
    stored,
    stored_machine,
    told,
)

READ_BACK_EVERY = 5
"""Of so many events one is followed by reading the run back from its rows."""
RESTING = ((3_000.0, 0.0), (40_000.0, 0.0), (3_000.0, -1e9))
"""How long a run was quiet, and how far now is from its event, where it is asked whether it rests."""
MANY_STEPS = 100
"""Of a run with more steps only those that change are looked at, until it ends."""
HUGE_BYTES = 2_000_000
MAX_FOUND = 5
Old = Callable[..., Any]
PLACES: tuple[tuple[Any, str], ...] = (
    (run_acceptance, "accept"),
    (run_acceptance, "reject"),
    (run_acceptance, "refuse"),
    (event_handler, "decide"),
    (run_loader, "resume"),
    (failed_runs, "aborted"),
    (failed_runs, "altered"),
    (source_runs, "reuse_of"),
)
"""Where a coordinator has the functions of the old core."""


@dataclass(frozen=True)
class Difference:
    """Where the cores differ: which event of which run, in what, and what each has there."""

    run_id: str
    event: str
    where: str
    old: str
    new: str
    constructs: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"run {self.run_id}, {self.event}: {self.where}\n"
            f"    old {self.old}\n    new {self.new}\n    of {', '.join(self.constructs)}"
        )


@dataclass
class Report:
    """What was compared, and what differs."""

    counts: Counter[str] = field(default_factory=Counter)
    runs_with: Counter[str] = field(default_factory=Counter)
    """Runs by construct."""
    found: list[Difference] = field(default_factory=list)

    def add(self, other: "Report") -> None:
        self.counts.update(other.counts)
        self.runs_with.update(other.runs_with)
        self.found += other.found


class Shadow:
    """Feeds the new core what the old one gets."""

    def __init__(self, *, most_events: float = inf, faults: Random | None = None) -> None:
        self.report = Report()
        self._faults = faults
        """Dice for exceptions in the middle of an event, after which its run is read back."""
        self._most_events = most_events
        self._machines: dict[int, tuple[Run, Machine]] = {}
        self._plans: dict[int, tuple[Plan, PipelinePlan]] = {}
        self._forecasts: dict[tuple[int, int], tuple[Any, PlanForecast]] = {}
        self._reuses: dict[int, tuple[Any, reusing.Reuse]] = {}
        self._partition = 0
        self._seen: set[str] = set()

    @contextmanager
    def watching(self, *places: tuple[Any, str]) -> Iterator[None]:
        """Compare what is decided: by coordinators, or in the modules that are named, each with the name
        under which it has a function of the old core."""
        rules = {
            "accept": self._accepting,
            "reject": self._rejecting,
            "refuse": self._refusing,
            "decide": self._deciding,
            "resume": self._resuming,
            "aborted": self._aborting,
            "altered": self._altering,
            "reuse_of": self._reusing,
        }
        with swapped(
            *((place, name, rules[name](vars(place)[name])) for place, name in places or PLACES)
        ):
            yield

    # ---- what stands in the place of the old core's functions -----------------------------------

    def _accepting(self, old: Old) -> Old:
        def accept(event: Any, **named: Any) -> Any:
            def new() -> Outcome:
                plan = self._plan(named["plan"])
                return beginning.accept(
                    event,
                    plan,
                    Owner(named["partition"], named["epoch"], named.get("capabilities")),
                    now_ms=named["now_ms"],
                    forecast=self._forecast(plan, named["outlook"]),
                    reuse=self._reuse(named.get("reuse")),
                )

            return self._both("accepted", event.run_id, lambda: old(event, **named), new)

        return accept

    def _rejecting(self, old: Old) -> Old:
        def reject(event: Any, *, partition: int, now_ms: float) -> Any:
            def new() -> Outcome:
                return beginning.reject(event, Owner(partition, 0, None), now_ms=now_ms)

            same = {"partition": partition, "now_ms": now_ms}
            return self._both("rejected", event.run_id, lambda: old(event, **same), new)

        return reject

    def _refusing(self, old: Old) -> Old:
        def refuse(event: Any, error: Any, *, partition: int, now_ms: float) -> Any:
            def new() -> Outcome:
                return beginning.refuse(event, error, Owner(partition, 0, None), now_ms=now_ms)

            same = {"partition": partition, "now_ms": now_ms}
            return self._both("refused", event.run_id, lambda: old(event, error, **same), new)

        return refuse

    def _deciding(self, old: Old) -> Old:
        def decide(run: Run, event: Any, **named: Any) -> Any:
            def new() -> Outcome:
                mine = self._machine(run, named)
                forecast = self._forecast(self._plan(named["plan"]), named["outlook"])
                return machine.apply(mine, event, named["now_ms"], forecast)

            kind = type(event).__name__
            return self._both(kind, run.run_id, lambda: old(run, event, **named), new, run)

        return decide

    def _resuming(self, old: Old) -> Old:
        def resume(run: Run, **named: Any) -> Any:
            def new() -> Outcome:
                mine = self._machine(run, named, is_read=True)
                forecast = self._forecast(self._plan(named["plan"]), named["outlook"])
                return machine.resume(mine, named["now_ms"], forecast)

            return self._both("resume", run.run_id, lambda: old(run, **named), new, run)

        return resume

    def _aborting(self, old: Old) -> Old:
        def aborted(run: Run, error: Any, **named: Any) -> Any:
            if named["plan"] is None and id(run) not in self._machines:
                return old(run, error, **named)
            rule = aborting.closed if named["plan"] is None else aborting.aborted

            def new() -> Outcome:
                return rule(self._machine(run, named), error, now_ms=named["now_ms"])

            return self._both("aborted", run.run_id, lambda: old(run, error, **named), new, run)

        return aborted

    def _altering(self, old: Old) -> Old:
        def altered(run: Run, error: Any) -> Any:
            if id(run) not in self._machines:
                return old(run, error)

            def new() -> Outcome:
                return aborting.altered(self._machine(run, {"plan": None}), error)

            return self._both("altered", run.run_id, lambda: old(run, error), new, run)

        return altered

    def _reusing(self, old: Old) -> Old:
        def reuse_of(origin: Run, origin_plan: Plan, plan: Plan, asked: Any) -> Any:
            found = old(origin, origin_plan, plan, asked)
            mine = self._restored(origin, self._plan(origin_plan), Owner(origin.partition, 0, None))
            reuse = reusing.reuse_of(mine, self._plan(plan), asked)
            if found.kept.keys() != reuse.kept.keys() or found.forced != reuse.forced:
                old_keys, new_keys = sorted(found.kept), sorted(reuse.kept)
                self._differs("reuse", origin.run_id, "kept", told(old_keys), told(new_keys), None)
            self._reuses[id(found)] = (found, reuse)
            return found

        return reuse_of

    # ---- one event of both cores ------------------------------------------------------------

    def _both(
        self,
        event: str,
        run_id: str,
        old: Callable[[], Decision],
        new: Callable[[], Outcome],
        before: Run | None = None,
    ) -> Decision:
        """Let both cores do the same; compare; return, or raise, what the old one does. After
        `most_events` only the old one is asked, and where a run is huge."""
        if self.report.counts["events"] >= self._most_events or (
            before is not None and before.size_bytes > HUGE_BYTES
        ):
            return old()
        decision: Decision | None = None
        raised: Exception | None = None
        try:
            decision = old()
        except Exception as error:
            raised = error
        try:
            with _same_bounds():
                self._break_off(new, before)
                outcome = new()
        except Exception as error:
            if raised is None:
                where = f"it raises {type(error).__name__}: {error}\n{_place_of(error)}"
                self._differs(event, run_id, where, "nothing raised", "", before)
            elif type(error) is not type(raised):
                where = "raises another error"
                self._differs(event, run_id, where, repr(raised), repr(error), before)
            self._forget(before)
        else:
            if decision is None:
                self._differs(event, run_id, "raises nothing", repr(raised), "", before)
                self._forget(before)
            else:
                self._compare(event, decision, outcome, before)
        if raised is not None:
            raise raised
        assert decision is not None
        return decision

    def _break_off(self, new: Callable[[], Outcome], before: Run | None) -> None:
        """Let an event raise somewhere in its middle, at times; what it did to the run is dropped."""
        if self._faults is None or self._faults.random() < 0.7:
            return
        left = self._faults.randint(1, 6)
        keep = Transition.keep

        def broken(t: Transition, step: Any) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise BrokenOffError
            keep(t, step)

        with swapped((Transition, "keep", broken)), suppress(Exception):
            new()
        if left <= 0:
            self.report.counts["broken off"] += 1
        self._forget(before)

    def _compare(
        self, event: str, decision: Decision, outcome: Outcome, before: Run | None
    ) -> None:
        counts = self.report.counts
        counts["events"] += 1
        counts[f"event {event}"] += 1
        counts["orders"] += len(decision.commands)
        counts["rows"] += len(decision.changed) + decision.run_changed
        if decision.run.ended and (before is None or not before.ended):
            counts["ends"] += 1
        changed = sorted(step.key for step in outcome.changed)
        for step in outcome.changed:
            step.is_changed = False
        run, mine = decision.run, outcome.run
        keys = None  # all
        if len(run.steps) > MANY_STEPS and not run.ended:
            keys = {*decision.changed, *changed}
        views = [
            ("orders", orders_of(decision), orders_of(outcome)),
            ("changed", sorted(decision.changed), changed),
            ("run_changed", decision.run_changed, outcome.run_changed),
            ("run", run_view(run), run_view(mine)),
            ("steps", step_views(run, keys), step_views(mine, keys)),
        ]
        if keys is None:
            views.append(("derived", derived_view(run), derived_view(mine)))
        if not run.ended:
            views.append(("armed", run.armed_at_ms, mine.armed_at_ms))
            views.append(("rests", _rests(run, rests_until), _rests(mine, parking.rests_until)))
        for name, old, new in views:
            found = first_difference(old, new)
            if found is not None:
                where, *values = found
                self._differs(
                    event, run.run_id, name + where, told(values[0]), told(values[1]), run
                )
                self._forget(before)
                return
        self._forget(before)
        self._machines[id(run)] = (run, mine)
        if mine.plan is not None:
            self._note_constructs(mine)
            if keys is None and counts["events"] % READ_BACK_EVERY == 0:
                self._read_back(event, mine)

    def _read_back(self, event: str, mine: Machine) -> None:
        """Compare a run with itself, read back from its rows."""
        assert mine.plan is not None
        self.report.counts["read back"] += 1
        row, steps = stored_machine(mine)
        again = restore.restored(row, steps, mine.plan, mine.owner)
        views = (
            ("run", run_view(mine), run_view(again)),
            ("steps", step_views(mine), step_views(again)),
            ("derived", derived_view(mine), derived_view(again)),
        )
        for name, old, new in views:
            found = first_difference(old, new)
            if found is not None and not (found[0] == ".size_bytes" and _has_nul(row, steps)):
                where = f"read back: {name}{found[0]}"
                self._differs(event, mine.run_id, where, told(found[1]), told(found[2]), None)
                return

    def _differs(
        self, event: str, run_id: str, where: str, old: str, new: str, run: Run | None
    ) -> None:
        self.report.counts["differences"] += 1
        if len(self.report.found) < MAX_FOUND:
            held = self._machines.get(id(run))
            known = () if held is None or held[1].plan is None else constructs_of(held[1].plan)
            self.report.found.append(Difference(run_id, event, where, old, new, known))

    # ---- whose run is whose -----------------------------------------------------------------

    def _machine(self, run: Run, named: dict[str, Any], *, is_read: bool = False) -> Machine:
        held = self._machines.get(id(run))
        owner = Owner(run.partition, named.get("epoch", 0), named.get("capabilities"))
        if held is not None:
            mine = held[1]
            before = mine.owner
            if "capabilities" in named and (
                before.epoch != owner.epoch or before.capabilities is not owner.capabilities
            ):
                mine.owner = owner
                mine.prefix = None
            return mine
        self.report.counts["adopted"] += 1
        mine = self._restored(run, self._plan(named["plan"]), owner)
        mine.armed_at_ms = run.armed_at_ms
        mine.reuse = self._reuse(run.reuse)
        if is_read:
            found = first_difference(derived_view(run), derived_view(mine))
            if found is not None:
                where = f"restored: {found[0]}"
                self._differs("resume", run.run_id, where, told(found[1]), told(found[2]), run)
        return mine

    def _restored(self, run: Run, plan: PipelinePlan, owner: Owner) -> Machine:
        row, steps = stored(run)
        return restore.restored(row, steps, plan, owner)

    def _forget(self, run: Run | None) -> None:
        if run is not None:
            self._machines.pop(id(run), None)

    def _plan(self, plan: Plan) -> PipelinePlan:
        found = self._plans.get(id(plan))
        if found is None:
            found = self._plans[id(plan)] = (plan, PipelinePlan(plan))
        return found[1]

    def _forecast(self, plan: PipelinePlan, outlook: Any) -> PlanForecast:
        key = (id(plan), id(outlook))
        found = self._forecasts.get(key)
        if found is None:
            found = self._forecasts[key] = (outlook, PlanForecast(plan, outlook))
        return found[1]

    def _reuse(self, old: Any) -> reusing.Reuse | None:
        return None if old is None else self._reuses[id(old)][1]

    def _note_constructs(self, mine: Machine) -> None:
        if mine.run_id not in self._seen:
            self._seen.add(mine.run_id)
            self.report.counts["runs"] += 1
            assert mine.plan is not None
            self.report.runs_with.update(constructs_of(mine.plan))


def _same_bounds() -> AbstractContextManager[None]:
    """Give the new core the bounds of the old one: tests lower them."""
    return swapped(
        (work, "MAX_RUN_STATE_BYTES", old_rules.MAX_RUN_STATE_BYTES),
        (work, "MAX_RUN_OPERATIONS", old_rules.MAX_RUN_OPERATIONS),
        (critical_path, "MAX_SEGMENTS", old_path.MAX_SEGMENTS),
    )


def _has_nul(row: Any, steps: list[Any]) -> bool:
    """Tell whether something has U+0000 in it, for which a row has another character."""
    texts = [text for one in (row, *steps) for text in one.values() if isinstance(text, str)]
    return any(r"\ufffd" in text for text in texts)


class BrokenOffError(Exception):
    """What no rule expects."""


def _rests(run: Any, rule: Callable[..., float | None]) -> list[float | None]:
    at_ms = run.accepted_at_ms
    return [rule(run, quiet_ms=quiet, now_ms=at_ms + more) for quiet, more in RESTING]


def _place_of(error: Exception) -> str:
    return "".join(traceback.format_tb(error.__traceback__)[-3:])
