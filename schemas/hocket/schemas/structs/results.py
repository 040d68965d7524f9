"""How a worker writes a result: the message AttemptFinished without the fields that have their default
value, assembled from parts that are JSON already.

This saves 118 of the 690 bytes of an ordinary result, which NATS receives, stores and delivers."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from hocket.schemas.messages import (
    HandlerPlace,
    Spend,
    Timing,
    encoded,
    encoded_without_defaults,
)

NULL = Raw(b"null")
NOTHING = Raw(b"[]")
NO_SPEND = Raw(encoded(Spend()))


class FinishedAttempt(msgspec.Struct, omit_defaults=True):
    """The fields of AttemptFinished, in its order."""

    run_id: str
    step: str
    attempt: int
    output: Raw = NULL
    error: Raw = NULL
    started_at_ms: float = 0.0
    finished_at_ms: float = 0.0
    queued_at_ms: float = 0.0
    delivery: int = 0
    worker: str = ""
    spend: Raw = NO_SPEND
    timing: Raw = NULL
    degraded: bool = False
    dispatched_at_ms: float | None = None
    input_digest: str = ""
    capability: str | None = None
    waits: Raw = NOTHING
    journaled: Raw = NOTHING
    took: int = 0


def spend_json(spend: Spend | None) -> Raw:
    """Return the JSON of a result's spend."""
    return NO_SPEND if spend is None else Raw(encoded_without_defaults(spend))


def timing_json(timing: Timing | None) -> Raw:
    """Return the JSON of a result's timing."""
    return NULL if timing is None else Raw(encoded_without_defaults(timing))


def places_json(places: Sequence[HandlerPlace]) -> Raw:
    """Return the JSON of places in a journal, or of the waits of a handler there."""
    if not places:
        return NOTHING
    return Raw(b"[" + b",".join(encoded_without_defaults(one) for one in places) + b"]")


write = msgspec.json.Encoder().encode
