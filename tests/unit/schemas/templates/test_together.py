"""Evaluations that are made together: each uses at most what those before it left."""

import pytest

from hocket.schemas.templates.budget import (
    EVALUATION_OPERATIONS,
    MAX_OPERATIONS,
    MAX_TOGETHER_OPERATIONS,
    Account,
    Refused,
)


def test_the_last_evaluation_may_use_what_is_left_and_no_more() -> None:
    account = Account()
    account.spend(MAX_TOGETHER_OPERATIONS - 100)
    meter = account.meter()
    meter.spend(100)
    with pytest.raises(Refused, match=f"{MAX_TOGETHER_OPERATIONS:,}"):
        meter.spend(1)
    account.used(meter)
    assert account.is_used_up
    assert account.operations == MAX_TOGETHER_OPERATIONS + EVALUATION_OPERATIONS
    with pytest.raises(Refused):
        account.meter().spend(1)


def test_an_evaluation_uses_what_it_spent_of_its_own_bound() -> None:
    account = Account()
    meter = account.meter()
    meter.spend(7)
    account.used(meter)
    assert account.operations == 7 + EVALUATION_OPERATIONS
    too_long = account.meter()
    with pytest.raises(Refused, match=f"{MAX_OPERATIONS:,}"):
        too_long.spend(MAX_OPERATIONS + 1)
    account.used(too_long)
    assert account.operations == 7 + MAX_OPERATIONS + 2 * EVALUATION_OPERATIONS
