"""Every row of the tables of misuses in docs/reference/constructs gives just the error that the
page says."""

from pathlib import Path
from typing import Any

import pytest

from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.document import parse_document
from hocket.schemas.pipeline.expressions import NOT_CONSTANT, constant
from hocket.schemas.pipeline.node_parts import PlanPolicy
from hocket.schemas.pipeline.plan import compile_emitted, compile_pipeline
from hocket.schemas.pipeline.policy import PlanRefused
from support.construct_pages import (
    EMITTED_COLUMNS,
    EXAMPLES,
    PAGES,
    Misuse,
    changed,
    example,
    misuses,
)

CONSTRUCTS = {
    "needs", "when", "map", "loop", "race", "fallback", "optional", "retry", "timeout", "graph",
    "pipeline", "approval", "signal", "planning", "expressions", "deadlines", "budget", "cache",
}  # fmt: skip
LEAST_MISUSES = 6


@pytest.mark.parametrize(
    "misuse",
    [misuse for page in PAGES for misuse in misuses(page)],
    ids=lambda misuse: f"{misuse.page}: {misuse.change}",
)
def test_a_misuse_is_refused_as_the_page_says(misuse: Misuse) -> None:
    with pytest.raises(InvalidInput) as refused:
        compile_pipeline(changed(example(misuse.page), misuse.change))
    fields = refused.value.fields
    said = (fields["field"], fields["reason"], fields["cure"])
    assert said == (misuse.field, misuse.reason, misuse.cure)


@pytest.mark.parametrize(
    "misuse",
    [misuse for page in PAGES for misuse in misuses(page, EMITTED_COLUMNS)],
    ids=lambda misuse: misuse.change,
)
def test_what_a_planner_may_not_emit_is_refused_as_the_page_says(misuse: Misuse) -> None:
    policy = PlanPolicy.model_validate(example("planning")["nodes"]["plan"]["emit"])
    emitted = parse_document(misuse.change.strip("`"))
    with pytest.raises(PlanRefused) as refused:
        compile_emitted(emitted, policy, path="plan")
    fields = refused.value.fields
    said = (fields["field"], fields["reason"], fields["cure"])
    assert said == (misuse.field, misuse.reason, misuse.cure)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_its_example_and_many_misuses(page: Path) -> None:
    text = page.read_text("utf-8")
    assert f"```yaml\n{(EXAMPLES / page.name).with_suffix('.yaml').read_text('utf-8')}```" in text
    assert len(list(misuses(page))) >= LEAST_MISUSES


def test_every_construct_has_a_page() -> None:
    assert {page.stem for page in PAGES} == CONSTRUCTS


ECHO = {"type": "python", "handler": "m:f"}
USEFUL: dict[str, dict[str, Any]] = {
    "a node that is never wanted": {"a": ECHO | {"when": "false"}},
    "a loop of just so many rounds": {
        "a": ECHO | {"loop": {"until": "false", "on_exhausted": "accept"}}
    },
    "a map over a written list": {"a": ECHO | {"map": {"over": "['x', 'y']"}}},
    "the same step so many times": {
        "a": ECHO | {"map": {"over": "range(3)"}, "with": {"q": "{{ input.q }}"}}
    },
    "an optional value with something in its place": {
        "a": ECHO | {"optional": True},
        "b": ECHO | {"with": {"v": "{{ (nodes.a.output or {}).v | default(1) }}"}},
    },
    "an optional node that only a guarded one reads": {
        "a": ECHO | {"optional": True},
        "b": ECHO | {"when": "nodes.a.output", "with": {"v": "{{ nodes.a.output.v }}"}},
    },
    "an optional last node among others": {"a": ECHO, "b": ECHO | {"optional": True}},
    "a recursion that ends": {
        "a": {"type": "pipeline", "pipeline": "p", "when": "input.depth < 3"}
    },
    "a recursion over what may be nothing": {
        "a": {"type": "pipeline", "pipeline": "p", "map": {"over": "input.parts"}}
    },
    "a retry on codes of one's own": {
        "a": ECHO | {"retry": {"on": ["quota_exceeded", "E42", "timed_out", "transient"]}}
    },
    "a name of a template's own": {
        "a": ECHO
        | {"with": {"t": "{% set input = [1] %}{% for run in input %}{{ run.x }}{% endfor %}"}}
    },
    "a field that is asked for first": {
        "g": {
            "type": "graph",
            "with": {"q": 1},
            "nodes": {"x": ECHO | {"with": {"v": "{{ input.w | default(0) }}"}}},
        }
    },
    "methods of a value": {"a": ECHO | {"with": {"k": "{{ input.items() | list }}"}}},
    "a person against a clock": {
        "r": {
            "type": "race",
            "branches": {"person": {"type": "approval"}, "late": ECHO | {"timeout_ms": 60_000}},
        }
    },
    "a wait that outlasts the deadline, which stands still": {
        "a": {"type": "approval", "wait_ms": 86_400_000}
    },
    "two waits for one event": {
        "a": {"type": "signal", "signal": "go"},
        "b": {"type": "signal", "signal": "go", "needs": ["a"]},
    },
    "an approval of every item": {"a": {"type": "approval", "map": {"over": "input.xs"}}},
    "a pair in a race inside a map": {
        "r": {
            "type": "race",
            "map": {"over": "input.xs"},
            "branches": {
                "a": ECHO | {"with": {"v": "{{ item }}"}},
                "b": ECHO | {"with": {"v": "{{ index }}"}},
            },
        }
    },
}


@pytest.mark.parametrize("nodes", USEFUL.values(), ids=USEFUL.keys())
def test_what_may_be_useful_is_accepted(nodes: dict[str, Any]) -> None:
    compile_pipeline({"pipeline": "p", "nodes": nodes})


def test_a_version_that_was_applied_before_a_rule_was_made_runs_on() -> None:
    never = {"a": ECHO | {"loop": {"until": "false"}}}
    with pytest.raises(InvalidInput, match="it is never true"):
        compile_pipeline({"pipeline": "p", "nodes": never})
    assert compile_pipeline({"pipeline": "p", "nodes": never}, applied=True)


def test_an_expression_that_is_much_to_compute_is_not_computed_to_see_whether_it_makes_sense() -> (
    None
):
    assert constant("[1, 2, 3]") == [1, 2, 3]
    assert constant("range(90000)|list") is NOT_CONSTANT


@pytest.mark.parametrize("names", [["x" * 201], ["some_code"] * 51])
def test_an_error_list_has_bounds(names: list[str]) -> None:
    step = {"type": "python", "handler": "m:f", "retry": {"on": names}}
    with pytest.raises(InvalidInput, match=r"nodes\.a\.retry\.on"):
        compile_pipeline({"pipeline": "p", "nodes": {"a": step}})
    compile_pipeline({"pipeline": "p", "nodes": {"a": step}}, applied=True)
