"""Who is calling. The one place where a request's identity is resolved; access control, when it
comes, changes `resolve_caller` and nothing else."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header
from starlette.types import Scope

from hocket.schemas.rest import Token

DEFAULT_TENANT = "default"
TENANT_HEADER = "X-Hocket-Tenant"
_RAW_HEADER = TENANT_HEADER.lower().encode()


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a request acts, and what stands as author of its changes."""

    tenant: str
    name: str


def resolve_caller(
    tenant: Annotated[
        Token, Header(alias=TENANT_HEADER, description="On whose behalf the request acts.")
    ] = DEFAULT_TENANT,
) -> Caller:
    """Return the caller of a request."""
    return Caller(tenant=tenant, name=f"api:{tenant}")


def tenant_of(scope: Scope) -> str:
    """Return the tenant that a request names; whether there can be such a one is checked later."""
    for name, value in scope["headers"]:
        if name == _RAW_HEADER:
            return str(value, "latin-1")
    return DEFAULT_TENANT


CallerDep = Annotated[Caller, Depends(resolve_caller)]
