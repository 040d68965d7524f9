"""Reads the forms that the console's own pages post.

A page of any site can post a form, so the type of the body stops nobody here. Browsers say which page
sent a form: `Origin`, which has been checked for every request (`hocket.kit.web_requests`), or
`Sec-Fetch-Site`. A form without either is refused.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request

from hocket.kit.web_requests import OriginRefused
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import ErrorClass, HocketError

FORM_TYPE = "application/x-www-form-urlencoded"
TAKES_FORM: dict[str, Any] = {"requestBody": {"content": {FORM_TYPE: {}}}}
"""The `openapi_extra` of a route that takes a form."""
MAX_FIELDS = 500
MAX_SHOWN_CHARS = 100


class FormFromElsewhere(OriginRefused):
    """The browser does not say that a page of this console sent the form, so it may be another site's.
    Open the page in the console, and send its form again."""


class FormMalformed(HocketError):
    """The form cannot be read: {reason}. Open its page again, and send it from there."""

    code = "form_malformed"
    error_class = ErrorClass.INVALID


@dataclass(frozen=True, slots=True)
class Typed:
    """What was typed into a form, by field; a field may have several values."""

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """Return the text of a field without surrounding space; empty if there is none."""
        return next(iter(self.values.get(name, ())), "").strip()

    def all(self, name: str) -> tuple[str, ...]:
        """Return all values of a field that are not empty."""
        return tuple(text for one in self.values.get(name, ()) if (text := one.strip()))


async def typed_in(request: Request, fields: Collection[str]) -> Typed:
    """Return what was typed into a form with these fields; raise FormFromElsewhere or FormMalformed."""
    is_ours = request.headers.get("sec-fetch-site") == "same-origin"
    if "origin" not in request.headers and not is_ours:
        raise FormFromElsewhere
    try:
        pairs = parse_qsl(
            (await request.body()).decode("ascii"),
            keep_blank_values=True,
            max_num_fields=MAX_FIELDS,
            errors="strict",
        )
    except UnicodeDecodeError:
        raise FormMalformed(reason="it is not UTF-8") from None
    except ValueError:
        raise FormMalformed(reason=f"it has more than {MAX_FIELDS:,} fields") from None
    values: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        if name not in fields:
            shown = shown_text(name, MAX_SHOWN_CHARS)
            raise FormMalformed(reason=f"it has no field `{shown}`")
        values[name] = (*values.get(name, ()), value)
    return Typed(values)
