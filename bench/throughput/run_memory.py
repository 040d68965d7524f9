"""Measure how much memory runs take in the coordinator's core, and whether ended runs leave any behind.

`--runs` runs of a workload are started and driven up to their last result but one, with events that are
read from bytes as a partition reads them; they stay in the partition's table of runs in flight. Printed
is the growth of the resident set in bytes per run. Then `--ends` more runs are started and finished one
after another, and the resident set is printed ten times on the way: it must not grow.

    .venv/bin/python -m bench.throughput.run_memory --runs 20000 --ends 200000
"""

import argparse
import gc
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.support.load import BODY, TENANT, WORKLOADS
from bench.support.machine import machine_text
from hocket.coordinator.core.run import beginning, machine
from hocket.coordinator.core.run.plan.nodes import PipelinePlan
from hocket.coordinator.core.run.plan.step_deadlines import PlanForecast
from hocket.coordinator.core.run.state import messages, rows
from hocket.coordinator.core.run.state.run import Owner, Run
from hocket.coordinator.core.run.transition import Outcome
from hocket.coordinator.core.time.duration_estimates import outlook
from hocket.coordinator.partition.runs.run_cache import Runs
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import AttemptFinished, Priority, RunAccepted, encoded, read_log
from hocket.schemas.pipeline.plan import compile_pipeline

AT_MS = 1_700_000_000_000.0
SLO_MS = 60_000.0
SAMPLES = 10
PAGE_BYTES = 4_096


@dataclass
class Partition:
    """What a partition needs to apply events of one pipeline, and its runs."""

    plan: PipelinePlan
    forecast: PlanForecast
    owner: Owner
    runs: Runs = field(default_factory=Runs)
    begun: int = 0

    def begin(self) -> Iterator[Run]:
        """Drive a run to its end, yielding it before each of its results."""
        self.begun += 1
        now_ms = AT_MS + self.begun
        event = self._read("accepted", _accepted(f"r{self.begun:024x}", self.plan, now_ms))
        assert isinstance(event, RunAccepted)
        outcome = beginning.accept(
            event, self.plan, self.owner, now_ms=now_ms, forecast=self.forecast
        )
        todo = self._kept(outcome)
        run = outcome.run
        while todo:
            yield run
            now_ms += 1.0
            result = self._read("finished", _result(run, todo.pop(0), now_ms))
            assert isinstance(result, AttemptFinished)
            outcome = machine.apply(run, result, now_ms, self.forecast)
            todo += self._kept(outcome)
        assert run.status == "succeeded", run.status

    def _read(self, kind: str, body: bytes) -> object:
        [event] = read_log(kind, body)
        assert not isinstance(event, str)
        self.runs.grew(getattr(event, "run_id", ""), len(body))
        return event

    def _kept(self, outcome: Outcome) -> list[messages.Dispatch]:
        """Do what the shell does with an outcome; return the steps to run."""
        run = outcome.run
        for step in outcome.changed:
            step.is_changed = False
            rows.step_row(run.run_id, step)
        if outcome.run_changed:
            rows.run_row(run)
        run.input.forget_value()
        for step in outcome.changed:
            step.let_go()
        self.runs.put(run)
        todo = [one for one in outcome.commands if isinstance(one, messages.Dispatch)]
        for dispatch in todo:
            dispatch.body(dispatch.slack_ms, 0.0)
        return todo


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--ends", type=int, default=200_000)
    parser.add_argument("--workload", choices=list(WORKLOADS), default="agent6")
    options = parser.parse_args()
    print(machine_text(), file=sys.stderr)
    partition = _partition(options.workload)
    print(json.dumps(_in_flight(partition, options.workload, options.runs)), flush=True)
    print(json.dumps(_ended(_partition(options.workload), options.ends)), flush=True)
    return 0


def _partition(workload: str) -> Partition:
    plan = compile_pipeline(WORKLOADS[workload].pipeline(workload))
    compiled = PipelinePlan(plan)
    capabilities = Capabilities([b"bench" * 8])
    partition = Partition(
        compiled, PlanForecast(compiled, outlook(plan, {})), Owner(0, 1, capabilities)
    )
    for _ in partition.begin():
        pass
    return partition


def _in_flight(partition: Partition, workload: str, runs: int) -> dict[str, object]:
    gc.collect()
    before = _rss_bytes()
    for _ in range(runs):
        play = partition.begin()
        for _ in range(WORKLOADS[workload].steps):
            next(play)
    gc.collect()
    took = _rss_bytes() - before
    return {"workload": workload, "in_flight": runs, "bytes_a_run": round(took / runs)}


def _ended(partition: Partition, ends: int) -> dict[str, object]:
    rss_mib = []
    for _ in range(SAMPLES):
        for _ in range(ends // SAMPLES):
            for _ in partition.begin():
                pass
        rss_mib.append(round(_rss_bytes() / 2**20, 1))
    return {"ended": ends, "rss_mib": rss_mib}


def _accepted(run_id: str, plan: PipelinePlan, now_ms: float) -> bytes:
    return encoded(
        RunAccepted(
            run_id=run_id,
            tenant=TENANT,
            pipeline=plan.source.pipeline.pipeline,
            version=1,
            input=dict(BODY),
            priority=Priority.STANDARD,
            deadline_at_ms=now_ms + SLO_MS,
            reply_to=f"_INBOX.{run_id}",
        )
    )


def _result(run: Run, dispatch: messages.Dispatch, now_ms: float) -> bytes:
    return encoded(
        AttemptFinished(
            run_id=run.run_id,
            step=dispatch.step,
            attempt=1,
            output=dict(BODY),
            started_at_ms=now_ms - 0.5,
            finished_at_ms=now_ms - 0.2,
            queued_at_ms=now_ms - 0.7,
            delivery=1,
            worker="worker-1",
            dispatched_at_ms=dispatch.dispatched_at_ms,
            capability=dispatch.capability,
        )
    )


def _rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


if __name__ == "__main__":
    sys.exit(main())
