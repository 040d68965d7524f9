"""Messages by which processes without a database ask the REST service about keys, and its answers."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from hocket.schemas.access.grants import Grants
from hocket.schemas.access.keys import Principal
from hocket.schemas.access.roles import permissions_of

MAX_USED = 2_000
"""The most keys whose last use one request reports."""

KeyId = Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
Sha256 = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
_FOREVER = float("inf")


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class KeysAsked(_Message):
    """Which keys changed after a change? With `whole` only those that are in force. `used` tells when
    keys were used, in seconds of Unix time."""

    after: int = Field(0, ge=0)
    whole: bool = False
    used: dict[KeyId, float] = Field(default_factory=dict, max_length=MAX_USED)
    grants_after: int | None = Field(None, ge=0)
    """With it, tenants' grants that changed after this change are asked for, too."""
    nonce: str = Field("", max_length=64)
    """Of this question alone, so that an old answer is none to it."""


class KeyRow(_Message):
    """A key as doors know it."""

    key_id: KeyId
    name: str
    tenant: str | None
    role: str
    scopes: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    pools: tuple[str, ...] | None = None
    requests_per_s: float | None = None
    expires_at_s: float | None = None
    revoked: bool = False
    secret_sha256: Sha256
    former_sha256: Sha256 = ""
    former_until_s: float = 0.0
    subject: str = Field("", max_length=64)
    groups: tuple[str, ...] = ()
    change: int

    def principal(self) -> Principal:
        """Return the bearer of this key."""
        return Principal(
            key_id=self.key_id,
            name=self.name,
            tenant=self.tenant,
            role=self.role,
            permissions=permissions_of(self.role, self.scopes),
            models=None if self.models is None else frozenset(self.models),
            pools=self.pools or (),
            requests_per_s=self.requests_per_s,
            expires_at_s=_FOREVER if self.expires_at_s is None else self.expires_at_s,
            secret_sha256=bytes.fromhex(self.secret_sha256),
            former_sha256=bytes.fromhex(self.former_sha256),
            former_until_s=self.former_until_s,
            subject=self.subject,
            groups=self.groups,
        )


class GrantsRow(_Message):
    """The grants of a tenant, as doors know them."""

    tenant: str
    grants: Grants
    change: int


class KeysTold(_Message):
    """Keys in the order of their changes; `more` follow after the last of them. `last` is the latest
    change that there was."""

    keys: tuple[KeyRow, ...]
    last: int
    more: bool = False
    grants: tuple[GrantsRow, ...] = ()
