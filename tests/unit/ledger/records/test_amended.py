"""What of a record that cannot be stored as it came is booked."""

import json
from decimal import Decimal
from typing import Any

import pytest

from hocket.ledger.records.amended import MAX_KEPT_CHARS, UNKNOWN, amended, shortened
from hocket.schemas.messages import CallDecision
from support.ledger_rig import record

SENT_MS = 1_800_000_000_000.0


def encoded(**fields: Any) -> bytes:
    """A record as a gateway encodes it, with fields replaced, or left out where they are `...`."""
    found = json.loads(record("c1", cost_usd=Decimal("0.5")).model_dump_json()) | fields
    return json.dumps({key: value for key, value in found.items() if value is not ...}).encode()


@pytest.mark.parametrize(
    ("fields", "named", "booked"),
    [
        ({"started_at_ms": "soon"}, "started_at_ms", SENT_MS),
        ({"model": 7}, "model", UNKNOWN),
        ({"model": ...}, "model", UNKNOWN),
        ({"replica": ["x"]}, "replica", ""),
        ({"input_tokens": -1}, "input_tokens", 0),
    ],
)
def test_a_field_that_is_not_valid_is_replaced_or_left_out_and_named(
    fields: dict[str, Any], named: str, booked: object
) -> None:
    found = amended(encoded(**fields), SENT_MS)
    assert found is not None
    usage, changed = found
    assert (changed, getattr(usage, named)) == ((named,), booked)
    assert (usage.call_id, usage.cost_usd) == ("c1", Decimal("0.5"))


def test_a_call_without_a_readable_id_gets_one_that_is_the_same_if_it_comes_again() -> None:
    first, again, other = (
        amended(encoded(call_id=call_id), SENT_MS) for call_id in ([1], [1], [2])
    )
    assert first is not None
    assert again is not None
    assert other is not None
    assert first[0].call_id.startswith(f"{UNKNOWN}#")
    assert first[0].call_id == again[0].call_id != other[0].call_id


def test_who_cannot_be_read_spent_it_all_the_same() -> None:
    found = amended(encoded(attribution={"tenant": 7, "run_id": "r"}), SENT_MS)
    assert found is not None
    assert (found[0].attribution.tenant, found[0].attribution.run_id) == (UNKNOWN, "r")
    assert found[1] == ("attribution.tenant",)


@pytest.mark.parametrize("half", [b"\\ud800", b"\xff"])
def test_a_text_that_is_not_unicode_spent_it_all_the_same(half: bytes) -> None:
    found = amended(encoded().replace(b'"writer"', b'"w%b"' % half), SENT_MS)
    assert found is not None
    assert (found[0].cost_usd, found[1]) == (Decimal("0.5"), ("model",))
    assert found[0].model.startswith("w\ufffd")
    decided = encoded(error_code="x").replace(b'"x"', b'"%b"' % half)
    assert amended(decided.replace(b'"0.5"', b"NaN"), SENT_MS) is None


@pytest.mark.parametrize("cost", ["much", None, -1, "0", 1e300])
def test_without_money_to_believe_nothing_is_booked(cost: object) -> None:
    assert amended(encoded(cost_usd=cost, model=7), SENT_MS) is None


KINDS = [b'{"kind": "%b", "cost_usd": "1"}' % kind for kind in (b"opened", b"refused", b"warm")]


@pytest.mark.parametrize("payload", [b"", b"{", b"[1]", *KINDS])
def test_what_is_no_usage_record_is_not_booked(payload: bytes) -> None:
    assert amended(payload, SENT_MS) is None


def test_long_and_odd_texts_are_cut_and_equal_ones_stay_equal() -> None:
    odd, long = "a\N{ZERO WIDTH SPACE}b", "x" * (MAX_KEPT_CHARS + 1)
    usage = record("c1", model=odd, backend=long, replica="plain")
    usage = usage.model_copy(update={"decision": CallDecision(model="m", reason="r")})
    short, changed = shortened(usage)
    assert changed == ("model", "backend", "decision")
    assert short.model.startswith("a?b#")
    assert len(short.backend) < len(long) + 20
    assert (short.replica, short.decision) == ("plain", None)
    assert shortened(usage)[0].backend == short.backend
    assert shortened(record("c2", backend=long + "x"))[0].backend != short.backend


def test_what_is_plain_is_not_touched() -> None:
    usage = record("c1")
    assert shortened(usage) == (usage, ())
