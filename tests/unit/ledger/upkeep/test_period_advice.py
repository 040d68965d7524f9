"""Periods that do not do what they seem to say are told when a ledger starts."""

import pytest

from hocket.kit.process.settings import BLOBS_STAY_DAYS, Settings
from hocket.ledger.upkeep.period_advice import LONGEST_WAIT_DAYS, Advice, all_of
from hocket.ledger.upkeep.retention import Periods
from hocket.schemas.pipeline.node_parts import MAX_WAIT_MS

DAY_MS = 86_400_000


def advice(*, runs: int = 30, usage: int = 400, blobs: int = 220, tenant: int = 90) -> list[Advice]:
    periods = Periods(runs=runs, rejected=7, usage=usage, durations=180, blobs=blobs)
    return list(all_of(periods, {"acme": {"usage": tenant}}))


def test_the_defaults_need_no_advice() -> None:
    assert advice() == []
    assert LONGEST_WAIT_DAYS * DAY_MS == MAX_WAIT_MS


@pytest.mark.parametrize(
    ("runs", "blobs", "days"),
    [(30, 119, "120 days or more, or 0"), (30, 7, "120"), (0, 220, "set 0"), (365, 220, "455")],
    ids=["a-day-short", "shorter", "runs-stay", "as-long-as-runs-once-were"],
)
def test_large_values_that_go_before_their_runs_are_told(runs: int, blobs: int, days: str) -> None:
    (told,) = advice(runs=runs, blobs=blobs)
    assert (told.event, told.field) == ("blobs_go_before_their_runs", "HOCKET_KEEP_BLOBS_DAYS")
    assert days in told.cure


@pytest.mark.parametrize(("runs", "blobs"), [(30, 120), (30, 0), (0, 0)])
def test_large_values_that_stay_as_long_as_their_runs_are_not(runs: int, blobs: int) -> None:
    assert advice(runs=runs, blobs=blobs) == []


@pytest.mark.parametrize(("runs", "blobs"), [(None, 220), (365, 555), (7, 197), (0, 0)])
def test_the_period_of_large_values_follows_that_of_runs(
    runs: int | None, blobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if runs is not None:
        monkeypatch.setenv("HOCKET_KEEP_RUNS_DAYS", str(runs))
    settings = Settings()
    assert settings.blob_days == blobs
    assert advice(runs=settings.keep_runs_days, blobs=settings.blob_days) == []
    assert BLOBS_STAY_DAYS >= LONGEST_WAIT_DAYS
    monkeypatch.setenv("HOCKET_KEEP_BLOBS_DAYS", "5")
    assert Settings().blob_days == 5


def test_calls_that_stay_longer_than_their_period_are_told() -> None:
    fields = [one.field for one in advice(usage=30, tenant=7)]
    assert fields == ["HOCKET_KEEP_USAGE_DAYS", "HOCKET_KEEP_BY_TENANT: acme.usage"]
    assert advice(usage=0, tenant=31) == []
