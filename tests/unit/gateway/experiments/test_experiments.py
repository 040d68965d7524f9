"""Experiments: the split of runs over arms, what makes an arm bad, and that all gateways agree."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from hocket.gateway.core.config.configuration import parse
from hocket.gateway.core.errors import ExperimentUnknown, RoutingInvalid
from hocket.gateway.core.experiments.arm_choice import Experiment, read
from hocket.gateway.core.experiments.rollback_rule import Rate, RollbackRule, Tally, fault_of
from hocket.gateway.core.experiments.tenant_tallies import MAX_TENANTS
from hocket.gateway.core.routing.membership_records import expected
from hocket.gateway.experiments.experiments import Experiments
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import ArmRolledBack, Attribution, CallRequest, RunFinished
from support.gateway.routing_rig import Rig, backend, breaks, request, says

RUNS = [f"r{number:024x}" for number in range(10_000)]
MODELS = {
    "old": {"backends": [backend("o")]},
    "new": {"backends": [backend("n")]},
    "writer": "old",
}
TABLE = parse(MODELS, {})


def experiment(weight: float = 10, **fields: Any) -> Experiment:
    arms = {"control": {"weight": 100 - weight}, "canary": {"model": "new", "weight": weight}}
    section = {"next": {"model": "writer", "arms": arms, **fields}}
    (found,) = read(section, {}, TABLE)
    return found


# ---- the split ------------------------------------------------------------------------------


def test_a_canary_of_ten_percent_gets_ten_percent_of_ten_thousand_runs_within_one() -> None:
    arms = Counter(experiment().arm_of(run).name for run in RUNS)
    assert 900 <= arms["canary"] <= 1_100


def test_a_run_keeps_its_arm_and_a_larger_share_only_adds_runs() -> None:
    small, large = experiment(10), experiment(25)
    before = {run for run in RUNS if small.arm_of(run).name == "canary"}
    assert before == {run for run in RUNS if small.arm_of(run).name == "canary"}
    assert before < {run for run in RUNS if large.arm_of(run).name == "canary"}


def test_the_runs_of_an_arm_that_is_off_go_to_the_control() -> None:
    assert {experiment().arm_of(run, {"canary"}).name for run in RUNS} == {"control"}


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=5).filter(any))
def test_shares_follow_the_weights_whatever_they_are(weights: list[int]) -> None:
    arms = {f"a{number}": {"weight": weight} for number, weight in enumerate(weights)}
    (found,) = read({"x": {"model": "old", "control": "a1", "arms": arms}}, {}, TABLE)
    seen = Counter(found.arm_of(run).name for run in RUNS[:2_000])
    for number, weight in enumerate(weights):
        expected = 2_000 * weight / sum(weights)
        assert abs(seen[f"a{number}"] - expected) <= 5 * (expected * 0.9) ** 0.5 + 1


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ({"x": {"model": "poet", "arms": {}}}, "experiments.x.model"),
        ({"x": {"model": "old", "arms": {"a": {"weight": 1}}}}, "experiments.x.arms"),
        ({"x": {"model": "old", "arms": {"control": {"weight": 0}, "b": {"weight": 0}}}}, "x.arms"),
        ({"x": {"model": "old", "arms": {"a": {}, "b": {"weight": 1}}}}, "arms.a.weight"),
        ({"x": {"model": "old", "arms": {"a": {"weight": 1}, "b": {"weight": 1}}}}, "x.control"),
        ({"x y": {"model": "old"}}, "experiments.x y"),
        (
            {
                "x": {
                    "model": "old",
                    "arms": {"control": {"weight": 1}, "b": {"weight": 1}},
                    "succeeded": "output.ok",
                }
            },
            "experiments.x.succeeded",
        ),
    ],
)
def test_a_wrong_experiment_is_refused_with_its_field(section: dict[str, Any], field: str) -> None:
    with pytest.raises(RoutingInvalid) as refused:
        read(section, {}, TABLE)
    assert refused.value.fields["field"].endswith(field)


def test_the_control_is_named_whatever_the_order_of_the_arms() -> None:
    arms = {"canary": {"model": "new", "weight": 1}, "control": {"weight": 9}}
    (by_name,) = read({"x": {"model": "old", "arms": arms}}, {}, TABLE)
    (said,) = read({"x": {"model": "old", "control": "canary", "arms": arms}}, {}, TABLE)
    assert (by_name.control.name, said.control.name) == ("control", "canary")


# ---- the verdict ----------------------------------------------------------------------------


def calls_until_found(
    seed: int,
    *,
    control: Callable[[random.Random], tuple[bool, float]],
    canary: Callable[[random.Random], tuple[bool, float]],
    most: int,
) -> int | None:
    """Return after how many of its calls a canary of a tenth is found bad, None if it is not."""
    dice, rule = random.Random(seed), RollbackRule()
    kept, tried = Tally(rule, control=True), Tally(rule, control=False)
    while tried.calls < most:
        tally, behaviour = (tried, canary) if dice.random() < 0.1 else (kept, control)
        failed, latency_ms = behaviour(dice)
        usual_ms = kept.median_ms
        slow_ms = None if usual_ms is None else usual_ms * rule.slow_factor
        tally.called(failed=failed, latency_ms=latency_ms, slow_ms=slow_ms)
        if tally is tried and fault_of(rule, tried.seen, kept.seen):
            return tried.calls
    return None


def behaves(fails: float, usual_ms: float = 100.0) -> Callable[[random.Random], tuple[bool, float]]:
    return lambda dice: (dice.random() < fails, usual_ms * dice.lognormvariate(0, 0.3))


@pytest.mark.parametrize(
    "canary",
    [behaves(1.0), behaves(0.3), behaves(0.01, 200.0)],
    ids=["all fail", "three in ten fail", "twice as slow"],
)
def test_a_bad_canary_is_found_within_a_hundred_of_its_calls(
    canary: Callable[[random.Random], tuple[bool, float]],
) -> None:
    found = [
        calls_until_found(seed, control=behaves(0.01), canary=canary, most=100)
        for seed in range(12)
    ]
    assert None not in found


def test_an_arm_like_its_control_is_let_be() -> None:
    found = [
        calls_until_found(seed, control=behaves(0.05), canary=behaves(0.05), most=500)
        for seed in range(10)
    ]
    assert found == [None] * 10


def test_an_arm_is_judged_without_a_control_only_by_what_is_bad_anywhere() -> None:
    rule = RollbackRule()
    good, bad = Tally(rule, control=False), Tally(rule, control=False)
    for _ in range(30):
        good.called(failed=False, latency_ms=9_000, slow_ms=None)
        bad.called(failed=True, latency_ms=1, slow_ms=None)
    nobody = Tally(rule, control=True).seen
    assert fault_of(rule, good.seen, nobody) is None
    found = fault_of(rule, bad.seen, nobody)
    assert found is not None
    assert found[0] == "errors"


@given(st.integers(0, 500), st.integers(0, 500))
def test_an_interval_holds_its_rate_and_shrinks_with_more_calls(bad: int, more: int) -> None:
    rate = Rate(bad, bad + more)
    low, high = rate.interval()
    assert 0 <= low <= high <= 1
    if rate.of:
        assert low - 1e-9 <= rate.bad / rate.of <= high + 1e-9
        wide, narrow = high - low, Rate(10 * bad, 10 * rate.of).interval()
        assert narrow[1] - narrow[0] < wide


@pytest.mark.parametrize(
    ("status", "output", "said"),
    [
        ("succeeded", {"verified": True}, True),
        ("succeeded", {"verified": False}, False),
        ("failed", None, False),
        ("cancelled", None, None),
    ],
)
def test_the_end_of_a_run_is_judged_by_an_expression(
    status: str, output: Any, said: bool | None
) -> None:
    assert experiment(succeeded="run.output.verified").success_of(end("r", status, output)) is said


# ---- several gateways -----------------------------------------------------------------------


class Town:
    """A bucket that all companies see at once, as long as NATS is not away."""

    def __init__(self) -> None:
        self.entries: dict[str, tuple[int, Any]] = {}
        self.names: set[str] = set()
        self.away = False


class FakeMembership:
    """What Experiments needs of a Membership."""

    def __init__(self, town: Town, name: str) -> None:
        self.name, self._town = name, town
        town.names.add(name)

    @property
    def live(self) -> set[str]:
        return self._town.names

    @property
    def leads(self) -> bool:
        return min(self._town.names) == self.name

    def told(self, prefix: str) -> Iterator[tuple[str, int, Any]]:
        for key, (revision, content) in list(self._town.entries.items()):
            if key.startswith(prefix) and content is not None:
                yield key.removeprefix(prefix), revision, content

    def is_overwritten(self, key: str) -> bool:
        return False

    async def put(self, key: str, content: Any, *, revision: int | None = None) -> int | None:
        before = self._town.entries.get(key, (0, None))[0]
        if self._town.away or (revision is not None and revision != before):
            return None
        self._town.entries[key] = (before + 1, content)
        return before + 1


class Gateway:
    """The experiments of one gateway, and what it published."""

    def __init__(self, town: Town, name: str, found: Experiment | None = None) -> None:
        self.facts: list[str] = []
        self.registry = CollectorRegistry()
        self.experiments = Experiments(
            FakeMembership(town, name),  # type: ignore[arg-type]
            now_ms=lambda: 0.0,
            publish=self._publish,
            metrics=GatewayMetrics(self.registry),
        )
        self.experiments.use([found or experiment(50)], TABLE)

    def _publish(self, fact: ArmRolledBack, msg_id: str) -> None:
        self.facts.append(f"{fact.arm} {fact.cause}")

    def call(self, run_id: str, *, canary_fails: bool = False) -> str:
        """Make a call of a run that fails where it is the canary's, and return its arm."""
        assigned = self.experiments.assign(of_run(run_id))
        assert assigned is not None
        arm = assigned.arm.name
        failed = canary_fails and arm == "canary"
        error = ErrorInfo(code="e", message="e", error_class=ErrorClass.TRANSIENT)
        self.experiments.called(assigned, error if failed else None, asked=True, latency_ms=5.0)
        return arm

    @property
    def off(self) -> bool:
        return self.experiments.states()[0].arms[1].off

    @property
    def reported_off(self) -> float | None:
        labels = {"experiment": "next", "arm": "canary"}
        return self.registry.get_sample_value("hocket_gateway_arm_off", labels)


def of_run(run_id: str, **fields: Any) -> CallRequest:
    return request(attribution=Attribution(run_id=run_id, **fields))


def end(run_id: str, status: str = "succeeded", output: Any = None) -> RunFinished:
    return RunFinished(
        run_id=run_id,
        tenant="default",
        pipeline="report",
        version=1,
        status=status,
        output=output,
        accepted_at_ms=0,
        finished_at_ms=1,
        deadline_at_ms=2,
    )


async def settled(*gateways: Gateway) -> None:
    """Let everybody write what they have to write, and hear it."""
    for gateway in (*gateways, *gateways):
        gateway.experiments._tallies._told_at_s = float("-inf")  # as if TELL_S had passed
        gateway.experiments.look()
        told, switched = gateway.experiments._tallies, gateway.experiments._switches
        for task in [*told._writing, *switched._writing]:
            await task


async def test_what_one_gateway_finds_bad_is_off_for_all_and_told_once() -> None:
    town = Town()
    one, two = Gateway(town, "one"), Gateway(town, "two")
    for run in RUNS[:60]:
        one.call(run, canary_fails=True)
    await settled(one, two)
    assert (one.off, two.off) == (True, True)
    assert {two.call(run) for run in RUNS} == {"control"}
    assert (one.facts, two.facts) == (["canary errors"], [])


async def test_gateways_judge_by_what_they_saw_together() -> None:
    town = Town()
    gateways = [Gateway(town, name) for name in ("one", "two", "three")]
    for number, run in enumerate(RUNS[:24]):  # about four calls of the canary at each: too few
        gateways[number % 3].call(run, canary_fails=True)
    assert not any(gateway.off for gateway in gateways)
    await settled(*gateways)
    assert all(gateway.off for gateway in gateways)


async def test_a_rollback_while_nats_is_away_holds_here_and_is_told_later() -> None:
    town = Town()
    one, two = Gateway(town, "one"), Gateway(town, "two")
    town.away = True
    for run in RUNS[:60]:
        one.call(run, canary_fails=True)
    await settled(one, two)
    assert (one.off, two.off) == (True, False)
    town.away = False
    await settled(one, two)
    assert (one.off, two.off) == (True, True)


async def test_a_restored_arm_begins_anew_everywhere_and_may_be_found_bad_again() -> None:
    town = Town()
    one, two = Gateway(town, "one"), Gateway(town, "two")
    for run in RUNS[:60]:
        one.call(run, canary_fails=True)
    await settled(one, two)
    await two.experiments.control("restore", "next", "canary", "api:me")
    await settled(one, two)
    assert (one.off, two.off) == (False, False)
    assert one.experiments.states()[0].arms[1].errors == (0, 0)
    for run in RUNS[:60]:
        two.call(run, canary_fails=True)
    await settled(one, two)
    assert (one.off, two.off) == (True, True)
    assert len(one.facts + two.facts) == 2


async def test_a_started_gateway_knows_what_was_rolled_back_before() -> None:
    town = Town()
    one = Gateway(town, "one")
    await one.experiments.control("rollback", "next", "canary", "api:me")
    late = Gateway(town, "two")
    assert late.off
    assert one.facts == ["canary operator"]


async def test_a_reload_keeps_what_is_known_of_the_same_arm_and_forgets_another_one() -> None:
    town = Town()
    one = Gateway(town, "one")
    await one.experiments.control("rollback", "next", "canary", "api:me")
    one.experiments.use([experiment(20)], TABLE)
    assert (one.off, one.reported_off) == (True, 1.0)
    one.experiments.use([experiment(20, node="draft")], TABLE)
    assert (one.off, one.reported_off) == (False, None)


RENAMED = {"base": {"weight": 50}, "canary": {"model": "new", "weight": 50}}
PROMOTED = {"canary": {"model": "new", "weight": 50}, "later": {"weight": 50}}


@pytest.mark.parametrize(
    ("control", "arms", "counted"),
    [("base", RENAMED, 1), ("canary", PROMOTED, 0)],
    ids=["its control has another name", "it has become the control"],
)
async def test_a_call_of_an_arm_whose_control_a_reload_replaced_counts_if_it_is_the_same_arm(
    control: str, arms: dict[str, Any], counted: int
) -> None:
    gateway = Gateway(Town(), "one")
    calls = (gateway.experiments.assign(of_run(run)) for run in RUNS)
    under_way = next(one for one in calls if one is not None and one.arm.name == "canary")
    section = {"next": {"model": "writer", "control": control, "arms": arms}}
    gateway.experiments.use(read(section, {}, TABLE), TABLE)
    gateway.experiments.called(under_way, None, asked=True, latency_ms=5.0)
    (state,) = gateway.experiments.states()
    assert [arm.calls for arm in state.arms if arm.arm == "canary"] == [counted]


def same_models(control: str) -> tuple[Experiment, ...]:
    arms = {"control": {"weight": 50}, "canary": {"weight": 50}}
    return read({"next": {"model": "writer", "control": control, "arms": arms}}, {}, TABLE)


async def test_an_arm_that_becomes_the_control_with_the_same_models_is_judged_no_more() -> None:
    before, after = same_models("control"), same_models("canary")
    gateway = Gateway(Town(), "one", *before)
    gateway.experiments.use(after, TABLE)
    for run in RUNS[:200]:
        gateway.call(run, canary_fails=True)
    (state,) = gateway.experiments.states()
    assert [(arm.arm, arm.control, arm.off) for arm in state.arms] == [
        ("canary", True, False),
        ("control", False, False),
    ]


async def test_an_arm_that_was_off_and_becomes_the_control_is_off_no_more() -> None:
    town = Town()
    one, two = (Gateway(town, name, *same_models("control")) for name in ("one", "two"))
    for run in RUNS[:200]:
        one.call(run, canary_fails=True)
    await settled(one, two)
    assert (one.off, one.reported_off, two.off) == (True, 1.0, True)
    for gateway in (one, two):
        gateway.experiments.use(same_models("canary"), TABLE)
    await settled(one, two)
    for gateway in (one, two):
        (state,) = gateway.experiments.states()
        assert [(arm.arm, arm.off, arm.reason) for arm in state.arms] == [
            ("canary", False, ""),
            ("control", False, ""),
        ]
        assert gateway.reported_off is None


async def test_the_runs_of_an_arm_that_a_reload_replaced_say_nothing_of_the_new_one() -> None:
    gateway = Gateway(Town(), "one")
    runs = [run for run in RUNS[:80] if gateway.call(run) == "canary"]
    arms = {"control": {"weight": 50}, "canary": {"model": "old", "weight": 50}}
    section = {"next": {"model": "writer", "arms": arms}}
    gateway.experiments.use(read(section, {}, TABLE), TABLE)
    for run in runs[10:]:
        gateway.experiments.ended(end(run, "failed"))
    for run in runs[:10]:
        gateway.experiments.record_outcome("default", run, False)
    (_, canary) = gateway.experiments.states()[0].arms
    assert (canary.outcomes, canary.off) == ((0, 0), False)


@pytest.mark.parametrize("now", ["canary", None], ids=["it is the control", "it is gone"])
async def test_a_rollback_by_hand_is_not_announced_if_a_reload_took_the_arm_meanwhile(
    now: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(Town(), "one", *same_models("control"))
    put = FakeMembership.put

    async def reloaded(self: FakeMembership, key: str, content: Any, **fields: Any) -> int | None:
        gateway.experiments.use(() if now is None else same_models(now), TABLE)
        return await put(self, key, content, **fields)

    monkeypatch.setattr(FakeMembership, "put", reloaded)
    await gateway.experiments.control("rollback", "next", "canary", "api:me")
    assert gateway.facts == []


async def test_a_reload_with_a_longer_window_and_more_calls_before_a_verdict_still_judges() -> None:
    gateway = Gateway(Town(), "one", experiment(50, rollback={"window": 20, "min_calls": 10}))
    for run in RUNS[:100]:
        gateway.call(run)
    gateway.experiments.use([experiment(50, rollback={"window": 400, "min_calls": 40})], TABLE)
    for run in RUNS[100:400]:
        gateway.call(run, canary_fails=True)
    assert gateway.off


async def test_runs_that_do_not_succeed_roll_an_arm_back() -> None:
    gateway = Gateway(Town(), "one", experiment(50, succeeded="run.output.verified"))
    for run in RUNS[:60]:
        arm = gateway.call(run)
        gateway.experiments.ended(end(run, output={"verified": arm == "control"}))
    await settled(gateway)
    assert gateway.off
    assert gateway.facts == ["canary outcome"]


async def test_a_run_whose_arm_was_switched_off_under_way_says_nothing_of_the_control() -> None:
    gateway = Gateway(Town(), "one")
    arms = {run: gateway.call(run) for run in RUNS[:40]}
    await gateway.experiments.control("rollback", "next", "canary", "api:me")
    assert {gateway.call(run) for run in arms} == {"control"}
    for run, arm in arms.items():
        gateway.experiments.ended(end(run, "succeeded" if arm == "control" else "failed"))
    control, canary = gateway.experiments.states()[0].arms
    assert control.outcomes == (0, list(arms.values()).count("control"))
    assert canary.outcomes == (0, 0)


async def test_what_a_caller_stopped_or_could_not_pay_or_got_wrong_says_nothing_of_an_arm() -> None:
    gateway = Gateway(Town(), "one")
    for run in RUNS[:100]:
        assigned = gateway.experiments.assign(of_run(run))
        assert assigned is not None
        for kind in (ErrorClass.CANCELLED, ErrorClass.BUDGET, ErrorClass.INVALID):
            error = ErrorInfo(code="e", message="e", error_class=kind)
            gateway.experiments.called(assigned, error, asked=True, latency_ms=5.0)
    assert [arm.calls for arm in gateway.experiments.states()[0].arms] == [0, 0]


async def test_a_caller_that_gives_its_calls_no_time_says_nothing_about_an_arm() -> None:
    gateway = Gateway(Town(), "one", experiment(50))
    error = ErrorInfo(code="backend_timed_out", message="e", error_class=ErrorClass.TIMEOUT)
    for run in RUNS[:200]:
        assigned = gateway.experiments.assign(of_run(run))
        assert assigned is not None
        hasty = assigned.arm.name == "canary"
        gateway.experiments.called(
            assigned, error if hasty else None, asked=True, latency_ms=1.0 if hasty else 50.0
        )
    assert not gateway.off
    for run in RUNS[200:400]:
        assigned = gateway.experiments.assign(of_run(run))
        assert assigned is not None
        if assigned.arm.name == "canary":
            gateway.experiments.called(assigned, error, asked=True, latency_ms=30_000.0)
    assert gateway.off


async def test_an_experiment_of_a_node_leaves_other_calls_alone() -> None:
    found = experiment(50, pipeline="report", node="draft")
    gateway = Gateway(Town(), "one", found)
    assign = gateway.experiments.assign
    assert assign(of_run("r1", pipeline="report", node="draft")) is not None
    assert assign(of_run("r1", pipeline="report", node="other")) is None
    assert assign(of_run("r1", pipeline="other", node="draft")) is None


async def test_the_control_cannot_be_switched_off() -> None:
    gateway = Gateway(Town(), "one")
    with pytest.raises(ExperimentUnknown, match="next/canary"):
        await gateway.experiments.control("rollback", "next", "control", "api:me")


async def test_a_run_is_judged_by_its_own_tenant_only() -> None:
    gateway = Gateway(Town(), "one")
    run = next(run for run in RUNS if gateway.call(run) == "canary")
    for _ in range(2):
        gateway.experiments.record_outcome("globex", run, False)
        gateway.experiments.ended(end(run, "failed").model_copy(update={"tenant": "globex"}))
    assert gateway.experiments.states()[0].arms[1].outcomes == (0, 0)
    assert gateway.experiments.knows("default", run)
    assert not gateway.experiments.knows("globex", run)
    gateway.experiments.record_outcome("default", run, False)
    assert gateway.experiments.states()[0].arms[1].outcomes == (1, 1)


async def test_another_tenants_experiment_cannot_be_seen_nor_switched() -> None:
    gateway = Gateway(Town(), "one", replace(experiment(50), tenant="acme"))
    assert [one.experiment for one in gateway.experiments.states("acme")] == ["next"]
    assert gateway.experiments.states("globex") == ()
    with pytest.raises(ExperimentUnknown, match="none"):
        await gateway.experiments.control("rollback", "next", "canary", "me", tenant="globex")
    await gateway.experiments.control("rollback", "next", "canary", "me", tenant="acme")
    assert gateway.off


# ---- several tenants ------------------------------------------------------------------------


SLOW_MS = 60_000.0
CANARY = next(run for run in RUNS if experiment(50).arm_of(run).name == "canary")


def slow_calls(gateway: Gateway, runs: list[str], tenants: str, slow: str) -> None:
    """Make a call for each run, by the tenants in turn; those in `slow` take long with the canary."""
    for number, run in enumerate(runs):
        tenant = tenants[number % len(tenants)]
        assigned = gateway.experiments.assign(of_run(run, tenant=tenant))
        assert assigned is not None
        is_slow = tenant in slow and assigned.arm.name == "canary"
        latency_ms = SLOW_MS if is_slow else 5.0
        gateway.experiments.called(assigned, None, asked=True, latency_ms=latency_ms)


def arm_for(gateway: Gateway, tenant: str) -> str:
    assigned = gateway.experiments.assign(of_run(CANARY, tenant=tenant))
    assert assigned is not None
    return assigned.arm.name


async def test_slow_calls_of_one_tenant_switch_an_arm_off_for_that_tenant_only() -> None:
    town = Town()
    one, two = Gateway(town, "one"), Gateway(town, "two")
    slow_calls(one, RUNS[:800], tenants="abcd", slow="a")
    await settled(one, two)
    for gateway in (one, two, Gateway(town, "late")):
        assert [arm_for(gateway, tenant) for tenant in "abcd"] == ["control", *["canary"] * 3]
    told = {tenant: one.experiments.states(tenant)[0].arms[1] for tenant in ("a", "b", None)}
    assert [told[tenant].off for tenant in ("a", "b", None)] == [True, False, False]
    assert "calls were slow" in told["a"].reason
    assert told["b"].reason == ""
    operators = told[None].reason
    assert operators.startswith("for tenant `a`: ")
    assert (one.facts, two.facts, one.reported_off) == (["canary latency"], [], 1.0)
    await two.experiments.control("restore", "next", "canary", "api:me")
    await settled(one, two)
    assert {arm_for(gateway, "a") for gateway in (one, two)} == {"canary"}
    assert one.reported_off == 0.0


async def test_failed_runs_of_one_tenant_switch_an_arm_off_for_that_tenant_only() -> None:
    gateway = Gateway(Town(), "one")
    for number, run in enumerate(RUNS[:800]):
        tenant = "abcd"[number % 4]
        assigned = gateway.experiments.assign(of_run(run, tenant=tenant))
        assert assigned is not None
        bad = tenant == "a" and assigned.arm.name == "canary"
        ended = end(run, "failed" if bad else "succeeded").model_copy(update={"tenant": tenant})
        gateway.experiments.ended(ended)
    await settled(gateway)
    assert [arm_for(gateway, tenant) for tenant in "abcd"] == ["control", *["canary"] * 3]
    assert gateway.facts == ["canary outcome"]


async def test_an_arm_that_is_slow_for_two_tenants_is_off_for_all_also_for_one_that_never_called() -> (
    None
):
    gateway = Gateway(Town(), "one")
    slow_calls(gateway, RUNS[:200], tenants="ab", slow="ab")
    await settled(gateway)
    assert gateway.off
    assert arm_for(gateway, "c") == "control"
    assert "tenants" in gateway.experiments.states("c")[0].arms[1].reason


async def test_an_arm_is_found_bad_by_tenants_of_which_none_has_calls_enough_alone() -> None:
    gateway, tenants = Gateway(Town(), "one"), "abcdefghijklmnopqrst"
    slow_calls(gateway, RUNS[:2_000], tenants=tenants, slow="")
    fails = ErrorInfo(code="e", message="e", error_class=ErrorClass.TRANSIENT)
    fresh = Gateway(Town(), "one")
    for number, run in enumerate(
        RUNS[:100]
    ):  # five calls of each, about half of them of the canary
        assigned = fresh.experiments.assign(of_run(run, tenant=tenants[number % 20]))
        assert assigned is not None
        error = fails if assigned.arm.name == "canary" else None
        fresh.experiments.called(assigned, error, asked=True, latency_ms=5.0)
    await settled(gateway, fresh)
    assert (gateway.off, fresh.off) == (False, True)
    assert fresh.facts == ["canary errors"]


async def test_two_of_many_tenants_do_not_speak_for_the_others() -> None:
    gateway = Gateway(Town(), "one")
    slow_calls(gateway, RUNS[:1_200], tenants="abcdef", slow="ab")
    await settled(gateway)
    assert [arm_for(gateway, one) for one in "abcdef"] == [*["control"] * 2, *["canary"] * 4]
    assert not gateway.off


async def test_a_tenant_that_fails_only_with_the_control_hides_no_bad_arm_from_another() -> None:
    gateway = Gateway(Town(), "one")
    fails = ErrorInfo(code="e", message="e", error_class=ErrorClass.TRANSIENT)
    for number, run in enumerate(RUNS[:800]):
        tenant = "ab"[number % 2]
        assigned = gateway.experiments.assign(of_run(run, tenant=tenant))
        assert assigned is not None
        is_canary = assigned.arm.name == "canary"
        failed = number % 3 == 0 if tenant == "b" and is_canary else tenant == "a" and not is_canary
        gateway.experiments.called(assigned, fails if failed else None, asked=True, latency_ms=5.0)
    assert arm_for(gateway, "b") == "control"


async def test_a_tenants_calls_at_all_gateways_count_together() -> None:
    town = Town()
    gateways = [Gateway(town, name) for name in ("one", "two", "three")]
    for gateway in gateways:
        slow_calls(gateway, RUNS[:100], tenants="bcd", slow="")
    for number, run in enumerate(RUNS[200:224]):
        fails = ErrorInfo(code="e", message="e", error_class=ErrorClass.TRANSIENT)
        gateway = gateways[number % 3]
        assigned = gateway.experiments.assign(of_run(run, tenant="a"))
        assert assigned is not None
        error = fails if assigned.arm.name == "canary" else None
        gateway.experiments.called(assigned, error, asked=True, latency_ms=5.0)
    assert [arm_for(gateway, "a") for gateway in gateways] == ["canary"] * 3
    await settled(*gateways)
    assert [arm_for(gateway, "a") for gateway in gateways] == ["control"] * 3
    assert [arm_for(gateway, "b") for gateway in gateways] == ["canary"] * 3


async def test_what_is_kept_and_told_of_tenants_is_bounded() -> None:
    town = Town()
    gateway = Gateway(town, "one")
    for number, run in enumerate(RUNS[:2_000]):
        assigned = gateway.experiments.assign(of_run(run, tenant=f"t{number}"))
        assert assigned is not None
        gateway.experiments.called(assigned, None, asked=True, latency_ms=5.0)
    await settled(gateway)
    ((_, content),) = (entry for key, entry in town.entries.items() if key.startswith("tally."))
    assert [len(counts[-1]) for counts in content.values()] == [MAX_TENANTS] * 2
    assert expected("tally.next.one", json.dumps(content).encode())
    content["canary"][-1]["one-more"] = [0] * 6
    assert not expected("tally.next.one", json.dumps(content).encode())
    assert sum(arm.calls for arm in gateway.experiments.states()[0].arms) == 2_000


# ---- calls ----------------------------------------------------------------------------------


@contextmanager
def with_experiments(rig: Rig, town: Town) -> Iterator[Gateway]:
    gateway = Gateway(town, "one")
    rig.calls = rig.calls_with(gateway.experiments)
    yield gateway


async def test_calls_take_their_arm_and_say_so_in_their_records() -> None:
    rig = Rig(MODELS, o=says("old"), n=breaks())
    with with_experiments(rig, Town()) as gateway:
        runs = RUNS[:80]
        for number, run in enumerate(runs):
            reply = await rig.make(f"c{number}", attribution=Attribution(run_id=run))
            assert reply.model == "writer"
            assert (reply.backend, reply.text) in (("o", "old"), ("n", ""), ("", ""))
        assert gateway.off
    kept = {(one.experiment, one.arm, one.backend, one.model) for one in rig.records}
    assert kept == {("next", "control", "o", "writer"), ("next", "canary", "n", "writer")}
    refused = [one for one in rig.records if one.arm == "canary"]
    assert 3 <= len(refused) <= 100
    assert rig.records[-1].arm == "control"


async def test_a_call_that_cannot_be_counted_has_its_reply_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(MODELS, o=says("old"), n=says("new"))
    with with_experiments(rig, Town()) as gateway, capture_logs() as logs:
        broken = Mock(side_effect=KeyError("control"))
        monkeypatch.setattr(gateway.experiments, "called", broken)
        reply = await rig.make("c1")
    assert (reply.error, reply.cost_usd) == (None, rig.records[0].cost_usd)
    assert "experiment_not_counted" in [one["event"] for one in logs]
