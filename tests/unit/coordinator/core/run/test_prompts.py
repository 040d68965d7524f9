"""What is told of the next prompt: as much as is known, once, and only where it was asked for."""

from typing import Any

import pytest

from hocket.coordinator.core.run.commands import ExpectPrompt
from hocket.schemas.messages import PromptExpected, SignalReceived
from hocket.schemas.pipeline import expressions
from hocket.schemas.pipeline.expressions import compile_head
from hocket.schemas.templates.parsing import parse_template
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
    assert compile_head("a {{ x }} b {{ y.z }} c")({"x": 1, "y": {}}) == ("a 1 b ", False)
    assert compile_head("a {{ x }}")({"x": 1}) == ("a 1", True)
    assert compile_head("{{ broken")({}) == ("", False)


def test_a_long_prompt_is_compiled_once_for_all_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def parse(text: str) -> Any:
        parsed.append(text)
        return parse_template(text)

    monkeypatch.setattr(expressions, "parse_template", parse)
    prompt = "Answer " + "in detail " * 500 + "{{ input.plan }}"
    answer = {"type": "llm", "model": "m", "needs": ["plan"], "prompt": prompt, "prefill": True}
    mapped = {"over": "range(20)|list", "concurrency": 20}
    graph = {"type": "graph", "map": mapped, "nodes": {"plan": python(), "answer": answer}}
    (accepted,) = Play({"g": graph}).outcomes
    told = [one.expected for one in accepted.commands if isinstance(one, ExpectPrompt)]
    assert [one.messages[0].content for one in told] == [
        prompt.removesuffix("{{ input.plan }}")
    ] * 20
    assert parsed.count(prompt) < 5


def test_the_deadline_that_is_told_is_what_it_would_be_if_a_wait_were_over() -> None:
    prompt = {"type": "llm", "model": "m", "needs": ["plan"], "prompt": TEXT, "prefill": True}
    nodes = {
        "ask": {"type": "approval"},
        "go": {"type": "signal", "signal": "go"},
        "plan": python(needs=["go"]),
        "answer": prompt,
    }
    play = Play(nodes, spec={"slo_ms": 30_000})
    play.now_ms += 60_000
    play.send(SignalReceived(run_id="r1", signal_id="s1", name="go", payload=1, by="ann"))
    (told,) = [one.expected for one in play.commands if isinstance(one, ExpectPrompt)]
    assert told.deadline_at_ms == play.now_ms + 30_000
