"""Backends of models and their replicas: their state at each gateway, and orders of operators."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from hocket.schemas.checks.bounded import Name
from hocket.schemas.rest import STORABLE, Reply, Request

MAX_REASON_CHARS = 200
MAX_REPLICA_CHARS = 256
MAX_WARM_S = 7 * 86_400

Reason = Annotated[str, Field(max_length=MAX_REASON_CHARS, pattern=STORABLE)]
ReplicaKey = Annotated[
    Name,
    Field(
        max_length=MAX_REPLICA_CHARS,
        description="One replica, as `BACKEND/REPLICA`; defaults to all replicas of the backend.",
    ),
]


class ReplicaChange(Request):
    """Which replicas of a backend to change, and why. The reason is recorded in decisions and in the
    audit log."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "new driver"}]})

    replica: ReplicaKey | None = None
    reason: Reason = ""


class ReplicaWarmth(ReplicaChange):
    """How long to keep replicas ready."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"for_s": 3600}]})

    for_s: float = Field(
        ge=0,
        le=MAX_WARM_S,
        allow_inf_nan=False,
        strict=True,
        description="Seconds from now; 0 ends it.",
    )


class ReplicaAtGateway(Reply):
    """A replica as seen by one gateway."""

    gateway: str
    drained: bool
    breaker: Literal["closed", "half_open", "open"]
    openings: int
    """Number of times its breaker has opened since the gateway started."""
    in_flight: int
    waiting: int
    """Calls waiting for a slot in the replica's pool."""
    waiting_by_class: dict[str, int]
    """Waiting calls by class (`interactive`, `standard`, `batch`); classes without any are omitted."""
    rests_ms: float
    """For how many more milliseconds it receives no calls because it asked for a pause."""


class Replica(Reply):
    """A replica of a backend. `level` says how warm it is; null if gateways do not start and stop it.
    `by`, `reason` and `changed_at` describe the last order of an operator."""

    replica: str
    backend: str
    kind: str
    models: tuple[str, ...]
    drained: bool
    level: Literal["cold", "provisioned", "ready"] | None
    ready_at: datetime | None
    warm_until: datetime | None
    by: str
    reason: str
    changed_at: datetime | None
    in_flight: int
    """Calls in flight, from all gateways that answered."""
    limit: int
    gateways: tuple[ReplicaAtGateway, ...]


class ModelRate(Reply):
    """How much of a configured rate limit was used in the last minute, at all gateways that answered. A
    null tenant or model means all of them together."""

    tenant: str | None
    model: str | None
    requests_per_min: int | None
    tokens_per_min: int | None
    beyond: Literal["wait", "refuse"]
    requests: int
    tokens: int
    """Tokens; for calls in flight, the expected number."""
    waiting: int
    """Calls waiting for their turn."""


class ModelRateList(Reply):
    """The rate limits that calls have reached, most recently used last. `silent` as in BackendList."""

    rates: tuple[ModelRate, ...]
    gateways: tuple[str, ...]
    silent: tuple[str, ...]


class BackendList(Reply):
    """All replicas, as seen by all gateways. `silent` lists gateways that are alive according to
    others but did not answer in time: their view is missing."""

    replicas: tuple[Replica, ...]
    gateways: tuple[str, ...]
    silent: tuple[str, ...]
