"""The verdict on money detects violations: each rule, on rows and meters that break it and nothing
else."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from chaos.engines import Metered, cost_usd
from chaos.injection import Death
from chaos.judgement.evidence import TRIES, Evidence, gather_at_rest
from chaos.judgement.money import ENOUGH, judge_money
from chaos.judgement.verdict import Verdict
from chaos.load import Heard, Task

TASK = Task("key", "priced", 7)
RUN = TASK.run_id
BELOW = "r" + "b" * 24
CALL = f"{RUN}:draft:1:1"
ASKED_S = 100.0


def a_row(call_id: str = CALL, tokens: tuple[int, int] = (4, 24), **changes: Any) -> dict[str, Any]:
    row = {
        "call_id": call_id, "model": "writer", "status": "ok", "input_tokens": tokens[0],
        "output_tokens": tokens[1], "cost_usd": cost_usd(*tokens), "estimated": False,
    }  # fmt: skip
    return row | changes


def a_meter(request_id: str = CALL, tokens: tuple[int, int] = (4, 24)) -> Metered:
    return Metered(request_id, "ok", *tokens, ASKED_S, ASKED_S + 1)


def sums(*rows: dict[str, Any]) -> dict[str, Any]:
    names = ("input_tokens", "output_tokens", "cost_usd")
    return {name: sum(row[name] for row in rows) for name in names}


def good(*rows: dict[str, Any], meters: list[Metered]) -> Evidence:
    """Return the evidence of a task with these calls, and with correct reports about them."""
    runs: Any = {
        RUN: {"run_id": RUN, "pipeline": "priced", "parent": None},
        BELOW: {"run_id": BELOW, "pipeline": "priced_child", "parent": RUN},
    }
    usage: Any = list(rows)
    named: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        run_id = row["call_id"].partition(":")[0]
        named.setdefault(runs[run_id]["pipeline"], []).append(row)
    by_pipeline: Any = {name: sums(*its) for name, its in named.items()}
    by_customer: Any = {TASK.customer: sums(*rows)} if rows else {}
    return Evidence(
        tasks=[TASK], heard=Heard(), journals=Path(), dead={}, runs=runs, steps={}, attempts=set(),
        booked=[], told={}, letters=[], left={}, metered=meters, deaths=[], usage=usage,
        by_pipeline=by_pipeline, by_customer=by_customer,
    )  # fmt: skip


def judged(evidence: Evidence) -> Verdict:
    verdict = Verdict()
    judge_money(evidence, verdict)
    return verdict


def rules(evidence: Evidence) -> set[str]:
    return {violation.partition(":")[0] for violation in judged(evidence).violations}


def test_rows_that_are_as_metered_are_acquitted() -> None:
    rows = (a_row(), a_row(f"{CALL}:r1", (4, 20)), a_row(f"{BELOW}:only:1:1"))
    meters = [a_meter(), a_meter(tokens=(4, 20)), a_meter(f"{BELOW}:only:1:1")]
    verdict = judged(good(*rows, meters=meters))
    assert not verdict.violations
    assert verdict.counts["priced calls compared"] == 2
    assert verdict.counts["pipelines whose share was compared"] == 2


async def test_a_call_booked_while_evidence_is_gathered_is_compared_with_its_meter() -> None:
    """Runs may end before an answer that nobody waits for, or before a call that nobody cancelled."""
    late = f"{CALL}:t1"
    rows, meters = [a_row()], [a_meter()]

    async def gathered(metered: list[Metered]) -> Evidence:
        if (
            len(rows) == 1
        ):  # it is asked after the meters were read, and booked before the ledger is
            rows.append(a_row(late, (4, 40)))
            meters.append(a_meter(tokens=(4, 40)))
        return good(*rows, meters=metered)

    evidence = await gather_at_rest(lambda: list(meters), gathered, pause_s=0.0)
    assert (rules(evidence), len(evidence.metered)) == (set(), 2)


async def test_what_never_ceases_to_call_is_judged_at_last() -> None:
    meters: list[Metered] = []

    async def gathered(metered: list[Metered]) -> Evidence:
        meters.append(a_meter())
        return good(a_row(), meters=metered)

    evidence = await gather_at_rest(lambda: list(meters), gathered, pause_s=0.0)
    assert len(meters) == TRIES
    assert rules(evidence) == {"lost-money"}


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        (a_row(tokens=(4, 23)), "misbooked"),
        (a_row(cost_usd=cost_usd(4, 24) + Decimal("1e-12")), "mispriced"),
        (a_row(estimated=True), "left-estimated"),
    ],
)
def test_each_rule_of_rows_convicts(row: dict[str, Any], rule: str) -> None:
    assert rule in rules(good(row, meters=[a_meter()]))


def test_a_row_that_no_engine_knows_is_convicted_unless_nothing_was_used() -> None:
    assert rules(good(a_row(), a_row(f"{CALL}:r1"), meters=[a_meter()])) == {"misbooked"}
    assert not rules(good(a_row(), a_row(f"{CALL}:r1", (0, 0)), meters=[a_meter()]))


def test_what_nobody_booked_is_lost_unless_its_caller_died() -> None:
    evidence = good(meters=[a_meter()])
    assert rules(evidence) == {"lost-money"}
    died = replace(evidence, deaths=[Death("gateway", ASKED_S + 0.5, ASKED_S + 0.5)])
    assert not judged(died).violations
    assert judged(died).counts["priced requests that died with their gateway"] == 1
    broken = replace(evidence, metered=[replace(a_meter(), status="disconnected")])
    assert not judged(broken).violations
    for other in (
        Death("ledger", ASKED_S + 0.5, ASKED_S + 0.5),
        Death("gateway", ASKED_S + 9, ASKED_S + 9),
        Death("gateway", ASKED_S - 9, ASKED_S - 9),
    ):
        assert rules(replace(evidence, deaths=[other])) == {"lost-money"}


@pytest.mark.parametrize(("tokens", "rule"), [(100, set()), (112, {"estimates"})])
def test_estimates_may_be_off_by_a_tenth_in_sum(tokens: int, rule: set[str]) -> None:
    calls = [f"{RUN}:first/slow:{number}:1" for number in range(ENOUGH)]
    rows = [
        a_row(call, (0, tokens + 40 * (-1) ** number), estimated=True, status="cancelled")
        for number, call in enumerate(calls)
    ]
    meters = [a_meter(call, (0, 100)) for call in calls]
    assert rules(good(*rows, meters=meters)) == rule


@pytest.mark.parametrize(
    "change",
    [
        lambda e: replace(e, by_customer={}),
        lambda e: replace(e, by_customer={"other": e.by_customer[TASK.customer]}),
        lambda e: replace(e, by_pipeline={"priced": sums(*e.usage)}),
        lambda e: replace(e, tasks=[]),
    ],
)
def test_a_share_that_is_not_that_of_its_calls_is_convicted(
    change: Callable[[Evidence], Evidence],
) -> None:
    rows = (a_row(), a_row(f"{BELOW}:only:1:1"))
    evidence = good(*rows, meters=[a_meter(), a_meter(f"{BELOW}:only:1:1")])
    assert rules(change(evidence)) == {"share"}
