"""What expressions read is made once: their operations count the readings, and not the making."""

import tracemalloc
from typing import Any

import pytest

from hocket.coordinator.core.run.state import names as module
from hocket.coordinator.core.run.state import values
from hocket.schemas.errors import ErrorInfo
from support.run_player import Play, python

ITEMS = 30
READINGS = 200
MAPPED = {"over": f"range({ITEMS})|list", "concurrency": ITEMS}
BROKEN = ErrorInfo(code="broken", message="it broke", details={"at": "b7"})


def again(expression: str) -> str:
    """Return a template that reads an expression many times."""
    return f"{{% for i in range({READINGS}) %}}{{% if {expression} %}}{{% endif %}}{{% endfor %}}"


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[object]:
    """Return a list that grows with every call of a function."""
    calls: list[object] = []
    before = getattr(owner, name)

    def count(*args: Any, **named: Any) -> Any:
        calls.append(args)
        return before(*args, **named)

    monkeypatch.setattr(owner, name, count)
    return calls


def test_an_output_is_parsed_once_for_each_input_that_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = {"x": again("nodes.a.output.v"), "y": "{{ nodes.a.output.v }}"}
    mapped = python(needs=["b"], map=MAPPED, **{"with": fields})
    play = Play({"a": python(), "b": python(), "m": mapped})
    play.finish("a", {"v": "found"})
    output = play.run.steps["a"].output
    assert output.text
    output.forget_value()  # as its row lets it go
    parses = counted(monkeypatch, values, "from_json")
    play.finish("b", 1)
    assert play.take("m[7]").input == {"x": "", "y": "found"}
    assert len(parses) <= 3 * ITEMS


def test_an_error_is_made_readable_once_for_all_that_read_it_in_one_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = {"x": again("nodes.a.error.code"), "y": "{{ nodes.a.error.details.at }}"}
    mapped = python(needs=["b"], map=MAPPED, **{"with": fields})
    play = Play({"a": python(optional=True), "b": python(), "m": mapped})
    play.finish("a", error=BROKEN)
    made = counted(monkeypatch, ErrorInfo, "model_dump")
    play.finish("b", 1)
    assert play.take("m[7]").input == {"x": "", "y": "b7"}
    assert len(made) == 1


def test_the_items_of_a_fallback_read_the_error_of_its_node_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instead = python(map=MAPPED, **{"with": {"why": "{{ error.details.at }}"}})
    play = Play({"a": python(fallback=[{"node": instead}])})
    made = counted(monkeypatch, ErrorInfo, "model_dump")
    play.finish("a", error=BROKEN)
    assert play.take("a!1[7]").input == {"why": "b7"}
    assert len(made) == 1


def test_more_errors_than_are_kept_are_read_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TOLD", 2)
    failing = [f"n{i}" for i in range(5)]
    nodes: dict[str, Any] = {name: python(optional=True) for name in failing}
    seen = {name: f"{{{{ nodes.{name}.error.message }}}}" for name in failing}
    play = Play(nodes | {"last": python(**{"with": seen})})
    for name in failing:
        play.finish(name, error=ErrorInfo(code="broken", message=f"{name} broke"))
    assert play.take("last").input == {name: f"{name} broke" for name in failing}


def test_a_plain_input_parses_each_value_that_it_reads_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = {f"k{i}": "{{ nodes.a.output.v }}" for i in range(READINGS)}
    play = Play({"a": python(), "b": python(), "c": python(needs=["b"], **{"with": fields})})
    play.finish("a", {"v": "found"})
    output = play.run.steps["a"].output
    assert output.text
    output.forget_value()
    parses = counted(monkeypatch, values, "from_json")
    play.finish("b", 1)
    assert play.take("c").input == dict.fromkeys(fields, "found")
    assert len(parses) == 1


def test_a_plain_input_that_grows_too_large_is_not_put_together_first() -> None:
    fields = {f"k{i}": "{{ input }}" for i in range(READINGS)}
    nodes = {"a": python(), "b": python(needs=["a"], **{"with": fields})}
    play = Play(nodes, input={"t": "y" * 300_000})
    tracemalloc.start()
    try:
        play.finish("a", 1)
        assert tracemalloc.get_traced_memory()[1] < 20 * 300_000
    finally:
        tracemalloc.stop()
    assert play.run.error is not None
    assert play.run.error.code == "expression_failed"
