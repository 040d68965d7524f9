"""The caller of a request: the bearer of its key, and the tenant that it acts for.

The tenant is the key's. Only a key of all tenants may choose one, with `X-Hocket-Tenant`.
"""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Request
from starlette.types import Scope

from hocket.kit.access.audit_log import Actor
from hocket.schemas.access.keys import Principal, TenantForbidden
from hocket.schemas.access.roles import Permission
from hocket.schemas.rest import Token

DEFAULT_TENANT = "default"
TENANT_HEADER = "X-Hocket-Tenant"
BEARER = "hocket.bearer"
TENANT = "hocket.tenant"
"""The keys of bearer and tenant in a request's scope, set once the request's key has been checked."""


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a request acts, and who is recorded as the author of its changes."""

    tenant: str
    bearer: Principal
    address: str

    @property
    def name(self) -> str:
        """The author of changes."""
        return self.bearer.actor

    @property
    def actor(self) -> Actor:
        """The author of changes, in the form used by the audit."""
        person = f" {self.bearer.name}" if self.bearer.is_token and self.bearer.name else ""
        return Actor(f"{self.name}{person}", self.address)

    @property
    def sees_content(self) -> bool:
        """Whether inputs and outputs may be shown."""
        return self.bearer.may(Permission.CONTENT_READ)

    def check_all_tenants(self) -> None:
        """Raise TenantForbidden unless the request was sent with an all-tenants key."""
        if self.bearer.tenant is not None:
            raise TenantForbidden(key=self.bearer.key_id)


async def resolve_caller(
    request: Request,
    _tenant: Annotated[
        Token | None,
        Header(
            alias=TENANT_HEADER,
            description="Tenant of the request, for all-tenants keys; defaults to "
            f"`{DEFAULT_TENANT}`. For other keys, it is the key's tenant.",
        ),
    ] = None,
) -> Caller:
    """Return the caller of a request."""
    return caller_of(request.scope)


def caller_of(scope: Scope) -> Caller:
    """Return the caller of an admitted request."""
    client = scope.get("client") or ("", 0)
    return Caller(tenant_of(scope), scope[BEARER], client[0])


def author_of(tenant: str, author: str) -> Caller:
    """Return the author of a stored change as the caller of what it leads to, under the same name: of a
    key, or of a person."""
    is_token, key_id = not author.startswith("key:"), author.removeprefix("key:")
    return Caller(tenant, Principal(key_id, "", tenant, "", frozenset(), is_token=is_token), "")


def tenant_of(scope: Scope) -> str:
    """Return the tenant that a request acts for; empty if the request needs no key."""
    return str(scope.get(TENANT, ""))


CallerDep = Annotated[Caller, Depends(resolve_caller)]
