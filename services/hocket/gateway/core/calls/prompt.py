"""Renders a call as chat messages; documents are added to the last user message with their markers."""

from collections.abc import Sequence
from typing import Any

from hocket.schemas.messages import ChatMessage, Document

HEADING = "Sources:"
NO_VALUE = "NULL"


def chat_messages(
    messages: Sequence[ChatMessage], documents: Sequence[Document]
) -> list[dict[str, Any]]:
    """Return the messages as an OpenAI-compatible API takes them, documents included.

    If there is no user message, the documents become one at the end.
    """
    plain = [_plain(message) for message in messages]
    if not documents:
        return plain
    sources = "\n\n".join([HEADING, *map(rendered, documents)])
    last_user = next((m for m in reversed(plain) if m["role"] == "user"), None)
    if last_user is None:
        return [*plain, {"role": "user", "content": sources}]
    last_user["content"] = f"{last_user['content']}\n\n{sources}"
    return plain


def _plain(message: ChatMessage) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        plain["tool_calls"] = list(message.tool_calls)
    if message.tool_call_id is not None:
        plain["tool_call_id"] = message.tool_call_id
    return plain


def rendered(document: Document) -> str:
    """Return a passage or a table as text under its marker, for example `[P1] title (source)`."""
    source = f" ({document.source})" if document.source else ""
    title = f" {document.title}" if document.title else ""
    head = f"[{document.id}]{title}{source}"
    if document.kind == "passage":
        return f"{head}\n{document.text}"
    lines = [_row(document.columns), *map(_row, document.rows)]
    return "\n".join([head, *lines])


def _row(cells: Sequence[Any]) -> str:
    return " | ".join(NO_VALUE if cell is None else str(cell) for cell in cells)
