"""The judgement of a play, from what stands outside of the coordinator's memory: the database, the
stream of public facts with what listeners heard, and the journals of workers and models.

Rules (each violation names its rule and what broke it):
- `lost`: an accepted task has no run.
- `running`: a run, a sub-run or a step of an ended run has not ended.
- `wrong-end`: a run ended otherwise, or with another output, than its pipeline says.
- `two-ends`: two different ends were told of a run, or its end stands twice in EVENTS.
- `untold`: an ended run whose end nobody was told; `mistold`: told and stored ends differ.
- `unexecuted`: a step succeeded that no worker's journal has at this attempt, from begin to end.
- `attempts`: a step has not come to its number of attempts, or one that failed has no row.
- `path`: an ended run has no critical path, or one that does not sum to its time.
- `unbooked`, `invented`, `made-twice`: what a model metered is not in the ledger; a row of the ledger
  that no model metered; one gateway process metered a call twice.
- `dead`: something became a dead letter; `left`: a work queue is not empty.

Calls that were under way when their gateway was killed may be missing or made again:
docs/explanation/model-calls.md. They are counted as `died with their gateway`.
"""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from chaos import journal
from chaos.load import Heard, Task
from chaos.pipelines import ANY, PIPELINES
from hocket.schemas import subjects

BOOKING_S = 1.0
"""A gateway that can stores a call's record within this time after the model's answer."""
PATH_TOLERANCE_US = 1_000
JOURNALED = ("python", "chaos.note", "chaos.durable")
"""Types whose functions note each attempt."""
RUNS = """
SELECT run_id, pipeline, status, output, error, finished_at IS NOT NULL AS ended,
       extract(epoch FROM finished_at - accepted_at) * 1000000 AS took_us, critical_path
FROM hocket.run
"""
STEPS = "SELECT run_id, key, parent, type, role, state, attempt, facts FROM hocket.step"
ATTEMPTS = "SELECT run_id, key, attempt, outcome FROM hocket.attempt"
USAGE = "SELECT call_id, status FROM hocket.usage WHERE kind = 'call'"


@dataclass
class Verdict:
    """What was violated, and what there was to violate."""

    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def fail(self, rule: str, what: str) -> None:
        """Note a violation."""
        self.violations.append(f"{rule}: {what}")


@dataclass(frozen=True)
class Evidence:
    """All that is judged."""

    tasks: list[Task]
    heard: Heard
    journals: Path
    dead: dict[int, float]
    """Processes that were killed, and since when they could not send what they had."""
    runs: dict[str, asyncpg.Record]
    steps: dict[str, list[asyncpg.Record]]
    attempts: set[tuple[str, str, int]]
    booked: dict[str, str]
    told: dict[str, list[str]]
    """By run: the status of each end in EVENTS."""
    letters: list[str]
    left: dict[str, int]


async def gather(
    connection: "asyncpg.Connection[asyncpg.Record]",
    client: Client,
    tasks: list[Task],
    heard: Heard,
    journals: Path,
    dead: dict[int, float],
) -> Evidence:
    """Read the evidence, once nothing moves any more."""
    steps: dict[str, list[asyncpg.Record]] = defaultdict(list)
    for row in await connection.fetch(STEPS):
        steps[row["run_id"]].append(row)
    told: dict[str, list[str]] = defaultdict(list)
    for _, data in await _messages(client, subjects.EVENTS, ".run-finished"):
        body = json.loads(data)
        told[body["run_id"]].append(body["status"])
    return Evidence(
        tasks, heard, journals, dead,
        runs={row["run_id"]: row for row in await connection.fetch(RUNS)},
        steps=steps,
        attempts={(r["run_id"], r["key"], r["attempt"]) for r in await connection.fetch(ATTEMPTS)},
        booked={row["call_id"]: row["status"] for row in await connection.fetch(USAGE)},
        told=told,
        letters=[f"{subject} {data[:300]!r}" for subject, data in
                 await _messages(client, subjects.DLQ, "")],
        left={name: (await client.jetstream().stream_info(name)).state.messages
              for name in (subjects.TASKS, subjects.STEPS, subjects.USAGE)},
    )  # fmt: skip


def judge(evidence: Evidence) -> Verdict:
    """Judge a play."""
    verdict = Verdict()
    for task in evidence.tasks:
        _judge_task(task, evidence, verdict)
    executed = _executed(evidence.journals)
    for run in evidence.runs.values():
        _judge_run(run, evidence, executed, verdict)
    _judge_calls(evidence, verdict)
    _judge_units(evidence.journals, verdict)
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
        return  # said with all runs
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
    rescued = {step["parent"] for step in steps if step["state"] == "succeeded"}
    for step in steps:
        _judge_step(run_id, step, step["key"] in rescued, executed, verdict)


def _judge_path(run: asyncpg.Record, verdict: Verdict) -> None:
    pieces: list[Any] = json.loads(run["critical_path"] or "[]")
    verdict.counts["critical paths"] += bool(pieces)
    off_us = abs(sum(piece[4] for piece in pieces) - float(run["took_us"]))
    # a run whose acceptance the log lost, and all of whose results were there when it was accepted
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
        own = "source" not in facts and not rescued  # else it has another step's output
        verdict.counts["steps executed" if own else "steps cached or rescued"] += 1
        if own and name not in executed:
            verdict.fail("unexecuted", name)


def _executed(journals: Path) -> set[str]:
    return {one.subject for one in journal.read(journals, journal.ATTEMPTS) if one.what == "ended"}


def _judge_calls(evidence: Evidence, verdict: Verdict) -> None:
    calls: dict[str, list[journal.Entry]] = defaultdict(list)
    begun: dict[str, set[int]] = defaultdict(set)
    for entry in journal.read(evidence.journals, journal.CALLS):
        begun[entry.subject].add(entry.pid)
        if entry.what == "ended":
            calls[entry.subject].append(entry)
    rows: dict[str, list[str]] = defaultdict(list)
    for call_id, status in evidence.booked.items():
        # one that was made again after its gateway died has a row for each time it was paid
        rows[call_id.partition("#")[0]].append(status)
    verdict.counts["calls metered"] = len(calls)
    verdict.counts["calls in the ledger"] = len(rows)
    verdict.counts["rows of the ledger"] = len(evidence.booked)
    for call_id, metered in calls.items():
        pids = [one.pid for one in metered]
        if len(set(pids)) < len(pids):
            verdict.fail("made-twice", f"{call_id} by {pids}")
        verdict.counts["calls made again after their gateway died"] += len(set(pids)) - 1
        missing = len(metered) - len(rows[call_id])
        died = sum(_died_with(one, evidence.dead) for one in metered)
        verdict.counts["calls that died with their gateway"] += min(max(missing, 0), died)
        if missing > died:
            verdict.fail("unbooked", f"{missing} of {metered}")
    for call_id, booked in rows.items():
        if len(booked) > len(begun[call_id]):
            verdict.fail("invented", f"{call_id} {booked}, begun {len(begun[call_id])} times")
        elif booked.count("ok") > len(calls[call_id]):
            verdict.fail("invented", f"{call_id} {booked}, ended {len(calls[call_id])} times")


def _judge_units(journals: Path, verdict: Verdict) -> None:
    """Of what handlers do once, each delivery of their step but the first may do one unit again: the one
    that was under way."""
    deliveries = Counter(one.subject for one in journal.read(journals, journal.DELIVERIES))
    units = [one for one in journal.read(journals, journal.UNITS) if one.what == "begun"]
    times = Counter(one.subject for one in units)
    again = Counter[str]()
    for unit, number in times.items():
        again[unit.rpartition("|")[0]] += number - 1
    verdict.counts["units of handlers with a journal"] = len(times)
    verdict.counts["units under way that were done again"] = again.total()
    verdict.counts["deliveries that went on in a journal"] = deliveries.total() - len(deliveries)
    for place, number in again.items():
        if number > deliveries[place] - 1:
            verdict.fail(
                "done-twice", f"{place}: {number} units, in {deliveries[place]} deliveries"
            )


def _died_with(call: journal.Entry, dead: dict[int, float]) -> bool:
    return call.pid in dead and dead[call.pid] - call.at_s < BOOKING_S


async def _messages(client: Client, stream: str, ending: str) -> list[tuple[str, bytes]]:
    jetstream = client.jetstream()
    found = []
    state = (await jetstream.stream_info(stream)).state
    for seq in range(max(1, state.first_seq), state.last_seq + 1):
        try:
            message = await jetstream.get_msg(stream, seq)
        except NotFoundError:
            continue  # a gap
        if (message.subject or "").endswith(ending):
            found.append((message.subject or "", message.data or b""))
    return found
