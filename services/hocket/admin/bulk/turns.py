"""Processes the bulk operations of all tenants, a page at a time; a lease keeps other processes from the
operation meanwhile."""

import asyncio
from contextlib import suppress
from uuid import uuid4

import asyncpg
import structlog

from hocket.admin.bulk import operations, store
from hocket.admin.context import Context
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.postgres.errors import STATEMENT_ERRORS
from hocket.kit.process.task_stop import stop_tasks

LOOK_S = 5.0
"""How often to look for operations whose process has died."""
RENEWALS = 3
"""How often a lease is renewed before it would end."""
AWAY: tuple[type[BaseException], ...] = (BusUnavailable, TimeoutError, OSError, *STATEMENT_ERRORS)
"""Errors that mean the operation has to wait."""

log = structlog.get_logger(__name__)


async def run(context: Context) -> None:
    """Process operations until cancelled."""
    owner = uuid4().hex
    while True:
        context.bulk_asked.clear()
        try:
            row = await context.pool.fetchrow(store.CLAIM, owner, store.LEASE_S)
            if row is not None:
                await take(context, owner, row)
                continue
        except AWAY as error:
            log.warning("bulk_operation_waits", reason=str(error) or repr(error))
        except Exception:
            log.exception("bulk_operation_failed")
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await context.bulk_asked.wait()


async def take(context: Context, owner: str, row: asyncpg.Record) -> None:
    """Process one page of an operation, then release it to the next operation or another process."""
    renewing = asyncio.create_task(_renew(context, owner, row["operation_id"]))
    try:
        await operations.change_page(context, owner, row)
    finally:
        await stop_tasks([renewing])
        with suppress(*AWAY):  # the lease also expires by itself
            await context.pool.execute(store.RELEASE, row["operation_id"], owner)


async def _renew(context: Context, owner: str, operation_id: str) -> None:
    """Keep the lease of an operation until cancelled."""
    while True:
        await asyncio.sleep(store.LEASE_S / RENEWALS)
        with suppress(*AWAY):
            await context.pool.execute(
                store.RENEW, operation_id, owner, store.LEASE_S, timeout=QUERY_TIMEOUT_S
            )
