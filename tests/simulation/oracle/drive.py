"""Both cores without a platform: random pipelines, and random events in any order.

A play of the platform brings what happens; this brings what could: results of steps nobody asked for,
or twice, timers at any moment, answers to nobody, takeovers between any two events, forecasts that jump.
It is some twenty times as fast, and draws constructs and values that plays do not.
"""

from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from random import Random
from typing import Any

from hocket.coordinator.core.rows.records import restore, run_of, step_of
from hocket.coordinator.core.run import commands, decide
from hocket.coordinator.core.run.aborting import reason_of
from hocket.coordinator.core.run.decide import Decision
from hocket.coordinator.core.run.state import Run
from hocket.coordinator.core.structures.frozen import replace
from hocket.coordinator.core.time import critical_path as old_path
from hocket.coordinator.core.time.deadlines import HOP, UNIT, Estimate, outlook
from hocket.coordinator.partition.events import event_handler
from hocket.coordinator.partition.runs import failed_runs, run_acceptance, run_loader
from hocket.coordinator.storage import source_runs
from hocket.schemas import ids
from hocket.schemas.errors import ErrorClass, ErrorInfo, HeldTooLong, InvalidInput
from hocket.schemas.messages import (
    AttemptFinished,
    CacheAnswered,
    CancelRequested,
    Priority,
    RunAccepted,
    RunOrigin,
    RunParent,
    SignalReceived,
    Spend,
    TimerFired,
    Timing,
)
from hocket.schemas.pipeline.plan import Plan
from hocket.schemas.templates import budget
from simulation.engine.swaps import swapped
from simulation.oracle.shadow import Report, Shadow
from simulation.oracle.spice import spiced
from simulation.oracle.views import stored
from simulation.platform.compiled import compiled
from simulation.platform.pipelines import Generator
from simulation.platform.platform import CAPABILITIES

AT_MS = 1_700_000_000_000.0
MAX_EVENTS = 80
LATE_EVENTS = 4
RUNS = 6
TEXT = "a long text that prompts begin with; " * 40


def driven(seed: str, *, breaks: bool = False) -> Report:
    """Drive some runs; return what was compared, and what differs. `breaks`: events of the new core
    raise in their middle, at times, and are applied anew to the run as its rows have it."""
    shadow = Shadow(faults=Random(f"{seed}:faults") if breaks else None)
    dice = Random(f"{seed}:drive")
    with _bounds(dice), shadow.watching():
        _Driver(dice, nul="" if breaks else "\x00").drive()
    shadow.report.counts["seeds"] += 1
    return shadow.report


def _bounds(dice: Random) -> AbstractContextManager[None]:
    """Let some plays have bounds that their runs come to."""
    if dice.random() < 0.8:
        return nullcontext()
    operations, segments = dice.choice((30_000, 10**9)), dice.choice((3, 1_000))
    return swapped(
        (decide, "MAX_RUN_STATE_BYTES", dice.choice((20_000, 10**9))),
        (decide, "MAX_RUN_OPERATIONS", operations),
        (budget, "MAX_TOGETHER_OPERATIONS", dice.choice((40_000, 12_000_000))),
        (old_path, "MAX_SEGMENTS", segments),
    )


class _Driver:
    """Drives runs of one pipeline; `_requests` are what workers, caches and sub-runs were asked. `nul`
    stands in some outputs: U+0000, for which a row has another character, of another length."""

    def __init__(self, dice: Random, *, nul: str) -> None:
        self._dice = dice
        self._nul = nul
        self._now_ms = AT_MS
        self._epoch = 1
        self._capabilities = CAPABILITIES if dice.random() < 0.5 else None
        self._plan = _drawn(dice)
        self._outlook: Any = outlook(self._plan, {})
        self._ended: list[Run] = []
        self._requests: list[Any] = []

    def drive(self) -> None:
        for number in range(RUNS):
            self._requests.clear()
            run = self._accept(number)
            for _ in range(MAX_EVENTS):
                if run.ended:
                    break
                run = self._step(run)
            for _ in range(LATE_EVENTS if run.ended else 0):
                run = self._event(run)
            if run.ended:
                self._ended.append(run)
            else:
                self._abort(run, "it takes too long")

    # ---- what happens -----------------------------------------------------------------------

    def _accept(self, number: int) -> Run:
        dice = self._dice
        origin = dice.choice(self._ended) if self._ended and dice.random() < 0.5 else None
        parent = None
        if dice.random() < 0.15:
            depth = dice.choice((1, 3, 32))
            runs_left = dice.choice((None, 1, 3, 500))
            parent = RunParent(
                run_id="rparent", step="s", attempt=1, partition=0, depth=depth, runs_left=runs_left
            )
        event = RunAccepted(
            run_id=f"r{number}{dice.getrandbits(40):010x}",
            tenant="acme",
            pipeline=self._plan.pipeline.pipeline,
            version=3,
            input={"n": dice.randint(0, 9), "xs": list(range(dice.randint(0, 4))), "text": TEXT},
            priority=dice.choice(list(Priority)),
            deadline_at_ms=self._now_ms + dice.choice((300.0, 3_000.0, 20_000.0, 600_000.0)),
            budget_usd=dice.choice((None, None, Decimal("0.03"), Decimal(0), Decimal(9))),
            idempotency_key="key",
            reply_to=dice.choice((None, "_INBOX.a")),
            progress=dice.random() < 0.5,
            traceparent=dice.choice((None, "00-aa-bb-01")),
            probe=dice.random() < 0.15,
            parent=parent,
            origin=None if origin is None else self._repeat(origin),
            labels={"team": "search", "customer": '\u00e4 "b"'} if number % 3 == 0 else None,
        )
        reuse = None
        if origin is not None and event.origin is not None:
            old = self._read_back(origin)
            reuse = source_runs.reuse_of(old, self._plan, self._plan, event.origin)
        decision = run_acceptance.accept(
            event,
            partition=0,
            now_ms=self._now_ms,
            plan=self._plan,
            outlook=self._outlook,
            epoch=self._epoch,
            reuse=reuse,
            capabilities=self._capabilities,
        )
        return self._done(decision)

    def _repeat(self, origin: Run) -> RunOrigin:
        dice = self._dice
        if not origin.steps or dice.random() < 0.5:
            return RunOrigin(run_id=origin.run_id, operation="retry")
        return RunOrigin(
            run_id=origin.run_id,
            operation="rerun",
            from_step=dice.choice(sorted(origin.steps)),
            step_input=dice.choice((None, {"n": 1, "xs": [7]})),
        )

    def _step(self, run: Run) -> Run:
        dice = self._dice
        self._now_ms += dice.choice((0.0, 0.0, 0.37, 20.0, 20.0, 300.0, 2_500.0))
        draw = dice.random()
        if draw < 0.05:
            self._outlook = _jumped(dice, self._plan)
        elif draw < 0.12:
            return self._resume(run)
        return self._event(run)

    def _event(self, run: Run) -> Run:
        event = self._drawn_event(run)
        try:
            decision = event_handler.decide(
                run,
                event,
                now_ms=self._now_ms,
                plan=self._plan,
                outlook=self._outlook,
                epoch=self._epoch,
                capabilities=self._capabilities,
            )
        except Exception as error:  # no rule can apply it, and both cores said so
            return self._abort(run, reason_of(error))
        return self._done(decision)

    def _resume(self, run: Run) -> Run:
        if self._dice.random() < 0.6:
            self._epoch += 1
            if self._dice.random() < 0.2:  # a release that knows capabilities, or one that does not
                self._capabilities = CAPABILITIES if self._capabilities is None else None
            run = replace(self._read_back(run), reuse=run.reuse)
        decision = run_loader.resume(
            run,
            now_ms=self._now_ms,
            plan=self._plan,
            outlook=self._outlook,
            epoch=self._epoch,
            capabilities=self._capabilities,
        )
        return self._done(decision)

    def _read_back(self, run: Run) -> Run:
        row, steps = stored(run)
        return restore(run_of(row), [step_of(one) for one in steps], self._plan)

    def _abort(self, run: Run, reason: str) -> Run:
        error = ErrorInfo(code="aborted", message=reason)
        decision = failed_runs.aborted(
            run,
            error,
            now_ms=self._now_ms,
            plan=self._plan if self._dice.random() < 0.7 else None,
            epoch=self._epoch,
        )
        return self._done(decision)

    def _done(self, decision: Decision) -> Run:
        asked = (commands.Dispatch, commands.StartSubRun, commands.LookUpCache)
        self._requests += [one for one in decision.commands if isinstance(one, asked)]
        return decision.run

    # ---- events -----------------------------------------------------------------------------

    def _drawn_event(self, run: Run) -> Any:
        dice = self._dice
        draw = dice.random()
        if draw < 0.03:
            return CancelRequested(run_id=run.run_id, reason=dice.choice(("", "why")), by="me")
        if draw < 0.2:
            armed_at_ms = run.armed_at_ms or self._now_ms
            if dice.random() < 0.6 and armed_at_ms - self._now_ms < 30_000:
                self._now_ms = max(self._now_ms, armed_at_ms)
            return TimerFired(run_id=run.run_id, due_at_ms=min(self._now_ms, armed_at_ms))
        waits = [key for key in sorted(run.live) if run.steps[key].state == "waiting"]
        if draw < (0.5 if waits else 0.25):
            return self._signal(run, waits)
        for _ in range(4):  # the latest most likely
            if not self._requests:
                break
            one = self._requests[-1 - int(len(self._requests) * dice.random() ** 2)]
            if isinstance(one, commands.LookUpCache):
                return self._answer(run, one)
            return self._result(run, one)
        return self._signal(run, waits)

    def _signal(self, run: Run, waits: list[str]) -> SignalReceived:
        dice = self._dice
        approved = {"approved": True, "note": "n"}
        return SignalReceived(
            run_id=run.run_id,
            signal_id=f"s{dice.randint(0, 30)}",
            name=dice.choice((*waits, "go", "a", "nothing")),
            payload=dice.choice((approved, approved, {"approved": False}, "x", None)),
            by=dice.choice(("", "somebody")),
        )

    def _answer(self, run: Run, asked: commands.LookUpCache) -> CacheAnswered:
        dice = self._dice
        hit = dice.random() < 0.5
        return CacheAnswered(
            run_id=run.run_id,
            step=asked.step,
            key=asked.key if dice.random() < 0.95 else "another",
            hit=hit,
            output=self._output() if hit else None,
            computed_by_run="rother" if hit else "",
            computed_by_step="s" if hit else "",
            saved_usd=Decimal("0.01") if hit else Decimal(0),
        )

    def _result(self, run: Run, asked: Any) -> AttemptFinished:
        dice = self._dice
        if isinstance(asked, commands.StartSubRun):
            parent = asked.accepted.parent
            assert parent is not None
            step, attempt, sent_at_ms = parent.step, parent.attempt, parent.dispatched_at_ms
            capability, given, kind = parent.capability, asked.accepted.input, "pipeline"
        else:
            request = asked.request
            step, attempt, sent_at_ms = request.step, request.attempt, request.dispatched_at_ms
            capability, given, kind = request.capability, request.input, request.type
        event = AttemptFinished(
            run_id=run.run_id,
            step=step,
            attempt=attempt,
            output=self._output(kind),
            started_at_ms=dice.choice((0.0, self._now_ms - 700.5)),
            finished_at_ms=self._now_ms - dice.choice((0.0, 100.25, 900.0)),
            queued_at_ms=dice.choice((0.0, self._now_ms - 800.0)),
            delivery=dice.choice((1, 1, 2)),
            worker="w1",
            spend=Spend(cost_usd=dice.choice((Decimal(0), Decimal("0.01"), Decimal("0.02")))),
            timing=dice.choice((None, Timing(model_ms=50.0, gateway_queue_ms=7.0, cache_ms=1.5))),
            degraded=dice.random() < 0.1,
            dispatched_at_ms=sent_at_ms,
            input_digest=ids.input_digest(given) if dice.random() < 0.8 else "",
            capability=capability,
        )
        return self._odd(event)

    def _odd(self, event: AttemptFinished) -> AttemptFinished:
        """Return a result as it is, or one that failed, or that nobody expects."""
        dice = self._dice
        draw = dice.random()
        if draw < 0.25:
            kind = dice.choice(list(ErrorClass))
            code = dice.choice(("busy", "retryable", "broken"))
            details = dice.choice(({}, {"at": [1, "x"]}))
            error = ErrorInfo(code=code, message="no", error_class=kind, details=details)
            return event.model_copy(update={"output": None, "error": error})
        if draw < 0.29:
            return event.model_copy(update={"output": None, "error": HeldTooLong().info()})
        if draw < 0.33:
            return event.model_copy(update={"attempt": event.attempt + 1, "capability": None})
        if draw < 0.37:
            return event.model_copy(update={"dispatched_at_ms": 5.0, "input_digest": "other"})
        if draw < 0.39:
            return event.model_copy(update={"step": dice.choice(("a", "b", "a/a", "a[0]"))})
        return event

    def _output(self, kind: str = "") -> Any:
        dice = self._dice
        if kind == "planning" and dice.random() < 0.9:
            return _emitted(dice)
        n = dice.randint(0, 9)
        plain = {"n": n, "xs": list(range(n % 4)), "t": "é\u2028"}
        odd = (
            None,
            "text",
            7,
            2.5,
            True,
            [],
            {},
            [1, {"a": []}],
            {"a" + self._nul: self._nul},
            ["\ud800"],
        )
        return plain if dice.random() < 0.85 else dice.choice((*odd, _deep(100), _deep(250)))


def _drawn(dice: Random) -> Plan:
    slo_ms = dice.choice((2_000.0, 20_000.0))
    generator = Generator(dice, gentle=dice.random() < 0.3)
    while True:
        document = spiced(dice, generator.pipeline("p", slo_ms=slo_ms))
        try:
            return compiled(document)
        except InvalidInput:
            continue


def _jumped(dice: Random, plan: Plan) -> Any:
    """Return what to expect when some nodes were measured anew."""
    measured = {
        path: Estimate(dice.choice((1.0, 90.0, 4_000.0)), dice.choice((0.0, 50.0)), 9.0)
        for node in plan.by_path
        for path in (node, node + UNIT)
        if dice.random() < 0.4
    }
    if dice.random() < 0.3:
        measured[HOP] = Estimate(35.0, 9.0, 9.0)
    return outlook(plan, measured)


def _emitted(dice: Random, depth: int = 0) -> Any:
    """Return the steps of a planner; some break its policy."""
    nodes: dict[str, Any] = {}
    for number in range(dice.randint(1, 3)):
        node: dict[str, Any] = {"type": "python", "handler": "sim:quick"}
        if number and dice.random() < 0.6:
            node["needs"] = [f"e{number - 1}"]
            node["with"] = {"x": f"{{{{ nodes.e{number - 1}.output }}}}", "y": 1}
        _shape(dice, node, depth)
        nodes[f"e{number}"] = node
    output = dice.choice((None, "{{ nodes.e0.output }}", {"a": "{{ nodes.e0.output.n }}"}))
    return {"nodes": nodes, "output": output}


def _shape(dice: Random, node: dict[str, Any], depth: int) -> None:
    draw = dice.random()
    if draw < 0.2:
        node["map"] = {"over": dice.choice(("input.xs", "[1, 2]")), "concurrency": 2}
    elif draw < 0.3:
        node["loop"] = {"until": "round >= 2", "max_rounds": 3}
    elif draw < 0.4 and depth < 1:
        inner = _emitted(dice, depth + 1)
        node.clear()
        node.update({"type": "graph", **inner, "with": {"n": 1, "xs": [1]}})
        if node["output"] is None:
            del node["output"]
    if dice.random() < 0.2:
        node["optional"] = True
    if dice.random() < 0.2 and node["type"] == "python":
        node["retry"] = {"backoff_ms": 50, "max_attempts": 2}


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value
