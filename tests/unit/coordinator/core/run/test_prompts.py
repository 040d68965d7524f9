"""What is told of the next prompt: as much as is known, once, and only where it was asked for."""

from typing import Any

from hocket.coordinator.core.run.commands import ExpectPrompt
from hocket.schemas.messages import PromptExpected
from hocket.schemas.pipeline.expressions import known_head
from support.run_player import Play, python

TEXT = "tide " * 400


def told(**answer: Any) -> list[PromptExpected]:
    """Return what is told when a run of two nodes begins; `answer` changes the second."""
    nodes = {
        "plan": python(),
        "answer": {
            "type": "llm",
            "model": "writer",
            "with": {"text": "{{ input.text }}", "notes": "{{ nodes.plan.output }}"},
            "prompt": "{{ input.text }} and then {{ input.notes }}",
            "prefill": True,
            **answer,
        },
    }
    played = Play(nodes, input={"text": TEXT})
    (accepted,) = played.outcomes
    return [one.expected for one in accepted.commands if isinstance(one, ExpectPrompt)]


def test_a_prompt_is_told_up_to_what_is_not_known_yet() -> None:
    (expected,) = told()
    assert (expected.model, expected.node) == ("writer", "answer")
    assert [(m.role, m.content) for m in expected.messages] == [("user", f"{TEXT} and then ")]


def test_a_system_text_that_is_not_known_to_its_end_is_the_last_that_is_told() -> None:
    (expected,) = told(system="{{ input.text }}{{ input.notes }}")
    assert [(m.role, m.content) for m in expected.messages] == [("system", TEXT)]


def test_a_node_that_did_not_ask_for_it_is_not_told_of() -> None:
    assert told(prefill=False) == []


def test_a_short_beginning_is_not_worth_telling() -> None:
    assert told(prompt="Now {{ input.notes }}") == []


def test_known_text_ends_where_a_template_reads_what_is_missing() -> None:
    assert known_head("a {{ x }} b {{ y.z }} c", {"x": 1, "y": {}}) == ("a 1 b ", False)
    assert known_head("a {{ x }}", {"x": 1}) == ("a 1", True)
    assert known_head("{{ broken", {}) == ("", False)
