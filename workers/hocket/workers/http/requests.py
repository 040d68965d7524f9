"""Makes the request of an `http` node from its fields and its input. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlencode

from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import InvalidInput
from hocket.workers.http.services import HEADER_NAME, OURS, Service
from hocket.workers.nodes.prompts.templates import render_value

MAX_REQUEST_BYTES = 4 * 1024 * 1024
MAX_URL_BYTES = 16_000
MAX_VALUE_CHARS = 8_192
"""The limit on the value of a header or a parameter."""
_PARAM = re.compile(r":([A-Za-z_]\w*)")
_SEND_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """The request to send. `url` is already encoded."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None


def request_of(config: Mapping[str, Any], step_input: Any, service: Service) -> HttpRequest:
    """Return a step's request, or raise InvalidInput naming the field."""
    has_body = config.get("body") is not None
    method = config.get("method") or ("POST" if has_body else "GET")
    if method not in service.settings.methods:
        raise InvalidInput(
            field="method",
            reason=f"{method} is not one of those of `{service.name}`: "
            f"{', '.join(service.settings.methods)}",
            cure="Use one of these, or add it to `methods` of the service.",
        )
    url = service.settings.url + _path(config.get("path") or "/", config.get("params"), step_input)
    query = _query(config.get("query") or {}, step_input)
    url = f"{url}?{urlencode(query)}" if query else url
    headers = _headers(config.get("headers") or {}, step_input, service)
    body = None
    if has_body:
        body = _body(render_value(config["body"], step_input, "body"), headers)
    if len(url) > MAX_URL_BYTES:
        raise _too_long("query", len(url), MAX_URL_BYTES)
    return HttpRequest(method, url, {**headers, **service.headers}, body)


def _path(template: str, params: Mapping[str, Any] | None, step_input: Any) -> str:
    """Return the path with each `:name` filled in. A value is always one path segment, never `..`."""
    values = {
        name: _text(render_value(value, step_input, f"params.{name}"), f"params.{name}")
        for name, value in (params or {}).items()
    }

    def filled(found: "re.Match[str]") -> str:
        if found[1] not in values:
            raise InvalidInput(
                field="params",
                reason=f"`:{found[1]}` of the path has no value",
                cure=f"Set `params.{found[1]}`.",
            )
        if not values[found[1]]:
            raise InvalidInput(
                field=f"params.{found[1]}", reason="it is empty", cure="Set a value."
            )
        return quote(values[found[1]], safe="")

    path = _PARAM.sub(filled, template)
    # servers and proxies that decode first read `..%2F` as a parent folder, and some decode twice
    if any(part in (".", "..") for part in re.split(r"[/\\]", unquote(unquote(path)))):
        raise InvalidInput(
            field="path",
            reason="a part of it is `.` or `..`, once it is decoded",
            cure="Name what is below the service's URL.",
        )
    return path


def _query(templates: Mapping[str, Any], step_input: Any) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, template in templates.items():
        value = render_value(template, step_input, f"query.{name}")
        several = value if isinstance(value, list) else [value]
        pairs += [(name, _text(one, f"query.{name}")) for one in several if one is not None]
    return pairs


def _headers(templates: Mapping[str, Any], step_input: Any, service: Service) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, template in templates.items():
        field = f"headers.{shown_text(name)}"
        lower = name.lower()
        if not HEADER_NAME.fullmatch(name) or lower in OURS or lower in service.headers:
            raise InvalidInput(
                field=field,
                reason="a node cannot set it",
                cure="Leave it out: it is set by the service or the connection.",
            )
        value = _text(render_value(template, step_input, field), field)
        if not value.isascii() or not value.isprintable():
            raise InvalidInput(
                field=field,
                reason="it contains a character that headers may not have",
                cure="Use printable ASCII on one line.",
            )
        headers[lower] = value
    return headers


def _body(value: Any, headers: dict[str, str]) -> bytes:
    """Return the body: JSON, or an unchanged text if the node sets another content type."""
    kind = headers.setdefault("content-type", _SEND_JSON)
    if isinstance(value, str) and "json" not in kind:
        body = value.encode()
    else:
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    if len(body) > MAX_REQUEST_BYTES:
        raise _too_long("body", len(body), MAX_REQUEST_BYTES)
    return body


def _text(value: Any, field: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise InvalidInput(
            field=field,
            reason="it is not text, a number or a boolean",
            cure="Name one value of the input.",
        )
    if len(text := str(value)) > MAX_VALUE_CHARS:
        raise _too_long(field, len(text), MAX_VALUE_CHARS)
    return text


def _too_long(field: str, size: int, limit: int) -> InvalidInput:
    return InvalidInput(
        field=field, reason=f"it has {size} bytes; the limit is {limit}", cure="Send less."
    )
