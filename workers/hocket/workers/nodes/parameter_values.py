"""The allowed values of catalog queries' parameters, loaded from the database and cached for a while.

Many runs plan with the same catalog at once; each list is loaded once for all that wait for it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from hocket.schemas.errors import InvalidInput
from hocket.workers.sql.errors import SqlTimeout
from hocket.workers.sql.runner import run_query
from hocket.workers.sql.targets import Target, Targets

MAX_VALUES = 1_000
"""The most values of one parameter; a longer list is not useful to choose from."""
MAX_KEPT = 256
MAX_AGE_S = 300.0


@dataclass(frozen=True, slots=True)
class _Kept:
    loading: asyncio.Task[list[Any]]
    since_s: float


class ParameterValues:
    """Lists of values, by database and SELECT."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()

    async def load(self, tenant: str, database: str, sql: str, *, timeout_ms: float) -> list[Any]:
        """Return the values of a SELECT's only column, at most MAX_VALUES; raise TargetUnknown if the
        database does not exist or is not for that tenant."""
        target = self._targets.get(database, tenant)
        clock = asyncio.get_running_loop().time
        until_s = clock() + timeout_ms / 1000
        while True:
            kept = self._kept.get((database, sql))
            is_own = kept is None or clock() - kept.since_s > MAX_AGE_S or _has_failed(kept.loading)
            if kept is None or is_own:
                left_ms = (until_s - clock()) * 1000
                kept = self._keep(database, sql, self._select(target, sql, left_ms))
            try:
                return await asyncio.shield(kept.loading)
            except SqlTimeout:  # unless it was the time of another caller, who had less
                if is_own or clock() >= until_s:
                    raise

    def _keep(self, database: str, sql: str, selecting: Coroutine[Any, Any, list[Any]]) -> _Kept:
        loading = asyncio.create_task(selecting)
        loading.add_done_callback(_note)
        kept = _Kept(loading, asyncio.get_running_loop().time())
        self._kept[database, sql] = kept
        self._kept.move_to_end((database, sql))
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return kept

    async def _select(self, target: Target, sql: str, timeout_ms: float) -> list[Any]:
        result = await run_query(target, sql, {}, timeout_ms=timeout_ms, max_rows=MAX_VALUES)
        if len(result.columns) != 1 or result.truncated:
            reason = f"it has {len(result.columns)} columns"
            if result.truncated:
                reason = f"it has more than {MAX_VALUES} rows"
            raise InvalidInput(
                field="values",
                reason=f"`{sql[:120]}` is not a list of values: {reason}",
                cure="Select one column with few distinct values.",
            )
        return [row[0] for row in result.rows if row[0] is not None]


def _has_failed(task: asyncio.Task[list[Any]]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _note(task: asyncio.Task[list[Any]]) -> None:
    """Retrieve the exception of a task that nobody awaits, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()
