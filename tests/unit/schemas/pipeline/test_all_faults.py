"""All faults of a pipeline are told at once: those of its fields, names, templates, needs and times."""

import tracemalloc
from typing import Any

import pytest

from hocket.schemas.checks.faults import MAX_JUDGED, MAX_KEPT
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.expressions import ExpressionFailed, compile_value
from hocket.schemas.pipeline.plan import PipelineHasCycle, compile_pipeline


def python(**fields: Any) -> dict[str, Any]:
    return {"type": "python", "handler": "h:f"} | fields


def refused(nodes: dict[str, Any], **fields: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        compile_pipeline({"pipeline": "p", "nodes": nodes, **fields})
    return caught.value


def places(error: InvalidInput) -> list[str]:
    return [error.fields["field"], *(one["field"] for one in error.fields.get("others", ()))]


def test_the_faults_of_all_nodes_are_told_in_the_order_of_the_file() -> None:
    nodes = {
        "a": python(needs=["c"], timeout_ms=90_000),
        "b": python(
            **{"with": {"x": "{{ input. }}", "y": "{{ nodes.a.outputs }}", "z": "{{ w }}"}}
        ),
        "c": {"type": "graph", "nodes": {"d": python(when="input.x = 1")}, "queue": "gpu"},
        "e": {
            "type": "signal",
            "signal": "s",
            "retry": {"max_attempts": 2},
            "cache": {"ttl_ms": 1},
        },
    }
    error = refused(nodes, output={"q": "{{ nodes.q.output }}"}, input={"required": True})
    assert places(error) == [
        "nodes.a.timeout_ms", "nodes.b.with.x", "nodes.b.with.y", "nodes.b.with.z",
        "nodes.c.nodes.d.when", "nodes.c.queue", "nodes.e.retry", "nodes.e.cache",
        "output.q", "input.required",
    ]  # fmt: skip


def test_faults_of_fields_are_told_with_those_of_names_and_templates() -> None:
    nodes = {
        "a": python(handlr="h:f", **{"with": {"x": "{{ input. }}", "y": "{{ item.z }}"}}),
        "b": python(needs=["a", "no"], **{"with": {"x": "{{ nodes.a.output.y }}"}}),
        "c": {
            "type": "graph",
            "nodes": {"d": python(optional="perhaps"), "e": python(needs=["f"])},
        },
    }
    error = refused(nodes, timeout=5, slo_ms=1)
    assert places(error) == [
        "nodes.a.handlr", "nodes.a.with.x", "nodes.b.needs", "nodes.c.nodes.d.optional",
        "nodes.c.nodes.e.needs", "timeout",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "fields", "told"),
    [
        ({"a": {"type": "pyton"}, "b": python(needs=["a"])}, {}, ["nodes.a.type"]),
        ({"a": python(when="nodes.a.output")}, {}, ["nodes.a.when"]),
        (
            {"a": python(), "b": {"type": "llm", "model": "m", "prompt": "{{ input.a }}",
                                  "when": "nodes.a. > 1"}},
            {}, ["nodes.b.when"],
        ),
        ({"a": python(fst=python())}, {"on_infeasible": "degrade"}, ["nodes.a.fst"]),
        ({"a": python(timeout_ms=70_000)}, {"slo": 90_000}, ["slo"]),
        ({"a": python(**{"with": {"x": "{{ input.x }}"}})},
         {"input": {"additionalProperties": False, "required": 1}}, ["input.required"]),
    ],
    ids=["node", "itself", "needs", "fast", "slo", "input"],
)  # fmt: skip
def test_what_only_follows_from_a_fault_is_not_told(
    nodes: dict[str, Any], fields: dict[str, Any], told: list[str]
) -> None:
    assert places(refused(nodes, **fields)) == told


def test_a_cycle_is_told_with_other_faults_and_alone_as_itself() -> None:
    nodes = {"a": python(needs=["b"]), "b": python(needs=["a"])}
    assert isinstance(refused(nodes), PipelineHasCycle)
    error = refused({**nodes, "c": python(needs=["d"])})
    assert places(error) == ["nodes", "nodes.c.needs"]


@pytest.mark.parametrize("template", ["{{ x. }}", "{{ nowhere }}", "{{ nodes.no.output }}"])
def test_many_faults_make_a_small_error(template: str) -> None:
    given = {f"k{i}": template for i in range(5_000)}
    error = refused({"a" * 63: python(**{"with": given})})
    assert len(places(error)) == MAX_KEPT
    assert error.fields["more"] == MAX_JUDGED - MAX_KEPT  # no more were looked for
    assert len(error.info().model_dump_json()) < 60_000


def test_two_cycles_keep_their_code() -> None:
    nodes = {"a": python(needs=["a"]), "b": python(needs=["c"]), "c": python(needs=["b"])}
    error = refused(nodes)
    assert isinstance(error, PipelineHasCycle)
    assert len(places(error)) == 2


@pytest.mark.parametrize("template", ["{{ x }}", "{{ x"])
def test_faults_of_a_very_long_field_are_not_collected_for_long(template: str) -> None:
    """Each would hold the field's name: gigabytes, for half a megabyte."""
    tracemalloc.start()
    try:
        refused({"a": python(**{"with": {"k" * 400_000: [template] * 8_000}})})
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


def test_long_names_do_not_make_a_large_error() -> None:
    nodes = {f"{i}".rjust(63, "n"): python(needs=[f"z{j}" for j in range(9)]) for i in range(900)}
    error = refused(nodes)
    assert len(error.info().model_dump_json()) < 150_000
    error = refused(
        {"a": python(**{"with": {"k" * 9_000: {str(i): "{{ x. }}" for i in range(99)}}})}
    )
    assert len(error.info().model_dump_json()) < 150_000


def test_the_reason_of_a_failure_ends_with_one_full_stop() -> None:
    with pytest.raises(ExpressionFailed) as failed:
        compile_value("{{ (input.items | first).x }}", "with")({"input": {"items": []}})
    assert ".." not in str(failed.value)
