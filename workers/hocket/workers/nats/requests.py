"""Makes the request of a `nats` node from its fields and its input. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import InvalidInput
from hocket.workers.http.requests import MAX_VALUE_CHARS
from hocket.workers.http.services import HEADER_NAME
from hocket.workers.nats.services import NatsService
from hocket.workers.nodes.prompts.templates import render_value

MAX_REQUEST_BYTES = 512 * 1024
"""The limit on a body. By default, servers accept 1 MiB of body and headers."""
OURS = frozenset({"idempotency-key", "traceparent", "status", "description"})
"""Headers that only the worker may set, as are all that begin with `nats-`."""
TEXT = re.compile(r"text/|.*\b(xml|csv|yaml)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NatsRequest:
    """The request to send."""

    subject: str
    headers: Mapping[str, str]
    body: bytes


def request_of(config: Mapping[str, Any], step_input: Any, service: NatsService) -> NatsRequest:
    """Return a step's request, or raise InvalidInput naming the field."""
    endpoint = config.get("endpoint")
    subject = service.subject_of(endpoint)
    if subject is None:
        known = ", ".join(service.settings.endpoints[:20]) or "none"
        raise InvalidInput(
            field="endpoint",
            reason=f"`{shown_text(endpoint)}` is not one of those of `{service.name}`: {known}"
            if endpoint
            else f"`{service.name}` has several: {known}",
            cure="Name one of these, or add it to `endpoints` of the service."
            if service.settings.endpoints
            else "Leave it out, or add it to `endpoints` of the service.",
        )
    headers = _headers(config.get("headers") or {}, step_input)
    body = b""
    if config.get("body") is not None:
        value = render_value(config["body"], step_input, "body")
        if isinstance(value, str) and TEXT.match(headers.get("content-type", "")):
            body = value.encode()
        else:
            body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    if len(body) > MAX_REQUEST_BYTES:
        raise InvalidInput(
            field="body",
            reason=f"it has {len(body)} bytes; the limit is {MAX_REQUEST_BYTES}",
            cure="Send less.",
        )
    return NatsRequest(subject, headers, body)


def _headers(templates: Mapping[str, Any], step_input: Any) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, template in templates.items():
        field = f"headers.{shown_text(name)}"
        lower = name.lower()
        if not HEADER_NAME.fullmatch(name) or lower in OURS or lower.startswith("nats-"):
            raise InvalidInput(
                field=field,
                reason="a node cannot set it",
                cure="Leave it out: it is set by the platform.",
            )
        value = render_value(template, step_input, field)
        text = str(value) if isinstance(value, str | int | float) else ""
        if not text.isascii() or not text.isprintable() or len(text) > MAX_VALUE_CHARS or not text:
            raise InvalidInput(
                field=field,
                reason="it is not one line of printable ASCII",
                cure=f"Name one value of the input, of at most {MAX_VALUE_CHARS} characters.",
            )
        headers[lower] = text.strip()
    return headers
