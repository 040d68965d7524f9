"""The client's requests as data, and the meaning of answers: nothing here waits or sends."""

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode, urlsplit
from uuid import uuid4

import httpx2
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from hocket.client.errors import AnswerUnreadable, RequestRefused
from hocket.schemas.errors import ErrorInfo, InvalidInput
from hocket.schemas.rest import ErrorReply, RunSubmission, Sent

Document = str | bytes | BaseModel | Mapping[str, Any]
"""A pipeline: as YAML or JSON text, as a model, or as its JSON object."""
TIMEOUT_S = 30.0
TOO_MANY = 429
LOST = (502, 503, 504)
"""What a proxy answers when the answer to a request is lost, or a process that cannot serve it now."""
UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
"""Failures before anything of a request was sent."""
MAX_TRIES = 4
FIRST_PAUSE_S = 0.2
MAX_PAUSE_S = 20.0
FREE_FIELDS = frozenset({"input", "step_input", "payload"})
"""Fields with JSON of the caller's own, in which nothing is an amount."""
AMOUNT_LEVELS = 3
"""How deep in a body an amount may be: in `runs`, in one of them, its `budget_usd`."""
MAX_NESTED = 200
"""How deep arrays and objects may be nested for Pydantic to parse them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """One request. `headers`: a number is a revision, sent as its ETag. `may_repeat`: the request is
    idempotent, so it is sent again if its answer was lost. `wait_ms`: how much longer than usual its
    answer may take. `cancels`: the run that it cancels."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, int | str | None] = field(default_factory=dict)
    body: Any = None
    may_repeat: bool = False
    wait_ms: float = 0.0
    cancels: str | None = None

    @property
    def url(self) -> str:
        """The path with its query."""
        given = {name: as_text(value) for name, value in self.query.items() if _is_given(value)}
        return f"{self.path}?{urlencode(given)}" if given else self.path

    @property
    def timeout_s(self) -> float:
        """How long to wait for its answer."""
        return TIMEOUT_S + self.wait_ms / 1_000

    def sent_headers(self) -> dict[str, str]:
        """Return its headers: the given ones, and the type of its body."""
        headers = {
            name: f'"{value}"' if isinstance(value, int) else value
            for name, value in self.headers.items()
            if value is not None
        }
        if self.body is not None:
            is_text = isinstance(self.body, str | bytes)
            headers["Content-Type"] = "application/yaml" if is_text else "application/json"
        return headers

    def content(self) -> bytes | None:
        """Return its body: text as it is, anything else as JSON. Raises InvalidInput."""
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        try:
            if isinstance(self.body, str):
                return self.body.encode()
            is_pipeline = isinstance(self.body, BaseModel)
            return to_json(self.body if is_pipeline else _sent(self.body), by_alias=True)
        except (PydanticSerializationError, UnicodeEncodeError) as error:
            raise InvalidInput(
                field="body",
                reason=f"it cannot be written as JSON: {error}",
                cure="Give text, numbers, booleans, None, lists, dicts, or Pydantic models.",
            ) from None


def _is_given(value: Any) -> bool:
    """Tell whether a query has this parameter: not without a value, and not without any label."""
    return bool(value) if isinstance(value, Mapping) else value is not None


def _sent(value: Any, levels: int = AMOUNT_LEVELS) -> Any:
    """Return a body with its amounts as the API takes them: `100`, not `1E+2`."""
    if isinstance(value, Decimal):
        return as_text(value)
    if levels == 0:
        return value
    if isinstance(value, BaseModel):
        value = _fields(value)
    if isinstance(value, Mapping):
        return {
            name: one if name in FREE_FIELDS else _sent(one, levels - 1)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_sent(one, levels - 1) for one in value]
    return value


def _fields(value: Any) -> Any:
    """Return a model or a dataclass as its fields, with their names in the API; anything else as it is.
    The input of a RunSubmission is not copied."""
    if type(value) is RunSubmission:
        return {**value.model_dump(by_alias=True, exclude={"input"}), "input": value.input}
    return _reader(Any).dump_python(value, by_alias=True)


def checked_url(url: str, *, has_key: bool) -> str:
    """Return the URL of an API, without a slash at its end. Raises InvalidInput. A user name and a
    password in it are sent, as a proxy may want them, but only without a key."""
    text = url.strip().rstrip("/")
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and _is_host(text) and parts.port != 0
    except ValueError:  # the port is not a number, or brackets do not match
        is_url = False
    cure = "Write https://HOST or https://HOST/PATH."
    if not is_url or not text.isprintable() or any(mark in text for mark in " ?#\\"):
        raise InvalidInput(field="url", reason="it is not the URL of a platform", cure=cure)
    if has_key and parts.username is not None:
        reason = "it has a user name or a password, which would be sent in place of the key"
        raise InvalidInput(field="url", reason=reason, cure=f"{cure} Give the key as `key`.")
    return text


def _is_host(url: str) -> bool:
    """Tell whether a URL has a host that can be looked up."""
    try:
        host = httpx2.URL(url).raw_host
        return bool(host and host.decode("ascii").encode("idna"))  # as the resolver does it
    except (httpx2.InvalidURL, UnicodeError):
        return False


def identity_headers(key: str | None, tenant: str | None) -> dict[str, str]:
    """Return the headers that every request has. Raises InvalidInput, which does not show the key."""
    headers = {"Accept": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {_sendable('key', key)}"
    if tenant:
        headers["X-Hocket-Tenant"] = _sendable("tenant", tenant)
    return headers


def _sendable(field: str, text: str) -> str:
    text = text.strip()  # a file that holds it ends with a line break
    if text.isascii() and text.isprintable():
        return text
    raise InvalidInput(
        field=field,
        reason="it has a line break, or another character that a header cannot carry",
        cure="Give it on one line, in printable ASCII characters.",
    )


def path_of(*parts: object) -> str:
    """Return the path below /v1 made of these parts, each quoted. Raises InvalidInput for a part that
    would lead elsewhere."""
    return "/v1/" + "/".join(_quoted(as_text(part)) for part in parts)


def _quoted(part: str) -> str:
    if part not in ("", ".", ".."):
        return quote(part, safe="", errors="replace")
    raise InvalidInput(
        field="path", reason=f"`{part}` is no id and no name", cure="Give the one that is meant."
    )


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a body that are given."""
    return {name: value for name, value in fields.items() if value is not None}


def new_key() -> str:
    """Return an idempotency key that no other task has."""
    return uuid4().hex


def with_keys(tasks: Iterable[RunSubmission | Mapping[str, Any]]) -> list[Any]:
    """Return tasks to submit, with a new idempotency key in each that has none. The caller's own are
    unchanged."""
    return [_with_key(task) for task in tasks]


def _with_key(task: Any) -> Any:
    fields = task if isinstance(task, Mapping) else _fields(task)
    if isinstance(fields, Mapping) and fields.get("idempotency_key") is None:
        return {**fields, "idempotency_key": new_key()}
    return fields


def as_text(value: Any) -> str:
    """Format a value for paths and queries."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):  # labels
        return ",".join(f"{name}={quote(str(text), safe='')}" for name, text in value.items())
    return str(value)


@cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read_answer(kind: Any, url: str, status: int, body: bytes, *, in_thread: bool = False) -> Any:
    """Parse a 2xx answer as a `kind`; raise RequestRefused with the API's error for other statuses, and
    AnswerUnreadable for an answer that is not Hocket's. `in_thread`: let other threads run meanwhile."""
    try:
        if not 200 <= status < 300:
            raise RequestRefused(status, ErrorReply.model_validate_json(body).error)
        if kind is None:
            return None
        value = _with_turns(body) if in_thread else None
        reader = _reader(kind)
        return reader.validate_json(body) if value is None else reader.validate_python(value)
    except ValidationError as error:
        reason = str(error.errors(include_url=False)[0]["msg"])
        raise AnswerUnreadable(url=url, status=status, reason=reason) from error


def _with_turns(body: bytes) -> Any:
    """Parse JSON while other threads get their turns; None if that is not possible, or if Pydantic may
    refuse what `json` takes: half a character, JSON nested too deep.

    Pydantic lets no other thread run until it has parsed everything, and so does `json`, except where it
    calls a function in Python."""
    if b"\\ud" in body or b"\\uD" in body:
        return None
    try:
        text = body.decode()
        value = json.loads(text, object_hook=_unchanged, parse_float=_as_float, parse_int=_as_int)
    except (ValueError, RecursionError):
        return None  # Pydantic will find what is wrong
    may_be_deep = body.count(b"[") + body.count(b"{") > MAX_NESTED
    return None if may_be_deep and _is_deep(value) else value


def _is_deep(value: Any) -> bool:
    """Tell whether arrays and objects are nested deeper than Pydantic parses them."""
    level = [value]
    for _ in range(MAX_NESTED):
        level = [one for outer in level for one in _values(outer) if isinstance(one, list | dict)]
        if not level:
            return False
    return True


def _values(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _unchanged(value: Any) -> Any:
    return value


def _as_float(text: str) -> float:
    return float(text)


def _as_int(text: str) -> int:
    return int(text)


def pause_s(
    request: ApiRequest, tries: int, status: int | None, retry_after: str | None = None
) -> float | None:
    """Return how long to wait before sending a request again, or None not to. `status` is that of its
    answer, None if there was none. A request answered with 429 had no effect, so any may be repeated;
    after a lost answer (or a proxy's 502, 503 or 504), only those that `may_repeat`."""
    if tries >= MAX_TRIES:
        return None
    is_lost = status in (None, *LOST)
    if status != TOO_MANY and not (is_lost and request.may_repeat):
        return None
    if retry_after is not None and retry_after.isascii() and retry_after.isdecimal():
        return min(float(retry_after), MAX_PAUSE_S) + random.uniform(0, FIRST_PAUSE_S)
    longest_s: float = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2 ** (tries - 1))
    return random.uniform(0.5, 1.0) * longest_s


def may_have_worked(status: int | None, failure: Exception | None) -> bool:
    """Tell whether a request may have had its effect although its answer was lost."""
    return status in LOST if failure is None else not isinstance(failure, UNSENT)


def cancelled_before(request: ApiRequest, was_lost: bool, error: ErrorInfo) -> Sent | None:
    """Return the answer to a repeated request that found its run cancelled, None to any other. An
    earlier try whose answer `was_lost` may have cancelled it; the place in the log was lost, too."""
    is_cancelled = error.code == "run_not_open" and error.details.get("status") == "cancelled"
    if request.cancels is None or not was_lost or not is_cancelled:
        return None
    return Sent(run_id=request.cancels, log_seq=0)
