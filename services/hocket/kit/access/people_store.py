"""People who signed in to the console, in Postgres.

Each person has one row among the keys, so that every process learns within a second when the person is
revoked, gets other groups, or is signed out everywhere. The row grants no permission and is not a usable
key: its role is narrowed to nothing, and nobody knows its secret. What the person may do follows from
their groups, by the roles that the settings assign to these.
"""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

import asyncpg

from hocket.kit.access import audit_log
from hocket.kit.access.audit_log import Action, Actor
from hocket.kit.access.key_store import COUNT, MAX_KEYS, KeysFull
from hocket.schemas.access.keys import ID_DIGITS, SECRET_DIGITS, AccessDenied, hashed

ROLE = "viewer"
FIND = """
SELECT key_id, revoked_at, groups FROM hocket.api_key WHERE subject = $1 FOR UPDATE
"""
"""Locks a person's row. As in every change of a key, this comes before the audit, which is locked until
the transaction ends: the other way round, two changes could wait for each other."""
MADE = "SELECT key_id FROM hocket.api_key WHERE subject = $1"
INSERT = """
INSERT INTO hocket.api_key (key_id, name, role, scopes, created_by, secret_sha256, subject, groups,
                            expires_at)
VALUES ($1, $2, $3, '{}', $4, $5, $4, $6, $7)
"""
UPDATE = """
UPDATE hocket.api_key SET name = $2, groups = $3, expires_at = $4, last_used_at = now(),
       change = nextval('hocket.api_key_change')
WHERE key_id = $1
"""
SIGN_OUT = """
UPDATE hocket.api_key SET secret_sha256 = $2, former_sha256 = NULL, former_until = NULL,
       rotated_at = now(), change = nextval('hocket.api_key_change')
WHERE subject = $1
"""


class PersonRevoked(AccessDenied):
    """An admin has revoked your access to this platform. {cure}"""

    code = "person_revoked"
    cure = "Ask an admin for a key: `hocket keys create`."


async def sign_in(
    connection: asyncpg.Connection,
    subject: str,
    name: str,
    groups: Sequence[str],
    ends_at_s: float,
    address: str,
) -> str:
    """Record that somebody signed in, or was denied, and return the id of their row. `groups` are those
    that have a role; without any, all sessions of this person end. Raises PersonRevoked or KeysFull."""
    actor = Actor(f"{subject} {name}", address)
    ends_at = datetime.fromtimestamp(ends_at_s, UTC)
    after: dict[str, object] = {"name": name, "groups": list(groups)}
    async with connection.transaction():
        known = await connection.fetchrow(FIND, subject)
        is_revoked = known is not None and known["revoked_at"] is not None
        if is_revoked:
            after["revoked"] = True
        action = "console.sign_in" if groups and not is_revoked else "console.sign_in_denied"
        done = Action(action, f"person:{subject}", None, after=after)
        await audit_log.record(connection, actor, done)  # from here on, one transaction at a time
        if known is None:
            return await _made(connection, subject, name, list(groups), ends_at)
        if not is_revoked:
            await connection.execute(UPDATE, known["key_id"], name, list(groups), ends_at)
            return str(known["key_id"])
    raise PersonRevoked  # its row in the audit is written


async def _made(
    connection: asyncpg.Connection, subject: str, name: str, groups: list[str], ends_at: datetime
) -> str:
    """Make a person's row, unless the same person signed in elsewhere meanwhile; return its id."""
    made = await connection.fetchval(MADE, subject)
    if made is not None:
        return str(made)
    if await connection.fetchval(COUNT) >= MAX_KEYS:
        raise KeysFull(limit=MAX_KEYS)
    key_id, secret = secrets.token_hex(ID_DIGITS // 2), hashed(_nobodys())
    values = (key_id, name, ROLE, subject, secret, groups, ends_at)
    await connection.execute(INSERT, *values)
    return key_id


async def sign_out_everywhere(connection: asyncpg.Connection, subject: str, actor: Actor) -> None:
    """End all sessions of a person."""
    async with connection.transaction():
        await connection.fetchrow(FIND, subject)
        done = Action("console.sign_out_everywhere", f"person:{subject}", None)
        await audit_log.record(connection, actor, done)
        await connection.execute(SIGN_OUT, subject, hashed(_nobodys()))


def _nobodys() -> str:
    return secrets.token_hex(SECRET_DIGITS // 2)
