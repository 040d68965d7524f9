"""A planner's catalog: describes it to a model, and checks what the model chooses from it. Pure.

A model chooses queries by name and fills in their parameters; the SQL always comes from the catalog. A
choice that is not in the catalog is refused, never repaired by guessing, except that a value from a list
is matched regardless of case.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from hocket.schemas.pipeline.node_parts import CatalogParam, CatalogQuery
from hocket.schemas.pipeline.policy import PlanRefused

MAX_TEXTS = 16
"""The most questions, and the most searches, in one plan."""
MAX_TEXT_CHARS = 10_000
"""A search may be as long as a query of a `retrieval` node."""

Values = Mapping[str, Mapping[str, Sequence[Any]]]
"""By query and parameter: the allowed values, if the catalog's author listed them."""


def described(catalog: Sequence[CatalogQuery], values: Values) -> list[dict[str, Any]]:
    """Return the catalog as a model gets it: without SQL, with the allowed values of parameters."""
    return [
        {
            "name": query.name,
            "description": query.description,
            "params": {
                name: _described_param(param, values.get(query.name, {}).get(name))
                for name, param in query.params.items()
            },
        }
        for query in catalog
    ]


def response_schema(catalog: Sequence[CatalogQuery], max_queries: int) -> dict[str, Any]:
    """Return the JSON Schema of a plan over this catalog."""
    texts = {
        "type": "array",
        "items": {"type": "string", "maxLength": MAX_TEXT_CHARS},
        "maxItems": MAX_TEXTS,
    }
    query = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "params": {"type": "object"}},
        "required": ["name"],
    }
    return {
        "type": "object",
        "properties": {
            "questions": texts,
            "searches": texts,
            "queries": {
                "type": "array",
                "items": query,
                "maxItems": max_queries if catalog else 0,
            },
        },
        "required": ["questions", "searches", "queries"],
    }


def checked_queries(
    chosen: Sequence[Mapping[str, Any]], catalog: Sequence[CatalogQuery], values: Values
) -> list[dict[str, Any]]:
    """Return the chosen queries as `{name, sql, params}`, without duplicates; raise PlanRefused if the
    catalog does not allow one of them."""
    known = {query.name: query for query in catalog}
    checked: list[dict[str, Any]] = []
    for index, choice in enumerate(chosen):
        field = f"queries.{index}"
        query = known.get(choice["name"])
        if query is None:
            raise PlanRefused(
                field=f"{field}.name",
                reason=f"the catalog has no query `{str(choice['name'])[:80]}`",
                cure=f"It has: {', '.join(known) or 'none'}.",
            )
        given = choice.get("params") or {}
        params = _checked_params(given, query, values.get(query.name, {}), f"{field}.params")
        one = {"name": query.name, "sql": query.sql, "params": params}
        if one not in checked:
            checked.append(one)
    return checked


def _described_param(param: CatalogParam, values: Sequence[Any] | None) -> dict[str, Any]:
    told: dict[str, Any] = {"type": param.type}
    if param.description:
        told["description"] = param.description
    if values is not None:
        told["values"] = list(values)
    if param.default is not None:
        told["default"] = param.default
    return told


def _checked_params(
    given: Mapping[str, Any],
    query: CatalogQuery,
    values: Mapping[str, Sequence[Any]],
    field: str,
) -> dict[str, Any]:
    for name in given:
        if name not in query.params:
            raise PlanRefused(
                field=f"{field}.{name}",
                reason=f"the query `{query.name}` has no such parameter",
                cure=f"It has: {', '.join(query.params) or 'none'}.",
            )
    return {
        name: _checked_param(given.get(name), param, values.get(name), f"{field}.{name}")
        for name, param in query.params.items()
    }


def _checked_param(
    value: Any, param: CatalogParam, values: Sequence[Any] | None, field: str
) -> Any:
    if value is None:
        if param.default is None:
            raise PlanRefused(
                field=field, reason="it has no value and no default", cure="Give it a value."
            )
        return param.default
    typed = _typed(value, param, field)
    if values is None:
        return typed
    for allowed in values:
        if _is_same(value, typed, allowed):
            return allowed
    raise PlanRefused(
        field=field,
        reason=f"`{str(value)[:80]}` is not one of its {len(values)} values",
        cure="Choose one of them.",
    )


def _is_same(value: Any, typed: Any, allowed: Any) -> bool:
    """Tell whether a value is an allowed one. Those of a database are exact: 1.50 is text there."""
    if typed == allowed or str(allowed).casefold() in (
        str(typed).casefold(),
        str(value).casefold(),
    ):
        return True
    if isinstance(typed, bool) or not isinstance(typed, int | float):
        return False
    try:
        return Decimal(str(value)) == Decimal(str(allowed))
    except InvalidOperation:
        return False


def _typed(value: Any, param: CatalogParam, field: str) -> Any:
    try:
        return _READERS[param.type](value)
    except (ValueError, TypeError, KeyError):
        raise PlanRefused(
            field=field,
            reason=f"`{str(value)[:80]}` is not of type {param.type}",
            cure="Give a value of this type.",
        ) from None


def _text(value: Any) -> str:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise TypeError


def _integer(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise TypeError
    return int(value)


def _number(value: Any) -> int | float:
    if isinstance(value, bool):
        raise TypeError
    number = value if isinstance(value, int | float) else float(value)
    if isinstance(number, float) and not math.isfinite(
        number
    ):  # `nan` would reach the query as a null
        raise ValueError
    return number


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}[str(value).strip().lower()]


def _date(value: Any) -> str:
    return date.fromisoformat(str(value).strip()).isoformat()


_READERS = {
    "text": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": _date,
}
