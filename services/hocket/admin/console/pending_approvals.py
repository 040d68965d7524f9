"""Counts the approvals that wait for a person, for the navigation of each page.

The count must slow no page down. It is one query, which reads a limited number of running runs, the
oldest, by their index. It has places of its own, its result is kept for some seconds, and a page waits
for it only WAIT_S: after that it shows the number that was counted before, if any.
"""

import asyncio
from dataclasses import dataclass

import structlog
from fastapi import Request

from hocket.admin.console.error_pages import wants_page
from hocket.admin.console.rendering import BASE, is_part
from hocket.admin.context import Context, context_of
from hocket.admin.queries import Pool
from hocket.admin.requests.errors import UNREACHABLE
from hocket.admin.requests.identity import BEARER, tenant_of
from hocket.kit.process import clock
from hocket.kit.process.limits.tenant_places import TenantPlaces
from hocket.schemas.access.roles import Permission

PATH = f"{BASE}/approvals"
"""The page that lists them, which need not count them."""
MAX_SHOWN = 99
"""More approvals are not counted."""
MAX_LOOKED = 500
"""Running runs that are looked at, those that began first: what waits for a person waits long."""
WAIT_S = 0.05
COUNT_S = 2.0
"""How long a count may take."""
KEPT_S = 2.0
KEPT_TIMES = 50
"""A count is kept for KEPT_S, or KEPT_TIMES the time that it took if that is longer ..."""
REST_S = 30.0
"""... and if it failed, the next one is made after this."""
MAX_KEPT = 1_000
"""Tenants whose counts are kept."""
COUNTS_AT_ONCE = 2

COUNT = """
WITH looked AS MATERIALIZED (
    SELECT run_id FROM hocket.run WHERE tenant = $1 AND status = 'running'
    ORDER BY accepted_at, run_id LIMIT $2)
SELECT count(*) AS pending, (SELECT count(*) FROM looked) AS looked FROM (
    SELECT FROM looked CROSS JOIN LATERAL (
        SELECT FROM hocket.step s
        WHERE s.run_id = looked.run_id AND s.state = 'waiting' AND s.type = 'approval' OFFSET 0) step
    LIMIT $3) found
"""
"""Reads the running runs by their index, and the steps of each by its own."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PendingApprovals:
    """How many approvals of a tenant wait; `is_least` if there may be more."""

    number: int
    is_least: bool

    @property
    def shown(self) -> str:
        """The number as people read it, such as `3` or `99+`."""
        return f"{self.number}+" if self.is_least else str(self.number)

    @property
    def noun(self) -> str:
        """What is counted."""
        return "pending approval" if self.shown == "1" else "pending approvals"


@dataclass(frozen=True, slots=True)
class _Kept:
    """The last count of a tenant, and until when it is not made again."""

    found: PendingApprovals | None
    until_s: float


class ApprovalCounts:
    """The counts of this process by tenant, each made once for all pages that ask for it meanwhile."""

    def __init__(self) -> None:
        self._places = TenantPlaces(COUNTS_AT_ONCE, COUNTS_AT_ONCE)
        self._kept: dict[str, _Kept] = {}
        self._counting: dict[str, asyncio.Task[None]] = {}

    async def of(self, context: Context, tenant: str) -> PendingApprovals | None:
        """Return a tenant's pending approvals as far as they are known after WAIT_S; None if there are
        none."""
        kept = self._kept.get(tenant)
        if kept is None or kept.until_s <= _now_s():
            task = self._counting.get(tenant)
            if task is None:
                task = asyncio.create_task(self._count(context, tenant), name="pending approvals")
                task.add_done_callback(lambda _: self._counting.pop(tenant, None))
                self._counting[tenant] = task
            await asyncio.wait((task,), timeout=WAIT_S)
            kept = self._kept.get(tenant)
        return None if kept is None else kept.found

    def keep(self, tenant: str, found: PendingApprovals | None, for_s: float) -> None:
        """Keep a count; it is not made again for this time."""
        if len(self._kept) >= MAX_KEPT:
            now_s = _now_s()
            self._kept = {name: one for name, one in self._kept.items() if one.until_s > now_s}
        if len(self._kept) < MAX_KEPT or tenant in self._kept:
            self._kept[tenant] = _Kept(found, _now_s() + for_s)

    async def _count(self, context: Context, tenant: str) -> None:
        try:
            async with self._places.place(tenant), asyncio.timeout(COUNT_S):
                begun_s = _now_s()
                found = await count(context.pool, tenant)
        except (TimeoutError, *UNREACHABLE) as error:  # a page's own queries say what is wrong
            log.warning("approvals_not_counted", tenant=tenant, reason=str(error) or repr(error))
            self.keep(tenant, None, REST_S)
        else:
            self.keep(tenant, found, max(KEPT_S, KEPT_TIMES * (_now_s() - begun_s)))


async def count(pool: Pool, tenant: str) -> PendingApprovals | None:
    """Return a tenant's pending approvals, as far as they are counted; None if there are none."""
    row = await pool.fetchrow(COUNT, tenant, MAX_LOOKED, MAX_SHOWN + 1)
    assert row is not None, "it counts"
    return pending(row["pending"], is_all=row["looked"] < MAX_LOOKED)


def pending(number: int, *, is_all: bool) -> PendingApprovals | None:
    """Return this number of approvals as it is shown; None for none."""
    if number == 0:
        return None
    return PendingApprovals(min(number, MAX_SHOWN), not is_all or number > MAX_SHOWN)


async def count_approvals(request: Request) -> None:
    """Count the approvals of the tenant that a page shows, for its navigation."""
    scope = request.scope
    bearer = scope.get(BEARER)
    if bearer is None or scope["path"] == PATH or not wants_page(scope) or is_part(request):
        return
    if bearer.may(Permission.RUNS_READ):
        context = await context_of(request)
        request.state.approvals = await _counts(request).of(context, tenant_of(scope))


def tell_approvals(request: Request, number: int, *, is_all: bool) -> None:
    """Show in the navigation the number of approvals that a page has read."""
    found = request.state.approvals = pending(number, is_all=is_all)
    _counts(request).keep(tenant_of(request.scope), found, KEPT_S)


def _counts(request: Request) -> ApprovalCounts:
    """Return the counts of this process, made by its first page."""
    state = request.app.state
    found = getattr(state, "approval_counts", None)
    if found is None:
        found = state.approval_counts = ApprovalCounts()
    assert isinstance(found, ApprovalCounts)
    return found


def _now_s() -> float:
    return clock.monotonic_ms() / 1000
