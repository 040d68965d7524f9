"""What a gateway writes is the message of the contract, and as the contract writes it."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.schemas.messages import (
    Attribution,
    CallDecision,
    CandidateSeen,
    UsageRecord,
    encoded,
)
from hocket.schemas.structs.usage import (
    RecordedDecision,
    RecordedUsage,
    SeenCandidate,
    write,
)

COUNT = st.integers(0, 2**53)
NAME = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20)
MONEY = st.decimals(0, 10**12, allow_nan=False, allow_infinity=False, places=18)
MOMENT = st.floats(0, 4e12)
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)

candidates = st.builds(
    dict, backend=NAME, score=st.lists(st.floats(-1e300, 1e300), max_size=3), refused=TEXT
)
decisions = st.builds(
    dict,
    model=NAME,
    reason=TEXT,
    because=TEXT,
    queue_ms=st.floats(0, 1e9),
    tried=st.lists(NAME, max_size=3),
    candidates=st.lists(candidates, max_size=3),
    left_out=st.integers(0, 2**31 - 1),
    operation=TEXT,
    provider=TEXT,
    target=TEXT,
)
records = st.builds(
    dict,
    call_id=NAME,
    kind=st.sampled_from(("call", "cascade", "speculation")),
    attribution=st.builds(
        Attribution,
        tenant=NAME,
        run_id=st.none() | NAME,
        labels=st.none() | st.just({"team": "search"}),
    ),
    model=NAME,
    backend=NAME,
    replica=NAME,
    status=st.sampled_from(("ok", "error", "cancelled")),
    error_code=st.none() | NAME,
    input_tokens=COUNT,
    output_tokens=COUNT,
    cached_tokens=COUNT,
    cache_write_tokens=COUNT,
    input_usd_per_mtok=MONEY,
    output_usd_per_mtok=MONEY,
    cached_usd_per_mtok=st.none() | MONEY,
    cache_write_usd_per_mtok=st.none() | MONEY,
    request_usd=MONEY,
    cost_usd=MONEY,
    estimated=st.booleans(),
    unpriced=st.booleans(),
    started_at_ms=MOMENT,
    latency_ms=st.floats(0, 1e9),
    experiment=st.none() | NAME,
    arm=st.none() | NAME,
    decision=st.none() | decisions,
)


def recorded(fields: dict[str, Any]) -> RecordedUsage:
    decision = fields["decision"]
    if decision is not None:
        seen = tuple(
            SeenCandidate(**{**one, "score": tuple(one["score"])}) for one in decision["candidates"]
        )
        decision = RecordedDecision(
            **{**decision, "candidates": seen, "tried": tuple(decision["tried"])}
        )
    return RecordedUsage(**{**fields, "decision": decision})


@given(records)
def test_a_record_is_that_of_the_contract(fields: dict[str, Any]) -> None:
    record = UsageRecord.model_validate(fields)
    assert recorded(fields).contract() == record


@pytest.mark.parametrize(
    "usd", ["0", "0.15", "0.0000423", "1E-18", "0E-9", "12", "1E+3", "999999999999"]
)
def test_amounts_are_written_as_the_contract_writes_them(usd: str) -> None:
    record = UsageRecord(
        call_id="c",
        attribution=Attribution(),
        model="m",
        backend="b",
        status="ok",
        cost_usd=Decimal(usd),
        started_at_ms=1.5,
        latency_ms=2.5,
    )
    fields = {name: getattr(record, name) for name in UsageRecord.model_fields}
    assert write(RecordedUsage(**fields)) == encoded(record)


@pytest.mark.parametrize(
    ("struct", "contract"),
    [
        (RecordedUsage, UsageRecord),
        (RecordedDecision, CallDecision),
        (SeenCandidate, CandidateSeen),
    ],
)
def test_each_has_all_fields_of_its_contract(struct: Any, contract: Any) -> None:
    assert struct.__struct_fields__ == tuple(contract.model_fields)
