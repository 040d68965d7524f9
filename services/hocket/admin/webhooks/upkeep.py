"""Deletes what webhooks keep no longer, a portion at a time: old deliveries, and the webhooks that
people deleted, with their deliveries. Every REST process does so; the portions are short."""

from datetime import datetime, timedelta

from hocket.admin.context import Context
from hocket.admin.pages import EPOCH
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.webhooks.store import DELETED
from hocket.kit.process import clock

KEPT_DAYS = 14
"""How long deliveries are kept, whatever their outcome. One about an approval is kept at least while
that waits, because without it, the approval would be announced again."""
PRUNE_S = 600.0
"""How often to look for old deliveries."""
REMOVE_S = 5.0
"""How often to look for deleted webhooks."""
AT_ONCE = 2_000
"""Deliveries of one portion."""

PRUNE = """
WITH old AS MATERIALIZED (
    SELECT webhook_id, message_id, created_at FROM hocket.webhook_delivery d
    WHERE created_at >= $1 AND created_at < $2
      AND (event <> 'run.waiting' OR NOT EXISTS (
          SELECT FROM hocket.step s JOIN hocket.run r ON r.run_id = s.run_id
          WHERE s.run_id = d.run_id AND s.key = d.step AND s.state = 'waiting'
            AND r.finished_at IS NULL))
    ORDER BY created_at LIMIT $3),
gone AS (
    DELETE FROM hocket.webhook_delivery d USING old
    WHERE d.webhook_id = old.webhook_id AND d.message_id = old.message_id)
SELECT count(*) AS count, max(created_at) AS reached FROM old
"""
"""By key, not by ctid, because a row whose try is being written at the same moment moves."""
REMOVED = f"""
SELECT webhook_id FROM hocket.webhook WHERE disabled_reason = '{DELETED}' ORDER BY changed_at LIMIT 1
"""
REMOVE_DELIVERIES = """
DELETE FROM hocket.webhook_delivery WHERE (webhook_id, message_id) IN (
    SELECT webhook_id, message_id FROM hocket.webhook_delivery
    WHERE webhook_id = $1 LIMIT $2 FOR UPDATE SKIP LOCKED)
"""
REMOVE = f"""
DELETE FROM hocket.webhook w WHERE webhook_id = $1 AND disabled_reason = '{DELETED}'
  AND NOT EXISTS (SELECT FROM hocket.webhook_delivery d WHERE d.webhook_id = w.webhook_id)
"""


class Upkeep:
    """The deletions of one process, in rounds: portions until nothing is left, then a rest."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._prune_at_ms = 0.0
        self._reached: datetime = EPOCH
        """Up to where this round has deleted: what stays before it is not read again."""
        self._remove_at_ms = 0.0

    async def look(self) -> None:
        """Delete a portion of what is due."""
        now_ms = clock.monotonic_ms()
        if now_ms >= self._remove_at_ms and not await self._remove():
            self._remove_at_ms = now_ms + REMOVE_S * 1000
        if now_ms >= self._prune_at_ms and not await self._prune():
            self._prune_at_ms = now_ms + PRUNE_S * 1000
            self._reached = EPOCH

    async def _remove(self) -> bool:
        """Delete a portion of a deleted webhook; return whether there may be more."""
        pool = self._context.pool
        webhook_id = await pool.fetchval(REMOVED, timeout=QUERY_TIMEOUT_S)
        if webhook_id is None:
            return False
        values = (webhook_id, AT_ONCE)
        done = await pool.execute(REMOVE_DELIVERIES, *values, timeout=QUERY_TIMEOUT_S)
        if int(done.rpartition(" ")[2]) < AT_ONCE:
            gone = await pool.execute(REMOVE, webhook_id, timeout=QUERY_TIMEOUT_S)
            return not gone.endswith(" 0")
        return True

    async def _prune(self) -> bool:
        """Delete a portion of the old deliveries; return whether there may be more."""
        pool = self._context.pool
        until = await self._context.database_now(pool) - timedelta(days=KEPT_DAYS)
        values = (self._reached, until, AT_ONCE)
        row = await pool.fetchrow(PRUNE, *values, timeout=QUERY_TIMEOUT_S)
        if row["count"] < AT_ONCE:
            return False
        self._reached = row["reached"]
        return True
