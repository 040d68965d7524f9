"""What REST takes and answers about keys, roles and the audit."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hocket.schemas.access.roles import Permission, Role
from hocket.schemas.moments import Moment
from hocket.schemas.rest import Reply

MAX_OVERLAP_S = 7_776_000
"""For how long the former secret of a rotated key may count at most: 90 days."""
MAX_MODELS = 1_000
MAX_KEY_POOLS = 32
"""Of a worker's key; its permissions on NATS are a dozen subjects for each."""
MAX_KEY_REQUESTS_PER_S = 1_000_000

KeyName = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[!-~]([ -~]*[!-~])?$")]
ModelName = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[!-~]([ -~]*[!-~])?$")]
PoolName = Annotated[
    str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]*$")
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KeyBody(_Body):
    """What a key is to be. `scopes` narrow it to some permissions of its role, `models` to some models.
    `all_tenants` makes a key of all tenants, which needs one. A worker's key is of all tenants and
    names its `pools`: node types, such as `crm.lookup`, each with `@` and a queue where it has one."""

    name: KeyName
    role: Role
    scopes: tuple[Permission, ...] | None = Field(None, max_length=len(Permission))
    models: tuple[ModelName, ...] | None = Field(None, max_length=MAX_MODELS)
    pools: tuple[PoolName, ...] | None = Field(None, max_length=MAX_KEY_POOLS)
    all_tenants: Annotated[bool, Field(strict=True)] = False
    requests_per_s: (
        Annotated[float, Field(ge=0.01, le=MAX_KEY_REQUESTS_PER_S, strict=True)] | None
    ) = None
    """At each process of REST and of the gateway."""
    expires_at: Moment | None = None


class RotateBody(_Body):
    """For how many seconds the former secret counts beside the new one."""

    overlap_s: Annotated[float, Field(ge=0, le=MAX_OVERLAP_S, strict=True)] = 86_400.0


class KeyDetail(Reply):
    """A key; a `tenant` of null is all. Its secret is not kept."""

    key_id: str
    name: str
    tenant: str | None
    role: str
    scopes: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    pools: tuple[str, ...] | None = None
    requests_per_s: float | None = None
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    rotated_at: datetime | None = None
    former_until: datetime | None = None
    """Until when the secret before the last rotation counts."""
    last_used_at: datetime | None = None
    """To within some seconds."""
    groups: tuple[str, ...] | None = None
    """Of a person who signed in to the console: what its session may do follows from these groups."""


class KeyMade(KeyDetail):
    """A key with its text, which is shown only now."""

    key: str


class KeyList(Reply):
    """`next` is the `after` of the next page; null on the last."""

    keys: tuple[KeyDetail, ...]
    next: str | None = None


class OwnKey(Reply):
    """The key that a request came with."""

    key_id: str
    name: str
    tenant: str | None
    role: str
    permissions: tuple[str, ...]


class RoleList(Reply):
    """The roles with their permissions."""

    roles: dict[str, tuple[str, ...]]


class AuditEntry(Reply):
    """A change: who made it, from where. `tenant` is null where it is of no tenant, and `_unattributed`
    for dead letters that do not say whose they are. `hash` covers the row and `previous`, the hash of
    the one before it."""

    seq: int
    at: str
    tenant: str | None
    actor: str
    address: str
    action: str
    target: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    previous: str
    hash: str


class AuditPage(Reply):
    """The earliest first; `next` is the `after` of the next page, null on the last."""

    entries: tuple[AuditEntry, ...]
    next: int | None = None


class AuditVerdict(Reply):
    """Whether every row follows the one before it. `head` is the hash of the last one."""

    status: Literal["whole", "broken"]
    rows: int
    head: str
    broken_at: int | None = None
    reason: str = ""
