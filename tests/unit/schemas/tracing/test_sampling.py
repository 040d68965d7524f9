"""Which traces are exported."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from hocket.schemas import ids
from hocket.schemas.tracing.sampling import EndedRun, SamplingRule

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
NONE = SamplingRule(ratio=0, slow_ms=30_000, expensive_usd=Decimal(1))
PLAIN = EndedRun("r1", None, False, "succeeded", 100.0, False, Decimal("0.01"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"status": "degraded"}, None),
        ({"status": "cancelled", "is_late": True}, None),
        ({"status": "failed"}, "error"),
        ({"status": "expired"}, "error"),
        ({"status": "rejected"}, "error"),
        ({"is_late": True}, "late"),
        ({"duration_ms": 30_001.0}, "slow"),
        ({"spent_usd": Decimal(1)}, "expensive"),
        ({"is_sub_run": True, "status": "failed"}, None),
        ({"is_sub_run": True, "is_late": True}, None),
        ({"is_sub_run": True, "duration_ms": 30_001.0}, None),
        ({"is_sub_run": True, "spent_usd": Decimal(1)}, None),
        ({"traceparent": f"00-{TRACE}-{SPAN}-01"}, "sampled"),
        ({"traceparent": f"00-{TRACE}-{SPAN}-01", "is_sub_run": True, "status": "failed"}, None),
        ({"traceparent": f"00-{TRACE}-{SPAN}-00"}, None),
    ],
)
def test_errors_late_slow_and_expensive_runs_are_always_kept(
    change: dict[str, Any], reason: str | None
) -> None:
    assert NONE.reason(replace(PLAIN, **change)) == reason


def test_a_bound_of_0_is_never() -> None:
    rule = SamplingRule(0, 0, Decimal(0))
    assert rule.reason(replace(PLAIN, duration_ms=1e9, spent_usd=Decimal(10**6))) is None


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5, 1.0])
def test_the_ratio_is_the_part_that_is_kept_and_a_trace_has_one_answer(ratio: float) -> None:
    rule = replace(NONE, ratio=ratio)
    runs = [f"r{n}" for n in range(4_000)]
    kept = {run for run in runs if rule.samples(run, None)}
    assert len(kept) / len(runs) == pytest.approx(ratio, abs=0.03)
    for run in runs[:100]:  # a sub-run, which comes with the trace of the run above
        of_parent = f"00-{ids.trace_id(run)}-{SPAN}-00"
        assert rule.samples("other", of_parent) is (run in kept)
