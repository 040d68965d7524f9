"""Logins of Postgres that may read only the reports, of one tenant or of all.

A login is a member of `hocket_report`, which may read the views of the schema `report`. The views run
with the login's privileges, and the tables below them show only the rows of its tenant, according to
`hocket.report_login`, which it can neither read nor write. A login for all tenants has policies of its
own. The password is sent to the server as a SCRAM verifier, so that no log contains it.
"""

import base64
import hashlib
import hmac
import os
import re
import stringprep
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from hocket.kit.postgres import rollup_tables
from hocket.kit.postgres.requirements import REPORT_ROLE
from hocket.schemas.errors import ErrorClass, HocketError

MAX_CONNECTIONS = 10
STATEMENT_TIMEOUT = "60s"
TEMPORARY_FILES = "1GB"
"""How much each process that runs a login's statements may write to temporary files."""
TIMEOUT_S = 30.0
ITERATIONS = 4_096
SALT_BYTES = 16
ALL_TENANTS = "report_all_"
"""Prefix of the names of the policies of a login for all tenants; the login's name follows."""
NOBODY = "(revoked)"
"""Stands in place of the tenant of a login that reads nothing any more; no tenant has such a name."""
TABLES = (
    "run",
    "step",
    "attempt",
    "usage",
    "kept_charge",
    "open_call",
    "price",
    "warm_time",
    "retention",
    *rollup_tables.TABLES,
)
"""The tables that have policies."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,51}")
_WITHOUT_SET = 160_000
_WRITING = ("lo_creat", "lo_create", "lo_from_bytea", "lo_open", "lo_put", "lowrite", "lo_unlink")
"""Functions with which every login may write, whatever its privileges: large objects."""
_HOLDING_UP = ("pg_advisory_", "pg_try_advisory_", "pg_logical_emit_message", "pg_notify")
"""Prefixes of functions with which every login may obstruct others: it could take any advisory lock,
including those of services, and fill the server's logs."""


class ReportLoginInvalid(HocketError):
    """`{name}` cannot be the name of a login: {reason}. Use 1 to 52 lower-case letters, digits or `_`,
    starting with a letter."""

    code = "report_login_invalid"
    error_class = ErrorClass.INVALID


class ReportLoginExists(HocketError):
    """There is already a role `{name}` in this Postgres. Choose another name, revoke it first in each
    database that has it as a report login, with `hocket report-login revoke {name}`, or drop the
    role."""

    code = "report_login_exists"
    error_class = ErrorClass.INVALID


class ReportLoginUnknown(HocketError):
    """There is no report login `{name}` in this database. `hocket report-login list` shows the
    existing ones."""

    code = "report_login_unknown"
    error_class = ErrorClass.INVALID


class ReportLoginDenied(HocketError):
    """The login of DATABASE_URL may not do that: {reason}. It needs CREATEROLE, and ADMIN OPTION on
    `hocket_report`; see docs/how-to/report-logins.md."""

    code = "report_login_denied"
    error_class = ErrorClass.PERMANENT


@dataclass(frozen=True, slots=True)
class ReportLogin:
    """A login for reports; without a `tenant`, it reads those of all tenants."""

    name: str
    tenant: str | None
    created_at: datetime | None
    connections: int = 0
    has_role: bool = True
    """Whether the server has its role, which its rights and settings tell: a database restored into
    another server has only its row, and there, a role of the same name may be somebody else's."""
    can_log_in: bool = True
    """Whether its role may log in: not after the login was revoked in another database."""
    has_namesake: bool = False
    """Whether the server has a role of its name that is not its role."""
    is_revoked: bool = False
    """Whether it was revoked but for its role, which we may not change: it reads nothing."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """What is left of a revoked login: connections that could not be ended; if the server still has a
    role of its name, why (`role_left`; otherwise empty), and whether that can log in."""

    connections: int = 0
    role_left: str = ""
    can_log_in: bool = False


def checked_name(name: str) -> str:
    """Return a login's name if it is valid, or raise ReportLoginInvalid."""
    if not _NAME.fullmatch(name):
        raise ReportLoginInvalid(
            name=name[:80], reason="it has other characters, or too many of them"
        )
    if name.startswith("pg_") or name in (REPORT_ROLE, "public", "none"):
        raise ReportLoginInvalid(name=name, reason="the name is taken")
    return name


async def create(
    connection: asyncpg.Connection, name: str, tenant: str | None, password: str
) -> Sequence[str]:
    """Create a login for one tenant, or for all; return the statements with which a superuser takes from
    it what every login may do, if we may not. Raises ReportLoginInvalid, ReportLoginExists and
    ReportLoginDenied."""
    login = f'"{checked_name(name)}"'
    try:
        async with connection.transaction():
            await _create(connection, name, login, tenant, password)
    except asyncpg.DuplicateObjectError:
        raise ReportLoginExists(name=name) from None
    except asyncpg.InsufficientPrivilegeError as error:
        raise ReportLoginDenied(reason=error.args[0]) from error
    return [*await _limit_files(connection, login), *await _close_doors(connection)]


async def revoke(connection: asyncpg.Connection, name: str) -> Revoked:
    """Remove a login, and end its connections; return what is left. First its role loses the right to
    log in anywhere on the server, so that its password is of no use even if the rest fails. A role on
    which something else depends, such as another database, remains without that right. One that we may
    not change remains with it, but reads nothing here; such a login stays listed, so that it can be
    revoked again. Raises ReportLoginUnknown and ReportLoginDenied."""
    found = next((one for one in await logins(connection) if one.name == name), None)
    if found is None:
        raise ReportLoginUnknown(name=name[:80])
    left, not_ours = 0, ""
    try:
        if found.has_role:
            not_ours = await _shut_out(connection, f'"{name}"')
            left = await _ended(connection, name)
        async with connection.transaction():
            role_left = await _removed(connection, found, not_ours)
    except asyncpg.InsufficientPrivilegeError as error:
        raise ReportLoginDenied(reason=error.args[0]) from error
    return Revoked(left, role_left, bool(await connection.fetchval(_CAN_LOG_IN, name)))


async def logins(connection: asyncpg.Connection) -> Sequence[ReportLogin]:
    """Return the logins for reports of this database, ordered by name."""
    rows = await connection.fetch(
        _LOGINS, ALL_TENANTS, len(ALL_TENANTS), REPORT_ROLE, NOBODY, timeout=TIMEOUT_S
    )
    return [ReportLogin(**dict(row)) for row in rows]


async def _shut_out(connection: asyncpg.Connection, login: str) -> str:
    """Take the right to log in from the role of a login; return why it keeps that if we may not. From
    Postgres 16 on, only who made a role, or has ADMIN OPTION on it, may change it."""
    try:
        await connection.execute(f"ALTER ROLE {login} NOLOGIN", timeout=TIMEOUT_S)
    except asyncpg.InsufficientPrivilegeError as error:
        return (
            "It reads nothing here any more, but its role stays and keeps the right to log in:"
            f" {error.args[0]}. The login of DATABASE_URL did not make the role (`pg_dumpall` restores"
            f" roles, for example), or lacks CREATEROLE. A superuser has to run `DROP ROLE {login}`, or"
            " to grant ADMIN OPTION on the role to the login of DATABASE_URL. Then revoke the login"
            " again; until then, it stays listed."
        )
    return ""


async def _removed(connection: asyncpg.Connection, found: ReportLogin, not_ours: str) -> str:
    """Remove a login, with its role unless that is not ours to change; return why a role is left."""
    name, login = found.name, f'"{found.name}"'
    for table in TABLES:
        await connection.execute(f'DROP POLICY IF EXISTS "{ALL_TENANTS}{name}" ON hocket.{table}')
    await connection.execute("DELETE FROM hocket.report_login WHERE login = $1", name)
    if not found.has_role:
        return _NAMESAKE if found.has_namesake else ""
    database = await connection.fetchval("SELECT quote_ident(current_database())")
    await connection.execute(f"REVOKE ALL ON DATABASE {database} FROM {login}")
    if not not_ours:
        return await _role_left(connection, login)
    await connection.execute(
        "INSERT INTO hocket.report_login (login, tenant, created_at)"
        " VALUES ($1, $2, coalesce($3, now()))",
        name,
        NOBODY,
        found.created_at,
    )
    await _leave(connection, name)
    return not_ours


async def _leave(connection: asyncpg.Connection, name: str) -> None:
    """Take from a role that we may not change what it is a member of, if we may do that, and if its
    setting still tells that it is ours."""
    if await connection.fetchval(_HAS_SETTING, name):
        with suppress(asyncpg.InsufficientPrivilegeError):
            async with connection.transaction():
                await connection.execute(f'REVOKE {REPORT_ROLE} FROM "{name}"')


async def _role_left(connection: asyncpg.Connection, login: str) -> str:
    """Drop the role of a login; return why it is left if something else depends on it."""
    try:
        async with connection.transaction():
            await connection.execute(f"DROP ROLE {login}", timeout=TIMEOUT_S)
    except asyncpg.DependentObjectsStillExistError as error:
        shown = ", ".join((error.detail or "other objects").splitlines())
        return (
            "Its role can no longer log in, to any database of this server, but stays, because"
            f" something else depends on it: {shown}. If that is in another database, revoke the"
            " login there, too."
        )
    return ""


async def _create(
    connection: asyncpg.Connection, name: str, login: str, tenant: str | None, password: str
) -> None:
    verifier = scram_verifier(password, os.urandom(SALT_BYTES))
    await connection.execute(
        f"CREATE ROLE {login} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"
        f" INHERIT CONNECTION LIMIT {MAX_CONNECTIONS} PASSWORD '{verifier}'",
        timeout=TIMEOUT_S,
    )
    version = await connection.fetchval("SELECT current_setting('server_version_num')::integer")
    kind = " WITH INHERIT TRUE, SET FALSE" if version >= _WITHOUT_SET else ""
    await connection.execute(f"GRANT {REPORT_ROLE} TO {login}{kind}")
    for name_, value in (
        ("statement_timeout", STATEMENT_TIMEOUT),
        ("idle_in_transaction_session_timeout", STATEMENT_TIMEOUT),
        ("default_transaction_read_only", "on"),
        ("search_path", "report"),  # also tells that the role is ours
        ("work_mem", "32MB"),  # the calls of the current day are summed in memory
        ("jit", "off"),  # compiling a report takes longer than running it
    ):
        await connection.execute(f"ALTER ROLE {login} SET {name_} = '{value}'")
    database = await connection.fetchval("SELECT quote_ident(current_database())")
    await connection.execute(f"GRANT CONNECT ON DATABASE {database} TO {login}")
    if tenant is not None:
        await connection.execute(
            "INSERT INTO hocket.report_login (login, tenant) VALUES ($1, $2)"
            " ON CONFLICT (login) DO UPDATE SET tenant = excluded.tenant, created_at = now()",
            name,
            tenant,
        )
        return
    await connection.execute("DELETE FROM hocket.report_login WHERE login = $1", name)
    for table in TABLES:
        await connection.execute(
            f'CREATE POLICY "{ALL_TENANTS}{name}" ON hocket.{table} FOR SELECT TO {login}'
            " USING (true)"
        )


async def _limit_files(connection: asyncpg.Connection, login: str) -> Sequence[str]:
    """Limit the temporary files of a login, which it cannot undo; return the statement if only a
    superuser may."""
    statement = f"ALTER ROLE {login} SET temp_file_limit = '{TEMPORARY_FILES}'"
    try:
        await connection.execute(statement, timeout=TIMEOUT_S)
    except asyncpg.InsufficientPrivilegeError:
        return [statement]
    return []


async def _close_doors(connection: asyncpg.Connection) -> Sequence[str]:
    """Revoke from PUBLIC what lets any login write or obstruct others: temporary tables, large objects,
    advisory locks. Return the statements that had no effect, because we may not revoke that."""
    for statement in await _revocations(connection):
        try:
            async with connection.transaction():
                await connection.execute(statement, timeout=TIMEOUT_S)
        except asyncpg.InsufficientPrivilegeError:
            continue
    return await _revocations(connection)


async def _revocations(connection: asyncpg.Connection) -> list[str]:
    """Return the statements that revoke what every login may do in this database."""
    found = await connection.fetchrow(_OPEN_PLACES, timeout=TIMEOUT_S)
    statements = []
    if found["temporary"]:
        statements.append(f"REVOKE TEMPORARY ON DATABASE {found['database']} FROM PUBLIC")
    if found["makes_in_public"]:
        statements.append("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    for row in await connection.fetch(_OPEN_TO_ALL, _WRITING, _HOLDING_UP, timeout=TIMEOUT_S):
        if row["owner"] is not None:
            statements.append(f"GRANT EXECUTE ON FUNCTION {row['function']} TO {row['owner']}")
        statements.append(f"REVOKE EXECUTE ON FUNCTION {row['function']} FROM PUBLIC")
    return statements


async def _ended(connection: asyncpg.Connection, name: str) -> int:
    """End the connections of a login; return how many could not be ended."""
    try:
        async with connection.transaction():
            return int(await connection.fetchval(_END, name, timeout=TIMEOUT_S))
    except asyncpg.InsufficientPrivilegeError:
        found: Any = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = $1", name
        )
        return int(found)


def scram_verifier(password: str, salt: bytes) -> str:
    """Return the verifier that Postgres stores for a password (RFC 5803), which does not reveal it."""
    salted = hashlib.pbkdf2_hmac("sha256", prepared(password).encode(), salt, ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    encoded = [base64.b64encode(one).decode() for one in (salt, stored, server)]
    return f"SCRAM-SHA-256${ITERATIONS}:{encoded[0]}${encoded[1]}:{encoded[2]}"


def prepared(password: str) -> str:
    """Return a password as Postgres and its clients hash it: by SASLprep (RFC 4013), or as it is if that
    refuses it. Pure."""
    if password.isascii():
        return password
    mapped = "".join(
        " " if stringprep.in_table_c12(one) else one
        for one in password
        if not stringprep.in_table_b1(one)
    )
    normal = unicodedata.normalize("NFKC", mapped)
    is_refused = any(table(one) for one in normal for table in _REFUSED_CHARACTERS)
    return password if not normal or is_refused or _mixes_directions(normal) else normal


def _mixes_directions(text: str) -> bool:
    """Tell whether a text breaks the rules for text from right to left (RFC 3454, section 6)."""
    if not any(stringprep.in_table_d1(one) for one in text):
        return False
    ends_differ = not (stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1]))
    return ends_differ or any(stringprep.in_table_d2(one) for one in text)


_REFUSED_CHARACTERS = (
    stringprep.in_table_a1,
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)

_NAMESAKE = (
    "A role of this name stays as it is: its rights and settings are not those of a report login, so it"
    " may be somebody else's. If it is not, drop it."
)

_CAN_LOG_IN = "SELECT rolcanlogin FROM pg_roles WHERE rolname = $1"
_HAS_SETTING = "SELECT 'search_path=report' = ANY (rolconfig) FROM pg_roles WHERE rolname = $1"

_END = """
SELECT count(*) FILTER (WHERE NOT pg_terminate_backend(pid))
FROM pg_stat_activity
WHERE usename = $1
"""
"""Ends the connections of a login."""

_LOGINS = """
SELECT found.name, nullif(found.tenant, $4) AS tenant, found.created_at,
       coalesce(found.tenant = $4, false) AS is_revoked,
       (SELECT count(*) FROM pg_stat_activity a WHERE a.usename = found.name)::integer AS connections,
       r.oid IS NOT NULL AS has_role, coalesce(r.rolcanlogin, false) AS can_log_in,
       r.oid IS NULL AND EXISTS (SELECT FROM pg_roles o WHERE o.rolname = found.name) AS has_namesake
FROM (SELECT l.login AS name, l.tenant, l.created_at
      FROM hocket.report_login l
      UNION ALL
      SELECT substr(p.policyname, $2::integer + 1), NULL, NULL
      FROM pg_policies p
      WHERE p.schemaname = 'hocket' AND p.tablename = 'run' AND starts_with(p.policyname, $1)) found
LEFT JOIN pg_roles r ON r.rolname = found.name
    AND NOT r.rolsuper AND NOT r.rolcreaterole AND r.rolname NOT IN (current_user, session_user)
    AND ('search_path=report' = ANY (r.rolconfig)
         OR EXISTS (SELECT FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
                    WHERE m.member = r.oid AND NOT m.admin_option AND g.rolname = $3))
ORDER BY found.name
"""
"""The logins for reports of this database, with or without a role, and how many connections each has.
A role is ours if it is a member of REPORT_ROLE or has the setting with which we create it, and is not
one that administers logins."""

_OPEN_PLACES = """
SELECT quote_ident(current_database()) AS database,
       has_database_privilege('public', current_database(), 'TEMPORARY') AS temporary,
       coalesce(has_schema_privilege('public', to_regnamespace('public')::oid, 'CREATE'), false)
           AS makes_in_public
"""
"""Where every login may create something."""

_OPEN_TO_ALL = """
SELECT format('pg_catalog.%I(%s)', p.proname, pg_get_function_identity_arguments(p.oid)) AS function,
       CASE WHEN p.proname <> ALL ($1)
            THEN (SELECT quote_ident(r.rolname) FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner
                  WHERE n.nspname = 'hocket') END AS owner
FROM pg_proc p
WHERE p.pronamespace = 'pg_catalog'::regnamespace
  AND (p.proname = ANY ($1)
       OR EXISTS (SELECT FROM unnest($2::text[]) start WHERE starts_with(p.proname, start)))
  AND has_function_privilege('public', p.oid, 'EXECUTE')
ORDER BY 1
"""
"""Functions that every login may call but should not; `owner` is the login of our services, if it needs
them."""
