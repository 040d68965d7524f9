"""What a coordinator does not believe, and what it says of it."""

import asyncio
import json
import tracemalloc
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


def read(kind: str, told: Any, msg_id: str = "m") -> list[Any]:
    posts = LogPosts(NOBODY, OURS, partitions=PARTITIONS)
    letters: list[bytes] = []

    reader = EventReader(0, partitions=PARTITIONS, bus=NOBODY, posts=posts)

    async def bury(message: LogMessage, info: Any) -> None:
        letters.append(message.body)

    reader.bury = bury  # type: ignore[method-assign]
    body = told if isinstance(told, bytes) else json.dumps(told).encode()
    events = asyncio.run(reader.events_of(LogMessage(1, f"{msg_id}@7", 1.0, kind, body, "")))
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


def with_output(written: bytes) -> bytes:
    return json.dumps(RESULT).encode()[:-1] + b', "output": %b}' % written


@pytest.mark.parametrize("name", ["delivery", "took"])
def test_a_result_with_an_impossible_number_fails_its_attempt(name: str) -> None:
    bad, _ = read("finished", RESULT | {"output": 1, name: -1, "worker": "w"})
    assert (bad.step, bad.capability, bad.spend.cost_usd) == ("a", "c", Decimal("0.5"))
    assert bad.error.code == "result_malformed"
    assert f"`{name}`" in bad.error.message
    assert getattr(bad, name) == 0


def test_what_a_worker_took_counts_though_its_result_is_malformed() -> None:
    bad, _ = read("finished", RESULT | {"worker": 7, "took": 3, "delivery": 2})
    assert (bad.error.code, bad.took, bad.delivery) == ("result_malformed", 3, 2)


DEEP = b"[" * 1_000 + b"]" * 1_000


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (DEEP, "deeper than 64 levels"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "deeper than 64 levels"),
        (b'["]", {"\\"": "[["}, %b, "[[["]' % DEEP, "deeper than 64 levels"),
        (b"[1, -%b]" % (b"9" * 5_001), "more than 1000 digits"),
    ],
)
def test_a_result_with_a_part_that_no_reader_takes_fails_its_attempt_and_no_other(
    written: bytes, reason: str
) -> None:
    several = b'{"results": [%b, %b]}' % (
        with_output(written),
        json.dumps(RESULT | {"step": "b", "output": ["[", {}]}).encode(),
    )
    bad, good, _ = read("results", several)
    assert (bad.step, bad.error.code, bad.spend.cost_usd) == ("a", "result_malformed", 0.5)
    assert "`output`" in bad.error.message
    assert reason in bad.error.message
    assert (good.step, good.output, good.error) == ("b", ["[", {}], None)


def test_a_large_result_that_no_reader_takes_is_read_beside_the_loop() -> None:
    details = b'{"code": "x", "message": "m", "details": {"a": %b}}' % (
        b"[" * 50_000 + b"]" * 50_000
    )
    bad, _ = read("finished", json.dumps(RESULT).encode()[:-1] + b', "error": %b}' % details)
    assert (bad.error.code, bad.step) == ("result_malformed", "a")
    assert "`error`" in bad.error.message


def test_bytes_and_characters_that_json_does_not_allow_are_taken_as_text() -> None:
    (result,) = read("finished", with_output(b'"a\xffb\tc\xc3\xa9\x00"'))
    assert (result.output, result.error) == ("a\ufffdb\tc\xe9\x00", None)


NAMED = "r1:map[2].s:3:1700000000000123:f:0c"


@pytest.mark.parametrize("body", [b"", b"[1]", b"7", b'{"run_id": ', b'"' + b'\\"' * 50_000, b"{}"])
@pytest.mark.parametrize("msg_id", [NAMED, NAMED + ":took"])
def test_a_result_that_does_not_say_whose_it_is_fails_the_attempt_of_its_message_id(
    body: bytes, msg_id: str
) -> None:
    bad, letter = read("finished", body, msg_id)
    assert (bad.run_id, bad.step, bad.attempt, bad.capability) == ("r1", "map[2].s", 3, "0c")
    assert ids.capable(
        ids.result_id(ids.attempt_id("r1", bad.step, 3), bad.dispatched_at_ms), "0c"
    ) == NAMED  # fmt: skip
    assert (bad.error.code, letter) == ("result_malformed", body)
    assert bool(bad.took) == msg_id.endswith(":took")  # or its bundle would be handed out again


def test_a_message_of_many_deep_parts_takes_little_memory() -> None:
    deep = b"[" * 199 + b"[]," * 80_000 + b"[]" + b"]" * 199
    body = b'{"run_id": "r1", "step": "a", "attempt": 1, "took": -1, "output": %b}' % deep
    tracemalloc.start()
    try:
        bad, _ = read("finished", body)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
    assert (bad.step, bad.error.code) == ("a", "result_malformed")


def test_a_message_id_without_capability_names_an_attempt_that_has_none() -> None:
    bad, _ = read("finished", b"", "r1:a:1:f")
    assert (bad.step, bad.dispatched_at_ms, bad.capability) == ("a", None, None)


@pytest.mark.parametrize(
    "written",
    [
        b'[{"\\ud83d": 1, "\\ud83e": 2}]',
        b'{"x": {"a\\u0000b": 1, "a\\ufffdb": 2}}',
        b'{"\xff": 1, "\xfe": 2}',
    ],
)
def test_an_output_whose_keys_become_the_same_fails_its_attempt(written: bytes) -> None:
    (bad,) = read("finished", with_output(written))
    assert (bad.output, bad.error.code, bad.spend.cost_usd) == (None, "output_not_json", 0.5)
    assert "\ufffd" in bad.error.message
    (good,) = read("finished", with_output(b'{"a\\u0000": 1, "b\\u0000": [{"a\\u0000": 1}]}'))
    assert good.error is None
