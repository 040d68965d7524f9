"""Which model reads a place of a document, and which places have a field."""

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Tag

_UNIONS = (Union, UnionType)


def model_at(root: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel] | None:
    """Return the model that reads a place which pydantic names, or None if it is not one model."""
    found: Any = root
    for part in loc:
        found = _into(found, part)
    models = {model for _, model in _options(found)}
    return models.pop() if len(models) == 1 else None


def fields_of(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the names of a model's fields as they are written."""
    return tuple(sorted(field.alias or name for name, field in model.model_fields.items()))


def places_by_field(root: type[BaseModel], base: type[BaseModel]) -> Mapping[str, tuple[str, ...]]:
    """Return the places that have a field, by its name. `base` has the fields of every node."""
    found: dict[str, list[str]] = {}
    for place, model in _places(root, base):
        inherited = model.model_fields.keys() & base.model_fields if place != "nodes" else set()
        for name, field in model.model_fields.items():
            if not (issubclass(model, base) and name in inherited):
                found.setdefault(field.alias or name, []).append(place)
    return {name: tuple(places) for name, places in found.items()}


def _places(root: type[BaseModel], base: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield each model once, with its place as an error says it."""
    waiting = [("nodes", "", base), ("the pipeline itself", "", root)]
    seen: set[type[BaseModel]] = set()
    while waiting:
        place, prefix, model = waiting.pop(0)
        if model in seen:
            continue
        seen.add(model)
        yield place, model
        for name, field in model.model_fields.items():
            inside = f"{prefix}{field.alias or name}"
            for tag, part in _options(field.annotation, deep=True):
                if issubclass(part, base):
                    kind = f"`{tag}` nodes" if tag != "own" else "nodes of your own types"
                    waiting.append((kind, "", part))
                else:
                    waiting.append((f"`{inside}`", f"{inside}.", part))


def _into(annotation: Any, part: int | str) -> Any:
    """Return the annotation of what is at a part of a value, or None."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _into(args[0], part)
    if origin in _UNIONS:
        return _into_one_of(args, part)
    if origin is dict:
        return args[1]
    if origin is tuple:
        return args[0] if isinstance(part, int) else None
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields.items()
        return next((one.annotation for name, one in fields if part in (one.alias, name)), None)
    return None


def _into_one_of(args: tuple[Any, ...], part: int | str) -> Any:
    tagged = next((one for one in args if _tag(one) == part), None)
    inside = (_into(one, part) for one in args)
    return tagged or next((one for one in inside if one is not None), None)


def _options(annotation: Any, *, deep: bool = False) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the models of an annotation with their tags; `deep` looks into lists and mappings."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        tag = _tag(annotation)
        yield from ((tag or inner, model) for inner, model in _options(args[0], deep=deep))
    elif origin in _UNIONS or (deep and origin in (dict, tuple)):
        for one in args:
            yield from _options(one, deep=deep)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "", annotation


def _tag(annotation: Any) -> str:
    marks = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((mark.tag for mark in marks if isinstance(mark, Tag)), "")
