"""Pydantic's complaint about a pipeline document, told as a field, a reason and a cure.

Pydantic names the place by its own way through the models (the type of a node stands behind the
node's name) and speaks of inputs and tuples; who writes YAML sees fields, lists and words.
"""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from hocket.schemas.errors import InvalidInput

MAX_SHOWN_CHARS = 80
OWN_TYPE_CURE = (
    "Use two to four labels with dots between them, such as `crm.lookup`: each begins with a lower-case"
    " letter and has at most 31 lower-case letters, digits and `_`; 63 characters in all."
)
NAME_CURE = "Use letters, digits, `_` and `-`, at most 63, and begin with a letter or a digit."


def misuse(reason: str, cure: str) -> PydanticCustomError:
    """Return what a validator raises."""
    return PydanticCustomError("misuse", "{reason}", {"reason": reason, "cure": cure})


def fault_of(
    error: ValidationError, *, tags: Collection[str], fields: Mapping[str, Collection[str]]
) -> InvalidInput:
    """Return the first complaint; `tags` are the node types, `fields` the names of
    fields by the field that holds them, "" for all."""
    fault = error.errors(include_url=False)[0]
    parts = _place(fault["loc"], tags)
    kind, context, given = fault["type"], fault.get("ctx", {}), fault["input"]
    field = ".".join(parts) or "(document)"
    if kind == "union_tag_invalid":
        return InvalidInput(
            field=f"{field}.type",
            reason=f"`{context.get('tag')}` is not a node type",
            cure=f"Use one of: {', '.join(sorted(set(tags) - {'own'}))}; a type of your own has a dot in"
            " its name, such as `crm.lookup`.",
        )
    if kind == "union_tag_not_found":
        return InvalidInput(
            field=f"{field}.type",
            reason="a node needs a type",
            cure="Add `type:`, e.g. `type: llm`.",
        )
    if kind == "extra_forbidden":
        return InvalidInput(
            field=field, reason="there is no such field", cure=_meant(parts, fields)
        )
    if kind == "missing":
        cure = _MISSING.get(parts[-1], "Add it.")
        return InvalidInput(field=field, reason="it is missing", cure=cure)
    if kind == "misuse":
        return InvalidInput(field=field, reason=context["reason"], cure=context["cure"])
    reason, cure = _told(kind, context, given, parts)
    return InvalidInput(field=field, reason=reason, cure=cure)


def _meant(parts: list[str], every: Mapping[str, Collection[str]]) -> str:
    """Return what to do about a field that does not exist."""
    name = parts[-1]
    fields = every.get(parts[-2] if len(parts) > 1 else "", every[""])
    if name in _ELSEWHERE:
        return f"Did you mean `{_ELSEWHERE[name]}`?"
    if name in fields:
        return "Remove it: it belongs to another place."
    close = [field for field in fields if field.startswith(f"{name}_")]
    close += get_close_matches(name, fields, n=1)
    return f"Did you mean `{close[0]}`?" if close else "Remove it, or check its spelling."


def _told(kind: str, context: Mapping[str, Any], given: Any, parts: list[str]) -> tuple[str, str]:
    name = parts[-1] if parts else ""
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"it is {_shown(given)}", f"Use {words.format(_number(context[key]))}."
    if kind in ("literal_error", "enum"):
        values = context["expected"].replace("'", "`")
        return f"{_shown(given)} is not one of its values", f"Use {values}."
    if kind == "string_type":
        return f"it is {_kind(given)}, not text", _EXPRESSIONS.get(name, "Put it in quotes.")
    if kind == "string_pattern_mismatch" or (kind == "string_too_long" and name in _NOT_NAMES):
        noun, cure = _NOT_NAMES.get(name, ("name", NAME_CURE))
        return f"{_shown(given)} is not a {noun}", cure
    if kind in ("too_short", "too_long"):
        least = "at least" if kind == "too_short" else "at most"
        bound = context["min_length" if kind == "too_short" else "max_length"]
        return f"it has {context['actual_length']}", f"Give {least} {bound}."
    return _told_of_type(kind, given)


def _told_of_type(kind: str, given: Any) -> tuple[str, str]:
    if kind == "tuple_type":
        return f"it is {_kind(given)}, not a list", "Write a list: `[...]`."
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return f"it is {_kind(given)}, not a mapping", "Write `{field: value}`."
    if kind.startswith("bool"):
        return f"{_shown(given)} is neither true nor false", "Write `true` or `false`."
    if kind.startswith(("int", "float", "decimal", "finite")):
        noun = "whole number" if kind.startswith("int") else "number"
        return f"{_shown(given)} is not a {noun}", f"Give a {noun}."
    return kind.replace("_", " "), "Change its value."


def _place(loc: tuple[int | str, ...], tags: Collection[str]) -> list[str]:
    """Drop the type tags that pydantic puts behind a node's name, and its mark for a key."""
    return [
        str(part)
        for i, part in enumerate(loc)
        if not (
            part in tags
            and (
                (i >= 2 and loc[i - 2] in ("nodes", "branches"))
                or (i >= 1 and loc[i - 1] == "node")
            )
        )
        and part != "[key]"
    ]


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a mapping" if isinstance(value, Mapping) else "a list"


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "`true`", False: "`false`", None: "null"}[value]
    return str(value) if isinstance(value, int | float) else f"`{str(value)[:MAX_SHOWN_CHARS]}`"


def _number(value: Any) -> str:
    return str(int(value)) if value == int(value) else str(value)


_ELSEWHERE = {
    "input": "with",
    "inputs": "with",
    "args": "with",
    "params": "with",
    "depends_on": "needs",
    "after": "needs",
    "if": "when",
    "condition": "when",
    "foreach": "map",
    "for_each": "map",
    "while": "loop",
    "repeat": "loop",
    "retries": "retry",
    "on_error": "fallback",
    "catch": "fallback",
    "parallel": "concurrency",
    "deadline_ms": "slo_ms",
}
"""What other systems call some fields."""
_NOT_NAMES = {
    "handler": ("function", "Write `module:function`."),
    "type": ("node type", OWN_TYPE_CURE),
    "queue": (
        "queue",
        "Begin with a lower-case letter, and use at most 31 lower-case letters, digits and `_`.",
    ),
}
"""What some names are names of, and what they may be."""
_BOUNDS = {
    "greater_than": ("more than {}", "gt"),
    "greater_than_equal": ("{} or more", "ge"),
    "less_than": ("less than {}", "lt"),
    "less_than_equal": ("{} or less", "le"),
}
_EXPRESSIONS = {
    "over": 'Write an expression: `over: "{{ input.items }}"`, or a list in quotes: `over: "[1, 2]"`.',
    "until": 'Write an expression: `until: "output.done"`.',
    "when": 'Write an expression: `when: "input.wanted"`.',
    "valid": 'Write an expression: `valid: "output.ok"`.',
    "score": 'Write an expression: `score: "output.points"`.',
    "key": 'Write an expression: `key: "input.question"`.',
}
_MISSING = {
    **_EXPRESSIONS,
    "node": "Say what runs instead: `node: {type: ...}`.",
    "branches": "Give two or more branches.",
    "nodes": "Give one node or more.",
    "signal": "Name the signal that it waits for.",
    "pipeline": "Name the pipeline.",
    "handler": "Name the function: `handler: module:function`.",
    "types": "List the node types that the planner may emit.",
    "model": "Name the model.",
    "prompt": 'Write the prompt: `prompt: "{{ input.question }}"`.',
}
