"""Who acts on the database, as the audit log names them."""

import getpass
import os

import pytest

from hocket.cli.remote.database import local_actor


def test_the_user_of_this_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    assert (local_actor().name, local_actor().address) == ("os:ada", "database")


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found"), OSError("no username")])
def test_a_user_without_a_name_is_a_number(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container with `docker run --user`, or on OpenShift."""

    def unknown() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", unknown)
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    assert local_actor().name == "os:uid-12345"
