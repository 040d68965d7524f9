"""A short play of the fuzzer; the long ones are `make fuzz` (docs/explanation/forgery.md)."""

import pytest

from fuzz.play import play

BOUND_S = 400
LATE_MS = 15_000
"""A machine that runs tests stalls now and then; `make fuzz` is stricter."""


@pytest.mark.long
@pytest.mark.timeout(BOUND_S)
async def test_forged_messages_on_every_subject_harm_no_run_of_others() -> None:
    played = await play(1, seconds=8, rate=500, runs_per_s=15, late_ms=LATE_MS, quiet_s=2)
    assert not played.violations, "\n".join(played.report())
    assert played.forged > 1_000
