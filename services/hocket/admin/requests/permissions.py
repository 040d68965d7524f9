"""What each operation of the API needs: said beside its endpoint, checked when the app is made.

An operation that says nothing does not start, so that none is open by mistake.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hocket.schemas.access.roles import ROLES, Permission
from hocket.schemas.errors import ErrorClass, HocketError

ATTRIBUTE = "hocket_needs"
EXTENSION = "x-hocket-permissions"
"""Where the OpenAPI document names the permissions of an operation."""

ANY_QUERY = "hocket_any_query"

T = TypeVar("T", bound=Callable[..., Any])


class OperationUndeclared(HocketError):
    """The operation {operation} names no permission. Put `@needs(Permission...)` or `@public` above its
    endpoint."""

    code = "operation_undeclared"
    error_class = ErrorClass.PERMANENT


def needs(permission: Permission, *more: Permission) -> Callable[[T], T]:
    """Let an endpoint be asked only by those who have these permissions."""

    def declared(endpoint: T) -> T:
        setattr(endpoint, ATTRIBUTE, (permission, *more))
        return endpoint

    return declared


def public(endpoint: T) -> T:
    """Let everybody ask an endpoint, without a key."""
    setattr(endpoint, ATTRIBUTE, ())
    return endpoint


def takes_any_query(endpoint: T) -> T:
    """Let an endpoint be asked with parameters that it does not name: others say which come."""
    setattr(endpoint, ANY_QUERY, True)
    return endpoint


def needed_by(endpoint: Callable[..., Any]) -> tuple[Permission, ...]:
    """Return the permissions that an endpoint needs, none where it is public; raise
    OperationUndeclared."""
    found: tuple[Permission, ...] | None = getattr(endpoint, ATTRIBUTE, None)
    if found is None:
        raise OperationUndeclared(operation=getattr(endpoint, "__qualname__", repr(endpoint)))
    return found


def roles_with(permissions: tuple[Permission, ...]) -> list[str]:
    """Return the roles that have all of some permissions."""
    table: Mapping[str, frozenset[Permission]] = ROLES
    return [role for role, allowed in table.items() if allowed.issuperset(permissions)]
