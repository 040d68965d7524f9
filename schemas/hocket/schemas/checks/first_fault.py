"""Pydantic's first complaint, as a field and a reason, without regular expressions."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from hocket.schemas.checks.text_forms import form_of

MAX_FAULTS = 100
"""How many complaints are examined."""
MAX_COMPLAINTS = 10_000
"""If there are more, none is asked for: pydantic makes all of them, each with a kilobyte."""


class FirstFault(NamedTuple):
    """A place in the input (keys and indexes from the outside in), and what is wrong there. The reason
    never quotes the input."""

    place: tuple[int | str, ...]
    reason: str

    def field(self, whole: str) -> str:
        """Return the place as a dotted path, or `whole` if the fault is not in a single field."""
        return ".".join(map(str, self.place)) or whole


def first_fault(error: ValidationError) -> FirstFault:
    """Return the first complaint of a validation."""
    if error.error_count() > MAX_COMPLAINTS:
        return _too_many(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return FirstFault(first["loc"], _reason(first))


def deepest_fault(error: ValidationError, given: Any) -> FirstFault:
    """Return the first complaint about a value that may have several forms: that of the form which the
    value comes closest to: its fault lies deepest, or it is at least of the right type. Its place names
    what was given, without the names of the forms."""
    if error.error_count() > MAX_COMPLAINTS:
        return _too_many(error)
    told = error.errors(include_url=False, include_input=False)[:MAX_FAULTS]
    found = [(FirstFault(_place(one, given), _reason(one)), _is_of_type(one)) for one in told]
    first = found[0][0].place[:1]
    near = [(one, fits) for one, fits in found if one.place[:1] == first]
    return max(near, key=lambda fault: (len(fault[0].place), fault[1]))[0]


def _is_of_type(told: Mapping[str, Any]) -> bool:
    """Return whether a complaint is about a value of the type that was expected."""
    return not told["type"].endswith("_type")


def _reason(told: Mapping[str, Any]) -> str:
    if told["type"] != "string_pattern_mismatch":
        return str(told["msg"])
    form = form_of(told["ctx"]["pattern"])
    return f"{form.reason}. {form.cure}".removesuffix(".")


def _too_many(error: ValidationError) -> FirstFault:
    return FirstFault((), f"it has {error.error_count():,} faults")


def _place(told: Mapping[str, Any], given: Any) -> tuple[int | str, ...]:
    """Return the keys and indexes of a complaint that lead to something given, or missing."""
    place: list[int | str] = []
    for part in told["loc"]:
        if _holds(given, part):
            given = given[part]
            place.append(part)
    missing = told["loc"][-1:] if told["type"] == "missing" else ()
    return (*place, *missing)


def _holds(given: Any, part: int | str) -> bool:
    if isinstance(given, Mapping):
        return part in given
    is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    return is_list and isinstance(part, int) and part < len(given)
