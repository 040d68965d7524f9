"""Results of an agent's tools: those of one round are cut where they are too large for one message,
before the next round gets them. Pure, and the same for the same results, as a replay needs it."""

from collections.abc import Collection, Mapping
from typing import Any

from pydantic_core import to_json

MAX_RESULTS_BYTES = 393_216
"""The limit on the JSON of all results of a round. A model gets no more anyway, because a conversation
has at most as much."""
LEAST_CHARS = 100
MAX_ERROR_CHARS = 2_000
NOTE_CHARS = 40
"""Room for what is said of a cut."""


def fitted(
    results: Mapping[str, Mapping[str, Any]], most_chars: int, remote: Collection[str]
) -> dict[str, Mapping[str, Any]]:
    """Return results that fit into a message. If they are too large, those longer than `most_chars` are
    cut, which is all that a model gets of each; and if need be, the longest further. `remote` are those
    of tools of MCP servers, whose text says enough."""
    fitting = dict(results)
    sizes = {name: _size(result) for name, result in results.items()}
    texts: dict[str, str] = {}
    while sum(sizes.values()) > MAX_RESULTS_BYTES and most_chars >= LEAST_CHARS:
        for name, result in results.items():
            if sizes[name] <= most_chars:
                continue
            if result["error"] is not None:
                fitting[name] = {"output": None, "error": _brief(result["error"])}
            else:
                if name not in texts:
                    texts[name] = _text(result["output"], name in remote)
                if len(texts[name]) <= most_chars:
                    continue
                fitting[name] = {"output": _cut(texts[name], most_chars), "error": None}
            sizes[name] = _size(fitting[name])
        most_chars //= 2
    return fitting


def _size(value: Any) -> int:
    return len(to_json(value))


def _brief(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error with only what a model gets of it."""
    message = str(error.get("message") or "")
    return {"code": error.get("code"), "message": message[:MAX_ERROR_CHARS]}


def _text(output: Any, is_remote: bool) -> str:
    """Return an output as text. For a tool of an MCP server this is its own text, unless that is only a
    small part: besides it, there is often the same as data."""
    if isinstance(output, str):
        return output
    whole = to_json(output).decode()
    text = output.get("text") if is_remote and isinstance(output, Mapping) else None
    return text if isinstance(text, str) and 3 * len(text) >= len(whole) else whole


def _cut(text: str, most_chars: int) -> str:
    return f"{text[: most_chars - NOTE_CHARS]}\n(cut: it has {len(text)} characters)"
