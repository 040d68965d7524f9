"""`/v1/keys`: create, list, rotate and revoke keys, and see what one's own key may do."""

from typing import Annotated, Any

import asyncpg
from fastapi import APIRouter, Path, Query

from hocket.admin.context import Ctx
from hocket.admin.pages import DEFAULT_PAGE, FAR_FUTURE, After, Limit, cursor, parse_cursor
from hocket.admin.requests.identity import Caller, CallerDep
from hocket.admin.requests.json_bodies import PlainJsonRoute
from hocket.admin.requests.parameters import Switch
from hocket.admin.requests.permissions import needs
from hocket.kit.access import key_store
from hocket.kit.access.key_store import NewKey
from hocket.schemas.access.bodies import (
    KeyBody,
    KeyDetail,
    KeyList,
    KeyMade,
    OwnKey,
    RoleList,
    RotateBody,
)
from hocket.schemas.access.roles import ROLES, Permission, permissions_of

KeyId = Annotated[str, Path(pattern=r"^[0-9a-f]{12}$", description="ID of the key.")]

router = APIRouter(prefix="/v1", tags=["keys"], route_class=PlainJsonRoute)


@router.post("/keys", status_code=201)
@needs(Permission.KEYS_MANAGE)
async def create_key(body: KeyBody, context: Ctx, caller: CallerDep) -> KeyMade:
    """Create a key for the request's tenant and return its text, which is shown only once. It cannot
    have more permissions than the key of the request."""
    wanted = NewKey(
        name=body.name,
        role=body.role,
        tenant=_tenant(caller, all_tenants=body.all_tenants),
        scopes=None if body.scopes is None else frozenset(body.scopes),
        models=body.models,
        pools=body.pools,
        requests_per_s=body.requests_per_s,
        expires_at=body.expires_at,
    )
    key_store.check_within(wanted.permissions, caller.bearer.permissions)
    key_store.check_bounds_within(
        caller.bearer,
        wanted.permissions,
        models=wanted.models,
        requests_per_s=wanted.requests_per_s,
        expires_at=wanted.expires_at,
    )
    async with context.pool.acquire() as connection:
        row, key = await key_store.create(connection, wanted, caller.actor)
    return KeyMade(**_shown(row), key=key)


@router.get("/keys")
@needs(Permission.KEYS_READ)
async def list_keys(
    context: Ctx,
    caller: CallerDep,
    every: Annotated[
        Switch,
        Query(alias="all", description="Include revoked and expired keys."),
    ] = False,
    all_tenants: Annotated[Switch, Query(description="Include the keys of all tenants.")] = False,
    after: After = None,
    limit: Limit = DEFAULT_PAGE,
) -> KeyList:
    """List keys, newest first. Secrets are never included."""
    before = (FAR_FUTURE, "") if after is None else parse_cursor(after)
    rows = await key_store.list_latest(
        context.pool,
        _tenant(caller, all_tenants=all_tenants),
        all_states=every,
        before=before,
        limit=limit + 1,
    )
    page = rows[:limit]
    last = page[-1] if len(rows) > limit else None
    return KeyList(
        keys=tuple(KeyDetail(**_shown(row)) for row in page),
        next=None if last is None else cursor(last["created_at"], last["key_id"]),
    )


@router.get("/keys/own")
@needs(Permission.PLATFORM_READ)
async def show_own_key(caller: CallerDep) -> OwnKey:
    """Show the key used for the request and what it may do."""
    bearer = caller.bearer
    return OwnKey(
        key_id=bearer.key_id,
        name=bearer.name,
        tenant=bearer.tenant,
        role=bearer.role,
        permissions=tuple(sorted(bearer.permissions)),
    )


@router.get("/keys/{key_id}")
@needs(Permission.KEYS_READ)
async def show_key(key_id: KeyId, context: Ctx, caller: CallerDep) -> KeyDetail:
    """Show a key."""
    return KeyDetail(**_shown(await key_store.find(context.pool, key_id, caller.bearer.tenant)))


@router.post("/keys/{key_id}/rotate")
@needs(Permission.KEYS_MANAGE)
async def rotate_key(
    key_id: KeyId, context: Ctx, caller: CallerDep, body: RotateBody | None = None
) -> KeyMade:
    """Issue a new secret for a key and return its text, which is shown only once. The former secret
    stays valid for another `overlap_s` seconds, but not after the key has expired. Until 5 minutes
    before its end, the key is rotated again (409) only with an `overlap_s` of 0, which ends all secrets
    but the new one. An expired key gets no other secret."""
    row = await _check_within(context.pool, caller, key_id)
    key_store.check_bounds_within(
        caller.bearer,
        permissions_of(row["role"], row["scopes"]),
        models=row["models"],
        requests_per_s=row["requests_per_s"],
        expires_at=row["expires_at"],
    )
    overlap_s = (body or RotateBody()).overlap_s
    async with context.pool.acquire() as connection:
        row, key = await key_store.rotate(
            connection, key_id, caller.bearer.tenant, overlap_s, caller.actor
        )
    return KeyMade(**_shown(row), key=key)


@router.delete("/keys/{key_id}")
@needs(Permission.KEYS_MANAGE)
async def revoke_key(key_id: KeyId, context: Ctx, caller: CallerDep) -> KeyDetail:
    """Permanently revoke a key: it is refused everywhere within seconds, and its open requests end."""
    await _check_within(context.pool, caller, key_id)
    async with context.pool.acquire() as connection:
        row = await key_store.revoke(connection, key_id, caller.bearer.tenant, caller.actor)
    return KeyDetail(**_shown(row))


@router.get("/roles")
@needs(Permission.PLATFORM_READ)
async def list_roles() -> RoleList:
    """List the roles and their permissions."""
    return RoleList(roles={role: tuple(sorted(allowed)) for role, allowed in ROLES.items()})


def _tenant(caller: Caller, *, all_tenants: bool) -> str | None:
    """Return the tenant of a request, or None for all tenants; raise TenantForbidden."""
    if not all_tenants:
        return caller.tenant
    caller.check_all_tenants()
    return None


async def _check_within(pool: key_store.Pool, caller: Caller, key_id: str) -> asyncpg.Record:
    """Return the row of a key, refusing callers whose own key may do less: by changing it they would
    gain its permissions."""
    row = await key_store.find(pool, key_id, caller.bearer.tenant)
    own = caller.bearer.permissions
    key_store.check_within(permissions_of(row["role"], row["scopes"]), own)
    return row


def _shown(row: asyncpg.Record) -> dict[str, Any]:
    return dict(row)
