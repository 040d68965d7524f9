"""Repairs records that cannot be stored as received, so that their cost is booked all the same.

A field that is invalid, or that Postgres refuses, is shortened, or dropped if it is not text; the
row lists such fields in `amended`, and the original record becomes a dead letter. A record is
booked only if its cost is readable, positive and plausible; any other record holds nothing that
could be booked.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Never

from pydantic import ValidationError
from pydantic_core import from_json

from hocket.schemas.checks.bounded import stored_text
from hocket.schemas.messages import Attribution, UsageRecord

MAX_KEPT_CHARS = 120
"""The length to which a text is cut; a hash of the whole follows, so that equal values stay equal."""
HASH_CHARS = 16
MAX_ROUNDS = 8
UNKNOWN = "unknown"
_MONEY = "cost_usd"
_TEXTS = ("call_id", "model", "backend", "replica", "error_code", "experiment", "arm")
_WHO = ("tenant", "pipeline", "run_id", "node", "step")
_REQUIRED: Mapping[str, Any] = {
    "call_id": UNKNOWN,
    "model": UNKNOWN,
    "backend": UNKNOWN,
    "status": "error",
    "latency_ms": 0.0,
}


def amended(payload: bytes, sent_ms: float) -> tuple[UsageRecord, tuple[str, ...]] | None:
    """Return what can be booked of an invalid record, and the fields changed; None if its cost is
    unknown.

    `sent_ms` replaces an unreadable start time.
    """
    found = _parsed(payload)
    if not isinstance(found, dict) or found.get("kind") in ("opened", "refused", "warm"):
        return None
    changed: dict[str, None] = {}
    for _ in range(MAX_ROUNDS):
        try:
            record = UsageRecord.model_validate(found)
        except ValidationError as error:
            places = [one["loc"] for one in error.errors(include_url=False, include_input=False)]
            if any(place[:1] == (_MONEY,) for place in places):
                return None
            for place in places:
                changed[_mended(found, tuple(map(str, place)), payload, sent_ms)] = None
            continue
        return (record, tuple(changed)) if record.cost_usd > 0 else None
    return None


def shortened(record: UsageRecord) -> tuple[UsageRecord, tuple[str, ...]]:
    """Return a record with every text shortened to plain characters, and the fields changed.

    For records that Postgres refuses although they are valid.
    """
    fields = {name: _cut(getattr(record, name)) for name in _TEXTS}
    who = {name: _cut(getattr(record.attribution, name)) for name in _WHO}
    changed = [
        *(name for name in _TEXTS if fields[name] != getattr(record, name)),
        *(f"attribution.{name}" for name in _WHO if who[name] != getattr(record.attribution, name)),
        *(["decision"] if record.decision is not None else []),
    ]
    attribution = record.attribution.model_copy(update=who)
    update = {**fields, "attribution": attribution, "decision": None}
    return record.model_copy(update=update), tuple(changed)


def _parsed(payload: bytes) -> Any:
    """Return the JSON of a record, None if it is not JSON. The second parser accepts halves of
    surrogate pairs, as which also bytes that are not UTF-8 are read."""
    try:
        return from_json(payload, allow_inf_nan=False)
    except ValueError:
        pass
    try:
        return json.loads(payload.decode(errors="surrogateescape"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def _mended(found: dict[str, Any], place: tuple[str, ...], payload: bytes, sent_ms: float) -> str:
    """Repair one field of a record in place, and return its name."""
    name = place[0] if place else ""
    if name == "attribution":
        who = found.get("attribution")
        if not isinstance(who, dict) or len(place) < 2:
            found["attribution"] = {"tenant": UNKNOWN}
            return name
        _mend(who, place[1], {"tenant": UNKNOWN}, Attribution.model_fields)
        return f"attribution.{place[1]}"
    required = {**_REQUIRED, "started_at_ms": sent_ms}
    if name == "call_id" and not isinstance(found.get(name), str):
        required["call_id"] = f"{UNKNOWN}#{_hash(payload)}"
    _mend(found, name, required, UsageRecord.model_fields)
    return name


def _mend(
    found: dict[str, Any], name: str, required: Mapping[str, Any], known: Iterable[str]
) -> None:
    value = found.get(name)
    if isinstance(value, str) and (cut := _cut(value)) != value and name in (*_TEXTS, *_WHO):
        found[name] = cut
    elif name in required:
        found[name] = required[name]
    elif name in known or name in found:
        found.pop(name, None)


def _cut(value: str | None) -> str | None:
    """Return a text that any column and index accepts: printable, and short."""
    if value is None:
        return None
    plain = str(stored_text(value[:MAX_KEPT_CHARS]))
    plain = "".join(one if one.isprintable() else "?" for one in plain)
    if plain == value:
        return value
    return f"{plain}#{_hash(value.encode('utf-8', 'surrogatepass'))}"


def _hash(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()[:HASH_CHARS]
