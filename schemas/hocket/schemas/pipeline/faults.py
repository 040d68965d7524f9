"""Turns pydantic's complaints about a pipeline document into a field, a reason and a cure.

Pydantic names places by its own path through the models (a node's type follows the node's name) and
speaks of inputs and tuples; people who write YAML think in fields, lists and words.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from hocket.schemas.checks.faults import Fault, faults_of, shown, usual_fault
from hocket.schemas.pipeline.faulty.words import meant_by
from hocket.schemas.subjects import MAX_TYPE_CHARS

OWN_TYPE_CURE = (
    "Use two to four labels separated by dots, such as `crm.lookup`: each starts with a lower-case "
    "letter and has at most 31 lower-case letters, digits and `_`; 63 characters in all."
)
MAX_GUESSES = 20
"""Faults of one document for which the nearest name of a field or type is looked for: each takes 0.3 ms,
and an error tells ten of them."""
MAX_FIELD_CHARS = 64
"""The longest name of a field that is looked up."""
NAME_CURE = "Use letters, digits, `_` and `-`, at most 63, starting with a letter or digit."


def misuse(reason: str, cure: str) -> PydanticCustomError:
    """Return the error that a validator raises."""
    return PydanticCustomError("misuse", "{reason}", {"reason": reason, "cure": cure})


def meant_type(name: str, types: Collection[str]) -> str:
    """Return a question for the nearest of the types, ending in a space, or "" if none is near."""
    close = get_close_matches(name.lower(), types, n=1) if len(name) <= MAX_TYPE_CHARS else []
    return f"Did you mean `{close[0]}`? " if close else ""


class Fields(NamedTuple):
    """The fields of a pipeline document: those of a place that pydantic names, and the places that have
    one."""

    at: Callable[[tuple[int | str, ...]], Collection[str]]
    places: Mapping[str, tuple[str, ...]]


def faults_of_document(
    error: ValidationError, *, tags: Collection[str], fields: Fields
) -> list[Fault]:
    """Return the faults of a document. `tags` are the node types."""
    guesses = iter(range(MAX_GUESSES))

    def field_of(place: tuple[int | str, ...]) -> str:
        return ".".join(_place(place, tags)) or "(document)"

    def fault_of(complaint: Mapping[str, Any], field: str) -> Fault:
        if complaint["type"] == "extra_forbidden":
            return Fault(field, "there is no such field", _meant(complaint["loc"], fields, guesses))
        parts = _place(complaint["loc"], tags)
        return _fault(complaint, field, parts, tags, guesses) or usual_fault(
            complaint, field, quotes=True
        )

    return faults_of(error, field_of=field_of, fault_of=fault_of)


def _fault(
    complaint: Mapping[str, Any],
    field: str,
    parts: list[str],
    tags: Collection[str],
    guesses: Iterator[int],
) -> Fault | None:
    """Return a fault in terms specific to pipelines, or None if the usual words do."""
    kind, given = complaint["type"], complaint["input"]
    name = parts[-1] if parts else ""
    if kind == "union_tag_invalid":
        tag, types = str(complaint["ctx"].get("tag")), sorted(set(tags) - {"own"})
        meant = meant_type(tag, types) if next(guesses, None) is not None else ""
        return Fault(
            f"{field}.type",
            f"{shown(tag)} is not a node type",
            f"{meant}Use one of: {', '.join(types)}; a type of your own has a dot in its name, such as "
            "`crm.lookup`.",
        )
    if kind == "union_tag_not_found":
        return Fault(f"{field}.type", "a node needs a type", "Add `type:`, e.g. `type: llm`.")
    if kind == "missing":
        return Fault(field, "it is missing", _MISSING.get(name, "Add it."))
    if kind == "string_type" and name in _EXPRESSIONS:
        return usual_fault(complaint, field, quotes=True)._replace(cure=_EXPRESSIONS[name])
    if kind == "string_pattern_mismatch" or (kind == "string_too_long" and name == "type"):
        noun, cure = _NOT_NAMES.get(name, ("name", NAME_CURE))
        return Fault(field, f"{shown(given)} is not a {noun}", cure)
    return None


def _meant(loc: tuple[int | str, ...], fields: Fields, guesses: Iterator[int]) -> str:
    """Return the cure for a field that does not exist; each search for its nearest name takes one of the
    guesses."""
    name, here = str(loc[-1]), fields.at(loc[:-1])
    if len(name) <= MAX_FIELD_CHARS and (cure := meant_by(name, here, fields.places)):
        return cure
    close = get_close_matches(name, here, n=1) if next(guesses, None) is not None else []
    return f"Did you mean `{close[0]}`?" if close else "Remove it, or check its spelling."


def _place(loc: tuple[int | str, ...], tags: Collection[str]) -> list[str]:
    """Remove the type tags that pydantic puts after a node's name, and its mark for a key."""
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


_NOT_NAMES = {
    "handler": ("function", "Write `module:function`."),
    "type": ("node type", OWN_TYPE_CURE),
    "path": (
        "path",
        "Start it with `/`, and use ASCII characters other than spaces, `?`, `#`, `%` and `\\`.",
    ),
    "endpoint": (
        "part of a subject",
        "Use letters, digits, `_` and `-`, with dots in between, such as `orders.read`.",
    ),
    "queue": (
        "queue",
        "Use at most 31 lower-case letters, digits and `_`, starting with a letter.",
    ),
}
"""What some fields name, and the valid form."""
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
    "node": "Add what runs instead: `node: {type: ...}`.",
    "branches": "Add two or more branches.",
    "nodes": "Add at least one node.",
    "signal": "Name the signal that it waits for.",
    "pipeline": "Name the pipeline.",
    "handler": "Name the function: `handler: module:function`.",
    "types": "List the node types that the planner may emit.",
    "model": "Name the model.",
    "tools": "Add at least one tool: `tools: {NAME: {description: ..., parameters: ..., node: ...}}`.",
    "prompt": 'Write the prompt: `prompt: "{{ input.question }}"`.',
}
