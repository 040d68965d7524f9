"""Tokens and money of models with prices.

The rows are compared with the engines' meters, and the reports' sums by pipeline and customer with the
calls of the tasks themselves."""

from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from chaos.engines import FUNCTIONS, Metered, cost_usd
from chaos.judgement.evidence import BOOKING_S, Evidence
from chaos.judgement.verdict import Verdict
from chaos.load import Task

BROKEN = "disconnected"
WITHIN = Decimal("0.1")
ENOUGH = 30
"""From this number on, the errors of estimates average out; the sum of fewer is reported but not
judged."""
CALLERS = ("gateway", "worker")
"""The kinds of killed processes that make calls; workers do if they contain gateways."""
Sums = tuple[int, int, Decimal]


def judge_money(evidence: Evidence, verdict: Verdict) -> None:
    """Compare rows with meters call by call, then compare the sums."""
    rows: dict[str, list[Any]] = defaultdict(list)
    for row in evidence.usage:
        if row["model"] not in FUNCTIONS:
            rows[_call(row["call_id"])].append(row)
    meters: dict[str, list[Metered]] = defaultdict(list)
    for meter in evidence.metered:
        meters[_call(meter.request_id)].append(meter)
    estimates = _Estimates()
    for call in {*rows, *meters}:
        _judge_call(rows[call], meters[call], evidence, verdict, estimates)
    verdict.counts["priced requests metered"] = len(evidence.metered)
    verdict.counts["priced requests in the ledger"] = sum(map(len, rows.values()))
    _judge_estimates(estimates, verdict)
    _judge_shares(evidence, verdict)


@dataclass
class _Estimates:
    """Estimated rows, and what engines metered for their requests."""

    number: int = 0
    booked_usd: Decimal = Decimal(0)
    metered_usd: Decimal = Decimal(0)


def _judge_call(
    rows: list[Any],
    meters: list[Metered],
    evidence: Evidence,
    verdict: Verdict,
    estimates: _Estimates,
) -> None:
    """Match the rows of one call with the requests that engines metered under its id.

    An exact row takes a request with the same tokens, preferably one whose answer did not break off.
    The remaining requests belong to the estimated rows."""
    left = sorted(meters, key=lambda one: one.status == BROKEN)
    guessed = []
    for row in rows:
        tokens = (row["input_tokens"], row["output_tokens"])
        if row["cost_usd"] != cost_usd(*tokens):
            verdict.fail("mispriced", f"{dict(row)}")
        if row["estimated"]:
            guessed.append(row)
            continue
        same = [one for one in left if (one.input_tokens, one.output_tokens) == tokens]
        if same:
            left.remove(same[0])
        elif any(tokens):
            verdict.fail("misbooked", f"{dict(row)} of {meters}")
    left = sorted((one for one in left if one.cost_usd), key=lambda one: one.asked_at_s)
    verdict.counts["priced calls compared"] += 1
    estimates.number += len(guessed)
    estimates.booked_usd += sum((row["cost_usd"] for row in guessed), Decimal(0))
    lost = left[: max(len(left) - len(guessed), 0)]  # a retry is asked after the death
    estimates.metered_usd += sum((one.cost_usd for one in left[len(lost) :]), Decimal(0))
    for meter in lost:
        _judge_lost(meter, evidence, verdict)
    for row in guessed:
        if row["status"] == "ok":
            verdict.fail("left-estimated", f"{dict(row)} of {left}")


def _judge_lost(meter: Metered, evidence: Evidence, verdict: Verdict) -> None:
    """Excuse a request that nobody booked if its caller died before it had the answer, or if the
    connection broke before the first byte of the answer: that looks like a crashed engine."""
    if meter.status == BROKEN:
        verdict.counts["priced requests whose answer broke off before it began"] += 1
    elif _caller_died(meter, evidence):
        verdict.counts["priced requests that died with their gateway"] += 1
    else:
        verdict.fail("lost-money", f"{meter}")


def _judge_estimates(found: _Estimates, verdict: Verdict) -> None:
    booked, true = found.booked_usd, found.metered_usd
    verdict.counts["priced requests that are estimated"] = found.number
    verdict.counts["their estimates, in millionths of a dollar"] = round(booked * 1_000_000)
    verdict.counts["what engines metered of them, likewise"] = round(true * 1_000_000)
    if found.number >= ENOUGH and abs(booked - true) > WITHIN * true:
        verdict.fail("estimates", f"{booked} of {found.number} requests that cost {true}")


def _judge_shares(evidence: Evidence, verdict: Verdict) -> None:
    """Charge each row to its run's pipeline and to the customer of the task above it, using nothing but
    the call's id."""
    tasks = {task.run_id: task for task in evidence.tasks}
    pipelines: dict[str, Sums] = defaultdict(lambda: (0, 0, Decimal(0)))
    customers: dict[str, Sums] = defaultdict(lambda: (0, 0, Decimal(0)))
    for row in evidence.usage:
        run_id = row["call_id"].partition(":")[0]
        run = evidence.runs.get(run_id)
        task = _task_above(run_id, tasks, evidence)
        if run is None or task is None:
            verdict.fail("share", f"no task is above {dict(row)}")
            continue
        cost = (row["input_tokens"], row["output_tokens"], row["cost_usd"])
        pipelines[run["pipeline"]] = _sum(pipelines[run["pipeline"]], cost)
        customers[task.customer] = _sum(customers[task.customer], cost)
    for level, own, told in (
        ("pipeline", pipelines, evidence.by_pipeline),
        ("customer", customers, evidence.by_customer),
    ):
        reported = {
            name: (row["input_tokens"], row["output_tokens"], row["cost_usd"])
            for name, row in told.items()
        }
        verdict.counts[f"{level}s whose share was compared"] = len(own)
        for name in sorted({*own, *reported}):
            if own.get(name) != reported.get(name):
                verdict.fail("share", f"{level} {name}: {reported.get(name)}, own {own.get(name)}")


def _task_above(run_id: str, tasks: dict[str, Task], evidence: Evidence) -> Task | None:
    seen = set()
    while run_id not in tasks and run_id in evidence.runs and run_id not in seen:
        seen.add(run_id)
        run_id = evidence.runs[run_id]["parent"] or ""
    return tasks.get(run_id)


def _call(request_id: str) -> str:
    """Return a call's id without the parts that distinguish its requests."""
    parts = request_id.partition("#")[0].split(":")
    while parts[-1] == "h" or (parts[-1][:1] in "rt" and parts[-1][1:].isdecimal()):
        parts.pop()
    return ":".join(parts)


def _sum(one: Sums, other: Sums) -> Sums:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _caller_died(meter: Metered, evidence: Evidence) -> bool:
    ended_s = float("inf") if meter.ended_at_s is None else meter.ended_at_s
    return any(
        death.mute_s - BOOKING_S < ended_s and meter.asked_at_s < death.gone_s
        for death in evidence.deaths
        if death.target.startswith(CALLERS)
    )
