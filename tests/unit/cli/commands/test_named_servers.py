"""The servers that a command uses are those that the environment names, under either of their names."""

import pytest
import typer.main

from hocket.cli.app import app

NAMES = ("HOCKET_NATS_URL", "NATS_URL", "HOCKET_DATABASE_URL", "DATABASE_URL")


def given_to_up(monkeypatch: pytest.MonkeyPatch, **named: str) -> tuple[str | None, str | None]:
    """Return the servers of `hocket up` in an environment: NATS and Postgres, None for its own."""
    for name in NAMES:
        monkeypatch.setenv(name, named.get(name, ""))
    whole = typer.main.get_command(app)
    root = whole.make_context("hocket", ["up"])
    up = whole.commands["up"].make_context("up", [], parent=root)  # type: ignore[attr-defined]
    return root.params["nats"], up.params["database"]


@pytest.mark.parametrize("prefix", ["HOCKET_", ""])
def test_each_server_has_two_names(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    """`hocket up` started servers of its own beside those that the page of settings let one name."""
    named = {f"{prefix}NATS_URL": "nats://a", f"{prefix}DATABASE_URL": "postgresql://b/c"}
    assert given_to_up(monkeypatch, **named) == ("nats://a", "postgresql://b/c")


def test_our_own_name_counts_before_the_common_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in every process, so that a command and a process in one environment use the same server."""
    named = {"HOCKET_NATS_URL": "nats://a", "NATS_URL": "nats://x"}
    named |= {"HOCKET_DATABASE_URL": "postgresql://b/c", "DATABASE_URL": "postgresql://x/x"}
    assert given_to_up(monkeypatch, **named) == ("nats://a", "postgresql://b/c")


def test_without_names_the_servers_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given_to_up(monkeypatch) == (None, None)
