"""How a gateway writes a usage record: the message UsageRecord, made and encoded for every model call.

The gateway has checked the values already; the ledger reads the record by its contract."""

from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Raw

from hocket.schemas.messages import Attribution, UsageRecord, encoded


class SeenCandidate(msgspec.Struct):
    """The fields of CandidateSeen, in its order."""

    backend: str
    score: tuple[float, ...]
    refused: str


class RecordedDecision(msgspec.Struct):
    """The fields of CallDecision, in its order."""

    model: str
    reason: str
    because: str
    queue_ms: float
    tried: tuple[str, ...]
    candidates: tuple[SeenCandidate, ...]
    left_out: int
    operation: str
    provider: str
    target: str


class RecordedUsage(msgspec.Struct):
    """The fields of UsageRecord, in its order."""

    call_id: str
    kind: str
    attribution: Attribution
    model: str
    backend: str
    replica: str
    status: str
    error_code: str | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    input_usd_per_mtok: Decimal
    output_usd_per_mtok: Decimal
    cached_usd_per_mtok: Decimal | None
    cache_write_usd_per_mtok: Decimal | None
    request_usd: Decimal
    cost_usd: Decimal
    estimated: bool
    unpriced: bool
    started_at_ms: float
    latency_ms: float
    experiment: str | None
    arm: str | None
    decision: RecordedDecision | None

    def contract(self) -> UsageRecord:
        """Return the message of the contract; raise pydantic's ValidationError if it is none."""
        return UsageRecord.model_validate_json(write(self))


def _written(value: Any) -> Raw:
    return Raw(encoded(value))


write = msgspec.json.Encoder(enc_hook=_written).encode
