"""Attribute notation and casts: what Postgres reads as a call is refused, fields and columns are not."""

import pytest

from hocket.workers.sql.errors import SqlRefused
from hocket.workers.sql.guard.guard import CheckedQuery, check_query


def check(sql: str, types_allowed: tuple[str, ...] = ()) -> CheckedQuery:
    return check_query(
        sql,
        dialect="postgres",
        tables=("public.*",),
        types_allowed=types_allowed,
        max_rows=10,
    )


CALLS = [
    "SELECT (('select to_tsvector(''simple'', k) from secret.keys'::text).ts_stat).word",
    "SELECT ('/etc/passwd').pg_read_file",
    "SELECT ('/etc/passwd')  .  pg_read_file",
    "SELECT ('/etc/passwd')./* */pg_read_file",
    "SELECT ('/etc/passwd').\"pg_read_file\"",
    "SELECT (('/etc/passwd')).PG_READ_FILE",
    "SELECT (:name).pg_read_file",
    "SELECT (2).pg_sleep",
    "SELECT (1 + 1).pg_sleep",
    "SELECT (CASE WHEN true THEN 2 END).pg_sleep",
    "SELECT (1).pg_advisory_lock",
    "SELECT (ARRAY['/etc/passwd'])[1].pg_read_file",
    "SELECT ('/etc/' || 'passwd').pg_read_file",
    "SELECT (coalesce('/etc/passwd')).pg_read_file",
    "SELECT (lower('/ETC/PASSWD')).pg_read_file",
    "SELECT (SELECT '/etc/passwd'::text).pg_read_file",
    "SELECT (max(name) OVER ()).pg_read_file FROM users",
    "SELECT (users.name).pg_read_file FROM users",
    "SELECT (name).pg_read_file FROM users",
    "SELECT users.tags[1].pg_read_file FROM users",
    "SELECT (users.tags)[1].pg_read_file FROM users",
    "SELECT ((users.a).b).pg_read_file FROM users",
    "SELECT (name).regclass FROM users",
    "SELECT (g).pg_terminate_backend FROM generate_series(1, 2) AS g",
    "SELECT g.pg_terminate_backend FROM generate_series(1, 2) AS g",
    "SELECT g.pg_terminate_backend FROM generate_series(1, 2) AS g(n)",
    "SELECT generate_series.pg_sleep FROM generate_series(1, 2)",
    "SELECT u.pg_read_file FROM users, unnest(users.tags) AS u",
    "SELECT u.pg_read_file FROM users, LATERAL unnest(users.tags) AS u(x)",
    "SELECT u.pg_read_file FROM users LEFT JOIN LATERAL unnest(users.tags) AS u ON true",
    "SELECT r.pg_sleep FROM ROWS FROM (generate_series(1, 2)) AS r",
    "SELECT c.pg_read_file FROM CAST('/etc/passwd' AS text) AS c",
    "SELECT text.pg_read_file FROM CAST('/etc/passwd' AS text)",
    "SELECT c.pg_read_file FROM coalesce('/etc/passwd') AS c",
    "SELECT 1 FROM generate_series(1, 2) AS g ORDER BY g.pg_sleep",
    "SELECT 1 FROM generate_series(1, 2) AS g GROUP BY g.pg_sleep",
    "SELECT 1 FROM generate_series(1, 2) AS g JOIN users ON g.pg_sleep IS NULL",
    "SELECT (SELECT g.pg_sleep) FROM generate_series(1, 2) AS g",
    # the name is a table's, or lists the column, somewhere else only
    "SELECT g.pg_sleep, (SELECT 1 FROM users AS g LIMIT 1) FROM generate_series(1, 2) AS g",
    (
        "SELECT g.pg_sleep, (SELECT 1 FROM generate_series(1, 2) AS g(pg_sleep) LIMIT 1) "
        "FROM generate_series(1, 2) AS g"
    ),
    "SELECT users.record_out FROM users",
    "SELECT q.pg_column_size FROM (SELECT 1) AS q",
]
CASTS = [
    "SELECT 'x'::regclass",
    "SELECT 'x'::pg_catalog.regclass",
    "SELECT 'x'::pg_catalog.\"regclass\"",
    "SELECT CAST('{x}' AS regclass[])",
    "SELECT CAST('{x}' AS pg_catalog.regclass[])",
    "SELECT regclass 'x'",
    "SELECT 'x'::regrole",
    "SELECT 'x'::aclitem",
    "SELECT 'x'::own_domain",
    "SELECT 'x'::public.own_domain",
    "SELECT CAST('{x}' AS public.own_domain[])",
    'SELECT \'x\'::"Text"."text"',
    "SELECT * FROM json_to_record('{}') AS x(a public.own_domain)",
    "SELECT * FROM json_to_recordset('[]') AS x(a regclass)",
    "SELECT * FROM JSON_TABLE('{}', '$' COLUMNS (a regclass PATH '$'))",
    "SELECT json_populate_record(NULL::public.users, '{}')",
    "SELECT 'x'::char(10000000)",
    "SELECT '1'::bit(80000000)",
    "SELECT * FROM users TABLESAMPLE own_method (3)",
]


@pytest.mark.parametrize("sql", [*CALLS, *CASTS])
def test_an_implicit_call_is_refused(sql: str) -> None:
    with pytest.raises(SqlRefused):
        check(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT users.net_amount, users.version, users.copy_count, users.name FROM users",
        "SELECT (users.address).city, (users.address).name FROM users",
        "SELECT (users).*, (users.address).* FROM users",
        "SELECT (max(users)).name FROM users",
        "SELECT (users.items)[1].price FROM users",
        "SELECT (SELECT u FROM users AS u LIMIT 1).name",
        "SELECT e.key, e.value FROM users, jsonb_each(users.data) AS e",
        "SELECT u.tag FROM users, unnest(users.tags) AS u(tag)",
        "SELECT g.g, g FROM generate_series(1, 3) AS g",
        "SELECT users.name, generate_series FROM users, generate_series(1, 2)",
        "SELECT x.version FROM json_to_record('{}') AS x(version text)",
        "SELECT s.count FROM (SELECT count(*) FROM users) AS s",
        "SELECT public.users.name FROM public.users",
        "SELECT 'a'::text, 'a'::\"char\", '1'::pg_catalog.int4, 'english'::regconfig, '1'::oid",
        "SELECT 'a'::char(3), '10'::bit(2), '{1}'::int[], 'a:1'::tsvector, '(1,2)'::point",
        "SELECT * FROM users TABLESAMPLE BERNOULLI (3)",
    ],
)
def test_a_field_a_column_and_a_built_in_type_are_not(sql: str) -> None:
    assert check(sql)


def test_an_operator_can_allow_an_own_type() -> None:
    assert check("SELECT 'paid'::state", types_allowed=("state",))
    assert check("SELECT 'paid'::shop.state", types_allowed=("shop.state",))
    with pytest.raises(SqlRefused, match=r"shop\.state"):
        check("SELECT 'paid'::shop.state", types_allowed=("state",))
