"""A Postgres of one's own that lacks something says what, and which statements mend it."""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
import structlog

from hocket.kit.embedded import EmbeddedServers
from hocket.kit.postgres import database, migrations, report_logins, requirements
from hocket.kit.postgres.database import DatabaseUnavailable
from hocket.kit.postgres.report_logins import ReportLoginDenied
from hocket.kit.postgres.requirements import DatabaseRefused, DatabaseUnfit

ROLE = "platform_team"


@pytest.fixture
async def poor_url(servers: EmbeddedServers) -> AsyncIterator[tuple[str, asyncpg.Connection]]:
    """The URL of an empty database for a login without rights, and a superuser's connection to it."""
    root = await asyncpg.connect(servers.database_url)
    renamed = "UPDATE pg_authid SET rolname = $1 WHERE rolname = $2"
    kept = await root.fetchval("SELECT true FROM pg_roles WHERE rolname = 'hocket_report'")
    if kept:  # other tests' databases made it, and hold on to it
        await root.execute(renamed, "kept_report", "hocket_report")
    await root.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD 'right-secret'")
    await root.execute("CREATE DATABASE poor")
    admin = await asyncpg.connect(servers.postgres.url_of("poor"))
    try:
        place = urlsplit(servers.database_url).netloc.rpartition("@")[2]
        yield f"postgresql://{ROLE}:right-secret@{place}/poor", admin
    finally:
        await admin.close()
        await root.execute("DROP DATABASE poor WITH (FORCE)")
        await root.execute(f"DROP ROLE {ROLE}")
        await root.execute("DROP ROLE IF EXISTS hocket_report")
        if kept:
            await root.execute(renamed, "hocket_report", "kept_report")
        await root.close()


async def test_all_that_is_missing_is_named_and_the_statements_mend_it(
    poor_url: tuple[str, asyncpg.Connection],
) -> None:
    url, admin = poor_url
    with pytest.raises(DatabaseUnfit) as caught:
        await migrations.migrate(url)
    said = str(caught.value)
    assert "right-secret" not in said
    for part in (
        "create schemas",
        "schema public",
        "hocket_report",
        "pgvector",
        "docs/how-to/postgres.md",
    ):
        assert part in said
    statements = said.partition("run there: ")[2].partition(" See ")[0]
    await admin.execute(statements)
    await migrations.migrate(url)
    assert await migrations.current(url) == migrations.head()
    await migrations.migrate(url)  # it has what it needs from now on


async def test_an_owner_that_is_no_superuser_makes_logins_for_reports(
    poor_url: tuple[str, asyncpg.Connection],
) -> None:
    url, admin = poor_url
    await admin.execute(
        f"CREATE ROLE hocket_report; GRANT hocket_report TO {ROLE} WITH ADMIN OPTION;"
        f" GRANT CREATE ON DATABASE poor TO {ROLE}; GRANT CREATE ON SCHEMA public TO {ROLE};"
        f" CREATE EXTENSION vector"
    )
    await migrations.migrate(url)
    owner = await asyncpg.connect(url)
    try:
        with pytest.raises(ReportLoginDenied):
            await report_logins.create(owner, "poor_bi", "acme", "a-secret")
        await admin.execute(f"ALTER ROLE {ROLE} CREATEROLE")
        left = await report_logins.create(owner, "poor_bi", "acme", "a-secret")
        assert "REVOKE EXECUTE ON FUNCTION pg_catalog.pg_advisory_lock(bigint) FROM PUBLIC" in left
        reader = await asyncpg.connect(url.replace(f"{ROLE}:right-secret", "poor_bi:a-secret"))
        assert await reader.fetch("SELECT * FROM report.usage") == []
        await admin.execute("; ".join(left))
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await reader.execute("SELECT pg_advisory_lock(1)")
        await owner.execute("SELECT pg_advisory_lock(1)")  # the services need it still
        (left_alone,) = await report_logins.create(owner, "poor_bi_2", "acme", "a-secret")
        assert left_alone == "ALTER ROLE \"poor_bi_2\" SET temp_file_limit = '1GB'"
        await admin.execute(left_alone)
        await report_logins.revoke(owner, "poor_bi_2")
        await report_logins.revoke(owner, "poor_bi")
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await reader.fetch("SELECT * FROM report.usage")
        await reader.close()
    finally:
        await owner.close()


PREPARED = """
CREATE ROLE hocket_report NOLOGIN; CREATE EXTENSION vector;
GRANT CREATE ON DATABASE poor TO platform_team; GRANT CREATE ON SCHEMA public TO platform_team;
"""


@pytest.mark.parametrize(
    ("hostile", "said"),
    [
        ("ALTER DATABASE poor SET default_transaction_read_only = on", "only read"),
        ("ALTER DATABASE poor SET statement_timeout = '900ms'", "statement_timeout = 900 ms"),
        ("ALTER DATABASE poor SET search_path = pg_catalog", "search_path"),
        ("CREATE SCHEMA e; ALTER EXTENSION vector SET SCHEMA e", "search_path does not include"),
        ("GRANT CREATE ON SCHEMA public TO PUBLIC", "everyone may create"),
        ("DROP EXTENSION plpgsql", "plpgsql"),
    ],
)
async def test_what_would_fail_later_is_told_and_the_statements_mend_it(
    poor_url: tuple[str, asyncpg.Connection], hostile: str, said: str
) -> None:
    url, admin = poor_url
    await admin.execute(PREPARED + hostile)
    with pytest.raises(DatabaseUnfit, match=said) as caught:
        await migrations.migrate(url)
    admin_statements = str(caught.value).partition("run there: ")[2].partition(" See ")[0]
    await admin.execute("SET transaction_read_only = off; SET search_path = public")
    await admin.execute(admin_statements)
    await requirements.check(url)


async def test_what_others_made_under_our_names_is_not_used(
    poor_url: tuple[str, asyncpg.Connection],
) -> None:
    """Their triggers and functions would run as Hocket's login, with all that it may read."""
    url, admin = poor_url
    await admin.execute(PREPARED + "CREATE ROLE stranger NOLOGIN")
    await admin.execute("GRANT CREATE ON DATABASE poor TO stranger")
    await admin.execute("GRANT CREATE ON SCHEMA public TO stranger")
    try:
        await admin.execute(
            """
            SET ROLE stranger;
            CREATE TABLE public.hocket_revision (version_num varchar(32));
            GRANT ALL ON public.hocket_revision TO PUBLIC;
            CREATE SCHEMA report;
            CREATE FUNCTION public.has_database_privilege(name, text) RETURNS boolean
            LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a stranger runs code'; END $$;
            RESET ROLE;
            """
        )
        with pytest.raises(DatabaseUnfit) as caught:
            await migrations.migrate(url)
        for part in ("public.hocket_revision", "schema report"):
            assert part in str(caught.value)
        await admin.execute("DROP SCHEMA report; DROP TABLE public.hocket_revision")
        await admin.execute(
            "CREATE VIEW public.hocket_revision AS SELECT '0001'::text AS version_num"
        )
        with pytest.raises(DatabaseUnfit, match=r"public\.hocket_revision"):
            await migrations.migrate(url)
    finally:
        await admin.execute("DROP OWNED BY stranger; DROP ROLE stranger")


async def test_a_revision_of_no_release_is_told(
    poor_url: tuple[str, asyncpg.Connection],
) -> None:
    url, admin = poor_url
    await admin.execute(PREPARED)
    own = await asyncpg.connect(url)
    await own.execute("CREATE TABLE public.hocket_revision (version_num varchar(32))")
    await own.execute("INSERT INTO public.hocket_revision VALUES ('a1b2')")
    await own.close()
    with pytest.raises(migrations.MigrationFailed, match="a1b2"):
        await migrations.migrate(url)


@pytest.mark.parametrize(
    ("user", "path"),
    [
        (f"{ROLE}:wrong-secret", "poor"),
        ("nobody:wrong-secret", "poor"),
        (f"{ROLE}:right-secret", "none"),
    ],
)
async def test_a_refused_login_is_told_at_once(
    poor_url: tuple[str, asyncpg.Connection], user: str, path: str
) -> None:
    place = urlsplit(poor_url[0]).netloc.rpartition("@")[2]
    with pytest.raises(DatabaseRefused) as caught:
        await migrations.migrate(f"postgresql://{user}@{place}/{path}")
    assert "secret" not in str(caught.value)


async def test_a_service_says_that_postgres_cannot_be_reached_while_it_goes_on_trying(
    poor_url: tuple[str, asyncpg.Connection],
) -> None:
    place = urlsplit(poor_url[0]).netloc.rpartition("@")[2]
    url = f"postgresql://{ROLE}:wrong-secret@{place}/poor"
    with structlog.testing.capture_logs() as logs, pytest.raises(DatabaseUnavailable):
        await database.connect_pool(url, size=1, name="x", timeout_s=0.5)
    assert {line["event"] for line in logs} == {"database_unreachable"}


async def test_a_url_that_is_none_is_refused(tmp_path: Path) -> None:
    for url in (
        "postgresql://a:secret@[::1",
        "postgresql://u:secret@h:port/x",
        "mysql://secret@h/x",
    ):
        with pytest.raises((DatabaseRefused, DatabaseUnavailable)) as caught:
            await migrations.migrate(url)
        assert "secret" not in str(caught.value)
