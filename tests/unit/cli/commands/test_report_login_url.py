"""The URL that `hocket report-login create` prints."""

import pytest

from hocket.cli.commands.reports.report_login import _url_of


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
