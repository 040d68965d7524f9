"""Measure what a step costs in the core alone.

Each round drives `--runs` runs of a workload (`chain10`, `agent6`, `fan8`): the acceptance, each
result, and what the shell needs of them, that is, the message of each step and of the end as bytes,
and the rows that changed. The events and all identifiers are created beforehand. No other part of a
coordinator runs: no NATS, no Postgres, no gate.

Printed are the CPU microseconds per step, the best and the median of all rounds, as one line of
JSON for each workload; the machine is shown on stderr.

    .venv/bin/python -m bench.steps.core_step --rounds 9 --runs 300
"""

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.support.load import BODY, TENANT, WORKLOADS
from bench.support.machine import machine_text
from hocket.coordinator.core.run import beginning, machine
from hocket.coordinator.core.run.plan.nodes import PipelinePlan
from hocket.coordinator.core.run.plan.step_deadlines import PlanForecast
from hocket.coordinator.core.run.state import messages, rows
from hocket.coordinator.core.run.state.run import Owner
from hocket.coordinator.core.run.transition import Outcome
from hocket.coordinator.core.time.duration_estimates import outlook
from hocket.schemas.messages import AttemptFinished, Priority, RunAccepted
from hocket.schemas.pipeline.plan import Plan, compile_pipeline

AT_MS = 1_700_000_000_000.0
SLO_MS = 60_000.0


@dataclass(frozen=True)
class Play:
    """The events of one run, and the log's time of each."""

    accepted: RunAccepted
    results: list[tuple[AttemptFinished, float]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--workload", choices=list(WORKLOADS), default=None)
    options = parser.parse_args()
    print(machine_text(), file=sys.stderr)
    for name in [options.workload] if options.workload else WORKLOADS:
        print(json.dumps(_measured(name, options.rounds, options.runs)), flush=True)
    return 0


def _measured(name: str, rounds: int, runs: int) -> dict[str, object]:
    plan = compile_pipeline(WORKLOADS[name].pipeline(name))
    plays = [_play(plan, number) for number in range(runs)]
    steps = runs * WORKLOADS[name].steps
    took = [_timed(lambda: _played(plan, plays)) / steps for _ in range(rounds)]
    return {
        "workload": name,
        "steps": steps,
        "us": {"best": round(min(took), 1), "median": round(statistics.median(took), 1)},
    }


def _timed(work: Callable[[], int]) -> float:
    """Return the CPU time of some work in microseconds."""
    gc.collect()
    begin_ns = time.process_time_ns()
    work()
    return (time.process_time_ns() - begin_ns) / 1_000


def _play(plan: Plan, number: int) -> Play:
    """Drive a run, and record its events."""
    accepted = RunAccepted(
        run_id=f"r{number:024x}",
        tenant=TENANT,
        pipeline=plan.pipeline.pipeline,
        version=1,
        input=dict(BODY),
        priority=Priority.STANDARD,
        deadline_at_ms=AT_MS + SLO_MS,
        reply_to="_INBOX.bench",
    )
    compiled = PipelinePlan(plan)
    forecast = PlanForecast(compiled, outlook(plan, {}))
    now_ms = AT_MS
    outcome = beginning.accept(
        accepted, compiled, Owner(0, 1, None), now_ms=now_ms, forecast=forecast
    )
    todo = [one for one in outcome.commands if isinstance(one, messages.Dispatch)]
    results = []
    for dispatch in todo:  # the list grows during the loop
        now_ms += 1.0
        result = AttemptFinished(
            run_id=accepted.run_id,
            step=dispatch.step,
            attempt=1,
            output=dict(BODY),
            started_at_ms=now_ms - 0.5,
            finished_at_ms=now_ms - 0.2,
            queued_at_ms=now_ms - 0.7,
            delivery=1,
            worker="w1",
            dispatched_at_ms=dispatch.dispatched_at_ms,
        )
        results.append((result, now_ms))
        outcome = machine.apply(outcome.run, result, now_ms, forecast)
        todo += [one for one in outcome.commands if isinstance(one, messages.Dispatch)]
    assert outcome.run.status == "succeeded", outcome.run.status
    return Play(accepted, results)


def _played(plan: Plan, plays: list[Play]) -> int:
    compiled = PipelinePlan(plan)
    forecast = PlanForecast(compiled, outlook(plan, {}))
    owner = Owner(0, 1, None)
    size = 0
    for play in plays:
        outcome = beginning.accept(play.accepted, compiled, owner, now_ms=AT_MS, forecast=forecast)
        size += _shell(outcome)
        run = outcome.run
        for event, at_ms in play.results:
            size += _shell(machine.apply(run, event, at_ms, forecast))
        assert run.status == "succeeded", run.status
    return size


def _shell(outcome: Outcome) -> int:
    run = outcome.run
    size = 0
    for one in outcome.commands:
        if isinstance(one, messages.Dispatch):
            size += len(one.body(one.slack_ms, 0.0))
        elif isinstance(one, messages.EndRun):
            size += len(one.body())
    for step in outcome.changed:
        step.is_changed = False
        size += len(rows.step_row(run.run_id, step))
    if outcome.run_changed:
        size += len(rows.run_row(run))
    return size


if __name__ == "__main__":
    sys.exit(main())
