"""A result counts only with the capability of its attempt; what went out without one needs none."""

from dataclasses import replace
from typing import Any

import pytest

from hocket.coordinator.core.rows.records import STEP_COLUMNS, step_of, step_row
from hocket.coordinator.core.run.commands import Dispatch, StartSubRun
from hocket.coordinator.core.run.decide import Decision, accept, decide, resume
from hocket.coordinator.core.run.state import Run, StepState
from hocket.coordinator.core.time.deadlines import outlook
from hocket.schemas import ids
from hocket.schemas.capabilities import MIN_KEY_CHARS, Capabilities, keys_of
from hocket.schemas.messages import AttemptFinished, Priority, RunAccepted, StepRequested
from hocket.schemas.pipeline.plan import Plan, compile_pipeline

NOW_MS = 1_000_000.0
KEY, OTHER = Capabilities([b"k" * 32]), Capabilities([b"o" * 32])
PLAN = compile_pipeline(
    {"pipeline": "p", "nodes": {"a": {"type": "python", "handler": "m:f"}}, "output": "done"}
)
PARENT = compile_pipeline({"pipeline": "p", "nodes": {"a": {"type": "pipeline", "pipeline": "q"}}})


def begun(capabilities: Capabilities | None, plan: Plan = PLAN) -> Decision:
    event = RunAccepted(
        run_id="r1",
        tenant="t",
        pipeline="p",
        version=1,
        input={},
        priority=Priority.STANDARD,
        deadline_at_ms=NOW_MS + 60_000,
    )
    return accept(
        event,
        partition=0,
        now_ms=NOW_MS,
        plan=plan,
        outlook=outlook(plan, {}),
        epoch=1,
        capabilities=capabilities,
    )


def request(decision: Decision) -> StepRequested:
    (dispatch,) = (c for c in decision.commands if isinstance(c, Dispatch))
    return dispatch.request


def told(run: Run, capabilities: Capabilities | None, **fields: Any) -> Run:
    given = {"run_id": "r1", "step": "a", "attempt": 1} | fields
    return decide(
        run,
        AttemptFinished.model_validate(given),
        now_ms=NOW_MS + 5,
        plan=PLAN,
        outlook=outlook(PLAN, {}),
        epoch=1,
        capabilities=capabilities,
    ).run


def test_a_result_with_the_capability_of_its_dispatch_counts() -> None:
    decision = begun(KEY)
    step = request(decision)
    assert step.capability is not None
    run = told(
        decision.run, KEY, capability=step.capability, dispatched_at_ms=step.dispatched_at_ms
    )
    assert run.steps["a"].state is StepState.SUCCEEDED


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
    assert told(run, KEY, **forged) is run


def test_an_attempt_that_went_out_without_one_needs_none() -> None:
    run = begun(None).run
    assert told(run, KEY).steps["a"].state is StepState.SUCCEEDED
    assert told(run, KEY, attempt=2) is run, "nobody was given that one"


def test_one_that_goes_out_again_has_the_capability_that_it_had_and_none_where_it_had_none() -> (
    None
):
    for before in (KEY, None):
        decision = begun(before)
        again = resume(
            decision.run,
            now_ms=NOW_MS + 9,
            plan=PLAN,
            outlook=outlook(PLAN, {}),
            epoch=2,
            capabilities=KEY,
        )
        assert request(again).capability == request(decision).capability


def test_a_key_that_is_replaced_is_believed_beside_the_new_one() -> None:
    both = Capabilities([b"o" * 32, b"k" * 32])
    decision = begun(KEY)
    step = request(decision)
    given = {"capability": step.capability, "dispatched_at_ms": step.dispatched_at_ms}
    assert told(decision.run, both, **given).steps["a"].state is StepState.SUCCEEDED
    assert told(decision.run, OTHER, **given) is decision.run


def test_a_sub_run_takes_its_parents_capability_along() -> None:
    (start,) = (c for c in begun(KEY, PARENT).commands if isinstance(c, StartSubRun))
    parent = start.accepted.parent
    assert parent is not None
    assert parent.capability == KEY.of_attempt("t", "r1", "a", 1, NOW_MS)


def test_a_run_without_the_mark_of_its_step_is_one_of_a_release_before() -> None:
    run = begun(KEY).run
    step = replace(run.steps["a"], capable=False)
    former = replace(run, steps=run.steps.set("a", step))
    assert told(former, KEY).steps["a"].state is StepState.SUCCEEDED


def test_a_late_result_of_a_step_that_was_read_back_counts_only_with_it() -> None:
    """Postgres does not say of a step that has ended whether it had one."""
    decision = begun(KEY)
    ended = replace(decision.run.steps["a"], state=StepState.SUCCEEDED, finished_at_ms=NOW_MS)
    run = replace(decision.run, steps=decision.run.steps.set("a", ended))
    steps = [step_of(dict(zip(STEP_COLUMNS, step_row("r1", ended), strict=True)))]
    read = replace(run, steps=run.steps.set("a", steps[0]))
    late = {"dispatched_at_ms": NOW_MS, "spend": {"calls": 1, "cost_usd": "9"}}
    assert told(read, KEY, **late) is read
    capability = request(decision).capability
    assert told(read, KEY, capability=capability, **late).spent_usd == 9


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
