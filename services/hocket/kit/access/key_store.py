"""Keys in Postgres: make, list, rotate and revoke them, each change with its row in the audit.

Only the SHA-256 of a secret is stored: the secret is returned once, when it is made. Every change gives
the key a new `change` number, by which processes read what is new (`key_book`). The head of the audit,
which each transaction keeps locked until it ends, makes the numbers visible in their order.
"""

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import asyncpg

from hocket.kit.access import audit_log
from hocket.kit.access.audit_log import Action, Actor
from hocket.schemas.access.keys import (
    ID_DIGITS,
    SECRET_DIGITS,
    Principal,
    hashed,
    key_text,
    parts_of,
)
from hocket.schemas.access.roles import ROLES, Permission, permissions_of
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput
from hocket.schemas.subjects import is_pool

MAX_KEYS = 100_000
"""Valid keys of all tenants together: every process that accepts keys has them in memory."""
MAX_TENANT_KEYS = 5_000
"""Keys of one tenant, so that others have room ..."""
MAX_TENANT_MODELS = 50_000
"""... and models that these keys name together, because they are kept in memory, too."""
SHOWN_MODELS = 10
ENDS_SOON_S = 300
"""A former secret that ends within this time does not stop another rotation, which ends it at once: a
daily rotation with an overlap of a day may start a little early."""
WORKER = "worker"
"""The role of keys that name pools."""
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

SHOWN = """
key_id, name, tenant, role, scopes, models, pools, requests_per_s, created_at, created_by, expires_at,
revoked_at, rotated_at, last_used_at, groups,
CASE WHEN former_until IS NOT NULL THEN least(former_until, expires_at) END AS former_until
"""
"""A former secret ends with its key at the latest; earlier releases stored later times."""
IN_FORCE = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())"
COUNT = f"SELECT count(*) FROM hocket.api_key WHERE {IN_FORCE}"
COUNT_OF_TENANT = f"""
SELECT count(*) AS keys, coalesce(sum(cardinality(models)), 0) AS models
FROM hocket.api_key WHERE tenant = $1 AND {IN_FORCE}
"""
_INSERT = """
INSERT INTO hocket.api_key (key_id, name, tenant, role, scopes, models, requests_per_s, created_by,
                            expires_at, secret_sha256, pools)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
"""
INSERT = f"{_INSERT} RETURNING {SHOWN}"
INSERT_GIVEN = f"{_INSERT} ON CONFLICT (key_id) DO NOTHING RETURNING true"
LIST = f"""
SELECT {SHOWN} FROM hocket.api_key
WHERE ($1::text IS NULL OR tenant = $1) AND ($2 OR {IN_FORCE})
  AND (created_at, key_id) < ($3, $4)
ORDER BY created_at DESC, key_id DESC LIMIT $5
"""
"""Latest first: keys of one tenant or of all, only those in force or also the others."""
COUNTS = f"""
SELECT EXISTS (SELECT FROM hocket.api_key WHERE key_id = $1 AND secret_sha256 = $2 AND {IN_FORCE})
"""
FIND = f"SELECT {SHOWN} FROM hocket.api_key WHERE key_id = $1"
LOCKED = f"""
SELECT {SHOWN}, coalesce(expires_at <= now(), false) AS is_expired,
       coalesce(former_until > now() + make_interval(secs => {ENDS_SOON_S}), false) AS is_in_rotation
FROM hocket.api_key WHERE key_id = $1 FOR UPDATE
"""
ROTATE = f"""
UPDATE hocket.api_key
SET former_sha256 = CASE WHEN $3 > 0 THEN secret_sha256 END,
    former_until = CASE WHEN $3 > 0 THEN least(now() + make_interval(secs => $3), expires_at) END,
    secret_sha256 = $2, rotated_at = now(), change = nextval('hocket.api_key_change')
WHERE key_id = $1 RETURNING {SHOWN}
"""
REVOKE = f"""
UPDATE hocket.api_key SET revoked_at = now(), change = nextval('hocket.api_key_change')
WHERE key_id = $1 RETURNING {SHOWN}
"""


class KeyUnknown(HocketError):
    """There is no key `{key_id}` here. `hocket keys list` shows the existing keys."""

    code = "key_unknown"
    error_class = ErrorClass.INVALID


class KeyRevoked(HocketError):
    """The key `{key_id}` was revoked; that cannot be undone. Create another: `hocket keys create`."""

    code = "key_revoked"
    error_class = ErrorClass.INVALID


class KeyExpired(HocketError):
    """The key `{key_id}` has expired; a new secret would not work either. Create another key:
    `hocket keys create`."""

    code = "key_expired"
    error_class = ErrorClass.INVALID


class KeyInRotation(HocketError):
    """The former secret of the key `{key_id}` is valid until {until}, and another rotation would end it.
    Rotate the key after that, or end both secrets now: `hocket keys rotate {key_id} --overlap-s 0`."""

    code = "key_in_rotation"
    error_class = ErrorClass.INVALID


class KeyOfPerson(HocketError):
    """`{key_id}` is a person who signs in at the identity provider, and has no secret that could be
    rotated. Create a key: `hocket keys create`."""

    code = "key_of_person"
    error_class = ErrorClass.INVALID


class KeysFull(HocketError):
    """There are already {limit} keys. Revoke unused ones: `hocket keys list` shows when each was last
    used."""

    code = "keys_full"
    error_class = ErrorClass.UNAVAILABLE


class TenantKeysFull(HocketError):
    """`{tenant}` would have {keys} keys that name {models} models; the limits are {limit} and
    {limit_models}. Revoke unused ones: `hocket keys list` shows when each was last used."""

    code = "tenant_keys_full"
    error_class = ErrorClass.RATE_LIMITED


class KeyBeyondOwn(HocketError):
    """`{field}`: a key cannot grant more than it has, {own}. Ask for that much or less."""

    code = "key_beyond_own"
    error_class = ErrorClass.INVALID


class RoleBeyondOwn(HocketError):
    """A key cannot grant what it does not have: {permissions}. Ask for a role within your own, or
    narrow it with `scopes`."""

    code = "role_beyond_own"
    error_class = ErrorClass.INVALID


@dataclass(frozen=True, slots=True)
class NewKey:
    """The properties of a key to be made. A `tenant` of None means all tenants, `scopes` of None all
    permissions of the role, and `models` of None all models."""

    name: str
    role: str
    tenant: str | None
    scopes: frozenset[Permission] | None = None
    models: tuple[str, ...] | None = None
    pools: tuple[str, ...] | None = None
    requests_per_s: float | None = None
    expires_at: datetime | None = None

    @property
    def permissions(self) -> frozenset[Permission]:
        """The permissions that its bearer will have."""
        return permissions_of(self.role, self.scopes)


def check_within(wanted: frozenset[Permission], own: frozenset[Permission]) -> None:
    """Raise RoleBeyondOwn if a key would have more permissions than its maker."""
    if beyond := sorted(wanted - own):
        raise RoleBeyondOwn(permissions=", ".join(beyond))


def check_bounds_within(
    own: Principal,
    permissions: frozenset[Permission],
    *,
    models: Collection[str] | None,
    requests_per_s: float | None,
    expires_at: datetime | None,
) -> None:
    """Raise KeyBeyondOwn if a key would have more models, a higher rate or a later expiry than its
    maker."""
    may = own.models if Permission.MODELS_CALL in permissions else None
    if may is not None and (models is None or not may.issuperset(models)):
        shown = ", ".join(sorted(may)[:SHOWN_MODELS])
        raise KeyBeyondOwn(field="models", own=shown_text(shown) or "none")
    rate = own.requests_per_s
    if rate is not None and (requests_per_s is None or requests_per_s > rate):
        raise KeyBeyondOwn(field="requests_per_s", own=f"{rate:g}")
    ends_s = float("inf") if expires_at is None else expires_at.timestamp()
    if ends_s > own.expires_at_s:
        until = datetime.fromtimestamp(own.expires_at_s, UTC)
        raise KeyBeyondOwn(field="expires_at", own=until.isoformat())


async def create(
    connection: asyncpg.Connection, wanted: NewKey, actor: Actor
) -> tuple[asyncpg.Record, str]:
    """Make a key, and return its row and its text, which cannot be read again later. Raises
    InvalidInput, KeysFull and TenantKeysFull."""
    _check(wanted)
    key_id, secret = secrets.token_hex(ID_DIGITS // 2), secrets.token_hex(SECRET_DIGITS // 2)
    async with connection.transaction():
        # first, because it locks: who makes keys at the same time counts this one
        await _audit(connection, actor, "keys.create", key_id, wanted.tenant, after=_told(wanted))
        if await connection.fetchval(COUNT) >= MAX_KEYS:
            raise KeysFull(limit=MAX_KEYS)
        await _check_room(connection, wanted)
        row = await connection.fetchrow(INSERT, *_values(key_id, secret, wanted, actor))
    return row, key_text(key_id, secret)


async def list_latest(
    pool: Pool,
    tenant: str | None,
    *,
    all_states: bool,
    before: tuple[datetime, str],
    limit: int,
) -> list[asyncpg.Record]:
    """Return at most `limit` keys of one tenant or of all, latest first, that were made before the row
    `before` (its time and key id). With `all_states`, include those no longer in force."""
    found: list[asyncpg.Record] = await pool.fetch(LIST, tenant, all_states, *before, limit)
    return found


async def find(pool: Pool, key_id: str, tenant: str | None) -> asyncpg.Record:
    """Return a key of one tenant or of any; raise KeyUnknown."""
    return _theirs(await pool.fetchrow(FIND, key_id), key_id, tenant)


async def adopt(
    connection: asyncpg.Connection, key_id: str, secret: str, wanted: NewKey, actor: Actor
) -> None:
    """Make a key with a given id and secret, unless a key with that id exists already in any state."""
    async with connection.transaction():
        if await connection.fetchval(INSERT_GIVEN, *_values(key_id, secret, wanted, actor)):
            after = _told(wanted)
            await _audit(connection, actor, "keys.create", key_id, wanted.tenant, after=after)


async def counts(connection: asyncpg.Connection, text: str) -> bool:
    """Tell whether a key is in force."""
    parts = parts_of(text)
    return parts is not None and await connection.fetchval(COUNTS, parts[0], hashed(parts[1]))


async def rotate(
    connection: asyncpg.Connection, key_id: str, tenant: str | None, overlap_s: float, actor: Actor
) -> tuple[asyncpg.Record, str]:
    """Give a key another secret, and return its row and its text. The former secret remains valid for
    `overlap_s`, but not after the key has expired; for 0 s, it and an earlier one become invalid. Raises
    KeyUnknown, KeyRevoked, KeyExpired, KeyInRotation if an earlier one is valid for longer than
    ENDS_SOON_S, and KeyOfPerson: whoever had a secret for a person's row could sign in with that
    person's rights."""
    secret = secrets.token_hex(SECRET_DIGITS // 2)
    async with connection.transaction():
        known = await _locked(connection, key_id, tenant)
        if known["groups"] is not None:
            raise KeyOfPerson(key_id=key_id)
        if known["is_expired"]:
            raise KeyExpired(key_id=key_id)
        if overlap_s and known["is_in_rotation"]:
            raise KeyInRotation(key_id=key_id, until=second_after(known["former_until"]))
        after = {"overlap_s": overlap_s}
        await _audit(connection, actor, "keys.rotate", key_id, known["tenant"], after=after)
        row = await connection.fetchrow(ROTATE, key_id, hashed(secret), float(overlap_s))
    return row, key_text(key_id, secret)


def second_after(moment: datetime) -> str:
    """Return a time as text in whole seconds, and no earlier than it is."""
    return (moment + timedelta(microseconds=999_999)).isoformat(timespec="seconds")


async def revoke(
    connection: asyncpg.Connection, key_id: str, tenant: str | None, actor: Actor
) -> asyncpg.Record:
    """Revoke a key, and return its row. A key that was revoked before is left as it is. Raises
    KeyUnknown."""
    async with connection.transaction():
        try:
            known = await _locked(connection, key_id, tenant)
        except KeyRevoked:
            return await connection.fetchrow(FIND, key_id)
        before = {"name": known["name"], "role": known["role"]}
        await _audit(connection, actor, "keys.revoke", key_id, known["tenant"], before=before)
        return await connection.fetchrow(REVOKE, key_id)


async def _locked(
    connection: asyncpg.Connection, key_id: str, tenant: str | None
) -> asyncpg.Record:
    row = _theirs(await connection.fetchrow(LOCKED, key_id), key_id, tenant)
    if row["revoked_at"] is not None:
        raise KeyRevoked(key_id=key_id)
    return row


def _theirs(row: asyncpg.Record | None, key_id: str, tenant: str | None) -> asyncpg.Record:
    if row is None or (tenant is not None and row["tenant"] != tenant):
        raise KeyUnknown(key_id=key_id)
    return row


async def _audit(
    connection: asyncpg.Connection,
    actor: Actor,
    action: str,
    key_id: str,
    tenant: str | None,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    done = Action(action, f"key:{key_id}", tenant, before=before, after=after)
    await audit_log.record(connection, actor, done)


def _values(key_id: str, secret: str, wanted: NewKey, actor: Actor) -> tuple[Any, ...]:
    return (
        key_id,
        wanted.name,
        wanted.tenant,
        wanted.role,
        None if wanted.scopes is None else sorted(wanted.scopes),
        None if wanted.models is None else list(wanted.models),
        wanted.requests_per_s,
        actor.name,
        wanted.expires_at,
        hashed(secret),
        None if wanted.pools is None else list(wanted.pools),
    )


def _told(wanted: NewKey) -> dict[str, Any]:
    return {
        "name": wanted.name,
        "role": wanted.role,
        "scopes": None if wanted.scopes is None else sorted(wanted.scopes),
        "models": wanted.models,
        "pools": wanted.pools,
        "requests_per_s": wanted.requests_per_s,
        "expires_at": wanted.expires_at,
    }


async def _check_room(connection: asyncpg.Connection, wanted: NewKey) -> None:
    if wanted.tenant is None:
        return
    row = await connection.fetchrow(COUNT_OF_TENANT, wanted.tenant)
    keys, models = row["keys"] + 1, row["models"] + len(wanted.models or ())
    if keys > MAX_TENANT_KEYS or models > MAX_TENANT_MODELS:
        raise TenantKeysFull(
            tenant=wanted.tenant,
            keys=keys,
            models=models,
            limit=MAX_TENANT_KEYS,
            limit_models=MAX_TENANT_MODELS,
        )


def _check(wanted: NewKey) -> None:
    if wanted.role not in ROLES:
        raise InvalidInput(
            field="role", reason="there is no such role", cure=f"Use {', '.join(ROLES)}."
        )
    if beyond := sorted((wanted.scopes or frozenset()) - ROLES[wanted.role]):
        raise InvalidInput(
            field="scopes",
            reason=f"the role `{wanted.role}` does not have {', '.join(beyond)}",
            cure="Choose from the permissions of the role; `hocket keys roles` lists them.",
        )
    if wanted.expires_at is not None and wanted.expires_at <= datetime.now(UTC):
        raise InvalidInput(
            field="expires_at",
            reason="the key would already have expired",
            cure="Name a time in the future, such as `--days 90`, or none.",
        )
    _check_pools(wanted)


def _check_pools(wanted: NewKey) -> None:
    if wanted.role != WORKER:
        if wanted.pools:
            raise _wrong_pools(f"the role is `{wanted.role}`", f"Use it with the role `{WORKER}`.")
        return
    if wanted.tenant is not None:
        raise InvalidInput(
            field="all_tenants",
            reason="steps of a node type come from all tenants",
            cure="Create a worker's key for all tenants: `--all-tenants`.",
        )
    if not wanted.pools:
        raise _wrong_pools("it names none", "Name what it runs, such as `crm.lookup`.")
    if bad := next((pool for pool in wanted.pools if not is_pool(pool)), None):
        raise _wrong_pools(
            f"`{shown_text(bad)}` is none",
            "Write a node type, or `type@queue`, as `hocket types` does.",
        )


def _wrong_pools(reason: str, cure: str) -> InvalidInput:
    return InvalidInput(field="pools", reason=reason, cure=cure)
