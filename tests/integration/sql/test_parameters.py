"""Parameters on real Postgres: each behaves as the literal of its kind would."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from hocket.workers.sql.errors import SqlInvalid, SqlParametersWrong
from hocket.workers.sql.runner import QueryResult, run_query
from hocket.workers.sql.targets import Target, TargetSettings

TIMEOUT_MS = 10_000.0

TABLE = """
CREATE TABLE public.t (
    day date, at timestamptz, id uuid, data jsonb, price numeric, n integer, tags text[]
);
INSERT INTO public.t VALUES (
    '2024-01-02', '2024-01-02 03:04:05Z', '00000000-0000-0000-0000-000000000007',
    '{"a": 1}', 1.5, 7, '{x,y}'
);
"""


@pytest.fixture
async def target(database_url: str) -> AsyncIterator[Target]:
    connection = await asyncpg.connect(database_url)
    await connection.execute(TABLE)
    await connection.close()
    target = Target("t", TargetSettings(url=database_url, tables=("public.t",)))
    yield target
    await target.close()


async def ask(target: Target, sql: str, **params: Any) -> QueryResult:
    return await run_query(target, sql, params, timeout_ms=TIMEOUT_MS, max_rows=10)


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("day = :x", "2024-01-02"),
        ("day >= CAST(:x AS date)", "2024-01-01"),
        ("at = :x", "2024-01-02T03:04:05Z"),
        ("id = :x", "00000000-0000-0000-0000-000000000007"),
        ("n = :x", 7),
        ("n = :x", "7"),
        ("price = :x", 1.5),
        ("price < :x", 10**12),
        ("n = ANY(:x)", [6, 7]),
        ("day = ANY(:x)", ["2024-01-02"]),
        ("tags && :x", ["y"]),
        ("data @> :x", {"a": 1}),
        ("(n > 3) = :x", True),
        ("CAST(:x AS integer) IS NULL", None),
        ("day = :x OR :x = 'z'", "2024-01-02"),
        ("day + :x = '2024-01-05'", 3),
    ],
)
async def test_a_json_value_finds_its_row(target: Target, condition: str, value: Any) -> None:
    assert (await ask(target, f"SELECT n FROM t WHERE {condition}", x=value)).rows == ((7,),)


async def test_a_fraction_is_exact(target: Target) -> None:
    assert (await ask(target, "SELECT price * :x AS y, n * :x AS z FROM t", x=0.1)).rows == (
        ("0.15", "0.7"),
    )


async def test_a_parameter_is_never_part_of_the_text(target: Target) -> None:
    hostile = "'; DROP TABLE t; --"
    assert (await ask(target, "SELECT :x AS x FROM t", x=hostile)).rows == ((hostile,),)


async def test_backslashes_colons_and_percent_signs_in_the_text_arrive_as_written(
    target: Target,
) -> None:
    result = await ask(
        target,
        r"SELECT 'a\b' AS a, ':z' AS b, '\:q' AS c, '%(x)s' AS d, '7' ~ '^\d$' AS e, n::text FROM t",
    )
    assert result.rows == (("a\\b", ":z", "\\:q", "%(x)s", True, "7"),)


async def test_times_without_a_python_value_are_kept_as_text(target: Target) -> None:
    result = await ask(target, "SELECT 'infinity'::timestamptz AS a, '0044-03-15 BC'::date AS b")
    assert result.rows == (("infinity", "0044-03-15 BC"),)


async def test_a_missing_parameter_is_named(target: Target) -> None:
    with pytest.raises(SqlParametersWrong, match="names y"):
        await ask(target, "SELECT n FROM t WHERE n = :x OR n = :y", x=1)


async def test_a_value_that_its_place_cannot_read_is_the_callers_fault(target: Target) -> None:
    with pytest.raises(SqlInvalid) as caught:
        await ask(target, "SELECT n FROM t WHERE day = :x", x="soon")
    assert caught.value.fields["sqlstate"] == "22007"
    assert caught.value.info().component == "sql:t"


@pytest.mark.parametrize("value", ["caf\ud83d", ["whole", "caf\ud83d"]])
async def test_half_of_a_surrogate_pair_is_named(target: Target, value: Any) -> None:
    with pytest.raises(SqlParametersWrong, match="the text of `x` has half of a surrogate pair"):
        await ask(target, "SELECT n FROM t WHERE 'x' = ANY(:x)", x=value)
