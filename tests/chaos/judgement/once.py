"""What must be done only once: model calls, according to the ledger; units of handlers and what they
call, according to their journals."""

import json
from collections import Counter, defaultdict
from math import inf
from typing import Any

from chaos import journal
from chaos.judgement.evidence import BOOKING_S, Evidence
from chaos.judgement.verdict import Verdict
from chaos.pipelines import PIPELINES

REMEMBERED_S = 120.0
"""For so long a gateway remembers a reply; a call that is sent again later is made again, and is paid
again: docs/explanation/model-calls.md."""


def judge_calls(evidence: Evidence, verdict: Verdict) -> None:
    """Compare what models metered with the ledger."""
    calls: dict[str, list[journal.Entry]] = defaultdict(list)
    begun = Counter[str]()
    for entry in journal.read(evidence.journals, journal.CALLS):
        if entry.what == "ended":
            calls[entry.subject].append(entry)
        else:
            begun[entry.subject] += 1
    rows: dict[str, list[str]] = defaultdict(list)
    for call_id, status in evidence.booked:
        # a call that was made again after its gateway died has a row for each time it was paid
        rows[call_id.partition("#")[0]].append(status)
    verdict.counts["calls metered"] = len(calls)
    verdict.counts["calls in the ledger"] = len(rows)
    verdict.counts["rows of the ledger"] = len(evidence.booked)
    for call_id, metered in calls.items():
        gateways = {one.pid for one in metered}
        if _made_twice(metered):
            verdict.fail("made-twice", f"{call_id}: {metered}")
        verdict.counts["calls made again after their gateway died"] += len(gateways) - 1
        forgotten = len(metered) - len(gateways)
        verdict.counts["calls sent again after their gateway had forgotten them"] += forgotten
        missing = len(metered) - len(rows[call_id])
        died = sum(_died_with(one, evidence.dead) for one in metered)
        verdict.counts["calls that died with their gateway"] += min(max(missing, 0), died)
        if missing > died:
            verdict.fail("unbooked", f"{missing} of {metered}")
    for call_id, booked in rows.items():
        if len(booked) > begun[call_id]:
            verdict.fail("invented", f"{call_id} {booked}, begun {begun[call_id]} times")
        elif booked.count("ok") > len(calls[call_id]):
            verdict.fail("invented", f"{call_id} {booked}, ended {len(calls[call_id])} times")


def judge_units(evidence: Evidence, verdict: Verdict) -> None:
    """Check the units that handlers do once.

    Each delivery of a step after the first may repeat one unit, the one that was in progress. A
    delivery that ended in a suspension had none in progress."""
    deliveries = _deliveries(evidence)
    units = [one for one in journal.read(evidence.journals, journal.UNITS) if one.what == "begun"]
    times = Counter(one.subject for one in units)
    again = Counter[str]()
    for unit, number in times.items():
        again[unit.rpartition("|")[0]] += number - 1
    verdict.counts["units of handlers with a journal"] = len(times)
    verdict.counts["units under way that were done again"] = again.total()
    verdict.counts["deliveries that went on in a journal"] = deliveries.total() - len(deliveries)
    suspensions = _suspensions(evidence)
    for place, number in again.items():
        if number > max(0, deliveries[place] - 1 - suspensions[place]):
            told = f"{deliveries[place]} deliveries, {suspensions[place]} of them suspended"
            verdict.fail("done-twice", f"{place}: {number} units, in {told}")


def judge_called(evidence: Evidence, verdict: Verdict) -> None:
    """Check that what handlers call is exactly one step of their run, and that a called step asks its
    model once.

    Each delivery of a called step after the first may ask again, because the previous one may have died
    while the answer was on its way.

    A step that workers executed counts even if the log lost it with its tail, as long as the calling
    handler's journal has its output: then it is never requested again."""
    asked, executed, deliveries = _asked(evidence), _executed(evidence), _deliveries(evidence)
    for task in evidence.tasks:
        run, calls = evidence.runs.get(task.run_id), PIPELINES[task.pipeline].calls
        if not calls or run is None or run["status"] != "succeeded":
            continue  # reported with all runs
        rows = {step["key"] for step in evidence.steps[task.run_id] if is_called(step)}
        called = rows | {key for key in executed[task.run_id] if _name(key) in calls}
        verdict.counts["steps that handlers called and a log lost"] += len(called - rows)
        names = Counter(map(_name, called))
        verdict.counts["steps that handlers called"] += len(called)
        for name in sorted({*calls, *names}):
            if names[name] != 1:
                rule = "called-twice" if names[name] else "uncalled"
                verdict.fail(rule, f"{task.run_id} {name}: {names[name]} steps")
        for key in called:
            if calls.get(_name(key)):
                place = f"{task.run_id}|{key}"
                _judge_paid(place, asked[place], deliveries[place], verdict)


def _asked(evidence: Evidence) -> dict[str, set[str]]:
    """Return the model calls by run and step."""
    found: dict[str, set[str]] = defaultdict(set)
    for entry in journal.read(evidence.journals, journal.CALLS):
        if entry.what == "begun":
            run_id, step, *_ = entry.subject.split(":")
            found[f"{run_id}|{step}"].add(entry.subject)
    return found


def _executed(evidence: Evidence) -> dict[str, set[str]]:
    """Return, by run, the steps that a worker began."""
    found: dict[str, set[str]] = defaultdict(set)
    for entry in journal.read(evidence.journals, journal.ATTEMPTS):
        run_id, step, _ = entry.subject.split("|")
        found[run_id].add(step)
    return found


def _judge_paid(place: str, calls: set[str], deliveries: int, verdict: Verdict) -> None:
    verdict.counts["called steps that were paid"] += bool(calls)
    verdict.counts["called steps that were under way and paid again"] += len(calls) > 1
    if not calls:
        verdict.fail("unpaid", place)
    elif len(calls) > deliveries:
        verdict.fail("paid-twice", f"{place}: {sorted(calls)} in {deliveries} deliveries")


def is_called(step: Any) -> bool:
    """Return whether a handler called a step."""
    return _facts(step).get("link") == "call"


def _deliveries(evidence: Evidence) -> Counter[str]:
    begun = journal.read(evidence.journals, journal.DELIVERIES)
    return Counter(one.subject for one in begun)


def _suspensions(evidence: Evidence) -> Counter[str]:
    return Counter(
        {
            f"{run_id}|{step['key']}": _facts(step).get("suspensions", 0)
            for run_id, steps in evidence.steps.items()
            for step in steps
        }
    )


def _facts(step: Any) -> dict[str, Any]:
    return json.loads(step["facts"] or "{}") or {}


def _name(key: str) -> str:
    """Return the name by which a handler calls a step: `a/pay` for `a/pay-1`."""
    return key.rpartition("-")[0]


def _made_twice(metered: list[journal.Entry]) -> bool:
    """Tell whether one gateway made a call again although it remembered the reply."""
    latest: dict[int, float] = {}
    for one in metered:
        if one.at_s - latest.get(one.pid, -inf) < REMEMBERED_S:
            return True
        latest[one.pid] = one.at_s
    return False


def _died_with(call: journal.Entry, dead: dict[int, float]) -> bool:
    return call.pid in dead and dead[call.pid] - call.at_s < BOOKING_S
