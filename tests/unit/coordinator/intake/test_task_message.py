"""What a task's headers may say: the rest is refused with the header's name."""

from collections.abc import Callable
from typing import Any

import pytest

from hocket.coordinator.intake.task_message import admit, read_task, reply_to
from hocket.kit.nats.cloudevents import spelled
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import HocketError
from hocket.schemas.labels import header_of
from hocket.schemas.pipeline.plan import compile_pipeline

PLAN = compile_pipeline({"pipeline": "p", "nodes": {"a": {"type": "python", "handler": "m:f"}}})
NOW_MS = 1_700_000_000_000.0


def accepted(headers: dict[str, str]) -> Any:
    task = read_task(
        "hocket.task.t.p", b"{}", headers, stream_seq=1, stream_time_ns=1, max_bytes=1_000
    )
    return admit(task, PLAN, 1, now_ms=NOW_MS, task_ack="$JS.ACK.x")


@pytest.mark.parametrize(
    ("header", "value"),
    [
        *(
            (header, value)
            for header in (
                "traceparent",
                "Hocket-Idempotency-Key",
                "ce-id",
                "ce-source",
                "Nats-Msg-Id",
                "Hocket-From-Step",
            )
            for value in ("a\x00b", "a\x1bb", "a\x7f", "not UTF-8: \ufffd", "k" * 6_000)
        ),
        *(
            ("Hocket-Budget-Usd", value)
            for value in ("1e-20000", "1e200000", "1e13", "-1", "NaN", "Infinity", "1" * 5_000, "")
        ),
        *(
            ("Hocket-Deadline-Ms", value)
            for value in ("nan", "inf", "-inf", "1e400", "0", "-5", "1e15", "x", "9" * 5_000)
        ),
        *(
            ("Hocket-Deadline", value)
            for value in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59Z", "2024-13-01", "\x00")
        ),
        *(("Hocket-Version", value) for value in ("9" * 5_000, "0", "2147483648", "1.5", "x")),
        *(
            (header, value)
            for header in ("Hocket-Labels", "ce-labels")
            for value in (
                "team",
                "team=",
                "=search",
                "te am=search",
                "team=%00",
                "team=%ff",
                "team=%ed%a0%80",
                "team=M\u00fcller",
                "team=" + 257 * "x",
                65 * "k" + "=v",
                ",".join(f"k{number}=v" for number in range(17)),
                20_000 * "x",
                "customer=acme,customer=initech",
            )
        ),
        ("Hocket-Idempotency-Key", ""),
        ("Hocket-Class", "\x00"),
        ("Hocket-Reply-To", "in\x00box"),
        ("Hocket-Reply-To", "i" * 6_000),
        ("Hocket-Origin-Run", "r\x00"),
    ],
)
def test_a_header_that_cannot_be_kept_is_refused_with_its_name(header: str, value: str) -> None:
    with pytest.raises(HocketError) as refused:
        accepted({header: value})
    info = refused.value.info()
    assert (info.code, info.field) == ("invalid_input", header)
    assert "\x00" not in info.model_dump_json()


@pytest.mark.parametrize(
    "headers",
    [
        {"Hocket-Idempotency-Key": "k" * 512},
        {"ce-id": "i" * 512, "ce-source": "https://shop.example/\u00e9"},
        {"Hocket-Idempotency-Key": "\u200f\u05e9\u05dc\u05d5\u05dd \U0001f600"},
        {"Hocket-Reply-To": "_INBOX." + "i" * 64},
        {"Hocket-Budget-Usd": "0.000000001"},
        {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    ],
)
def test_headers_that_can_be_kept_are_taken(headers: dict[str, str]) -> None:
    assert accepted(headers).pipeline == "p"


def test_labels_of_event_and_header_are_kept() -> None:
    labels = {"customer": "Müller, Söhne = 3", "team": "search"}
    assert accepted({"Hocket-Labels": header_of(labels)}).labels == labels
    both = {"ce-labels": "team=old, tier=gold", "Hocket-Labels": header_of(labels)}
    assert accepted(both).labels == labels | {"tier": "gold"}
    assert accepted({}).labels is None


def test_a_task_has_no_label_that_the_platform_sets() -> None:
    for header in ("Hocket-Labels", "ce-labels"):
        for label in ("hocket.key=0123456789ab", "team=search,hocket.team=x"):
            with pytest.raises(HocketError) as refused:
                accepted({header: label})
            assert refused.value.fields["field"] == header
            assert "hocket." in refused.value.fields["reason"]
    assert accepted({"Hocket-Labels": "hocketeer=x"}).labels == {"hocketeer": "x"}


def test_two_tasks_with_the_same_id_of_an_event_without_source_are_two_runs() -> None:
    first, second = (accepted({"ce-id": "77", "Nats-Msg-Id": key}) for key in ("m1", "m2"))
    assert (first.idempotency_key, second.idempotency_key) == ("m1", "m2")
    assert first.run_id != second.run_id


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Hocket-Operation", "retry"),
        ("Hocket-Operation", "nonsense"),
        ("Hocket-From-Step", "a"),
        ("Hocket-Step-Input", "{}"),
    ],
)
def test_a_repeat_without_the_run_to_repeat_is_refused(header: str, value: str) -> None:
    """It would begin all steps anew."""
    with pytest.raises(HocketError) as refused:
        accepted({header: value})
    info = refused.value.info()
    assert (info.code, info.field) == ("invalid_input", "Hocket-Origin-Run")
    assert f"`{header}` says how" in info.message


@pytest.mark.parametrize(
    "spell", [str.lower, str.upper, str.title], ids=["small", "large", "title"]
)
def test_our_headers_are_read_in_any_case(spell: Callable[[str], str]) -> None:
    headers = {
        "Hocket-Idempotency-Key": "k",
        "Hocket-Budget-Usd": "0.01",
        "Hocket-Class": "batch",
        "Hocket-Deadline-Ms": "5000",
        "Hocket-Labels": "team=search",
        "Hocket-Reply-To": "_INBOX.x",
        "Hocket-Progress": "1",
        "Hocket-Origin-Run": f"r{24 * '0'}",
        "Hocket-Operation": "retry",
    }
    assert accepted({spell(name): value for name, value in headers.items()}) == accepted(headers)
    assert reply_to({spell("Hocket-Reply-To"): "_INBOX.x"}) == "_INBOX.x"


@pytest.mark.parametrize(
    ("header", "meant"),
    [
        ("Hocket-Budget", "Hocket-Budget-Usd"),
        ("hocket-budget", "Hocket-Budget-Usd"),
        ("HOCKET-IDEMPOTENCY", "Hocket-Idempotency-Key"),
        ("hocket-idempotencykey", "Hocket-Idempotency-Key"),
        ("Hocket-Deadline-S", "Hocket-Deadline-Ms"),
        ("Hocket-", None),
        ("hocket-zzz", None),
        ("Hocket-Tenant", None),
        ("hocket-" + 10_000 * "\x1b", None),
    ],
)
def test_a_header_of_ours_that_there_is_not_is_refused(header: str, meant: str | None) -> None:
    with pytest.raises(HocketError) as refused:
        accepted({"Hocket-Idempotency-Key": "k", header: "1"})
    info = refused.value.info()
    assert (info.code, info.field) == ("invalid_input", shown_text(header))
    assert ("Did you mean" in info.message) == (meant is not None)
    assert meant is None or f"`{meant}`" in info.message


def test_a_header_in_two_spellings_has_one_value() -> None:
    twice = {"hocket-version": "2", "Hocket-Version": "2", "HOCKET-VERSION": "2"}
    assert accepted({"hocket-class": "batch", "Hocket-Class": "batch"}).priority == "batch"
    for other in twice:
        with pytest.raises(HocketError) as refused:
            accepted(twice | {other: "3"})
        info = refused.value.info()
        assert (info.code, info.field) == ("invalid_input", "Hocket-Version")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Hocket-Idempotency-Key": "k", "Nats-Msg-Id": "m"},
        {"ce-id": "1", "ce-source": "s", "ce-type": "t", "content-type": "application/json"},
        {"X-Hocket-Tenant": "t", "hocket": "h", "Hocket": "h", "hocketeer-x": "h"},
    ],
)
def test_headers_in_our_spelling_and_those_of_others_are_taken_as_they_are(
    headers: dict[str, str],
) -> None:
    assert spelled(headers) is headers
    accepted(headers)
