"""Cancels and retries many runs: counted first, then page by page in the background.

States of an operation: running (at one process, by a lease), done, stopped. It covers all runs that
match and were accepted before the count, latest first, so that it terminates. These may be LATE_RUNS
more than were counted, because a run may be accepted before the count and stored after it. A page whose
progress was not written is repeated by the next process. That changes nothing: cancelling an ended run
has no effect, and a run is retried as by a plain request, which gives the same retry whoever asks, and
however often.

To leave room for other work, only a few runs of a page are changed at once. Runs cancelled together
belong to one partition, so that its coordinator reads, writes and publishes them together. Other
messages of that partition queue behind them, so the operation waits until the runs have ended, and then
as long again. The next page goes to the tenant whose last page was longest ago.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any
from uuid import uuid4

import asyncpg
import structlog

from hocket.admin.bulk import store, targets
from hocket.admin.bulk.targets import Targets
from hocket.admin.context import Context
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.identity import Caller, author_of
from hocket.admin.runs import actions, repeats
from hocket.kit.access import audit_log
from hocket.kit.access.audit_log import Action
from hocket.schemas.administration.bulk import BulkChange, BulkFilter, BulkOperation
from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput
from hocket.schemas.rest import RetryBody

PAGES = {"cancel": 100, "retry": 40}
"""Runs changed before the operation's progress is written."""
AT_ONCE = 8
"""How many of them are changed at once."""
LATE_RUNS = 1_000
"""How many runs may be accepted before the count and stored after it; without room for them, they would
take the place of counted ones."""
SETTLE_S = 0.5
"""How long to wait for cancelled runs to end: steps may take long to stop."""
SETTLE_LOOK_S = 0.02

log = structlog.get_logger(__name__)


class BulkTooLarge(HocketError):
    """The filter matches more runs than `at_most` ({at_most}). Narrow `filter`, or raise
    `at_most`."""

    code = "bulk_too_large"
    error_class = ErrorClass.INVALID


async def begin(context: Context, caller: Caller, asked: BulkChange) -> BulkOperation:
    """Count the matching runs, store the operation with its audit row, and start it; if an operation
    with the same key exists, return that one. Raises BulkTooLarge, BulkCountTooLong and InvalidInput."""
    operation_id = _id_of(caller.tenant, asked.idempotency_key)
    if asked.idempotency_key and (known := await _known(context, caller, operation_id, asked)):
        return known
    matching, at = await targets.count(
        context, caller.tenant, asked.action, asked.filter, asked.at_most
    )
    if matching > asked.at_most:
        raise BulkTooLarge(field="at_most", at_most=asked.at_most)
    said = _said(asked)
    done = Action(
        f"runs.bulk_{asked.action}",
        f"bulk:{operation_id}",
        caller.tenant,
        after={"filter": said, "reason": asked.reason, "matching": matching},
    )
    async with (
        context.pool.acquire(timeout=QUERY_TIMEOUT_S) as connection,
        connection.transaction(),
    ):
        row = await connection.fetchrow(
            store.INSERT,
            operation_id,
            caller.tenant,
            asked.action,
            json.dumps(said),
            asked.reason,
            matching,
            caller.name,
            at,
        )
        if row is not None:
            await audit_log.record(connection, caller.actor, done)
    if row is None:  # the same request arrived twice at the same time
        known = await _known(context, caller, operation_id, asked)
        assert known is not None, operation_id
        return known
    context.bulk_asked.set()
    return store.shown(row)


async def _known(
    context: Context, caller: Caller, operation_id: str, asked: BulkChange
) -> BulkOperation | None:
    """Return the operation of an idempotency key; raise InvalidInput if it was a different request."""
    with suppress(store.BulkOperationUnknown):
        found = await store.find(context.pool, caller.tenant, operation_id)
        if (found.action, found.filter) != (asked.action, BulkFilter(**_said(asked))):
            raise InvalidInput(
                field="idempotency_key",
                reason=f"it belongs to {operation_id}, which has another action or filter",
                cure="Use another key for another operation.",
            )
        return found
    return None


def _id_of(tenant: str, key: str | None) -> str:
    """Return the id of an operation: derived from its idempotency key, otherwise a new one."""
    if key is None:
        return f"b{uuid4().hex[:24]}"
    return f"b{sha256(json.dumps([tenant, key]).encode()).hexdigest()[:24]}"


def _said(asked: BulkChange) -> dict[str, Any]:
    return asked.filter.model_dump(mode="json", exclude_defaults=True)


async def change_page(context: Context, owner: str, row: asyncpg.Record) -> asyncpg.Record | None:
    """Change a page of runs, in all at most LATE_RUNS more than were counted, and write its progress;
    return its row, or None if another process has taken it over."""
    wanted = BulkFilter.model_validate_json(row["filter"])
    meant = Targets(row["tenant"], row["action"], wanted, row["created_at"])
    left = max(row["matching"] + LATE_RUNS - row["changed"] - row["skipped"], 0)
    limit = min(PAGES[row["action"]], left)
    page = await targets.next_page(context.pool, meant, row["place"], limit)
    changed = 0
    for part in _parts(row["action"], page.runs):
        began_s = asyncio.get_running_loop().time()
        if row["action"] == "cancel":
            await actions.cancel_all(context, caller_of(row), part, row["reason"])
            await _settled(context, [run["run_id"] for run in part])
            changed += len(part)
        else:
            changed += sum(await asyncio.gather(*(_retry(context, row, run) for run in part)))
        await asyncio.sleep(asyncio.get_running_loop().time() - began_s)
    return await context.pool.fetchrow(
        store.ADVANCE,
        row["operation_id"],
        owner,
        changed,
        len(page.runs) - changed,
        page.place,
        store.LEASE_S,
        page.is_last or len(page.runs) == left,
        timeout=QUERY_TIMEOUT_S,
    )


def _parts(action: str, runs: Sequence[asyncpg.Record]) -> Iterator[list[asyncpg.Record]]:
    """Split a page into the groups changed at once; the runs of a cancellation group are of one
    partition."""
    groups: dict[int, list[asyncpg.Record]] = {}
    for run in runs:
        groups.setdefault(run["partition"] if action == "cancel" else 0, []).append(run)
    for group in groups.values():
        for first in range(0, len(group), AT_ONCE):
            yield group[first : first + AT_ONCE]


async def _settled(context: Context, run_ids: list[str]) -> None:
    """Wait until cancelled runs have ended, at most SETTLE_S."""
    clock_s = asyncio.get_running_loop().time
    until_s = clock_s() + SETTLE_S
    while clock_s() < until_s:
        await asyncio.sleep(SETTLE_LOOK_S)
        if not await context.pool.fetchval(store.OPEN, run_ids, timeout=QUERY_TIMEOUT_S):
            return


def caller_of(row: Mapping[str, Any]) -> Caller:
    """Return the caller that requested an operation, under the same name."""
    return author_of(row["tenant"], row["created_by"])


async def _retry(context: Context, row: asyncpg.Record, run: asyncpg.Record) -> bool:
    """Retry a run; return whether that was possible. Raises if nothing can be done at the moment."""
    try:
        await repeats.retry(context, caller_of(row), run, RetryBody(), traceparent=None)
    except HocketError as error:
        info = error.info()
        if info.error_class in (ErrorClass.UNAVAILABLE, ErrorClass.TIMEOUT, ErrorClass.TRANSIENT):
            raise
        log.info(
            "bulk_run_skipped", operation=row["operation_id"], run_id=run["run_id"], code=info.code
        )
        return False
    return True
