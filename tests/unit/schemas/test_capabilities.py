"""A capability is of one thing only: whatever differs from it, it does not prove."""

from decimal import Decimal
from typing import Any

import pytest

from hocket.schemas.capabilities import (
    MAX_KEYS,
    MIN_KEY_CHARS,
    Capabilities,
    keys_of,
    usage_key_of,
)

KEY, OTHER = b"k" * MIN_KEY_CHARS, b"o" * MIN_KEY_CHARS
ATTEMPT = {
    "tenant": "acme",
    "run_id": "r1",
    "step": "a",
    "attempt": 1,
    "dispatched_at_ms": 1_000.25,
}
ROOT = {"tenant": "acme", "run_id": "r1", "root_run_id": "r0", "budget_usd": Decimal("1.5")}
MADE: Any = Capabilities([KEY])


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("tenant", "other"),
        ("run_id", "r2"),
        ("step", "b"),
        ("attempt", 2),
        ("dispatched_at_ms", 1_000.251),
        ("dispatched_at_ms", None),
    ],
)
def test_the_capability_of_a_dispatch_proves_no_other_one(field: str, other: Any) -> None:
    capability = MADE.of_attempt(**ATTEMPT)
    assert MADE.is_of_attempt(capability, **ATTEMPT)
    assert not MADE.is_of_attempt(capability, **{**ATTEMPT, field: other})


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("tenant", "other"),
        ("run_id", "r2"),
        ("root_run_id", "r2"),
        ("budget_usd", Decimal("15")),
    ],
)
def test_the_proof_of_a_root_budget_proves_no_other_one(field: str, other: Any) -> None:
    proof = MADE.of_root_budget(**ROOT)
    assert MADE.is_of_root_budget(proof, **ROOT)
    assert not MADE.is_of_root_budget(proof, **{**ROOT, field: other})


def test_a_seal_is_of_one_subject_and_one_body() -> None:
    seal = MADE.seal("s", b"body")
    assert MADE.is_sealed(seal, "s", b"body")
    assert not MADE.is_sealed(seal, "other", b"body")
    assert not MADE.is_sealed(seal, "s", b"other")


@pytest.mark.parametrize("told", ["", "x", "é" * 32, "\ud800" * 32])
def test_what_is_no_capability_is_refused_and_breaks_nothing(told: str) -> None:
    assert not MADE.is_of_attempt(told, **ATTEMPT)
    assert not MADE.is_sealed(told, "s", b"body")


def test_the_first_key_signs_and_every_key_is_accepted() -> None:
    before, during = Capabilities([KEY]), Capabilities([OTHER, KEY])
    after = Capabilities([OTHER])
    assert during.is_sealed(before.seal("s", b""), "s", b"")
    assert after.is_sealed(during.seal("s", b""), "s", b"")
    assert not after.is_sealed(before.seal("s", b""), "s", b"")


def test_the_key_for_usage_makes_no_capability() -> None:
    setting = KEY.decode()
    usage: Any = Capabilities(keys_of(usage_key_of(setting)))
    assert not MADE.is_of_attempt(usage.of_attempt(**ATTEMPT), **ATTEMPT)


def test_keys_of_different_purposes_differ() -> None:
    assert MADE.derived("a") == MADE.derived("a")
    assert MADE.derived("a") != MADE.derived("b")
    assert [len(key) for key in Capabilities([KEY, OTHER]).derived("a")] == [32, 32]


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("", "set 1 to 4 keys"),
        (" , ", "set 1 to 4 keys"),
        (",".join(["k" * MIN_KEY_CHARS] * (MAX_KEYS + 1)), "set 1 to 4 keys"),
        (f"{'k' * MIN_KEY_CHARS},{'k' * (MIN_KEY_CHARS - 1)}", "at least 32 characters"),
    ],
)
def test_a_setting_with_too_few_keys_too_many_or_a_short_one_is_refused(
    setting: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        keys_of(setting)
