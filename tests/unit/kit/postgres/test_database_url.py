"""Which of several hosts a database URL asks for."""

import pytest

from hocket.kit.postgres.database_url import of_primary


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        (
            "postgresql://u:p@a:1,b:2/d",
            "postgresql://u:p@a:1,b:2/d?target_session_attrs=read-write",
        ),
        (
            "postgresql://u:p@a,b/d?sslmode=verify-full",
            "postgresql://u:p@a,b/d?sslmode=verify-full&target_session_attrs=read-write",
        ),
        ("postgresql://u:p@a,b/d?target_session_attrs=any", None),
        ("postgresql://u:p,q@a:1/d", None),
        ("postgresql://u:p@[::1]:1/d?sslmode=require", None),
    ],
)
def test_of_several_hosts_the_one_that_takes_writes_is_asked_for_unless_the_url_says_otherwise(
    url: str, asked: str | None
) -> None:
    assert of_primary(url) == (asked or url)
