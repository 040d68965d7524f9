"""Stored prompts and answers, as `hocket runs show --content` prints them."""

from typing import Any

from hocket.cli.drawing.content import content_lines


def lines(messages: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a prompt."""
    call = {
        "step": "ask#2", "model": "writer", "started_at": "2026-01-01T00:00:00Z", "call_id": "c",
        "kept": "full", "prompt": {"messages": messages}, "answer": {"text": "Six."}, "is_cut": False,
    }  # fmt: skip
    found = {"content": [call], "truncated": False}
    return [line.plain.strip() for line in content_lines(found)][1:-1]


def test_the_tools_that_a_model_called_are_part_of_what_it_is_asked() -> None:
    called = {"id": "1", "function": {"name": "count", "arguments": '{"word": "lamp"}'}}
    shown = lines(
        [
            {"role": "user", "content": "How many?"},
            {"role": "assistant", "tool_calls": [called]},
            {"role": "tool", "content": "6", "tool_call_id": "1"},
            {"role": "assistant"},
        ]
    )
    assert shown[0] == "user: How many?"
    assert shown[1].startswith("assistant calls: [")
    assert any('"name": "count"' in line for line in shown)
    assert shown[-3:] == ["tool: 6", "assistant: -", "answer: Six."]
    assert not any("null" in line for line in shown)
