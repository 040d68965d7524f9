"""What a key lets its bearer do, until when, and for which tenant."""

import pytest

from hocket.schemas.access.keys import UNKNOWN, Principal, TenantForbidden, hashed
from hocket.schemas.access.roles import Permission, permissions_of


def bearer(tenant: str | None = "acme", **fields: object) -> Principal:
    told = {"secret_sha256": hashed("new"), "former_sha256": hashed("old"), **fields}
    return Principal("k1", "n", tenant, "viewer", frozenset(), **told)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("secret", "at_s", "refused"),
    [
        ("new", 99.9, ""),
        ("new", 100.0, "it has expired"),
        ("old", 49.9, ""),
        ("old", 50.0, "it was replaced by a rotation and is no longer accepted"),
        ("old", 100.0, "it has expired"),
        ("other", 0.0, UNKNOWN),
        ("", 0.0, UNKNOWN),
    ],
)
def test_a_secret_is_accepted_until_it_ends_and_a_former_one_until_its_own_end(
    secret: str, at_s: float, refused: str
) -> None:
    assert bearer(expires_at_s=100.0, former_until_s=50.0).accepts(secret, at_s) == refused


def test_no_secret_is_accepted_for_the_row_of_a_person() -> None:
    assert bearer(subject="ada", former_until_s=50.0).accepts("new", 0.0) == UNKNOWN
    assert bearer(subject="ada", former_until_s=50.0).accepts("old", 0.0) == UNKNOWN


@pytest.mark.parametrize("expires_at_s", [40.0, 100.0])
def test_a_bearer_of_the_former_secret_ends_with_it_or_with_the_key(expires_at_s: float) -> None:
    key = bearer(expires_at_s=expires_at_s, former_until_s=50.0)
    former = key.by_former()
    assert former.expires_at_s == key.counts_until_s("old") == min(expires_at_s, 50.0)
    assert (former.secret_sha256, former.former_sha256) == (hashed("old"), b"")
    assert key.counts_until_s("new") == expires_at_s


def test_a_key_acts_for_its_own_tenant_only_and_one_of_all_for_any() -> None:
    assert [bearer().acts_for(named, "default") for named in (None, "acme")] == ["acme", "acme"]
    for named in ("other", "", "default"):
        with pytest.raises(TenantForbidden):
            bearer().acts_for(named, "default")
    of_all = bearer(None)
    assert [of_all.acts_for(named, "default") for named in (None, "other")] == ["default", "other"]


def test_scopes_narrow_a_role_and_never_widen_it() -> None:
    scopes = [Permission.RUNS_READ, Permission.KEYS_MANAGE]
    assert permissions_of("viewer", scopes) == {Permission.RUNS_READ}
    assert permissions_of("viewer", []) == permissions_of("unknown", None) == frozenset()
