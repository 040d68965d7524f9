"""What the user's own Postgres must have and allow before the schema can be created there.

Everything that is missing is reported at once, with the statements with which a superuser can fix it
(docs/how-to/postgres.md).
"""

from typing import Any

import asyncpg

from hocket.kit.postgres.database import DatabaseUnavailable, said
from hocket.kit.postgres.pooler import check_sessions
from hocket.schemas.errors import HocketError

OLDEST_VERSION = 150_000
CONNECT_TIMEOUT_S = 5.0
REPORT_ROLE = "hocket_report"

SCHEMAS = ("hocket", "report", "retrieval")
"""The schemas that the migrations create."""
LEAST_TIMEOUT_MS = 60_000
"""A shorter time limit of a session would end statements and transactions of ours."""
TIMEOUTS = ("statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout")

_ASKED = """
SELECT current_user AS login,
       pg_catalog.current_database() AS database,
       pg_catalog.current_setting('server_version') AS version,
       pg_catalog.current_setting('server_version_num')::integer AS version_num,
       pg_catalog.current_setting('server_encoding') AS encoding,
       r.rolsuper AS is_super,
       r.rolsuper OR r.rolcreaterole AS makes_roles,
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE') AS makes_schemas,
       pg_catalog.has_schema_privilege('public', 'CREATE') AS makes_in_public,
       pg_catalog.current_schema() IS NOT DISTINCT FROM 'public' AS makes_there,
       'public' = ANY (pg_catalog.current_schemas(false)) AS sees_public,
       pg_catalog.to_regclass('public.hocket_revision') IS NOT NULL AS has_revision,
       EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = $1) AS has_report_role,
       EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'vector') AS has_vector,
       pg_catalog.to_regtype('vector') IS NOT NULL AS sees_vector,
       EXISTS (SELECT FROM pg_catalog.pg_available_extensions WHERE name = 'vector')
           AS offers_vector,
       coalesce((SELECT pg_catalog.bool_or(trusted)
                 FROM pg_catalog.pg_available_extension_versions WHERE name = 'vector'), false)
           AS trusts_vector,
       EXISTS (SELECT FROM pg_catalog.pg_language WHERE lanname = 'plpgsql') AS has_plpgsql,
       pg_catalog.current_setting('default_transaction_read_only') = 'on'
           OR pg_catalog.pg_is_in_recovery() AS is_read_only,
       ARRAY(SELECT name || ' = ' || setting || ' ms' FROM pg_catalog.pg_settings
             WHERE name = ANY ($2) AND setting::integer BETWEEN 1 AND $3 - 1) AS timeouts,
       ARRAY(SELECT told FROM (
                 SELECT 'the relation public.hocket_revision', c.relowner, c.relkind <> 'r'
                 FROM pg_catalog.pg_class c
                 WHERE c.oid = pg_catalog.to_regclass('public.hocket_revision')
                 UNION ALL
                 SELECT 'the schema ' || n.nspname, n.nspowner, false
                 FROM pg_catalog.pg_namespace n WHERE n.nspname = ANY ($4)
             ) AS found (told, owner, is_odd)
             JOIN pg_catalog.pg_roles o ON o.oid = found.owner
             WHERE is_odd OR NOT (o.rolname = current_user OR o.rolsuper OR
                 (NOT r.rolsuper AND pg_catalog.pg_has_role(o.oid, 'USAGE')))) AS strange,
       EXISTS (SELECT FROM pg_catalog.pg_namespace n,
                      LATERAL pg_catalog.aclexplode(n.nspacl) AS may
               WHERE n.nspname = 'public' AND may.grantee = 0 AND may.privilege_type = 'CREATE')
           AS is_open
FROM pg_catalog.pg_roles r WHERE r.rolname = current_user
"""


class DatabaseUnfit(HocketError):
    """The database `{database}` is not ready for Hocket: {missing}. {cure}"""

    code = "database_unfit"


class DatabaseRefused(HocketError):
    """Postgres refused the connection: {reason}. Correct the user, the password and the database in
    DATABASE_URL."""

    code = "database_refused"


_FAILURES = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)


async def check(database_url: str) -> None:
    """Check that the schema can be created in this database. Raises DatabaseUnfit with everything that
    is missing, SessionsShared, DatabaseRefused or DatabaseUnavailable."""

    async def connect() -> Any:
        return await asyncpg.connect(database_url, timeout=CONNECT_TIMEOUT_S)

    try:
        connection = await connect()
    except (
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InvalidCatalogNameError,
        asyncpg.ClientConfigurationError,
        ValueError,
    ) as error:
        raise DatabaseRefused(reason=said(error)) from error
    except _FAILURES as error:
        raise DatabaseUnavailable(reason=said(error)) from error
    try:
        await check_sessions(connection, connect)
        asked = (REPORT_ROLE, TIMEOUTS, LEAST_TIMEOUT_MS, SCHEMAS)
        found = await connection.fetchrow(_ASKED, *asked, timeout=CONNECT_TIMEOUT_S)
    except _FAILURES as error:
        raise DatabaseUnavailable(reason=said(error)) from error
    finally:
        connection.terminate()
    missing, statements = _missing(found)
    if missing:
        cure = f"Have a superuser run there: {' '.join(statements)}" if statements else ""
        raise DatabaseUnfit(
            database=found["database"],
            missing="; ".join(missing),
            cure=f"{cure} See docs/how-to/postgres.md.".strip(),
        )


_Rule = tuple[bool, str, str | None]
"""Whether something is missing, what it is, and the statement that fixes it, if one can."""


def _missing(found: Any) -> tuple[list[str], list[str]]:
    """Return what is missing, and the statements that fix what statements can."""
    rules = (*_of_server(found), *_of_sessions(found), *_of_others(found))
    broken = [(what, statement) for is_broken, what, statement in rules if is_broken]
    return [what for what, _ in broken], [statement for _, statement in broken if statement]


def _of_server(found: Any) -> tuple[_Rule, ...]:
    """The rules for the server, the database and the privileges in it."""
    login, database = _quoted(found["login"]), _quoted(found["database"])
    return (
        (
            found["version_num"] < OLDEST_VERSION,
            f"Postgres is {found['version']}; the oldest version that works is 15",
            None,
        ),
        (
            found["encoding"] != "UTF8",
            f"its encoding is {found['encoding']}; make a database with encoding UTF8",
            None,
        ),
        (
            not found["makes_schemas"],
            f"{login} may not create schemas",
            f"GRANT CREATE ON DATABASE {database} TO {login};",
        ),
        (
            not (found["makes_in_public"] or found["has_revision"]),
            f"{login} may not create tables in the schema public",
            f"GRANT CREATE ON SCHEMA public TO {login};",
        ),
        (
            not (found["has_report_role"] or found["makes_roles"]),
            f"the role {REPORT_ROLE} is missing and {login} may not create it",
            f"CREATE ROLE {REPORT_ROLE} NOLOGIN;",
        ),
        (
            not (found["has_vector"] or found["offers_vector"]),
            "the extension pgvector is not installed on the server (package postgresql-N-pgvector)",
            None,
        ),
        (
            not found["has_vector"]
            and found["offers_vector"]
            and not (found["is_super"] or (found["trusts_vector"] and found["makes_schemas"])),
            f"the extension pgvector is not in this database and {login} may not create it",
            "CREATE EXTENSION vector;",
        ),
    )


def _of_sessions(found: Any) -> tuple[_Rule, ...]:
    """The rules for the initial settings of the login's sessions."""
    login, database = _quoted(found["login"]), _quoted(found["database"])
    for_login = f"ALTER ROLE {login} IN DATABASE {database} SET"
    return (
        (
            found["is_read_only"],
            "its sessions may only read (default_transaction_read_only, or it is a standby)",
            f"{for_login} default_transaction_read_only = off;",
        ),
        (
            bool(found["timeouts"]),
            f"it stops whatever takes longer than a moment ({', '.join(found['timeouts'])})",
            " ".join(f"{for_login} {told.split()[0]} = 0;" for told in found["timeouts"]),
        ),
        (
            not (found["sees_public"] and (found["makes_there"] or found["has_revision"])),
            "the first existing schema in its search_path is not public",
            f"{for_login} search_path = public;",
        ),
        (
            found["has_vector"] and found["sees_public"] and not found["sees_vector"],
            "the extension pgvector is in a schema that search_path does not include",
            "ALTER EXTENSION vector SET SCHEMA public;",
        ),
        (
            not found["has_plpgsql"],
            "the language plpgsql is missing",
            "CREATE EXTENSION plpgsql;",
        ),
    )


def _of_others(found: Any) -> tuple[_Rule, ...]:
    """The rules against what others may have put where the login looks."""
    login = _quoted(found["login"])
    strange = (
        f"others created {', '.join(found['strange'])}: its contents would run with the rights of "
        f"{login}; drop it, or make {login} its owner"
    )
    return (
        (
            bool(found["strange"]),
            strange,
            None,
        ),
        (
            found["is_open"] and not found["has_revision"],
            f"everyone may create functions in the schema public, and {login} could call them",
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC;",
        ),
    )


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.islower() else '"' + name.replace('"', '""') + '"'
