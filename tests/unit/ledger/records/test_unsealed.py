"""Which letters records share that no gateway sealed."""

import json
from types import SimpleNamespace
from typing import Any

from hocket.ledger.records.record import SEPARATOR
from hocket.ledger.records.unsealed import (
    LETTER_BYTES,
    LETTER_RECORDS,
    MAX_TENANTS,
    _costs,
    _letters,
)
from hocket.schemas import subjects


def message(*costs: Any, tenant: Any = "acme", subject: str = subjects.USAGE_SUBJECT) -> Any:
    lines = [{"cost_usd": cost, "attribution": {"tenant": tenant}} for cost in costs]
    data = SEPARATOR.join(json.dumps(line).encode() for line in lines)
    return SimpleNamespace(subject=subject, data=data)


def lettered(*messages: Any) -> list[tuple[str, int]]:
    costs = {id(one): _costs(one) for one in messages}
    return [(tenant, len(letter)) for tenant, letter in _letters(messages, costs)]


def test_only_records_that_tell_of_a_believable_cost_are_worth_a_letter() -> None:
    unbelievable = (0, -1, "much", None, 1e300, "NaN")
    told = _costs(message("0.5", *unbelievable, 2))
    assert {tenant for tenant, _ in told} == {"acme"}
    assert [str(cost) for _, cost in told] == ["0.5", *["0"] * len(unbelievable), "2"]
    assert _costs(message(*unbelievable)) == []
    assert _costs(message("1", tenant="a b"))[0][0] == subjects.UNATTRIBUTED
    assert _costs(message("1", subject="hocket.call.x")) == []
    assert _costs(message(*["1"] * 2_000)) == [], "more records than a gateway sends"


def test_a_letter_is_a_tenants_where_all_its_records_are() -> None:
    mixed = message("1")
    mixed.data += SEPARATOR + message("1", tenant="other").data
    assert lettered(message("1"), message("2"), mixed) == [("acme", 2), (subjects.UNATTRIBUTED, 1)]


def test_many_tenants_share_letters_of_nobody() -> None:
    many = [message("1", tenant=f"t{number}") for number in range(MAX_TENANTS + 1)]
    assert lettered(*many) == [(subjects.UNATTRIBUTED, MAX_TENANTS + 1)]


def test_a_letter_has_a_bound_of_bytes_unless_one_message_is_larger() -> None:
    half, whole = [message("1") for _ in range(3)], message("1")
    for one in half:
        one.data += b" " * (LETTER_BYTES // 2 - 1 - len(one.data))
    whole.data += b" " * LETTER_BYTES
    assert lettered(*half) == [("acme", 2), ("acme", 1)]
    assert lettered(half[0], whole, half[1]) == [("acme", 1)] * 3


def test_a_letter_has_a_bound() -> None:
    full = [message(*["1"] * (LETTER_RECORDS // 2)) for _ in range(3)]
    assert lettered(*full) == [("acme", 2), ("acme", 1)]
