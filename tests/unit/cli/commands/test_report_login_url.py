"""The URL that `hocket report-login create` prints, and the states that `list` shows."""

import pytest

from hocket.cli.commands.reports.report_login import _state_of, _url_of
from hocket.kit.postgres.report_logins import ReportLogin


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
    ("has_role", "can_log_in", "state"),
    [(True, True, "valid"), (True, False, "no login"), (False, False, "no role")],
)
def test_a_login_that_is_of_no_use_is_shown_as_such(
    has_role: bool, can_log_in: bool, state: str
) -> None:
    login = ReportLogin("bi", "acme", None, has_role=has_role, can_log_in=can_log_in)
    assert _state_of(login) == state
