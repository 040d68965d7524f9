"""The door of the platform: what a test gives is written as the client writes it, and read as the API
reads it, so that a play takes the same values."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hocket.client.requests import ApiRequest
from hocket.schemas.checks.bounded import MAX_NAME_CHARS, Name
from hocket.schemas.checks.plain_json import parse_json, shown_text
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.document import MAX_VALUES

BODY = "(body)"
_NAME: TypeAdapter[str] = TypeAdapter(Name)


def value_taken(field: str, value: Any) -> Any:
    """Return the value of a field that holds JSON of the caller's own (`input`, `payload`) as the
    platform gets it. Raises InvalidInput for one that the platform refuses."""
    if isinstance(value, Mapping):
        value = dict(value)
    try:
        body = ApiRequest(method="POST", path="/", body={field: value}).content()
        return parse_json(body or b"", BODY)[field]
    except InvalidInput as error:
        place = error.fields["field"].removeprefix(f"{BODY}.")
        raise _refused(error, place if place.startswith(field) else field) from None


def name_taken(field: str, name: str) -> str:
    """Return a name of the caller's own. Raises InvalidInput for one that nobody can have."""
    try:
        return _NAME.validate_python(name)
    except ValidationError:
        raise InvalidInput(
            field=field,
            reason=f"it is {shown_text(repr(name))}",
            cure=f"Give at most {MAX_NAME_CHARS} characters, none of them a control character.",
        ) from None


def document_taken(document: Mapping[str, Any]) -> Any:
    """Return the JSON value of a pipeline as the platform gets it. Raises InvalidInput for one that the
    platform refuses."""
    field = "(document)"
    try:
        body = ApiRequest(method="PUT", path="/", body=dict(document)).content()
    except InvalidInput as error:
        raise _refused(error, field) from None
    return parse_json(body or b"", field, max_values=MAX_VALUES)


def _refused(error: InvalidInput, place: str) -> InvalidInput:
    return InvalidInput(**{**error.fields, "field": place})
