"""Identifiers, each derived from its cause, so that a redelivery produces the same one."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import lru_cache
from typing import Any

RUN_ID_HEX = 24
"""Hex digits of a run id: 96 bits, so that 10^12 runs collide with a probability of 10^-5."""
_RUN_ID = re.compile(rf"r[0-9a-f]{{{RUN_ID_HEX}}}")
_NUMBER = re.compile("([0-9]{1,18})")
_REQUEST_OF_CALL = re.compile(r"(:t[0-9]{1,2})?(:r[0-9]{1,3})?(:h)?(#[0-9a-f]{16})?$")
"""What follows a call's id in the ids of its requests: the turn of another gateway, a repeat, a hedge,
and the hash of a request whose id another one has."""
_INPUT_DIGEST_BYTES = 8
_no_input = hashlib.blake2b(digest_size=_INPUT_DIGEST_BYTES)


def run_id(tenant: str, key: str) -> str:
    """Return the run's id for a tenant and an idempotency key: the same pair is one run, forever."""
    return "r" + _digest(tenant, key)[:RUN_ID_HEX]


def is_run_id(text: str) -> bool:
    """Tell whether a text has the form of a run's id."""
    return _RUN_ID.fullmatch(text) is not None


def child_run_id(parent_run_id: str, step: str, attempt: int) -> str:
    """Return the id of the sub-run that one attempt of a `pipeline` step starts."""
    return "r" + _digest(parent_run_id, step, str(attempt))[:RUN_ID_HEX]


def by_number(step: str) -> tuple[str | int, ...]:
    """Return a key that sorts steps by the numbers in their names: `m[2]` comes before `m[10]`."""
    parts = _NUMBER.split(step)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts))


def attempt_id(run_id: str, step: str, attempt: int) -> str:
    """Return the id of an attempt."""
    return f"{run_id}:{step}:{attempt}"


def dispatch_id(attempt_id: str, dispatched_at_ms: float | None) -> str:
    """Return the `Nats-Msg-Id` of an attempt's dispatch. It includes the time, so that a dispatch
    decided again after a log lost its tail is not dropped as a repeat of the earlier one."""
    if dispatched_at_ms is None:
        return attempt_id
    return f"{attempt_id}:{round(dispatched_at_ms * 1_000)}"


def call_of(request_id: str) -> str:
    """Return the id of the call to which a request to a backend belongs, from the request's id."""
    return _REQUEST_OF_CALL.sub("", request_id)


def given_call_id(text: str) -> str:
    """Return an id that a caller chose, in a form that is no request's id: one that ends like such an id
    gets a `~`, and so does one that only `~` tells from it, so that different ids stay different."""
    plain = text.rstrip("~")
    return text if call_of(plain) == plain else text + "~"


def capable(msg_id: str, capability: str | None) -> str:
    """Return the `Nats-Msg-Id` of a message with a capability. Nobody else can predict it and post
    something under it that would make a stream drop the real message."""
    return msg_id if capability is None else f"{msg_id}:{capability}"


def result_id(attempt_id: str, dispatched_at_ms: float | None) -> str:
    """Return the `Nats-Msg-Id` of the result of an attempt that was dispatched at that time."""
    return dispatch_id(attempt_id, dispatched_at_ms) + ":f"


def taken(result_id: str) -> str:
    """Return the `Nats-Msg-Id` of a result that has `took`. A result without it is not a repeat of this
    one: it shows that a worker that does not know bundles had the message."""
    return result_id + ":took"


def accepted_id(run_id: str, dispatched_at_ms: float | None) -> str:
    """Return the `Nats-Msg-Id` of the start of a sub-run whose step was dispatched at that time."""
    return dispatch_id(f"{run_id}:accepted", dispatched_at_ms)


def call_id(attempt_id: str, delivery: int, ordinal: int) -> str:
    """Return the id of one model call: the `ordinal`-th of this delivery of the attempt.

    A step that is delivered twice may call twice; both calls cost money, so each has its own id.
    """
    return f"{attempt_id}:{delivery}:{ordinal}"


@lru_cache(maxsize=16_384)
def partition_of(run_id: str, partitions: int) -> int:
    """Return the partition that owns the run, uniform over `partitions`."""
    return int(_digest(run_id)[:8], 16) % partitions


def fraction(*parts: str) -> float:
    """Return a number in [0, 1) that depends only on `parts`: for deterministic jitter, sticky
    splits."""
    return int(_digest(*parts)[:13], 16) / 16**13


def trace_id(run_id: str) -> str:
    """Return the W3C trace id (32 hex digits) of a run that was submitted without a trace."""
    return _digest("trace", run_id)[:32]


def span_id(*parts: str) -> str:
    """Return the W3C span id (16 hex digits) for what `parts` name."""
    return _digest("span", *parts)[:16]


def content_hash(value: Any) -> str:
    """Return the SHA-256 of a JSON value in canonical form."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def canonical(value: Any) -> str:
    """Return a JSON value as text in canonical form (sorted keys, no spaces)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def input_digest(value: Any) -> str:
    """Return a short digest of an attempt's input, a JSON value. What Postgres does not preserve does
    not matter: the order of an object's keys, the exponents of large numbers, and the sign of zero."""
    text = "".join(_plain_json(value, 0))
    if "e+" in text or "-0.0" in text:
        text = "".join(_plain_json(_as_stored(value), 0))
    digest = _no_input.copy()
    digest.update(text.encode())
    return digest.hexdigest()


def _as_stored(value: Any) -> Any:
    """Return a JSON value with numbers as they are read back from Postgres, which writes out all digits
    of a number with an exponent."""
    if isinstance(value, float):
        text = repr(value)
        return int(Decimal(text)) if "e+" in text else value or 0.0
    if isinstance(value, dict):
        return {key: _as_stored(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_as_stored(part) for part in value]
    return value


def _plain_json_encoder() -> Callable[[Any, int], Iterable[str]]:
    """Return the function of the standard library that writes JSON with sorted keys, as text in parts.
    `JSONEncoder.encode` would make it anew for each value, which takes longer than to call it."""
    encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # this Python has no C accelerator
        return lambda value, _level: encoder.iterencode(value)
    text_of = json.encoder.encode_basestring_ascii
    separators = encoder.key_separator, encoder.item_separator
    made: Callable[[Any, int], Iterable[str]] = make(
        None, encoder.default, text_of, None, *separators, encoder.sort_keys, False, True
    )
    return made


_plain_json = _plain_json_encoder()


def _digest(*parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()
