"""Maps the groups of an identity provider to roles in tenants. Everything not granted is denied.

Each group has one role in one tenant, or in all (`developer@acme`, `admin@*`). A member of several
groups has the combined permissions of their roles, separately in each tenant. A role in all tenants
applies in each of them; but somebody who acts by a role in one tenant that allows more never acts for
all, so that no permission in one tenant extends to another.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hocket.schemas.access.keys import AccessDenied, TenantForbidden
from hocket.schemas.access.roles import ROLES, Permission
from hocket.schemas.subjects import TOKEN

SIGNING_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
"""Algorithms that an identity provider may sign with. All are asymmetric, so that a public key can never
be used as a secret."""
ALL_TENANTS = "*"
MAX_GROUPS = 1_000
"""The most groups of one token that are read."""
MAX_MAPPED_GROUPS = 10_000
"""The most groups that the settings may map."""
MAX_GROUP_CHARS = 256
GRANTED = frozenset(ROLES) - {"worker"}
"""Roles that a group may have. `worker` is not one of them, because only keys name the pools of a
worker."""
_FORM = re.compile(rf"([a-z]{{1,20}})@(\*|{TOKEN.pattern})", re.ASCII)


class NoRole(AccessDenied):
    """None of your groups has a role on this platform. {cure}"""

    code = "no_role"
    cure = "Ask an admin: HOCKET_OIDC_ROLES lists the groups that have access."


class TenantNotNamed(AccessDenied):
    """You may act for several tenants: {tenants}. {cure}"""

    code = "tenant_not_named"
    cure = "Name one of them in `X-Hocket-Tenant`."


@dataclass(frozen=True, slots=True)
class TenantRole:
    """A role in a tenant; a `tenant` of None means all tenants."""

    role: str
    tenant: str | None


@dataclass(frozen=True, slots=True)
class ActingRole:
    """What somebody may do in a tenant, or in all if `tenant` is None. `role` is the smallest role that
    includes all of it; `is_narrowed` if that role allows more."""

    tenant: str | None
    role: str
    permissions: frozenset[Permission]

    @property
    def is_narrowed(self) -> bool:
        """Whether the role alone would allow more."""
        return ROLES[self.role] != self.permissions


def parse_group_roles(given: Mapping[str, str]) -> dict[str, TenantRole]:
    """Return the roles of groups; raise ValueError, naming the faulty entry and the correct form."""
    if len(given) > MAX_MAPPED_GROUPS:
        raise ValueError(f"it names more than {MAX_MAPPED_GROUPS} groups")
    return {
        group: _role(place, group, text) for place, (group, text) in enumerate(given.items(), 1)
    }


def _role(place: int, group: str, text: str) -> TenantRole:
    found = _FORM.fullmatch(text)
    if not 0 < len(group) <= MAX_GROUP_CHARS:
        raise ValueError(f"the name of group {place} must have 1 to {MAX_GROUP_CHARS} characters")
    if found is None or found[1] not in GRANTED:
        roles = ", ".join(role for role in ROLES if role in GRANTED)
        raise ValueError(f"entry {place} must be ROLE@TENANT, or ROLE@* for all; roles: {roles}")
    return TenantRole(found[1], None if found[2] == ALL_TENANTS else found[2])


def roles_of(groups: Iterable[str], table: Mapping[str, TenantRole]) -> tuple[TenantRole, ...]:
    """Return the roles of a member of groups, without duplicates; raise NoRole if there are none."""
    found = tuple(dict.fromkeys(table[group] for group in groups if group in table))
    if not found:
        raise NoRole
    return found


def acting(roles: Iterable[TenantRole], named: str | None) -> ActingRole:
    """Return the role in which somebody with these roles acts in a request that names a tenant, or none.

    Raises TenantForbidden or TenantNotNamed."""
    of_all: set[Permission] = set()
    by_tenant: dict[str, set[Permission]] = {}
    for one in roles:
        permissions = of_all if one.tenant is None else by_tenant.setdefault(one.tenant, set())
        permissions |= ROLES[one.role]
    if named in by_tenant and not by_tenant[named] <= of_all:
        return _acting(named, by_tenant[named] | of_all)
    if of_all:
        return _acting(None, of_all)
    if named is not None:
        raise TenantForbidden(key="of this sign-in")
    if len(by_tenant) > 1:
        raise TenantNotNamed(tenants=", ".join(sorted(by_tenant)))
    tenant, permissions = next(iter(by_tenant.items()))
    return _acting(tenant, permissions)


def _acting(tenant: str | None, permissions: Iterable[Permission]) -> ActingRole:
    wanted = frozenset(permissions)
    fitting = (role for role in GRANTED if ROLES[role] >= wanted)
    return ActingRole(tenant, min(fitting, key=lambda role: (len(ROLES[role]), role)), wanted)
