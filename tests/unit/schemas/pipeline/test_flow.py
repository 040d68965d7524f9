"""What `flow` may say, and what is said of what it may not."""

from typing import Any

import pytest

from hocket.schemas.errors import HocketError, InvalidInput
from hocket.schemas.pipeline.contradictions import warnings_of
from hocket.schemas.pipeline.flow.gates import MAX_KEY_CHARS, FlowGate
from hocket.schemas.pipeline.plan import compile_pipeline

KEY = "{{ input.customer }}"


def document(flow: Any, **fields: Any) -> dict[str, Any]:
    nodes = {"a": {"type": "python", "handler": "m:f"}}
    return {"pipeline": "p", "nodes": nodes, "flow": flow} | fields


def gate(key: str) -> FlowGate:
    (found,) = compile_pipeline(document({"concurrency": {"limit": 1, "key": key}})).flow
    return found


def test_gates_are_passed_in_one_order_however_they_are_written() -> None:
    flow = {
        "throttle": {"limit": 1, "per_s": 1},
        "concurrency": {"limit": 1},
        "singleton": {"mode": "skip"},
        "rate_limit": {"limit": 1, "per_s": 1},
        "debounce": {"wait_s": 1},
    }
    assert [one.kind for one in compile_pipeline(document(flow)).flow] == [
        "debounce",
        "rate_limit",
        "singleton",
        "concurrency",
        "throttle",
    ]


def test_a_pipeline_without_flow_has_the_hash_that_it_had() -> None:
    without = document(None)
    del without["flow"]
    assert "flow" not in compile_pipeline(without).pipeline.model_dump(mode="json", by_alias=True)


@pytest.mark.parametrize(
    ("customer", "key"),
    [("acme", "acme"), (7, "7"), (True, "true"), (1.5, "1.5"), ("", ""), ("Ærø 1", "Ærø 1")],
)
def test_a_key_is_a_text_a_number_or_a_boolean(customer: Any, key: str) -> None:
    assert gate(KEY).key_of({"input": {"customer": customer}}) == key


def test_a_key_may_join_several_fields() -> None:
    found = gate("{{ input.region }}/{{ input.customer }}")
    assert found.key_of({"input": {"region": "eu", "customer": 7}}) == "eu/7"


def test_without_a_key_all_runs_share_one() -> None:
    (found,) = compile_pipeline(document({"concurrency": {"limit": 1}})).flow
    assert found.key_of({"input": {}}) == ""


@pytest.mark.parametrize(
    ("customer", "reason"),
    [
        (None, "it is null"),
        ([1], "it is a list"),
        ("x" * (MAX_KEY_CHARS + 1), "it has 201 characters; the limit is 200"),
        ("a\nb", "unprintable characters"),
        ("a\x00b", "unprintable characters"),
    ],
)
def test_what_is_no_key_is_told(customer: Any, reason: str) -> None:
    with pytest.raises(HocketError, match=reason) as raised:
        gate(KEY).key_of({"input": {"customer": customer}})
    assert raised.value.code == "flow_key_invalid"


@pytest.mark.parametrize(
    ("flow", "field", "reason"),
    [
        ({}, "flow", "it limits nothing"),
        ({"concurrency": {"limit": 0}}, "flow.concurrency.limit", "it is 0"),
        ({"concurrency": {"limit": 10_001}}, "flow.concurrency.limit", "it is 10001"),
        ({"throttle": {"limit": 1}}, "flow.throttle.per_s", "missing"),
        ({"singleton": {"mode": "wait"}}, "flow.singleton.mode", "not one of its values"),
        ({"debounce": {"wait_s": 5, "max_wait_s": 1}}, "flow.debounce", "is shorter"),
        ({"concurency": {"limit": 1}}, "flow.concurency", "no such field"),
        ({"concurrency": {"limit": 1, "key": "{{ input. }}"}}, "flow.concurrency.key", "parse"),
        (
            {"concurrency": {"limit": 1, "key": "input.customer"}},
            "flow.concurrency.key",
            "reads nothing from `input`",
        ),
        (
            {"concurrency": {"limit": 1, "key": "{{ nodes.a.output }}"}},
            "flow.concurrency.key",
            "reads `nodes`",
        ),
    ],
)
def test_what_flow_may_not_say_is_told_with_its_field(
    flow: dict[str, Any], field: str, reason: str
) -> None:
    with pytest.raises(InvalidInput) as raised:
        compile_pipeline(document(flow))
    assert raised.value.fields["field"] == field
    assert reason in raised.value.fields["reason"]


def test_a_key_reads_only_what_the_input_has() -> None:
    schema = {"properties": {"user": {"type": "string"}}, "additionalProperties": False}
    with pytest.raises(InvalidInput, match=r"reads `input\.customer`, but the input has no"):
        compile_pipeline(document({"concurrency": {"limit": 1, "key": KEY}}, input=schema))


@pytest.mark.parametrize("nodes", [{}, {"ok": {"type": "approval"}}], ids=["work", "an approval"])
def test_runs_that_wait_for_others_until_they_expire_are_told(nodes: dict[str, Any]) -> None:
    def told(slo_ms: float) -> list[str]:
        spec = document({"debounce": {"wait_s": 5}}, slo_ms=slo_ms)
        spec["nodes"] |= nodes
        return list(warnings_of(compile_pipeline(spec).pipeline))

    (warning,) = told(5_000)
    assert warning.startswith(
        "`flow.debounce.wait_s`: with the default deadline of 5000 ms, runs expire before they start, "
        "unless the task has a longer deadline of its own."
    )
    assert told(5_001) == []


def test_what_was_applied_before_is_not_judged_by_newer_rules() -> None:
    flow = {"concurrency": {"limit": 1, "key": "always the same"}}
    (found,) = compile_pipeline(document(flow), applied=True).flow
    assert found.key_of({"input": {}}) == "always the same"
