"""Prompts and answers as the terminal shows them."""

from hocket.cli.drawing.content import content_lines


def test_each_call_shows_who_said_what() -> None:
    call = {
        "step": "draft", "model": "writer", "started_at": None, "call_id": "c", "kept": "redacted",
        "prompt": {"messages": [{"role": "system", "content": "Be short.\nBe kind."}],
                   "embed": ["a", "b"]},
        "answer": {"text": "Hello <EMAIL_1>."}, "is_cut": True,
    }  # fmt: skip
    cut = {**call, "prompt": '{"messages": [', "answer": {"error": "timeout"}, "is_cut": False}
    lines = content_lines({"content": [call, cut], "truncated": True})
    assert "\n".join(line.plain for line in lines).splitlines() == [
        "draft  writer  -  c  personal data replaced",
        "  system: Be short.",
        "    Be kind.",
        "  embed: a",
        "    b",
        "  answer: Hello <EMAIL_1>.",
        "  longer texts were truncated",
        "",
        "draft  writer  -  c  personal data replaced",
        '  prompt: {"messages": [',
        "  answer: {",
        '      "error": "timeout"',
        "    }",
        "",
        "There are more calls; these are the first.",
    ]
