"""Audits actions performed by sending a message. Since a message has no transaction, the row is written
before it is sent."""

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
    """Record that the caller requested an action. The action is sent afterwards, and may still be
    refused. `tenant` is the target's tenant if it is not the caller's."""
    done = Action(action, target, tenant or caller.tenant, after=after)
    async with (
        context.pool.acquire(timeout=QUERY_TIMEOUT_S) as connection,
        connection.transaction(),
    ):
        await audit_log.record(connection, caller.actor, done)
