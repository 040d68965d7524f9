"""What a Postgres of one's own must have and allow before the schema can be made there. All that is
missing is named at once, with the statements that a superuser runs to mend it
(docs/how-to/postgres.md)."""

from typing import Any

import asyncpg

from hocket.kit.postgres.database import DatabaseUnavailable, said
from hocket.schemas.errors import HocketError

OLDEST_VERSION = 150_000
CONNECT_TIMEOUT_S = 5.0
REPORT_ROLE = "hocket_report"

_ASKED = """
SELECT current_user AS login,
       current_database() AS database,
       current_setting('server_version') AS version,
       current_setting('server_version_num')::integer AS version_num,
       current_setting('server_encoding') AS encoding,
       r.rolsuper AS is_super,
       r.rolsuper OR r.rolcreaterole AS makes_roles,
       has_database_privilege(current_database(), 'CREATE') AS makes_schemas,
       has_schema_privilege('public', 'CREATE') AS makes_in_public,
       to_regclass('public.hocket_revision') IS NOT NULL AS has_revision,
       EXISTS (SELECT FROM pg_roles WHERE rolname = $1) AS has_report_role,
       EXISTS (SELECT FROM pg_extension WHERE extname = 'vector') AS has_vector,
       EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector') AS offers_vector,
       coalesce((SELECT bool_or(trusted) FROM pg_available_extension_versions
                 WHERE name = 'vector'), false) AS trusts_vector
FROM pg_roles r WHERE r.rolname = current_user
"""


class DatabaseUnfit(HocketError):
    """The database `{database}` is not ready for Hocket: {missing}. {cure}"""

    code = "database_unfit"


class DatabaseRefused(HocketError):
    """Postgres refused the connection: {reason}. Correct the user, the password and the database in
    DATABASE_URL."""

    code = "database_refused"


async def check(database_url: str) -> None:
    """Return if the schema can be made in this database; raise DatabaseUnfit with everything that is
    missing, DatabaseRefused or DatabaseUnavailable."""
    try:
        connection = await asyncpg.connect(database_url, timeout=CONNECT_TIMEOUT_S)
    except (
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InvalidCatalogNameError,
        asyncpg.ClientConfigurationError,
        ValueError,
    ) as error:
        raise DatabaseRefused(reason=said(error)) from error
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise DatabaseUnavailable(reason=said(error)) from error
    try:
        found = await connection.fetchrow(_ASKED, REPORT_ROLE, timeout=CONNECT_TIMEOUT_S)
    finally:
        await connection.close()
    missing, statements = _missing(found)
    if missing:
        cure = f"Have a superuser run there: {' '.join(statements)}" if statements else ""
        raise DatabaseUnfit(
            database=found["database"],
            missing="; ".join(missing),
            cure=f"{cure} See docs/how-to/postgres.md.".strip(),
        )


def _missing(found: Any) -> tuple[list[str], list[str]]:
    """Return what is missing, and the statements that mend what statements can."""
    login, database = _quoted(found["login"]), _quoted(found["database"])
    rules = (
        (
            found["version_num"] < OLDEST_VERSION,
            f"Postgres is {found['version']}, and 15 is the oldest that works",
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
    broken = [(what, statement) for is_broken, what, statement in rules if is_broken]
    return [what for what, _ in broken], [statement for _, statement in broken if statement]


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.islower() else '"' + name.replace('"', '""') + '"'
