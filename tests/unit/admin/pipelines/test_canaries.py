"""When a canary is worse than the active version: the counts are worked out by hand."""

import random
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.admin.pipelines import canaries
from hocket.admin.pipelines.canaries import verdict
from hocket.schemas.administration.releases import Canary, CanaryReport, VersionOutcome

SINCE = datetime(2026, 3, 1, tzinfo=UTC)


def canary(min_runs: int = 100, rise: float = 0.05) -> Canary:
    return Canary(
        version=2,
        share=0.1,
        since=SINCE,
        min_runs=min_runs,
        max_failure_rise=rise,
        only_by_hand=False,
    )


def outcome(version: int, runs: int, failed: int, expired: int = 0) -> VersionOutcome:
    return VersionOutcome(
        version=version,
        runs=runs,
        succeeded=runs - failed - expired,
        degraded=0,
        failed=failed,
        expired=expired,
    )


@pytest.mark.parametrize(
    ("active", "candidate", "expected"),
    [
        ((1_000, 10), (99, 99), "undecided"),  # too few runs, though all failed
        ((1_000, 10), (100, 1), "as_good"),
        ((1_000, 10), (100, 6), "as_good"),  # 6 % against 1 %: a rise of 5 points is allowed
        ((1_000, 10), (100, 8), "worse"),  # 8 % against 1 %: z = 5.5
        ((1_000, 500), (100, 56), "undecided"),  # 56 % against 50 %: z = 1.1, by chance
        (
            (1_000, 500),
            (1_000, 560),
            "undecided",
        ),  # with more runs: z = 2.7, and it is judged often
        ((2_000, 1_000), (2_000, 1_120), "worse"),  # with more still: z = 3.8
        ((0, 0), (100, 6), "worse"),  # nothing beside it: against none that fail
        ((0, 0), (100, 0), "as_good"),
        ((100, 100), (100, 100), "as_good"),  # the active version is as bad
    ],
)
def test_a_canary_is_judged_by_what_fails_and_not_by_chance(
    active: tuple[int, int], candidate: tuple[int, int], expected: str
) -> None:
    assert verdict(canary(), outcome(1, *active), outcome(2, *candidate)) == expected


@pytest.mark.parametrize("failing", [0.02, 0.1, 0.3, 0.5])
def test_of_canaries_that_are_no_worse_few_are_ended_though_they_are_judged_again_and_again(
    failing: float,
) -> None:
    chance = random.Random(7)
    ended = 0
    for _ in range(200):
        runs, bad = {1: 0, 2: 0}, {1: 0, 2: 0}
        for number in range(5_000):
            version = 2 if chance.random() < 0.1 else 1
            runs[version] += 1
            bad[version] += chance.random() < failing
            if number % 10 == 0:
                told = [outcome(one, runs[one], bad[one]) for one in (1, 2)]
                if verdict(canary(), *told) == "worse":
                    ended += 1
                    break
    assert ended <= 10


def test_expired_runs_count_as_failed_ones_do() -> None:
    assert verdict(canary(), outcome(1, 1_000, 10), outcome(2, 100, 4, expired=4)) == "worse"


async def test_a_canary_that_takes_too_long_to_judge_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fetch(*_given: Any, **_more: Any) -> list[dict[str, str]]:
        return [{"tenant": "acme", "name": "huge"}, {"tenant": "rival", "name": "small"}]

    async def find(_pool: Any, _tenant: str, name: str) -> dict[str, Any]:
        return {"name": name, "canary_version": 2}

    async def report(_pool: Any, _tenant: str, row: dict[str, Any]) -> CanaryReport:
        if row["name"] == "huge":
            raise TimeoutError
        return CanaryReport(
            pipeline=row["name"],
            canary=canary(),
            active=outcome(1, 1_000, 10),
            candidate=outcome(2, 100, 50),
            verdict="worse",
        )

    async def end_worse(_context: Any, tenant: str, row: dict[str, Any], *_given: Any) -> bool:
        ended.append((tenant, row["name"]))
        return True

    ended: list[tuple[str, str]] = []
    monkeypatch.setattr(canaries.store, "find", find)
    monkeypatch.setattr(canaries, "report", report)
    monkeypatch.setattr(canaries.releases, "end_worse", end_worse)
    context: Any = SimpleNamespace(pool=SimpleNamespace(fetch=fetch))
    await canaries.judge_all(context)
    assert ended == [("rival", "small")]
