"""How long each node of a plan and the path behind it take: as measured, declared, or usual.

For every node: how long it takes, and how long the critical path behind it takes, both as
distributions (means and variances of steps in sequence add up; of parallel branches the one with
the later tail counts). In addition, what is *sure*: the mean of what is known of the nodes that
must run. Deadlines of steps are derived from it (`core/run/plan/step_deadlines.py`).
"""

from collections.abc import Mapping
from math import sqrt
from typing import NamedTuple

from hocket.schemas.pipeline.node_parts import MAX_WAIT_MS
from hocket.schemas.pipeline.plan import NodePlan, Plan, ScopePlan
from hocket.schemas.pipeline.spec import RaceNode, runs_in_worker

TAIL_SD = 1.645
"""Standard deviations of the tail that a deadline keeps free: 95 % of a normal distribution."""
DECAY = 0.98
"""The weight of the past at each observation: a memory of about 50 runs."""
ENOUGH = 3.0
"""The observed weight from which measurement replaces `expect`."""
DEFAULT_TIMEOUT_MS = 60_000.0
"""The timeout of one attempt of a node that does not set one."""

HOP = "@hop"
"""The path under which the time is stored that a step takes beside its own while its run is in a
hurry (`hop_times.py`)."""

DEFAULT_MS: Mapping[str, tuple[float, float]] = {
    "planning": (1_500.0, 750.0),
    "llm": (2_000.0, 1_000.0),
    "agent": (2_000.0, 1_000.0),
    "retrieval": (100.0, 50.0),
    "sql": (100.0, 50.0),
    "python": (50.0, 25.0),
    "http": (300.0, 150.0),
    "mcp": (500.0, 250.0),
    "nats": (100.0, 50.0),
    "pipeline": (3_000.0, 1_500.0),
    "approval": (0.0, 0.0),
    "signal": (0.0, 0.0),
}
"""Mean and standard deviation by node type, for nodes that have neither been measured nor declared."""


class Estimate(NamedTuple):
    """A duration as a distribution, with the weight of its observations. `sure_ms` is the part of
    the mean that is measured or declared, and certain to be needed."""

    mean_ms: float
    variance: float
    weight: float = 0.0
    sure_ms: float = 0.0

    def tail_ms(self, sd: float = TAIL_SD) -> float:
        """Return the mean plus this many standard deviations: by default the duration that 5 % of a
        normal distribution exceed."""
        return self.mean_ms + sd * sqrt(self.variance)

    def then(self, other: "Estimate") -> "Estimate":
        """Return the duration of this followed by the other."""
        return Estimate(
            self.mean_ms + other.mean_ms,
            self.variance + other.variance,
            0.0,
            self.sure_ms + other.sure_ms,
        )


NOTHING = Estimate(0.0, 0.0)


class Expectation(NamedTuple):
    """A node's own duration, and that of the critical path behind it to the run's end. If the
    pipeline may degrade, also that of the node's fast variant, and of the path behind when every
    node on it that can do so takes its fast variant or is left out."""

    own: Estimate
    after: Estimate
    fast: Estimate | None = None
    least_after: Estimate | None = None

    @property
    def after_least(self) -> Estimate:
        """The path behind at its shortest."""
        return self.after if self.least_after is None else self.least_after


DurationForecast = Mapping[str, Expectation]
"""By node path; made once per change of the statistics, read at every dispatch. A node with `map`
or `loop` is listed as a whole under its path, and one of its steps under its path and `UNIT`."""
UNIT = "[]"


def observe(estimate: Estimate | None, duration_ms: float) -> Estimate:
    """Return the estimate after one more measurement: exponentially decayed mean and variance
    (West 1979, with a forgetting factor)."""
    if estimate is None or estimate.weight == 0.0:
        return Estimate(duration_ms, 0.0, 1.0)
    weight = estimate.weight * DECAY + 1.0
    delta = duration_ms - estimate.mean_ms
    mean = estimate.mean_ms + delta / weight
    past = estimate.weight * DECAY
    variance = (past * estimate.variance + delta * (duration_ms - mean)) / weight
    return Estimate(mean, max(0.0, variance), weight)


def outlook(plan: Plan, durations: Mapping[str, Estimate]) -> DurationForecast:
    """Return what to expect of every node of a plan, given measured durations by node path."""
    look = _Look(durations, degrades=plan.pipeline.on_infeasible == "degrade")
    look.scope(plan.root, NOTHING, NOTHING)
    return look.result


def emitted_outlook(scope: ScopePlan, *, degrades: bool) -> DurationForecast:
    """Return what to expect of the nodes that a planner emitted, up to the end of their scope;
    `degrades`: whether the pipeline may leave nodes out."""
    look = _Look({}, degrades=degrades)
    look.scope(scope, NOTHING, NOTHING)
    return look.result


def one_of(whole: Expectation, unit: Expectation, left: float) -> Expectation:
    """Return what to expect of one step of a node with `map` or `loop`, when this share of the
    whole node is still to be done."""
    rest = Estimate(
        max(0.0, whole.own.mean_ms * left - unit.own.mean_ms), whole.own.variance * left * left
    )
    return Expectation(unit.own, rest.then(whole.after), None, rest.then(whole.after_least))


class _Look:
    """Fills `result` from the end of a plan to its beginning."""

    def __init__(self, durations: Mapping[str, Estimate], *, degrades: bool) -> None:
        self.result: dict[str, Expectation] = {}
        self._durations = durations
        self._degrades = degrades
        hop = durations.get(HOP)
        self._hop = NOTHING
        if hop is not None and hop.weight >= ENOUGH:
            self._hop = Estimate(hop.mean_ms, hop.variance, sure_ms=hop.mean_ms)

    def scope(
        self, scope: ScopePlan, after_scope: Estimate, least_after_scope: Estimate
    ) -> tuple[Estimate, Estimate]:
        """Return the duration of a scope's critical path, as it is and at its shortest."""
        behind: dict[str, Estimate] = {}
        least_behind: dict[str, Estimate] = {}
        own: dict[str, Estimate] = {}
        least: dict[str, Estimate] = {}
        left_out = skippable(scope)
        for name in reversed(scope.order):
            node = scope.nodes[name]
            behind[name] = _latest([own[d].then(behind[d]) for d in node.dependents])
            after = behind[name].then(after_scope)
            least_after = after
            if self._degrades:
                least_behind[name] = _latest(
                    [least[d].then(least_behind[d]) for d in node.dependents]
                )
                least_after = least_behind[name].then(least_after_scope)
            own[name], inner_least = self._node(node, after, least_after)
            fast = None
            if node.fast is not None and self._degrades:
                fast = self._with_hop(node.fast, self._beside(node.fast, after, least_after))
            self.result[node.path] = Expectation(own[name], after, fast, least_after)
            least[name] = self._at_its_shortest(node, fast, inner_least)
            if name in left_out:
                own[name] = own[name]._replace(sure_ms=0.0)
                least[name] = least[name]._replace(sure_ms=0.0)
        path = _latest([own[name].then(behind[name]) for name in scope.roots])
        if not self._degrades:
            return path, path
        return path, _latest([least[name].then(least_behind[name]) for name in scope.roots])

    def _node(
        self, node: NodePlan, after: Estimate, least_after: Estimate
    ) -> tuple[Estimate, Estimate]:
        """Return a node's own duration, as it is and at its shortest."""
        inner, least = NOTHING, NOTHING
        if node.body is not None:
            inner, least = self.scope(node.body, after, least_after)
        for beside in (*node.fallbacks, *node.calls.values()):
            self._beside(beside, after, least_after)
        if node.branches:
            branches = [self._beside(b, after, least_after) for b in node.branches.values()]
            inner = _latest(branches)
            if isinstance(node.node, RaceNode) and node.node.pick == "first_valid":
                inner = inner._replace(sure_ms=min(own.sure_ms for own in branches))
        measured = self._durations.get(node.path)
        if not (node.node.map or node.node.loop):
            own = _estimate(node, inner, measured)
            if least is NOTHING:
                return own, own
            return own, min(own, least, key=lambda e: e.tail_ms())
        unit = _estimate(node, inner, self._durations.get(node.path + UNIT))
        self.result[node.path + UNIT] = Expectation(unit, after, None, least_after)
        own = _estimate(node, unit, measured)
        return own, own

    def _at_its_shortest(self, node: NodePlan, fast: Estimate | None, least: Estimate) -> Estimate:
        """Return what a node takes at its shortest: nothing if it may be left out, otherwise the
        time of its fast variant or the least of its own."""
        if node.node.optional:
            return NOTHING
        return fast or self._with_hop(node, least)

    def _with_hop(self, node: NodePlan, least: Estimate) -> Estimate:
        """Return what a node takes at its shortest, including the way to its worker and back."""
        is_step = runs_in_worker(node.node.type) and not (node.node.map or node.node.loop)
        return least.then(self._hop) if is_step and self._degrades else least

    def _beside(self, node: NodePlan, after: Estimate, least_after: Estimate) -> Estimate:
        own, _ = self._node(node, after, least_after)
        self.result[node.path] = Expectation(own, after, None, least_after)
        return own


def skippable(scope: ScopePlan) -> set[str]:
    """Return the nodes that may still be skipped, judged before any of them starts."""
    found: set[str] = set()
    for name in scope.order:
        node = scope.nodes[name]
        if node.when is not None or (node.needs and found.issuperset(node.needs)):
            found.add(name)
    return found


def _estimate(node: NodePlan, inner: Estimate, measured: Estimate | None) -> Estimate:
    """Return a node's own duration: measured, otherwise declared, otherwise that of what it
    contains, otherwise the usual one."""
    if measured is not None and measured.weight >= ENOUGH:
        return measured._replace(sure_ms=measured.mean_ms)
    expect = node.node.expect
    if expect is not None:
        # the pipeline may have been applied when these had no bound
        mean_ms, sd_ms = min(expect.mean_ms, MAX_WAIT_MS), min(expect.sd_ms, MAX_WAIT_MS)
        return Estimate(mean_ms, sd_ms**2, sure_ms=mean_ms)
    if inner is not NOTHING:
        return inner
    if measured is not None:
        return measured
    mean, sd = DEFAULT_MS.get(node.node.type, (50.0, 25.0))
    return Estimate(mean, sd * sd)


def _latest(estimates: list[Estimate]) -> Estimate:
    if not estimates:
        return NOTHING
    latest = max(estimates, key=lambda e: (e.tail_ms(), e.mean_ms))
    sure_ms = max(e.sure_ms for e in estimates)
    return latest if latest.sure_ms == sure_ms else latest._replace(sure_ms=sure_ms)
