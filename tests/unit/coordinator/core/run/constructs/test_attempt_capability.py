"""A result counts only with the capability of its attempt; what went out without one needs none."""

from typing import Any

import pytest

from hocket.coordinator.core.run.beginning import accept
from hocket.coordinator.core.run.commands import CancelAttempt, StartSubRun
from hocket.coordinator.core.run.machine import apply, resume
from hocket.coordinator.core.run.plan.nodes import PipelinePlan
from hocket.coordinator.core.run.plan.step_deadlines import PlanForecast
from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.coordinator.core.run.state.restore import restored
from hocket.coordinator.core.run.state.run import Owner, Run
from hocket.coordinator.core.run.transition import Outcome
from hocket.coordinator.core.time.duration_estimates import outlook
from hocket.schemas import ids
from hocket.schemas.capabilities import MIN_KEY_CHARS, Capabilities, keys_of
from hocket.schemas.messages import AttemptFinished, Priority, RunAccepted, StepRequested
from hocket.schemas.pipeline.plan import Plan, compile_pipeline
from support.run_player import request_of, stored

NOW_MS = 1_000_000.0
KEY, OTHER = Capabilities([b"k" * 32]), Capabilities([b"o" * 32])
PLAN = compile_pipeline(
    {"pipeline": "p", "nodes": {"a": {"type": "python", "handler": "m:f"}}, "output": "done"}
)
PARENT = compile_pipeline({"pipeline": "p", "nodes": {"a": {"type": "pipeline", "pipeline": "q"}}})


def begun(capabilities: Capabilities | None, plan: Plan = PLAN) -> Outcome:
    event = RunAccepted(
        run_id="r1",
        tenant="t",
        pipeline="p",
        version=1,
        input={},
        priority=Priority.STANDARD,
        deadline_at_ms=NOW_MS + 60_000,
    )
    compiled = PipelinePlan(plan)
    owner = Owner(0, 1, capabilities)
    return accept(event, compiled, owner, now_ms=NOW_MS, forecast=forecast(compiled))


def forecast(plan: PipelinePlan) -> PlanForecast:
    return PlanForecast(plan, outlook(plan.source, {}))


def owned(run: Run, capabilities: Capabilities | None) -> Run:
    """Return a run as another coordinator takes it over."""
    assert run.plan is not None
    return restored(stored(run), run.plan, Owner(0, 2, capabilities))


def request(decision: Outcome) -> StepRequested:
    (dispatch,) = (c for c in decision.commands if isinstance(c, Dispatch))
    return request_of(dispatch)


def told(run: Run, capabilities: Capabilities | None, **fields: Any) -> Outcome:
    """Tell a result to a coordinator that has these capabilities."""
    run = run if run.owner.capabilities is capabilities else owned(run, capabilities)
    given = {"run_id": "r1", "step": "a", "attempt": 1} | fields
    assert run.plan is not None
    return apply(run, AttemptFinished.model_validate(given), NOW_MS + 5, forecast(run.plan))


def changes(outcome: Outcome) -> bool:
    return bool(outcome.changed or outcome.run_changed or outcome.commands)


def test_a_result_with_the_capability_of_its_dispatch_counts() -> None:
    decision = begun(KEY)
    step = request(decision)
    assert step.capability is not None
    given = {"capability": step.capability, "dispatched_at_ms": step.dispatched_at_ms}
    run = told(decision.run, KEY, **given).run
    assert run.steps["a"].state == "succeeded"


@pytest.mark.parametrize(
    "forged",
    [
        {},
        {"capability": ""},
        {"capability": "0" * 32},
        {"capability": "\u00e9" * 32},
        {"capability": KEY.of_attempt("other", "r1", "a", 1, NOW_MS)},
        {"capability": KEY.of_attempt("t", "r2", "a", 1, NOW_MS)},
        {"capability": KEY.of_attempt("t", "r1", "b", 1, NOW_MS)},
        {"capability": KEY.of_attempt("t", "r1", "a", 2, NOW_MS)},
        {"capability": KEY.of_attempt("t", "r1", "a", 1, NOW_MS + 1)},
        {"capability": OTHER.of_attempt("t", "r1", "a", 1, NOW_MS)},
        {"attempt": 2, "capability": KEY.of_attempt("t", "r1", "a", 1, NOW_MS)},
        {"attempt": 2},
        {"step": "b"},
        {"error": {"code": "held_too_long", "message": "forged"}},
    ],
)
def test_a_result_without_it_changes_nothing(forged: dict[str, Any]) -> None:
    run = begun(KEY).run
    forged = {"dispatched_at_ms": NOW_MS, "spend": {"calls": 1, "cost_usd": "9"}} | forged
    assert not changes(told(run, KEY, **forged))


def test_an_attempt_that_went_out_without_one_needs_none() -> None:
    run = begun(None).run
    assert told(run, KEY).run.steps["a"].state == "succeeded"
    assert not changes(told(run, KEY, attempt=2)), "nobody was given that one"


def test_one_that_goes_out_again_has_the_capability_that_it_had_and_none_where_it_had_none() -> (
    None
):
    for before in (KEY, None):
        decision = begun(before)
        run = owned(decision.run, KEY)
        assert run.plan is not None
        again = resume(run, NOW_MS + 9, forecast(run.plan))
        assert request(again).capability == request(decision).capability


def test_an_attempt_that_went_out_twice_is_withdrawn_once_its_result_has_come() -> None:
    """Its second message may reach a worker after the first one's result: nobody wants that one."""
    once, twice = begun(KEY), begun(KEY)
    assert twice.run.plan is not None
    resume(twice.run, NOW_MS + 9, forecast(twice.run.plan))
    for decision, count in ((once, 0), (twice, 1)):
        step = request(decision)
        given = {"capability": step.capability, "dispatched_at_ms": step.dispatched_at_ms}
        outcome = told(decision.run, KEY, **given)
        withdrawn = [one for one in outcome.commands if isinstance(one, CancelAttempt)]
        assert [(one.step, one.attempt) for one in withdrawn] == [("a", 1)] * count
        assert outcome.run.steps["a"].state == "succeeded"


def test_a_key_that_is_replaced_is_believed_beside_the_new_one() -> None:
    both = Capabilities([b"o" * 32, b"k" * 32])
    decision = begun(KEY)
    step = request(decision)
    given = {"capability": step.capability, "dispatched_at_ms": step.dispatched_at_ms}
    assert told(decision.run, both, **given).run.steps["a"].state == "succeeded"
    assert not changes(told(decision.run, OTHER, **given))


def test_a_sub_run_takes_its_parents_capability_along() -> None:
    (start,) = (c for c in begun(KEY, PARENT).commands if isinstance(c, StartSubRun))
    parent = start.accepted.parent
    assert parent is not None
    assert parent.capability == KEY.of_attempt("t", "r1", "a", 1, NOW_MS)


def test_a_run_without_the_mark_of_its_step_is_one_of_a_release_before() -> None:
    run = begun(KEY).run
    run.steps["a"].capable = False
    assert told(run, KEY).run.steps["a"].state == "succeeded"


def test_a_late_result_of_a_step_that_was_read_back_counts_only_with_it() -> None:
    """Postgres does not say of a step that has ended whether it had one."""
    decision = begun(KEY)
    capability = request(decision).capability
    step = decision.run.steps["a"]
    step.state, step.finished_at_ms = "succeeded", NOW_MS
    read = owned(decision.run, KEY)
    late = {"dispatched_at_ms": NOW_MS, "spend": {"calls": 1, "cost_usd": "9"}}
    assert not changes(told(read, KEY, **late))
    assert told(read, KEY, capability=capability, **late).run.spent_usd == 9


def test_a_seal_is_that_of_one_message() -> None:
    seal = KEY.seal("timer", b"{}")
    assert KEY.is_sealed(seal, "timer", b"{}")
    for kind, body in (("cancel", b"{}"), ("timer", b"{ }"), ("tim", b"er\x1f{}")):
        assert not KEY.is_sealed(seal, kind, body)
    assert not OTHER.is_sealed(seal, "timer", b"{}")


def test_ids_of_messages_cannot_be_known_without_the_key() -> None:
    assert KEY.id_of("r1:end") != OTHER.id_of("r1:end")
    assert KEY.id_of("r1:end") == KEY.id_of("r1:end")
    assert ids.capable("a", None) == "a"


def test_a_setting_gives_keys_or_says_what_is_wrong() -> None:
    long = "x" * MIN_KEY_CHARS
    assert keys_of(f"{long}, {long}1") == [long.encode(), f"{long}1".encode()]
    for wrong in ("", "short", f"{long},short", ",".join([long] * 9)):
        with pytest.raises(ValueError, match="key"):
            keys_of(wrong)
