"""A form as its page shows it: what was typed, and what is wrong with it, at its field. Pure.

The fields have the names that they have in the bodies of the REST API, so that an error of the API finds
its place.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from hocket.admin.console.creation.posted import Typed
from hocket.admin.requests.errors import status_of
from hocket.admin.requests.etags import PreconditionFailed
from hocket.schemas.access.keys import AccessDenied
from hocket.schemas.checks.faults import Fault, faults_of, refusal, usual_fault
from hocket.schemas.errors import DocumentInvalid, HocketError, InvalidInput
from hocket.schemas.labels import read_labels
from hocket.schemas.rest import Request, Token

NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,9})?", re.ASCII)
WHOLE = re.compile(r"-?[0-9]{1,15}", re.ASCII)

Model = TypeVar("Model", bound=BaseModel)


class Named(Request):
    """The name in the path of a REST request."""

    name: Token


@dataclass(slots=True)
class Form:
    """A form with these fields, named to people by their labels. `notice` is what is wrong with none of
    them, `status` that of the answer."""

    labels: Mapping[str, str]
    typed: Typed
    faults: dict[str, str] = field(default_factory=dict)
    notice: str = ""
    status: int = 200

    def value(self, name: str) -> str:
        """Return the text of a field as it was typed."""
        return next(iter(self.typed.values.get(name, ())), "")

    def has(self, name: str, value: str) -> bool:
        """Tell whether a value of a field was chosen."""
        return value in self.typed.all(name)

    def fault(self, name: str) -> str:
        """Return what is wrong with a field; empty if nothing is."""
        return self.faults.get(name, "")

    @property
    def first(self) -> str:
        """The first field, in the order of the form, with which something is wrong."""
        return next((name for name in self.labels if name in self.faults), "")

    @property
    def wrong(self) -> Iterator[tuple[str, str, str]]:
        """Each field with which something is wrong: its name, its label and what it is."""
        return (
            (name, self.labels[name], self.faults[name])
            for name in self.labels
            if name in self.faults
        )

    def is_wrong(self, *names: str) -> bool:
        """Tell whether something is wrong with any of these fields."""
        return any(name in self.faults for name in names)

    @contextmanager
    def refusing(
        self, fields: Mapping[str, str], conflict: tuple[str, str] = ("", "")
    ) -> Iterator[None]:
        """Take an error of the API that ends the block, except one that denies access. `fields` maps the
        codes of errors to the fields that they are about; `conflict` is the field, and the text, of a
        precondition that failed."""
        try:
            yield
        except AccessDenied:
            raise
        except PreconditionFailed as error:
            self.status = status_of(error.info())
            name, text = conflict
            if name:
                self.faults[name] = text
            else:
                self.notice = text
        except HocketError as error:
            self._refuse(error, fields)

    def _refuse(self, error: HocketError, fields: Mapping[str, str]) -> None:
        self.status = status_of(error.info())
        if isinstance(error, DocumentInvalid) and "reason" in error.fields:
            for one in _faults_in(error):
                self._add(one)
            return
        place = str(error.fields.get("field", ""))
        name = fields.get(error.code) or self.field_of(place)
        if name:
            text = str(error).removeprefix(f"`{place}`: ")
            self.faults.setdefault(name, text[:1].upper() + text[1:])
        else:
            self.notice = str(error)

    def field_of(self, place: str) -> str:
        """Return the field of this form that a place in a REST body is in; empty if there is none."""
        while place and place not in self.labels:
            place = place.rpartition(".")[0]
        return place

    def _add(self, fault: Fault) -> None:
        name = self.field_of(fault.field)
        if not name:
            self.notice = f"`{fault.field}` is not valid: {fault.reason}. {fault.cure}"
            return
        inner = fault.field.removeprefix(name).removeprefix(".")
        text = f"{fault.reason}. {fault.cure}".strip()
        if inner.isdigit():
            text = f"Entry {int(inner) + 1}: {text}"
        elif inner:
            text = f"`{inner}`: {text}"
        else:
            text = text[:1].upper() + text[1:]
        self.faults.setdefault(name, text)


class Reading:
    """Reads the fields of a form as a REST body, and collects what is wrong."""

    def __init__(self, typed: Typed) -> None:
        self._typed = typed
        self.faults: list[Fault] = []

    def add(self, field: str, reason: str, cure: str) -> None:
        """Note that something is wrong with a field."""
        self.faults.append(Fault(field, reason, cure))

    def name(self) -> str:
        """Return the name of what is created; empty if something is wrong with it."""
        made = self.model(Named, {"name": self._typed.text("name")})
        return "" if made is None else made.name

    def number(self, name: str) -> float | None:
        """Return the number in a field, or None if there is none."""
        return self._number(name, NUMBER, "number", "Write it in digits, such as 30.")

    def whole(self, name: str) -> int | None:
        """Return the whole number in a field, or None if there is none."""
        found = self._number(name, WHOLE, "whole number", "Write it in digits, such as 3.")
        return None if found is None else int(found)

    def labels(self, name: str) -> dict[str, str]:
        """Return the labels in a field, written as `customer=acme,team=search`."""
        text = self._typed.text(name)
        try:
            return read_labels(text, name) if text else {}
        except InvalidInput as error:
            self.add(name, error.fields["reason"], error.fields["cure"])
            return {}

    def _number(self, name: str, form: re.Pattern[str], noun: str, cure: str) -> float | None:
        text = self._typed.text(name)
        if not text:
            return None
        if form.fullmatch(text) is None:
            self.add(name, f"it is not a {noun}", cure)
            return None
        return float(text)

    def model(self, kind: type[Model], body: Mapping[str, Any]) -> Model | None:
        """Return a body as the REST API reads it, or None if something is wrong with it."""
        try:
            return kind.model_validate(filled(body))
        except ValidationError as error:
            known = {one.field for one in self.faults}
            found = faults_of(error, field_of=_place, fault_of=_worded)
            self.faults += (one for one in found if one.field not in known)
            return None

    def check(self) -> None:
        """Raise InvalidInput with all that is wrong."""
        if self.faults:
            raise refusal(InvalidInput, self.faults)


def filled(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body without what was left empty, which REST then completes."""
    return {name: value for name, value in body.items() if value not in (None, "")}


def _place(place: Iterable[int | str]) -> str:
    return ".".join(str(part) for part in place if part != "[key]") or "(form)"


def _worded(complaint: Mapping[str, Any], field: str) -> Fault:
    if complaint["type"] == "missing":
        return Fault(field, "it is empty", "Fill it in.")
    if complaint["type"] == "value_error":
        return Fault(field, str(complaint["ctx"]["error"]), "")
    return usual_fault(complaint, field)


def _faults_in(error: DocumentInvalid) -> Iterator[Fault]:
    fields = error.fields
    yield Fault(fields["field"], fields["reason"], fields.get("cure", ""))
    for one in fields.get("others", ()):
        yield Fault(one["field"], one["reason"], one["cure"])
