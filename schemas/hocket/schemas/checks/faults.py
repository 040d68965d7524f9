"""The faults of a document that people write (a pipeline, the configuration, settings), each with its
field, reason and cure. One error reports all of them.

A reader that continues after a fault collects them in `Faults`; `faults_of` returns those of a pydantic
model.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from hocket.schemas.checks.first_fault import MAX_COMPLAINTS
from hocket.schemas.checks.text_forms import form_of
from hocket.schemas.errors import DocumentInvalid

MAX_SHOWN_CHARS = 80
MAX_ABOVE = 32
MAX_KEPT = 100
"""The most faults of a document that an error holds; the others are only counted."""
MAX_KEPT_CHARS = 1_000
"""The length to which each of several faults is cut."""
MAX_JUDGED = 1_000
MAX_JUDGED_CHARS = 500_000
"""After so many errors, or errors of so much text, a reader that may stop is stopped."""
MAX_LISTED = 50
"""The most names that a reason or a cure lists."""

E = TypeVar("E", bound=DocumentInvalid)
T = TypeVar("T")


class Fault(NamedTuple):
    """One fault: where it is, what is wrong, and what to do about it. `reason` has no full stop."""

    field: str
    reason: str
    cure: str


def refusal(kind: type[E], faults: Sequence[Fault], more: int = 0) -> E:
    """Return one error that reports all faults, with the first in its fields. `more` were found and not
    kept."""
    first, *others = faults[:MAX_KEPT]
    more += max(0, len(faults) - MAX_KEPT)
    return kind(**first._asdict(), others=[one._asdict() for one in others], more=more)


class EnoughFaults(Exception):
    """So much is wrong with a document that it is read no further; `Faults.check` tells what."""


class Faults:
    """Collects the errors of the parts of a document, so that the first does not hide the others.

    With `stops`, EnoughFaults ends the reading of a document that has too many. With `first_only`, the
    first error is raised at once."""

    def __init__(
        self, kind: type[DocumentInvalid], *, stops: bool = False, first_only: bool = False
    ) -> None:
        self._kind = kind
        self._stops = stops
        self._first_only = first_only
        self._kinds: set[type[DocumentInvalid]] = set()
        self._chars = 0
        self._errors = 0
        self._first: DocumentInvalid | None = None
        self._found: dict[Fault, None] = {}
        self._fields: set[str] = set()
        self._more = 0

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def is_full(self) -> bool:
        """Whether no further fault would be kept."""
        return len(self._found) >= MAX_KEPT

    @contextmanager
    def part(self) -> Iterator[None]:
        """Collect an error of this kind that ends the block."""
        try:
            yield
        except self._kind as error:
            self.add(error)

    def read(self, reader: Callable[[], T], instead: T) -> T:
        """Return what a reader returns; collect its error and return something instead."""
        with self.part():
            return reader()
        return instead

    def add(self, error: DocumentInvalid) -> None:
        """Collect an error, except for faults that are known already."""
        if self._first_only:
            raise error
        fields = error.fields
        first = _short(fields)
        if first not in self._found:
            self._errors += 1
            self._first = self._first or error
        self._kinds.add(type(error))
        self._fields.add(first.field)
        for fault in (first, *map(_short, fields.get("others", ()))):
            if len(self._found) < MAX_KEPT:
                self._found[fault] = None
            elif fault not in self._found:
                self._more += 1
        self._more += fields.get("more", 0)
        self._chars += sum(len(str(fields.get(name, ""))) for name in Fault._fields)
        too_many = self._errors >= MAX_JUDGED or self._chars >= MAX_JUDGED_CHARS
        if self._stops and too_many:
            raise EnoughFaults

    def concern(self, field: str) -> bool:
        """Return whether a fault of a field was collected."""
        return _cut(field) in self._fields

    def check(self, order: "Order | None" = None) -> None:
        """Raise the refusal if any fault was found; an only error is raised as it is. `order` sorts
        faults by field."""
        if self._errors == 1 and self._first is not None:
            raise self._first
        if self._found:
            found = list(self._found)
            if order is not None:
                found.sort(key=lambda fault: order(fault.field))
            only = self._kinds.pop() if len(self._kinds) == 1 else self._kind
            raise refusal(only, found, self._more)


Order = Callable[[str], Any]


def _short(fields: Mapping[str, Any]) -> Fault:
    return Fault(*(_cut(str(fields.get(name, ""))) for name in Fault._fields))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_KEPT_CHARS else f"{text[:MAX_KEPT_CHARS]} ..."


def listed(names: Collection[str]) -> str:
    """Return names as an error lists them, with the number of those beyond MAX_LISTED."""
    few = ", ".join(islice(names, MAX_LISTED))
    more = len(names) - MAX_LISTED
    return f"{few} and {more:,} more" if more > 0 else few


Place = Callable[[tuple[int | str, ...]], str]
Words = Callable[[Mapping[str, Any], str], Fault]


def faults_of(
    error: ValidationError, *, field_of: Place, fault_of: Words | None = None
) -> list[Fault]:
    """Return one fault for each field that pydantic complains about, in its order. `field_of` names a
    place; `fault_of` words a complaint (a row of `ValidationError.errors`) about a field."""
    count = error.error_count()
    if count > MAX_COMPLAINTS:
        cure = "Check that it is what you wanted to send, and fix the first ones."
        return [Fault(field_of(()) or "(document)", f"it has {count:,} faults", cure)]
    told = fault_of or usual_fault
    found: dict[str, Fault] = {}
    around: set[str] = set()
    for complaint in error.errors(include_url=False):
        fault = told(complaint, field_of(complaint["loc"]))
        field, above = fault.field, set(_above(fault.field))
        # pydantic complains for each form that a field may have, about it and what is in it
        if field not in found and field not in around and above.isdisjoint(found):
            found[field] = fault
            around |= above
    return list(found.values())


def _above(field: str) -> Iterator[str]:
    """Yield the fields that a field is inside of, but no more than MAX_ABOVE: a name may have any number
    of dots."""
    for _ in range(MAX_ABOVE):
        field, dot = field.rpartition(".")[:2]
        if not dot:
            return
        yield field


def usual_fault(complaint: Mapping[str, Any], field: str, *, quotes: bool = False) -> Fault:
    """Return a complaint in the terms of people who write YAML. `quotes` says that the value is not
    secret and may be quoted."""
    kind = complaint["type"]
    if kind == "extra_forbidden":
        return Fault(field, "there is no such field", "Remove it, or check its spelling.")
    if kind == "missing":
        return Fault(field, "it is missing", "Add it.")
    if kind == "misuse":
        return Fault(field, complaint["ctx"]["reason"], complaint["ctx"]["cure"])
    given = complaint["input"]
    it = shown(given) if quotes else "it"
    return Fault(field, *_told(kind, complaint.get("ctx", {}), given, it))


def _told(kind: str, context: Mapping[str, Any], given: Any, it: str) -> tuple[str, str]:
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        reason = "it is out of bounds" if it == "it" else f"it is {it}"
        return reason, f"Use {words.format(_number(context[key]))}."
    if kind in ("literal_error", "enum"):
        values = context["expected"].replace("'", "`")
        return f"{it} is not one of its values", f"Use {values}."
    if kind.removeprefix("string_") in ("too_short", "too_long"):
        length = context.get("actual_length")  # pydantic does not count a mapping that is too long
        counted = f"the number of entries is {len(given) if length is None else length}"
        if kind.startswith("string_"):
            counted = f"it has {len(given)} character{'' if len(given) == 1 else 's'}"
        if "min_length" in context:
            return counted, f"Use at least {context['min_length']}."
        return counted, f"Use at most {context['max_length']}."
    if kind == "string_pattern_mismatch":
        return form_of(context["pattern"])
    return _told_of_type(kind, given, it)


def _told_of_type(kind: str, given: Any, it: str) -> tuple[str, str]:
    if kind == "string_type":
        return f"it is {_kind(given)}, not text", "Put it in quotes."
    if kind in ("tuple_type", "list_type"):
        return f"it is {_kind(given)}, not a list", "Write a list: `[...]`."
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return f"it is {_kind(given)}, not a mapping", "Write `{field: value}`."
    if kind.startswith("bool"):
        return f"{it} is neither true nor false", "Write `true` or `false`."
    if kind.startswith("date_"):
        return "there is no such date", "Write one such as `2026-12-31`."
    if kind.startswith("datetime_"):
        return "there is no such time", "Write one such as `2026-12-31T23:59:59Z`."
    if kind.startswith(("int", "float", "decimal", "finite")):
        noun = "whole number" if kind.startswith("int") else "number"
        return f"{it} is not a {noun}", f"Use a {noun}."
    return kind.replace("_", " "), "Change its value."


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


def shown(value: Any) -> str:
    """Return a value of a document as an error quotes it."""
    if isinstance(value, bool) or value is None:
        return {True: "`true`", False: "`false`", None: "null"}[value]
    return str(value) if isinstance(value, int | float) else f"`{str(value)[:MAX_SHOWN_CHARS]}`"


def _number(value: Any) -> str:
    return str(int(value)) if value == int(value) else str(value)


_BOUNDS = {
    "greater_than": ("more than {}", "gt"),
    "greater_than_equal": ("{} or more", "ge"),
    "less_than": ("less than {}", "lt"),
    "less_than_equal": ("{} or less", "le"),
}
