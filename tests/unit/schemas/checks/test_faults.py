"""All that is wrong with a document is told at once, each fault with its field and its cure."""

import time
import tracemalloc
from difflib import get_close_matches
from typing import Any

import pytest

from hocket.schemas.checks.faults import MAX_KEPT, Fault, Faults, refusal
from hocket.schemas.errors import MAX_OTHERS, InvalidInput
from hocket.schemas.pipeline import faults as pipeline_faults
from hocket.schemas.pipeline.spec import parse_pipeline
from hocket.workers.configuration import parse


def refused(document: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        parse_pipeline(document)
    return caught.value


def fields_of(error: InvalidInput) -> list[str]:
    return [error.fields["field"], *(one["field"] for one in error.fields.get("others", ()))]


def test_every_fault_of_a_pipeline_is_told_with_its_cure() -> None:
    error = refused(
        {
            "pipeline": "p",
            "slo_ms": 0,
            "nodes": {
                "a": {"type": "python", "handlr": "m:f"},
                "b": {"type": "llm", "model": "m", "prompt": "x", "optional": "perhaps"},
            },
        }
    )
    assert set(fields_of(error)) == {
        "slo_ms", "nodes.a.handler", "nodes.a.handlr", "nodes.b.optional",
    }  # fmt: skip
    assert "Did you mean `handler`?" in str(error)
    assert "Write `true` or `false`." in str(error)
    assert str(error).count("\n") == 0
    assert len(error.info().details["others"]) == 3


def test_a_text_that_is_too_long_is_told_how_long_it_may_be() -> None:
    nodes = {"a": {"type": "python", "handler": "m:f"}}
    flow = {"concurrency": {"limit": 1, "key": "x" * 2_001}}
    error = refused({"pipeline": "p", "nodes": nodes, "flow": flow})
    assert fields_of(error) == ["flow.concurrency.key"]
    assert "it has 2001 characters. Use at most 2000." in str(error)


@pytest.mark.parametrize(
    ("node", "field", "told"),
    [
        ({"type": "http", "service": "s", "path": "a b"}, "path", "`a b` is not a path. Start it"),
        ({"type": "http", "service": "s", "path": "/" * 2_049}, "path", "it has 2049 characters."),
        ({"type": "nats", "service": "s", "endpoint": "a."}, "endpoint", "`a.` is not a part of a sub"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_name_is_not_called_one(
    node: dict[str, str], field: str, told: str
) -> None:
    error = refused({"pipeline": "p", "nodes": {"a": node}})
    assert fields_of(error) == [f"nodes.a.{field}"]
    assert told in str(error)


def test_a_mapping_with_too_many_entries_is_told_how_many_it_has() -> None:
    labels = {f"l{i}": "x" for i in range(17)}
    node = {"type": "llm", "model": "m", "prompt": "x", "requires": {"labels": labels}}
    error = refused({"pipeline": "p", "nodes": {"a": node}})
    assert "the number of entries is 17. Use at most 16." in str(error)


def test_a_field_with_several_forms_is_one_fault() -> None:
    error = refused({"pipeline": "p", "nodes": {"a": {"type": "python", "handler": ["m:f"]}}})
    assert fields_of(error) == ["nodes.a.handler"]


def test_the_first_faults_are_told_and_the_others_counted() -> None:
    error = refusal(InvalidInput, [Fault(f"f{n}", "it is wrong", "Mend it.") for n in range(30)])
    assert f"`f{MAX_OTHERS}`: it is wrong. Mend it. And {29 - MAX_OTHERS} more." in str(error)
    assert f"`f{MAX_OTHERS + 1}`" not in str(error)


def test_a_value_of_the_configuration_stands_in_no_error() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse({"workers": {"ack_wait_s": "s3cr3t", "drain_s": 10**9}, "blobs": {"store": "s3cr3t"}})
    assert fields_of(caught.value) == ["workers.ack_wait_s", "workers.drain_s", "blobs.store"]
    assert "s3cr3t" not in str(caught.value)
    assert "it is out of bounds. Use 3600 or less." in str(caught.value)


def test_parts_of_parts_are_gathered_in_their_order() -> None:
    inner, outer = Faults(InvalidInput), Faults(InvalidInput)
    with outer.part():
        for name in ("a", "b"):
            with inner.part():
                raise InvalidInput(field=name, reason="it is wrong", cure="Mend it.")
        inner.check()
    with outer.part():
        raise InvalidInput(field="c", reason="it is wrong", cure="Mend it.")
    with pytest.raises(InvalidInput) as caught:
        outer.check()
    assert fields_of(caught.value) == ["a", "b", "c"]


def test_another_error_ends_the_reading() -> None:
    faults = Faults(InvalidInput)
    with pytest.raises(ZeroDivisionError), faults.part():
        raise ZeroDivisionError
    faults.check()


def test_the_nearest_name_is_looked_for_only_for_the_first_faults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody reads on, and each search compares a name with all fields."""
    looked_for = list[str]()

    def close(name: str, *given: Any, **options: Any) -> list[str]:
        looked_for.append(name)
        return get_close_matches(name, *given, **options)

    monkeypatch.setattr(pipeline_faults, "get_close_matches", close)
    node = {"type": "python", "handler": "m:f", **{f"nead{i}": 1 for i in range(5_000)}}
    error = refused({"pipeline": "p", "nodes": {"a": node}})
    assert looked_for == [f"nead{i}" for i in range(20)]
    assert str(error).count("Did you mean `needs`?") == 1 + MAX_OTHERS
    assert error.fields["others"][-1]["cure"] == "Remove it, or check its spelling."


def test_many_faults_are_told_soon() -> None:
    """Not each compared with all before it; and pydantic makes a kilobyte of each."""
    begun_s = time.process_time()
    error = refused({"pipeline": "p", "nodes": {f"n{i}": {} for i in range(9_000)}})
    assert len(fields_of(error)) == MAX_KEPT
    assert error.fields["more"] == 9_000 - MAX_KEPT
    assert str(error).endswith(" And 8,990 more.")
    assert time.process_time() - begun_s < 5
    node = {"type": "python", "handler": "m:f", "needs": [1] * 50_000}
    error = refused({"pipeline": "p", "nodes": {"a": node}})
    assert fields_of(error) == ["(document)"]
    assert "it has 50,000 faults" in str(error)
    tracemalloc.start()
    refused(
        {"pipeline": "p", "nodes": {"a": {"type": "python", "handler": "m:f", "a." * 30_000: 1}}}
    )
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 20_000_000
