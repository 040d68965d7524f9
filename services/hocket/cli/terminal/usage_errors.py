"""Words the refusal of an argument for people who type commands: typer passes on those of its validation
library."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

DATE_CURE = "Write one such as 2026-12-31 or 2026-12-31T23:59:59."


class Commands(TyperGroup):
    """The commands, with the options before them."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Read the options before the command."""
        with _reworded():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Read the arguments of the command, and run it."""
        with _reworded():
            return super().invoke(ctx)


@contextmanager
def _reworded() -> Iterator[None]:
    try:
        yield
    except typer.BadParameter as error:
        error.message = _words(error.__cause__) or error.message
        raise


def _words(cause: BaseException | None) -> str | None:
    """Return the words for what validation said about an argument, None if it has its own."""
    if cause is None:
        return None
    from pydantic import ValidationError

    from hocket.schemas.checks.faults import usual_fault

    if not isinstance(cause, ValidationError):
        return None
    complaint = cause.errors(include_url=False)[0]
    if complaint["type"] == "value_error":
        return complaint["msg"].removeprefix("Value error, ")
    fault = usual_fault(complaint, "", quotes=True)
    cure = DATE_CURE if complaint["type"].startswith(("date_", "datetime_")) else fault.cure
    return f"{fault.reason}. {cure}"
