"""REST bodies about keys, roles and the audit."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hocket.schemas.access.roles import Permission, Role
from hocket.schemas.moments import Moment
from hocket.schemas.rest import Reply

MAX_OVERLAP_S = 7_776_000
"""The longest that a rotated key's former secret may stay valid: 90 days."""
MAX_MODELS = 1_000
MAX_KEY_POOLS = 32
"""The most pools of a worker's key; each adds about a dozen subjects to its NATS permissions."""
MAX_KEY_REQUESTS_PER_S = 1_000_000

KeyName = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[!-~]([ -~]*[!-~])?$")]
ModelName = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[!-~]([ -~]*[!-~])?$")]
PoolName = Annotated[
    str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]*$")
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KeyBody(_Body):
    """The key to create. `scopes` limit it to some permissions of its role, `models` to some models.
    `all_tenants` makes it an all-tenants key, which requires one. A worker's key is an all-tenants
    key and names its `pools`: node types such as `crm.lookup`, each followed by `@` and a queue if it
    has one."""

    name: KeyName
    role: Role
    scopes: tuple[Permission, ...] | None = Field(None, max_length=len(Permission))
    models: tuple[ModelName, ...] | None = Field(None, max_length=MAX_MODELS)
    pools: tuple[PoolName, ...] | None = Field(None, max_length=MAX_KEY_POOLS)
    all_tenants: Annotated[bool, Field(strict=True)] = False
    requests_per_s: (
        Annotated[float, Field(ge=0.01, le=MAX_KEY_REQUESTS_PER_S, strict=True)] | None
    ) = None
    """Maximum requests per second, counted in each REST and gateway process."""
    expires_at: Moment | None = None


class RotateBody(_Body):
    """For how many seconds the former secret stays valid alongside the new one; 0 ends all former
    ones."""

    overlap_s: Annotated[float, Field(ge=0, le=MAX_OVERLAP_S, strict=True)] = 86_400.0


class KeyDetail(Reply):
    """A key; a `tenant` of null means all tenants. Its secret is not stored."""

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
    """Until when the secret before the last rotation is valid."""
    last_used_at: datetime | None = None
    """Accurate to within some seconds."""
    groups: tuple[str, ...] | None = None
    """For a person who signed in to the console: the groups that determine what the session may do."""


class KeyMade(KeyDetail):
    """A key with its text, which is shown only once."""

    key: str


class KeyList(Reply):
    """A page of keys; `next` is the `after` of the next page, null on the last."""

    keys: tuple[KeyDetail, ...]
    next: str | None = None


class OwnKey(Reply):
    """The key used for the request."""

    key_id: str
    name: str
    tenant: str | None
    role: str
    permissions: tuple[str, ...]


class RoleList(Reply):
    """The roles with their permissions."""

    roles: dict[str, tuple[str, ...]]


class AuditEntry(Reply):
    """A change: who made it, and from where. `tenant` is null if it belongs to no tenant, and
    `_unattributed` for dead letters that do not name one. `hash` covers the row and `previous`, the hash
    of the row before it."""

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
    """Entries, oldest first; `next` is the `after` of the next page, null on the last."""

    entries: tuple[AuditEntry, ...]
    next: int | None = None


class AuditVerdict(Reply):
    """Whether every row that was checked follows the one before it. `rows` is the number of the last
    intact row, and `head` its hash. If `limit` ended the check before the end of the log, `next` is the
    `from_row` of the next part, and `head` its `from_hash`."""

    status: Literal["whole", "broken"]
    rows: int
    head: str
    broken_at: int | None = None
    reason: str = ""
    next: int | None = None
