"""How many calls may be made twice."""

import pytest

from hocket.gateway.core.calls.hedging import HedgeRule, HedgeTokens


@pytest.mark.parametrize("calls", [0, 96, 1_000, 100_000])
def test_however_many_calls_came_before_at_most_a_burst_is_made_twice_in_a_row(calls: int) -> None:
    tokens = HedgeTokens(HedgeRule(share=1 / 16, burst=10.0))
    for _ in range(calls):
        tokens.earn()
    twice = 0
    while tokens.take():
        twice += 1
    assert twice == {0: 1, 96: 7, 1_000: 10, 100_000: 10}[calls]


def test_without_a_burst_no_call_is_made_twice() -> None:
    tokens = HedgeTokens(HedgeRule(share=1.0, burst=0.0))
    tokens.earn()
    assert not tokens.take()
