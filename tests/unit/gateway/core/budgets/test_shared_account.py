"""Accounts of several gateways: nothing that one of them may have spent is ever left out."""

import json
from decimal import Decimal
from typing import Any

import pytest

from hocket.gateway.core.budgets.shared_account import MAX_LINES, MAX_USD, Line, SharedAccount


def line(claim: int, spent: int) -> Line:
    return Line(Decimal(claim), Decimal(spent))


def test_all_that_a_dead_gateway_claimed_counts_as_spent_and_what_it_spent_beyond_that() -> None:
    lines = {"claims": line(5, 1), "overspent": line(1, 2), "lives": line(4, 3)}
    left = SharedAccount(Decimal(10), lines=lines).without({"claims", "overspent", "stranger"})
    assert left == SharedAccount(Decimal(10 + 5 + 2), lines={"lives": line(4, 3)})


def test_what_others_claim_and_spend_includes_dead_gateways_and_tools() -> None:
    lines = {"me": line(100, 100), "claims": line(5, 1), "overspent": line(1, 2)}
    others = SharedAccount(Decimal(10), Decimal(20), lines).others("me")
    assert others == line(10 + 20 + 5 + 2, 10 + 20 + 1 + 2)


def test_what_the_ledger_has_and_no_gateway_can_have_spent_counts_as_spent_once() -> None:
    account = SharedAccount(lines={"me": line(9, 9), "other": line(3, 1)})
    metered = account.at_least(Decimal(10), Decimal(2), "me")
    assert metered == SharedAccount(Decimal(10 - 2 - 3), lines=account.lines)
    assert metered.at_least(Decimal(10), Decimal(2), "me") is metered
    assert metered.at_least(Decimal(6), Decimal(2), "me") is metered, "it never falls"


def test_what_tools_charged_never_falls() -> None:
    charged = SharedAccount().charged(Decimal(3))
    assert [charged.charged(Decimal(usd)).tools_usd for usd in (2, 3, 4)] == [3, 3, 4]


def test_what_a_gateway_knows_to_be_spent_is_made_up_for_and_never_taken_away() -> None:
    account = SharedAccount(Decimal(2), lines={"other": line(9, 3)})
    assert account.spent_at_least(Decimal(7)).spent_usd == 7
    assert account.spent_at_least(Decimal(4)) is account


@pytest.mark.parametrize(
    ("account", "is_unspent", "is_empty"),
    [
        (SharedAccount(), True, True),
        (SharedAccount(lines={"a": line(0, 0)}), True, True),
        (SharedAccount(lines={"a": line(0, 0), "b": line(1, 0)}), True, False),
        (SharedAccount(lines={"a": line(1, 1)}), False, False),
        (SharedAccount(Decimal(1)), False, False),
        (SharedAccount(tools_usd=Decimal(1)), False, False),
    ],
)
def test_an_account_is_empty_if_nothing_of_it_was_spent_or_is_claimed(
    account: SharedAccount, is_unspent: bool, is_empty: bool
) -> None:
    assert (account.is_unspent, account.is_empty) == (is_unspent, is_empty)


def test_an_account_is_read_as_it_was_written() -> None:
    account = SharedAccount(Decimal("0.1"), MAX_USD, {"a": line(5, 1), "b": line(0, 0)})
    assert SharedAccount.decoded(account.encoded()) == account


@pytest.mark.parametrize(
    ("gone", "lines"),
    [
        ("-1", {}),
        ("NaN", {}),
        ("Infinity", {}),
        (str(MAX_USD + 1), {}),
        ("0" * 81, {}),
        (1, {}),
        ("0", {"a": ["1", "-1"]}),
        ("0", {"a": ["1"]}),
        ("0", {"": ["1", "1"]}),
        ("0", {f"g{number}": ["0", "0"] for number in range(MAX_LINES + 1)}),
        ("0", []),
    ],
)
def test_what_no_gateway_wrote_is_no_account(gone: Any, lines: Any) -> None:
    assert SharedAccount.decoded(json.dumps({"gone": gone, "lines": lines}).encode()) is None
