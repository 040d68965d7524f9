"""The permissions that each operation of the API needs: declared at its endpoint, checked when the app
is created.

The app does not start if an operation declares nothing, so that none is public by mistake.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hocket.schemas.access.roles import ROLES, Permission
from hocket.schemas.errors import ErrorClass, HocketError

ATTRIBUTE = "hocket_needs"
EXTENSION = "x-hocket-permissions"
"""The OpenAPI extension field that lists the permissions of an operation."""

ANY_QUERY = "hocket_any_query"

T = TypeVar("T", bound=Callable[..., Any])


class OperationUndeclared(HocketError):
    """The operation {operation} names no permission. Put `@needs(Permission...)` or `@public` above its
    endpoint."""

    code = "operation_undeclared"
    error_class = ErrorClass.PERMANENT


def needs(permission: Permission, *more: Permission) -> Callable[[T], T]:
    """Restrict an endpoint to callers with these permissions."""

    def declared(endpoint: T) -> T:
        setattr(endpoint, ATTRIBUTE, (permission, *more))
        return endpoint

    return declared


def public(endpoint: T) -> T:
    """Open an endpoint to everybody, without a key."""
    setattr(endpoint, ATTRIBUTE, ())
    return endpoint


def takes_any_query(endpoint: T) -> T:
    """Let an endpoint accept query parameters that it does not declare, because others decide which are
    sent."""
    setattr(endpoint, ANY_QUERY, True)
    return endpoint


def needed_by(endpoint: Callable[..., Any]) -> tuple[Permission, ...]:
    """Return the permissions that an endpoint needs, none if it is public; raise OperationUndeclared."""
    found: tuple[Permission, ...] | None = getattr(endpoint, ATTRIBUTE, None)
    if found is None:
        raise OperationUndeclared(operation=getattr(endpoint, "__qualname__", repr(endpoint)))
    return found


def roles_with(permissions: tuple[Permission, ...]) -> list[str]:
    """Return the roles that have all of these permissions."""
    table: Mapping[str, frozenset[Permission]] = ROLES
    return [role for role, allowed in table.items() if allowed.issuperset(permissions)]
