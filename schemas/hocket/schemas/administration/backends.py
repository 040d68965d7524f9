"""Backends of models and their replicas: how they are at each gateway, and what operators want."""

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
        description="One replica, `BACKEND/REPLICA` as the list has it. By default all of the backend.",
    ),
]


class ReplicaChange(Request):
    """Which replicas of a backend are meant, and why: the reason stands in decisions and the audit."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "new driver"}]})

    replica: ReplicaKey | None = None
    reason: Reason = ""


class ReplicaWarmth(ReplicaChange):
    """Until when replicas are to be ready."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"for_s": 3600}]})

    for_s: float = Field(
        ge=0, le=MAX_WARM_S, allow_inf_nan=False, description="Seconds from now on; 0 ends it."
    )


class ReplicaAtGateway(Reply):
    """What one gateway sees of a replica."""

    gateway: str
    drained: bool
    breaker: Literal["closed", "half_open", "open"]
    openings: int
    """Times that its breaker opened since the gateway began."""
    in_flight: int
    waiting: int
    """Calls that wait for a slot in the replica's pool."""
    waiting_by_class: dict[str, int]
    """The same by class (`interactive`, `standard`, `batch`), without classes of which none waits."""
    rests_ms: float
    """How much longer it gets no calls because it asked for that."""


class Replica(Reply):
    """A replica of a backend. `level` says how warm it is, null where gateways do not start and stop it.
    `by`, `reason` and `changed_at` are those of the last order of an operator."""

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
    """Calls at it, of all gateways that answered."""
    limit: int
    gateways: tuple[ReplicaAtGateway, ...]


class ModelRate(Reply):
    """How much of a rate of the configuration was used within the last minute, at all gateways that
    answered. Without a tenant, or model, it is of all of them together."""

    tenant: str | None
    model: str | None
    requests_per_min: int | None
    tokens_per_min: int | None
    beyond: Literal["wait", "refuse"]
    requests: int
    tokens: int
    """Those of calls under way as expected."""
    waiting: int
    """Calls that wait for their turn."""


class ModelRateList(Reply):
    """The rates that calls came upon, those used last at the end. `silent` as for backends."""

    rates: tuple[ModelRate, ...]
    gateways: tuple[str, ...]
    silent: tuple[str, ...]


class BackendList(Reply):
    """All replicas, as all gateways see them. `silent` are gateways that live, as others say, and did
    not answer in time: what they see is missing."""

    replicas: tuple[Replica, ...]
    gateways: tuple[str, ...]
    silent: tuple[str, ...]
