"""The URL that `hocket report-login create` prints, what `list` shows, and how `revoke` ends."""

from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from hocket.cli.commands.reports import report_login
from hocket.cli.commands.reports.report_login import _state_of, _url_of, _whose
from hocket.cli.terminal import exit_codes
from hocket.kit.postgres.report_logins import ReportLogin, Revoked


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://hocket:secret@db:5433/hocket", "postgresql://bi:p%40ss@db:5433/hocket"),
        (
            "postgresql://db/hocket?sslmode=verify-full&password=secret&sslrootcert=%2Fca.pem",
            "postgresql://bi:p%40ss@db/hocket?sslmode=verify-full&sslrootcert=%2Fca.pem",
        ),
        (
            "postgresql:///hocket?host=%2Frun%2Fpostgres&user=hocket",
            "postgresql://bi:p%40ss@/hocket?host=%2Frun%2Fpostgres",
        ),
    ],
)
def test_it_keeps_the_options_of_the_platforms_own_but_who_it_is(url: str, expected: str) -> None:
    assert _url_of(url, "bi", "p@ss") == expected


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "valid"),
        ({"can_log_in": False}, "no login"),
        ({"has_role": False, "can_log_in": False}, "no role"),
        ({"has_role": False, "can_log_in": False, "has_namesake": True}, "other role"),
        ({"is_revoked": True}, "revoked, role left"),
        ({"is_revoked": True, "has_role": False}, "no role"),
    ],
)
def test_a_login_that_is_of_no_use_is_shown_as_such(fields: dict[str, bool], state: str) -> None:
    assert _state_of(ReportLogin("bi", "acme", None, **fields)) == state


@pytest.mark.parametrize(
    ("tenant", "is_revoked", "whose"),
    [("acme", False, "acme"), (None, False, "(all)"), (None, True, "-")],
)
def test_a_revoked_login_is_not_shown_as_one_of_all_tenants(
    tenant: str | None, is_revoked: bool, whose: str
) -> None:
    assert _whose(ReportLogin("bi", tenant, None, is_revoked=is_revoked)) == whose


@pytest.mark.parametrize("can_log_in", [False, True])
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_revoking_fails_if_a_role_is_left_that_can_log_in(
    monkeypatch: pytest.MonkeyPatch, can_log_in: bool, options: list[str]
) -> None:
    left = Revoked(role_left="Its role stays.", can_log_in=can_log_in)
    target = SimpleNamespace(database_url="")
    monkeypatch.setattr(report_login, "target_of", lambda context: target)
    monkeypatch.setattr(report_login, "_run", lambda url, work: left)
    told = CliRunner().invoke(report_login.app, ["revoke", "bi", *options])
    assert told.exit_code == (exit_codes.FAILED if can_log_in else 0)
    assert "Its role stays." in told.output
