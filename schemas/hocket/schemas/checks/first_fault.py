"""What pydantic complains about first, as a field and a reason."""

from typing import NamedTuple

from pydantic import ValidationError


class FirstFault(NamedTuple):
    """A place in what was given (keys and indexes from the outside in), and what is wrong there. Nothing
    of what was given stands in the reason."""

    place: tuple[int | str, ...]
    reason: str

    def field(self, whole: str) -> str:
        """Return the place with dots; `whole` where the fault is in no single field."""
        return ".".join(map(str, self.place)) or whole


def first_fault(error: ValidationError) -> FirstFault:
    """Return the first complaint of a validation."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return FirstFault(first["loc"], first["msg"])
