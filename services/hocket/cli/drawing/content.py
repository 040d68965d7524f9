"""Prints prompts and answers of a run's calls for people."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from hocket.cli.drawing.amounts import local

Json = Mapping[str, Any]


def content_lines(found: Json) -> Iterator[Text]:
    """Yield the lines of stored prompts and answers, earliest first."""
    for call in found["content"]:
        how = "personal data replaced" if call["kept"] == "redacted" else "as recorded"
        yield Text.assemble(
            (f"{call['step'] or '-'}  {call['model']}", "bold"),
            (f"  {local(call['started_at'])}  {call['call_id']}  {how}", "dim"),
        )
        yield from _prompt(call["prompt"])
        yield from _part("answer", _answer(call["answer"]))
        if call["is_cut"]:
            yield Text("  longer texts were truncated", "yellow")
        yield Text("")
    if found["truncated"]:
        yield Text("There are more calls; these are the first.", "dim")


def _prompt(prompt: Any) -> Iterator[Text]:
    if not isinstance(prompt, dict):
        yield from _part("prompt", str(prompt))
        return
    messages = prompt.get("messages")
    for message in messages if isinstance(messages, list) else ():
        yield from _message(message)
    for name, value in prompt.items():
        if name != "messages":
            yield from _part(name, _text(value))


def _message(message: dict[str, Any]) -> Iterator[Text]:
    role, said, calls = (message.get(name) for name in ("role", "content", "tool_calls"))
    if said or not calls:
        yield from _part(str(role or "message"), _text(said or ""))
    if calls:
        yield from _part(f"{role or 'message'} calls", _text(calls))


def _answer(answer: Any) -> str:
    if isinstance(answer, dict) and set(answer) == {"text"}:
        return str(answer["text"])
    return _text(answer)


def _part(name: str, text: str) -> Iterator[Text]:
    """Yield the lines of a part, with its name before the first one and the others aligned below."""
    first, *more = text.split("\n") if text else ["-"]
    yield Text.assemble((f"  {name}: ", "cyan"), first)
    for line in more:
        yield Text(f"    {line}")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and all(isinstance(one, str) for one in value):
        return "\n".join(value)
    return json.dumps(value, ensure_ascii=False, indent=2)
