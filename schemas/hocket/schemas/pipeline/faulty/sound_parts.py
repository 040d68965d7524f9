"""The sound parts of a pipeline document that has faults, so that theirs are told together with these.

A node with a fault becomes one of which nothing is known but what it reads and needs; any other field
with a fault is left out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from hocket.schemas.checks.first_fault import MAX_COMPLAINTS
from hocket.schemas.pipeline.spec import Pipeline

MAX_PLACES = 1_000
"""If more places have faults, the rest is not looked at."""
_HOLDERS = ("nodes", "branches", "calls")
_HANDLER = "refused:refused"
_NAME = "refused"

Place = tuple[int | str, ...]


class Sound(NamedTuple):
    """A pipeline without its faults, and the fields of the nodes that were refused."""

    spec: Pipeline
    refused: frozenset[str]


def sound_parts(document: Mapping[str, Any], error: ValidationError) -> Sound | None:
    """Return what is sound of a document that pydantic refused, or None if nothing can be said of it."""
    if error.error_count() > MAX_COMPLAINTS:
        return None
    told = error.errors(include_url=False, include_input=False, include_context=False)
    places = {_refused(document, one["loc"]) for one in told}
    if ("nodes",) in places or len(places) > MAX_PLACES:
        return None
    kept = dict(document)
    for place in places:
        if len(place) == 1:
            kept.pop(str(place[0]), None)
    for place in sorted((one for one in places if len(one) > 1), key=len):
        kept = _replaced(kept, place)
    kept.setdefault("pipeline", _NAME)
    try:
        spec = Pipeline.model_validate(kept)
    except ValidationError:  # a node's name, for example
        return None
    return Sound(spec, frozenset(".".join(map(str, place)) for place in places))


def _refused(document: Mapping[str, Any], loc: Place) -> Place:
    """Return the place of the innermost node around a fault, or of the field of the pipeline."""
    node: Place = ()
    place: Place = ()
    value: Any = document
    for part in loc:
        if not _holds(value, part):  # a mark of pydantic, or a field that is missing
            continue
        place, value = (*place, part), value[part]
        if _is_node(place[len(node) :]):
            node = place
    return node or (place or loc)[:1]


def _is_node(below: Place) -> bool:
    """Return whether a place below a node is that of another node."""
    match below:
        case ("fast",):
            return True
        case (holder, _):
            return holder in _HOLDERS
        case ("fallback" | "tools", _, "node"):
            return True
    return False


def _holds(value: Any, part: int | str) -> bool:
    if isinstance(value, Mapping):
        return part in value
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return is_list and isinstance(part, int) and part < len(value)


def _replaced(value: Any, place: Place) -> Any:
    """Return a document with another node in a place; only what leads there is copied."""
    if not place:
        return _unknown(value)
    first, *rest = place
    if not _holds(value, first):  # a node around it was replaced
        return value
    kept = dict(value) if isinstance(value, Mapping) else list(value)
    kept[first] = _replaced(value[first], tuple(rest))  # type: ignore[index]
    return kept


def _unknown(node: Any) -> dict[str, Any]:
    """Return a node that reads and needs what a refused one does, as far as that is well formed."""
    found: dict[str, Any] = {"type": "python", "handler": _HANDLER}
    given = node if isinstance(node, Mapping) else {}
    with_, when, needs = given.get("with"), given.get("when"), given.get("needs")
    if isinstance(with_, Mapping) and all(isinstance(name, str) for name in with_):
        found["with"] = with_
    if isinstance(when, str):
        found["when"] = when
    if isinstance(needs, list) and all(isinstance(need, str) for need in needs):
        found["needs"] = needs
    return found
