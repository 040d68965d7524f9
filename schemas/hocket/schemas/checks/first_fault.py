"""Pydantic's first complaint, as a field and a reason."""

from typing import NamedTuple

from pydantic import ValidationError


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
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return FirstFault(first["loc"], first["msg"])
