"""The verdict of chaos detects violations: each rule, on evidence that breaks it and nothing else."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chaos.journal import ATTEMPTS, CALLS, DELIVERIES, UNITS
from chaos.judgement.evidence import Evidence
from chaos.judgement.judge import judge
from chaos.load import Heard, Task

TASK = Task("key", "asking", 7)
RUN = TASK.run_id
CALL = f"{RUN}:last:1:1"
GATEWAY = 50
ENDED_S = 1_000.0
DIED_S = ENDED_S + 0.5


def a_run(**changes: Any) -> dict[str, Any]:
    run = {
        "run_id": RUN, "pipeline": "asking", "parent": None, "status": "succeeded",
        "output": '["done", 7]', "error": None, "ended": True, "took_us": 5_000,
        "critical_path": '[["left", "left", 1, "work", 5000, 1]]',
    }  # fmt: skip
    return run | changes


def a_step(**changes: Any) -> dict[str, Any]:
    step = {
        "key": "left", "parent": None, "type": "python", "role": "leaf", "state": "succeeded",
        "attempt": 1, "facts": None,
    }  # fmt: skip
    return step | changes


@pytest.fixture
def good(tmp_path: Path) -> Evidence:
    (tmp_path / ATTEMPTS).write_text(f"begun {RUN}|left|1 9 1.0\nended {RUN}|left|1 9 2.0\n")
    (tmp_path / CALLS).write_text(
        f"begun {CALL} {GATEWAY} {ENDED_S}\nended {CALL} {GATEWAY} {ENDED_S}\n"
    )
    runs: Any = {RUN: a_run()}
    steps: Any = {RUN: [a_step()]}
    heard = Heard()
    heard.ends[RUN].append((f"{RUN}:end", "succeeded"))
    return Evidence(
        tasks=[TASK], heard=heard, journals=tmp_path, dead={}, runs=runs, steps=steps,
        attempts=set(), booked=[(CALL, "ok")], told={RUN: ["succeeded"]}, letters=[],
        left={"STEPS": 0}, metered=[], deaths=[], usage=[], by_pipeline={}, by_customer={},
    )  # fmt: skip


def rules(evidence: Evidence) -> set[str]:
    return {violation.partition(":")[0] for violation in judge(evidence).violations}


def changed_run(**changes: Any) -> Callable[[Evidence], Evidence]:
    runs: Any = {RUN: a_run(**changes)}
    return lambda evidence: replace(evidence, runs=runs)


def changed_step(**changes: Any) -> Callable[[Evidence], Evidence]:
    steps: Any = {RUN: [a_step(**changes)]}
    return lambda evidence: replace(evidence, steps=steps)


def test_what_is_as_it_should_be_is_acquitted(good: Evidence) -> None:
    verdict = judge(good)
    assert not verdict.violations
    assert verdict.counts["critical paths"] == verdict.counts["calls metered"] == 1
    assert verdict.counts["steps executed"] == 1


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda e: replace(e, runs={}), "lost"),
        (changed_run(ended=False, status="running"), "running"),
        (changed_step(state="waiting"), "running"),
        (changed_run(output='["done", 8]'), "wrong-end"),
        (lambda e: replace(e, told={RUN: ["succeeded", "succeeded"]}), "two-ends"),
        (lambda e: replace(e, told={RUN: ["failed"]}), "two-ends"),
        (lambda e: replace(e, told={}, heard=Heard()), "untold"),
        (lambda e: replace(e, told={RUN: ["degraded"]}, heard=Heard()), "mistold"),
        (changed_step(attempt=2), "unexecuted"),
        (changed_run(critical_path=None), "path"),
        (changed_run(took_us=9_000), "path"),
        (lambda e: replace(e, booked=[]), "unbooked"),
        (lambda e: replace(e, booked=[(CALL, "ok"), ("other", "ok")]), "invented"),
        (lambda e: replace(e, letters=["hocket.dlq.step"]), "dead"),
        (lambda e: replace(e, left={"STEPS": 1}), "left"),
    ],
)
def test_each_rule_convicts(
    change: Callable[[Evidence], Evidence], rule: str, good: Evidence
) -> None:
    assert rule in rules(change(good))


def test_a_step_without_its_number_of_attempts_is_convicted(good: Evidence) -> None:
    runs: Any = {}
    task = Task("other", "rescued", 7)
    output = '{"v": "handler_failed", "o": null, "t": 7}'
    runs[task.run_id] = a_run(
        run_id=task.run_id, pipeline="rescued", status="degraded", output=output
    )
    told = {task.run_id: ["degraded"]}
    evidence = replace(good, tasks=[task], runs=runs, steps={task.run_id: []}, told=told)
    assert rules(evidence) == {"attempts"}


def test_a_call_made_twice_by_one_gateway_is_convicted(good: Evidence) -> None:
    with (good.journals / CALLS).open("a") as file:
        file.write(f"ended {CALL} {GATEWAY} {ENDED_S}\n")
    assert rules(good) == {"made-twice", "unbooked"}


def test_a_call_that_its_gateway_had_forgotten_is_made_again_and_has_a_row_each_time(
    good: Evidence,
) -> None:
    with (good.journals / CALLS).open("a") as file:
        later_s = ENDED_S + 121.0
        file.write(f"begun {CALL} {GATEWAY} {later_s}\nended {CALL} {GATEWAY} {later_s}\n")
    verdict = judge(replace(good, booked=[(CALL, "ok"), (CALL, "ok")]))
    assert not verdict.violations
    assert verdict.counts["calls sent again after their gateway had forgotten them"] == 1
    assert rules(good) == {"unbooked"}


def test_a_call_made_again_after_its_gateway_died_has_a_row_each_time(good: Evidence) -> None:
    with (good.journals / CALLS).open("a") as file:
        file.write(f"begun {CALL} {GATEWAY + 1} {ENDED_S}\nended {CALL} {GATEWAY + 1} {ENDED_S}\n")
    both = [(CALL, "ok"), (CALL, "ok")]
    verdict = judge(replace(good, booked=both))
    assert not verdict.violations
    assert verdict.counts["rows of the ledger"] == 2
    assert rules(good) == {"unbooked"}
    assert rules(replace(good, booked=[*both, (CALL, "ok")])) == {"invented"}


def test_a_call_that_its_gateway_took_along_is_counted_and_no_violation(good: Evidence) -> None:
    verdict = judge(replace(good, booked=[], dead={GATEWAY: DIED_S}))
    assert not verdict.violations
    assert verdict.counts["calls that died with their gateway"] == 1
    assert rules(replace(good, booked=[], dead={GATEWAY: DIED_S + 60})) == {"unbooked"}


def test_a_unit_done_again_counts_against_the_deliveries_of_its_step(good: Evidence) -> None:
    (good.journals / DELIVERIES).write_text(f"begun {RUN}|d 9 1.0\nbegun {RUN}|d 10 2.0\n")
    units = [f"begun {RUN}|d|{unit} 9 1.0\n" for unit in (0, 1, 1)]
    (good.journals / UNITS).write_text("".join(units))
    verdict = judge(good)
    assert not verdict.violations
    assert verdict.counts["units under way that were done again"] == 1
    (good.journals / UNITS).write_text("".join([*units, units[0]]))
    assert rules(good) == {"done-twice"}


def test_a_suspension_is_no_death_that_a_unit_may_be_done_again_for(good: Evidence) -> None:
    (good.journals / DELIVERIES).write_text(f"begun {RUN}|d 9 1.0\nbegun {RUN}|d 10 2.0\n")
    (good.journals / UNITS).write_text(f"begun {RUN}|d|0 9 1.0\nbegun {RUN}|d|0 10 2.0\n")
    assert not judge(good).violations
    steps: Any = {RUN: [a_step(), a_step(key="d", type="sql", facts='{"suspensions": 1}')]}
    assert rules(replace(good, steps=steps)) == {"done-twice"}


CALLED = ("a/pay-1", "a/note-2", "a/sub-3", "b/pay-1", "b/note-2", "b/sub-3")


def calling(good: Evidence, *keys: str, calls: str = "a/pay-1:1:1 b/pay-1:1:1") -> Evidence:
    """Return a run whose handlers called these steps, which made these model calls."""
    task = Task("other", "calling", 7)
    run = a_run(run_id=task.run_id, pipeline="calling", output="20")
    runs: Any = {RUN: good.runs[RUN], task.run_id: run}
    called = [
        a_step(key=key, parent=key[0], type="sql", facts='{"link": "call", "index": 1}')
        for key in keys
    ]
    steps: Any = {RUN: good.steps[RUN], task.run_id: called}
    told = {RUN: ["succeeded"], task.run_id: ["succeeded"]}
    booked = list(good.booked)
    with (good.journals / CALLS).open("a") as file:
        for call in calls.split():
            call_id = f"{task.run_id}:{call}:1"
            booked.append((call_id, "ok"))
            file.write(
                f"begun {call_id} {GATEWAY} {ENDED_S}\nended {call_id} {GATEWAY} {ENDED_S}\n"
            )
    places = [f"{task.run_id}|a/pay-1", f"{task.run_id}|b/pay-1"]
    (good.journals / DELIVERIES).write_text("".join(f"begun {place} 9 1.0\n" for place in places))
    tasks = [TASK, task]
    return replace(good, tasks=tasks, runs=runs, steps=steps, told=told, booked=booked)


def test_calls_of_handlers_are_steps_that_are_paid_once(good: Evidence) -> None:
    verdict = judge(calling(good, *CALLED))
    assert not verdict.violations
    assert verdict.counts["steps that handlers called"] == 6
    assert verdict.counts["called steps that were paid"] == 2


def test_a_called_step_that_a_log_lost_counts_where_a_worker_ran_it(good: Evidence) -> None:
    evidence = calling(good, *CALLED[1:])
    run_id = evidence.tasks[1].run_id
    assert rules(evidence) == {"uncalled"}
    with (good.journals / ATTEMPTS).open("a") as file:
        file.write(f"begun {run_id}|a/pay-1|1 9 1.0\n")
    verdict = judge(evidence)
    assert not verdict.violations
    assert verdict.counts["steps that handlers called and a log lost"] == 1
    with (good.journals / ATTEMPTS).open("a") as file:
        file.write(f"begun {run_id}|b/pay-4|1 9 1.0\n")
    assert rules(evidence) == {"called-twice", "unpaid"}


@pytest.mark.parametrize(
    ("keys", "calls", "rule"),
    [
        (CALLED[1:], "b/pay-1:1:1", "uncalled"),
        ((*CALLED, "a/note-4"), "a/pay-1:1:1 b/pay-1:1:1", "called-twice"),
        (CALLED, "b/pay-1:1:1", "unpaid"),
        (CALLED, "a/pay-1:1:1 a/pay-1:2:1 b/pay-1:1:1", "paid-twice"),
    ],
)
def test_each_rule_of_calls_convicts(
    good: Evidence, keys: tuple[str, ...], calls: str, rule: str
) -> None:
    assert rules(calling(good, *keys, calls=calls)) == {rule}
