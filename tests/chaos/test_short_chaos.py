"""A short play of chaos, every kind of fault once; the long ones are `make chaos`
(docs/explanation/chaos.md)."""

import pytest

from chaos.plan import KINDS
from chaos.play import play

SEED = 1
MAX_FREEZE_S = 1.0
BOUND_S = 400


@pytest.mark.timeout(BOUND_S)
async def test_nothing_is_lost_doubled_or_left_whatever_is_broken_once() -> None:
    played = await play(SEED, number=len(KINDS), max_freeze_s=MAX_FREEZE_S)
    assert played.ok, "\n".join(played.report())
    assert played.faults.total() == len(KINDS)
