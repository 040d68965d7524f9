"""Writes into the audit what is done by a message, which has no transaction: before it is sent."""

from collections.abc import Mapping
from typing import Any

from hocket.admin.context import Context
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.identity import Caller
from hocket.kit.access import audit_log
from hocket.kit.access.audit_log import Action


async def record(
    context: Context,
    caller: Caller,
    action: str,
    target: str,
    after: Mapping[str, Any] | None = None,
    tenant: str | None = None,
) -> None:
    """Write that the caller asks for an action; it is sent next, and may be refused then. `tenant` is
    whose the target is, where it is not the caller's."""
    done = Action(action, target, tenant or caller.tenant, after=after)
    async with (
        context.pool.acquire(timeout=QUERY_TIMEOUT_S) as connection,
        connection.transaction(),
    ):
        await audit_log.record(connection, caller.actor, done)
