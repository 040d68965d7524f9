"""The values of a journal: how they are written, and read again as annotations say."""

import inspect
import typing
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import from_json, to_json

from hocket.schemas.checks.first_fault import first_fault
from hocket.schemas.journals import JournalEntry
from hocket.workers.errors import OutputNotJson
from hocket.workers.runtime.journal.errors import JournalMismatch
from hocket.workers.runtime.results.encoding import plain
from hocket.workers.runtime.results.forms import (
    KEPT,
    READ_BACK,
    READ_BACK_FROM_TEXT,
    keeps_bytes,
)


def fitted(entry: JournalEntry, value: Any, adapter: TypeAdapter[Any] | None) -> Any:
    """Return a journaled value as its step's annotation has it; raise JournalMismatch if it does not
    fit."""
    if adapter is None:
        return value
    try:
        return _read_by_name(adapter, to_json(value))
    except ValidationError as error:
        fault = first_fault(error)
        raise JournalMismatch(
            asked=f"step {entry.name}, whose value is to fit ({fault.reason})",
            done=f"step {entry.name} with another one",
            ordinal=entry.ordinal,
            where="",
        ) from None


def read_back(name: str, given: Any, adapter: TypeAdapter[Any] | None) -> tuple[Any, Any, int]:
    """Return a step's value as JSON, and as later attempts will read it, and its size in bytes; raise
    OutputNotJson if it does not fit its annotation, or has bytes that are read as others."""
    if adapter is None:
        value = plain(given, "value", KEPT)
        data = to_json(value)
        return value, from_json(data), len(data)
    for form in (READ_BACK, READ_BACK_FROM_TEXT):
        value = plain(given, "value", form)
        data = to_json(value)
        try:
            result = _read_by_name(adapter, data)
        except ValidationError as error:
            fault = first_fault(error)
            place = ".".join(map(str, fault.place))
            where = f" at `{place}`" if place else ""
            reason = f"`{name}` returned what its annotation does not accept{where}: {fault.reason}"
            raise OutputNotJson(reason=reason) from error
        if keeps_bytes(given, result):
            return value, result, len(data)
    reason = f"`{name}` returned bytes that its annotation reads as other bytes"
    raise OutputNotJson(reason=reason)


def _read_by_name(adapter: TypeAdapter[Any], data: bytes) -> Any:
    """Return a journaled value, whose models have their fields' own names; raise ValidationError."""
    return whole(adapter.validate_json(data, by_alias=True, by_name=True))


def whole(value: Any) -> Any:
    """Return a value that was read, with a list in place of an iterator, as pydantic makes for
    `Iterable`; raise ValidationError if an item does not fit."""
    return [whole(one) for one in value] if isinstance(value, Iterator) else value


def _annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that has the annotations of what is called: the one in a `partial`, or the
    `__call__` of an object."""
    while isinstance(function, partial):
        function = function.func
    if "return" in getattr(function, "__annotations__", {}) or isinstance(function, type):
        return function
    called: Callable[..., Any] = getattr(type(function), "__call__", function)  # noqa: B004
    return function if inspect.isroutine(function) else called


def adapter_of(function: Callable[..., Any], returns: Any) -> TypeAdapter[Any] | None:
    """Return the validator of what a function returns: of `returns`, or if it is None, of the function's
    annotation. There is none for an annotation that pydantic cannot read."""
    if returns is not None:
        return _adapter_of(returns)
    try:
        return _adapter_of(_annotation(_annotated(function)))
    except (PydanticUserError, PydanticUndefinedAnnotation):
        return None


def _annotation(function: Callable[..., Any]) -> Any:
    """Return what a function's annotation says that it returns, once it is awaited; Any if it says
    nothing that can be read."""
    if not getattr(function, "__annotations__", {}).get("return"):
        return Any
    try:
        returns = typing.get_type_hints(function, include_extras=True).get("return", Any)
    except (NameError, TypeError):
        return Any
    if isinstance(origin := typing.get_origin(returns), type) and issubclass(origin, Awaitable):
        return typing.get_args(returns)[-1]
    return returns


def _adapter_of(returns: Any) -> TypeAdapter[Any] | None:
    if returns in (Any, object, None, type(None)):
        return None
    try:
        return _adapter(returns)
    except TypeError:  # not hashable, so it cannot be cached
        return TypeAdapter(returns)


@lru_cache(maxsize=512)
def _adapter(returns: Any) -> TypeAdapter[Any]:
    return TypeAdapter(returns)
