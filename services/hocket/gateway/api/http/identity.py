"""Reads from a request's headers who the call is for, how long it may take, and what it requires.

A run is named by `X-Hocket-Run-Id`, or by headers that agent frameworks send anyway
(`x-litellm-trace-id`, `x-session-id`). The tenant is that of the key; holders of a key for all
tenants may name one. Call ids are scoped to the tenant and the key, so nobody can ask for the answer
of another tenant or key.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from itertools import islice
from typing import Any

from hocket.gateway.core.budgets.price import MAX_USD
from hocket.gateway.core.config.access import Key
from hocket.schemas.access.keys import TenantForbidden
from hocket.schemas.errors import InvalidInput
from hocket.schemas.ids import content_hash, given_call_id
from hocket.schemas.labels import (
    KEY_LABEL,
    MAX_LABELS,
    given_labels,
    header_pattern,
    is_label,
    reserved_among,
)
from hocket.schemas.messages import Attribution, Priority, Requirements
from hocket.schemas.subjects import TOKEN, check_token

RUN_HEADERS = ("X-Hocket-Run-Id", "x-litellm-trace-id", "x-session-id")
TENANT = "X-Hocket-Tenant"
CALL_ID = "X-Hocket-Call-Id"
TIMEOUT_MS = "X-Hocket-Timeout-Ms"
CLIENT_TIMEOUT_S = "X-Stainless-Read-Timeout"
"""The header in which OpenAI's clients send their own read timeout."""
BUDGET_USD = "X-Hocket-Budget-Usd"
PRIORITY = "X-Hocket-Priority"
MIN_QUALITY = "X-Hocket-Min-Quality"
RESIDENCY = "X-Hocket-Residency"
LABELS = "X-Hocket-Labels"
RUN_LABELS = "X-Hocket-Run-Labels"
HEADERS: Mapping[str, str] = {
    RUN_HEADERS[0]: "The run that the call belongs to; also x-litellm-trace-id and x-session-id.",
    "X-Hocket-Pipeline": "The pipeline of the run.",
    "X-Hocket-Version": "The version of the pipeline.",
    "X-Hocket-Node": "The node that makes the call.",
    "X-Hocket-Step": "The step.",
    "X-Hocket-Attempt": "The attempt of the step.",
    TENANT: "The tenant, for all-tenants keys.",
    CALL_ID: "ID of the call: repeating an ID joins the call in progress.",
    BUDGET_USD: "Total budget of the run, in US dollars.",
    TIMEOUT_MS: "Maximum duration of the call, in milliseconds.",
    PRIORITY: "interactive, standard or batch.",
    MIN_QUALITY: "Minimum quality of a backend, 0 to 1.",
    RESIDENCY: "Location in which the call's data must stay.",
    LABELS: "Labels that a backend must have: `precision=fp8, region=eu`.",
    RUN_LABELS: "What the run is charged to: `customer=acme,team=search`, values percent-encoded.",
}

_TEXT = r"^[!-~]([ -~]*[!-~])?$"
_COUNT = r"^[0-9]{1,9}$"
_LABEL = r"[A-Za-z0-9_.:/+-]+=[A-Za-z0-9_.:/+-]+"
_PATTERNS: Mapping[str, str] = {
    "X-Hocket-Version": _COUNT,
    "X-Hocket-Attempt": _COUNT,
    TENANT: f"^{TOKEN.pattern}$",
    BUDGET_USD: r"^[0-9]{1,9}(\.[0-9]{1,20})?$",
    TIMEOUT_MS: r"^[1-9][0-9]{0,7}(\.[0-9]{1,6})?$",
    PRIORITY: f"^({'|'.join(Priority)})$",
    MIN_QUALITY: r"^(0(\.[0-9]{1,9})?|1(\.0{1,9})?)$",
    LABELS: rf"^{_LABEL}(, ?{_LABEL})*$",
}
"""The syntax of headers other than names; digits of other scripts,
signs and `_` do not count as digits."""

DEFAULT_TIMEOUT_MS = 600_000.0
MAX_TIMEOUT_MS = 86_400_000.0
MAX_VALUE_CHARS = 256
MAX_METADATA = 64
"""The most pairs of OpenAI's `metadata` searched for labels; OpenAI allows 16."""
MAX_PRICE_CHARS = 40
HOLDER_HEX = 16
"""Digits of the hash that stands for a key of the configuration in the ids of its calls."""
DEFAULT_TENANT = "default"
_NO_BODY: Mapping[str, Any] = {}


def schema(header: str) -> dict[str, Any]:
    """Return the JSON Schema of a header."""
    if header == RUN_LABELS:
        return {"type": "string", "pattern": header_pattern(MAX_LABELS - 1)}
    if header in _PATTERNS:
        return {"type": "string", "pattern": _PATTERNS[header]}
    return {"type": "string", "minLength": 1, "maxLength": MAX_VALUE_CHARS, "pattern": _TEXT}


def attribution(
    headers: Mapping[str, str], key: Key | None, body: Mapping[str, Any] = _NO_BODY
) -> Attribution:
    """Return who a call is for; raise InvalidInput."""
    return Attribution(
        tenant=tenant_of(headers, key),
        pipeline=_text(headers, "X-Hocket-Pipeline"),
        version=_count(headers, "X-Hocket-Version"),
        run_id=_run_id(headers),
        node=_text(headers, "X-Hocket-Node"),
        step=_text(headers, "X-Hocket-Step"),
        attempt=_count(headers, "X-Hocket-Attempt"),
        labels=_run_labels(headers, body, key) or None,
    )


def call_id(headers: Mapping[str, str], tenant: str, key: Key | None, made: str) -> str:
    """Return the id of a call: the caller's, scoped to its tenant and to a key from the configuration,
    or the generated one. Calls with a platform key are told apart by its label. An id that ends
    like that of a call's request is changed, because it would be taken for one."""
    given = _text(headers, CALL_ID)
    if not given:
        return f"http:{made}"
    given = given_call_id(given)
    if key is not None and key.bearer is None:
        return f"http:{tenant}:{content_hash(key.name)[:HOLDER_HEX]}:{given}"
    return f"http:{tenant}:{given}"


def timeout_ms(headers: Mapping[str, str], *, stream: bool) -> float:
    """Return how long a call may take.

    A client's read timeout applies between two bytes, so for a stream it does not limit the whole.
    """
    given = _number(headers, TIMEOUT_MS, 1.0, MAX_TIMEOUT_MS)
    if given is not None:
        return given
    patience_s = None if stream else headers.get(CLIENT_TIMEOUT_S)
    try:
        patience_ms = float(patience_s or 0) * 1000
    except ValueError:
        return DEFAULT_TIMEOUT_MS
    return min(patience_ms, MAX_TIMEOUT_MS) if patience_ms > 0 else DEFAULT_TIMEOUT_MS


def priority(headers: Mapping[str, str]) -> Priority:
    """Return the priority class of a call."""
    given = headers.get(PRIORITY)
    if given is None:
        return Priority.STANDARD
    try:
        return Priority(given)
    except ValueError:
        raise _wrong(PRIORITY, "it is not a class", "Use interactive, standard or batch.") from None


def budget_usd(headers: Mapping[str, str]) -> Decimal | None:
    """Return what the run of a call may spend."""
    given = headers.get(BUDGET_USD)
    if given is None:
        return None
    budget = Decimal(given if _is(BUDGET_USD, given) else "nan")
    if not (budget.is_finite() and 0 <= budget <= MAX_USD) or len(given) > MAX_PRICE_CHARS:
        raise _wrong(BUDGET_USD, "it is not an amount", "Write US dollars, for example 0.25.")
    return budget


def requirements(headers: Mapping[str, str]) -> dict[str, Any] | None:
    """Return what a call requires of a backend; None if it requires nothing."""
    found = {
        "min_quality": _number(headers, MIN_QUALITY, 0.0, 1.0),
        "residency": _text(headers, RESIDENCY),
        "labels": _labels(headers),
    }
    asked = {name: value for name, value in found.items() if value}
    return asked or None


def required(headers: Mapping[str, str], otherwise: Requirements) -> Requirements:
    """Return the requirements of a call, or `otherwise` if it has none."""
    asked = requirements(headers)
    return otherwise if asked is None else Requirements.model_validate(asked)


def tenant_of(headers: Mapping[str, str], key: Key | None) -> str:
    """Return the tenant of a request; raise InvalidInput or TenantForbidden."""
    given = headers.get(TENANT)
    if key is None or key.tenant is None:
        return DEFAULT_TENANT if given is None else check_token(TENANT, given)
    if given is not None and given != key.tenant:
        raise TenantForbidden(key=key.name)
    return key.tenant


def holder(headers: Mapping[str, str], key: Key | None) -> str:
    """Return for whom the body of a request is held, before anything else of it is checked."""
    return (None if key is None else key.tenant) or headers.get(TENANT) or DEFAULT_TENANT


def _run_id(headers: Mapping[str, str]) -> str | None:
    """Return the run of a call; frameworks that have no session send their header empty."""
    ours, *others = RUN_HEADERS
    names = (ours, *(name for name in others if headers.get(name)))
    named = (_text(headers, name) for name in names)
    return next((found for found in named if found), None)


def _run_labels(
    headers: Mapping[str, str], body: Mapping[str, Any], key: Key | None
) -> dict[str, str]:
    """Return the labels of a call, up to the maximum number.

    They are those of the header, the id of the platform's key, the pairs of OpenAI's `metadata`
    that are valid labels, and its `user`, in this order.
    """
    given = headers.get(RUN_LABELS)
    found = {} if given is None else given_labels(given, RUN_LABELS)
    if key is not None and key.bearer is not None:
        if len(found) >= MAX_LABELS:
            reason = f"it has {len(found)} labels, and the key counts as one more"
            raise _wrong(RUN_LABELS, reason, f"Use at most {MAX_LABELS - 1}.")
        found[KEY_LABEL] = key.bearer.key_id
    metadata = body.get("metadata")
    offered = metadata if isinstance(metadata, dict) else {}
    for name, value in (*islice(offered.items(), MAX_METADATA), ("user", body.get("user"))):
        if len(found) < MAX_LABELS and is_label(name, value) and not reserved_among((name,)):
            found.setdefault(name, value)
    return found


def _labels(headers: Mapping[str, str]) -> dict[str, str]:
    given = _text(headers, LABELS)
    if given is None:
        return {}
    pairs = [part.partition("=") for part in given.split(",")]
    if not _is(LABELS, given):
        raise _wrong(LABELS, "it is not a list of names and values", "Write `precision=fp8`.")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _text(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name)
    if value is None:
        return None
    if not 0 < len(value) <= MAX_VALUE_CHARS or not value.isprintable():
        cure = f"Use 1 to {MAX_VALUE_CHARS} printable characters."
        raise _wrong(name, "it cannot be a name", cure)
    return value


def _count(headers: Mapping[str, str], name: str) -> int | None:
    value = headers.get(name)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) <= 9):
        raise _wrong(name, "it is not a whole number", "Use 0 to 999999999.")
    return int(value)


def _number(headers: Mapping[str, str], name: str, least: float, most: float) -> float | None:
    value = headers.get(name)
    if value is None:
        return None
    number = float(value if _is(name, value) else "nan")
    if not least <= number <= most:
        raise _wrong(name, "it is not a number in range", f"Use {least:g} to {most:g}.")
    return number


def _is(header: str, value: str) -> bool:
    return len(value) <= MAX_VALUE_CHARS and bool(re.fullmatch(_PATTERNS[header], value, re.ASCII))


def _wrong(header: str, reason: str, cure: str) -> InvalidInput:
    return InvalidInput(field=header, reason=reason, cure=cure)
