"""The rules about runs, steps and ends (`chaos.judgement` lists all rules)."""

import json
from typing import Any

import asyncpg

from chaos import journal
from chaos.judgement.evidence import Evidence
from chaos.judgement.money import judge_money
from chaos.judgement.once import is_called, judge_called, judge_calls, judge_units
from chaos.judgement.verdict import Verdict
from chaos.load import Task
from chaos.pipelines import ANY, PIPELINES

PATH_TOLERANCE_US = 1_000
JOURNALED = ("python", "chaos.note", "chaos.durable", "chaos.pay", "chaos.calling")
"""Types whose functions record each attempt."""


def judge(evidence: Evidence) -> Verdict:
    """Judge a play."""
    verdict = Verdict()
    for task in evidence.tasks:
        _judge_task(task, evidence, verdict)
    executed = {
        one.subject
        for one in journal.read(evidence.journals, journal.ATTEMPTS)
        if one.what == "ended"
    }
    for run in evidence.runs.values():
        _judge_run(run, evidence, executed, verdict)
    judge_calls(evidence, verdict)
    judge_money(evidence, verdict)
    judge_units(evidence, verdict)
    judge_called(evidence, verdict)
    for letter in evidence.letters:
        verdict.fail("dead", letter)
    for told in evidence.heard.rejected:
        verdict.fail("dead", told)
    for stream, number in evidence.left.items():
        if number:
            verdict.fail("left", f"{number} messages in {stream}")
    return verdict


def _judge_task(task: Task, evidence: Evidence, verdict: Verdict) -> None:
    run = evidence.runs.get(task.run_id)
    if run is None:
        verdict.fail("lost", f"{task}")
        return
    verdict.counts[f"runs {run['status']}"] += 1
    if not run["ended"]:
        return  # reported with all runs
    mixed = PIPELINES[task.pipeline]
    expected = mixed.expected(task.n)
    output = json.loads(run["output"] or "null")
    good = run["status"] in expected.status
    if not good or (expected.output is not ANY and output != expected.output):
        said = f"{run['status']} {output} {run['error']}"
        verdict.fail("wrong-end", f"{task} ({task.run_id}) ended {said}")
        return
    steps = {step["key"]: step for step in evidence.steps[task.run_id]}
    for key, number in mixed.attempts:
        earlier = {(task.run_id, key, n) for n in range(1, number)}
        if key not in steps or steps[key]["attempt"] != number or earlier - evidence.attempts:
            verdict.fail("attempts", f"{task.run_id} {key} did not come to {number} attempts")


def _judge_run(
    run: asyncpg.Record, evidence: Evidence, executed: set[str], verdict: Verdict
) -> None:
    run_id, status = run["run_id"], run["status"]
    if not run["ended"]:
        live = [f"{s['key']} {s['state']}" for s in evidence.steps[run_id]
                if s["state"] in ("dispatched", "backoff", "open", "waiting")]  # fmt: skip
        verdict.fail("running", f"{run_id} ({run['pipeline']}): {live}")
        return
    stored, heard = evidence.told.get(run_id, []), evidence.heard.ends.get(run_id, [])
    told = {*stored, *(one for _, one in heard)}
    if len(told) > 1 or len(stored) > 1:
        verdict.fail("two-ends", f"{run_id}: {stored} in EVENTS, heard {heard}")
    if not told:
        verdict.fail("untold", f"{run_id} {run['pipeline']} {status}")
    elif told != {status}:
        verdict.fail("mistold", f"{run_id} is {status}, told was {told}")
    _judge_path(run, verdict)
    steps = evidence.steps[run_id]
    rescued = {
        step["parent"] for step in steps if step["state"] == "succeeded" and not is_called(step)
    }
    for step in steps:
        _judge_step(run_id, step, step["key"] in rescued, executed, verdict)


def _judge_path(run: asyncpg.Record, verdict: Verdict) -> None:
    pieces: list[Any] = json.loads(run["critical_path"] or "[]")
    verdict.counts["critical paths"] += bool(pieces)
    off_us = abs(sum(piece[4] for piece in pieces) - float(run["took_us"]))
    # a run whose acceptance was lost from the log, and whose results were all there when it was accepted
    # again, took no time
    if off_us > PATH_TOLERANCE_US or (not pieces and run["took_us"]):
        verdict.fail("path", f"{run['run_id']}: {len(pieces)} pieces, {off_us:.0f} us off its time")


def _judge_step(
    run_id: str, step: asyncpg.Record, rescued: bool, executed: set[str], verdict: Verdict
) -> None:
    name = f"{run_id}|{step['key']}|{step['attempt']}"
    if step["state"] in ("dispatched", "backoff", "open", "waiting"):
        verdict.fail("running", f"{name} is {step['state']} and its run has ended")
    facts = json.loads(step["facts"] or "{}") or {}
    if step["role"] == "leaf" and step["type"] in JOURNALED and step["state"] == "succeeded":
        own = "source" not in facts and not rescued  # otherwise it has another step's output
        verdict.counts["steps executed" if own else "steps cached or rescued"] += 1
        if own and name not in executed:
            verdict.fail("unexecuted", name)
