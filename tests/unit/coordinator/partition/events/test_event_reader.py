"""What a coordinator does not believe, and what it says of it."""

import asyncio
import json
from decimal import Decimal
from typing import Any, cast

import pytest
import structlog

from hocket.coordinator.partition.events.event_reader import EventReader
from hocket.coordinator.partition.events.log_posts import LogPosts
from hocket.coordinator.partition.events.log_reader import LogMessage
from hocket.schemas import ids
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import RunCharged

NOBODY: Any = None
OURS = Capabilities([b"o" * 32])
USAGE = Capabilities([b"u" * 32])
GATEWAYS = Capabilities([b"g" * 32])
PARTITIONS = 1
CHARGE = RunCharged(
    run_id=ids.run_id("acme", "k"), tenant="acme", source="gateway-1", total_usd=Decimal("0.5")
)


@pytest.mark.parametrize(("key", "is_believed"), [(USAGE, True), (GATEWAYS, False)])
def test_a_charge_that_is_sealed_by_another_usage_key_is_left_out_and_the_log_says_which_key_to_set(
    key: Capabilities, is_believed: bool
) -> None:
    posts = LogPosts(NOBODY, OURS, partitions=PARTITIONS, usage_seals=USAGE)
    reader = EventReader(0, partitions=PARTITIONS, bus=NOBODY, posts=posts)
    body = CHARGE.model_dump_json().encode()
    message = LogMessage(1, "m", 1.0, "charged", body, key.seal("charged", body))

    with structlog.testing.capture_logs() as lines:
        believed = list(reader.believed((cast(Any, CHARGE),), message))

    assert believed == ([CHARGE] if is_believed else [])
    reasons = [line["reason"] for line in lines]
    assert [("HOCKET_USAGE_KEY" in reason) for reason in reasons] == [True] * (not is_believed)


def read(kind: str, told: Any) -> list[Any]:
    posts = LogPosts(NOBODY, OURS, partitions=PARTITIONS)
    letters: list[bytes] = []

    reader = EventReader(0, partitions=PARTITIONS, bus=NOBODY, posts=posts)

    async def bury(message: LogMessage, info: Any) -> None:
        letters.append(message.body)

    reader.bury = bury  # type: ignore[method-assign]
    body = told if isinstance(told, bytes) else json.dumps(told).encode()
    events = asyncio.run(reader.events_of(LogMessage(1, "m", 1.0, kind, body, "")))
    return [*events, *letters]


RESULT = {
    "run_id": "r1",
    "step": "a",
    "attempt": 1,
    "capability": "c",
    "spend": {"cost_usd": "0.5"},
}


def test_half_of_a_surrogate_pair_in_a_result_is_replaced() -> None:
    (result,) = read("finished", RESULT | {"output": {"text": "caf\ud83d"}})
    assert (result.output, result.error, result.spend.cost_usd) == (
        {"text": "caf\ufffd"},
        None,
        Decimal("0.5"),
    )


def test_the_attempt_of_a_malformed_result_fails_and_says_why_and_the_others_count() -> None:
    told = {"results": [RESULT | {"output": 1}, RESULT | {"step": "b", "worker": 7}]}
    good, bad, letter = read("results", told)
    assert (good.step, good.output, good.error) == ("a", 1, None)
    assert (bad.step, bad.capability, bad.spend.cost_usd) == ("b", "c", Decimal("0.5"))
    assert bad.error.code == "result_malformed"
    assert "`worker`" in bad.error.message
    assert letter == json.dumps(told).encode()


def test_a_result_whose_spend_is_malformed_fails_its_attempt_and_costs_nothing() -> None:
    bad, _ = read("finished", RESULT | {"spend": {"cost_usd": "much"}})
    assert (bad.error.code, bad.spend.cost_usd) == ("result_malformed", 0)


@pytest.mark.parametrize(
    "told",
    [b"[" * 100_000, b"{", b"\xff", b"7", [RESULT], {"step": "a"}, RESULT | {"attempt": "x"}],
)
def test_a_result_of_no_attempt_is_kept_as_a_dead_letter_alone(told: Any) -> None:
    (letter,) = read("finished", told)
    assert isinstance(letter, bytes)
