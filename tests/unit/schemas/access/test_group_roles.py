"""What somebody with several roles may do, and where."""

import pytest

from hocket.schemas.access.group_roles import TenantRole, acting
from hocket.schemas.access.roles import ROLES

ADMIN, VIEWER = TenantRole("admin", None), TenantRole("viewer", "acme")


@pytest.mark.parametrize("named", [None, "acme", "rival"])
@pytest.mark.parametrize("roles", [[ADMIN], [ADMIN, VIEWER], [VIEWER, ADMIN]])
def test_a_role_in_a_tenant_takes_away_nothing_that_one_in_all_tenants_allows(
    roles: list[TenantRole], named: str | None
) -> None:
    found = acting(roles, named)
    assert (found.tenant, found.role, found.permissions) == (None, "admin", ROLES["admin"])


def test_a_role_in_a_tenant_that_allows_more_holds_in_that_tenant_only() -> None:
    roles = [TenantRole("viewer", None), TenantRole("admin", "acme")]
    there, elsewhere = acting(roles, "acme"), acting(roles, "rival")
    assert (there.tenant, there.permissions) == ("acme", ROLES["admin"] | ROLES["viewer"])
    assert (elsewhere.tenant, elsewhere.permissions) == (None, ROLES["viewer"])
