"""Bulk operations and schedules act under the name of whoever asked for them."""

import pytest

from hocket.admin.bulk import operations
from hocket.admin.schedules import firing


@pytest.mark.parametrize("author", ["key:3f2a9c51b07e", "oidc-01234567890123456789"])
def test_runs_are_changed_under_the_name_of_whoever_asked(author: str) -> None:
    for caller in (
        operations.caller_of({"tenant": "acme", "created_by": author}),
        firing.caller_of({"tenant": "acme", "changed_by": author}),
    ):
        assert (caller.tenant, caller.name, caller.actor.name) == ("acme", author, author)
