"""Delivers messages to webhooks, retrying until they are accepted or given up.

A delivery is sent by the process that holds its lease; if the lease expires, another process sends it
again, so that delivery is at least once. States: pending, delivered, dead (all tries used up; it can be
sent again by hand). Concurrency is limited per webhook and per tenant, so that a slow one delays only
itself.
"""

import asyncio
from collections import Counter
from contextlib import suppress

import asyncpg
import prometheus_client
import structlog

from hocket.admin.context import Context
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.webhooks import messages, store, tries
from hocket.admin.webhooks.changes import box
from hocket.admin.webhooks.sending import WebhookSender
from hocket.admin.webhooks.tries import Outcome
from hocket.admin.webhooks.upkeep import Upkeep
from hocket.kit.access import audit_log
from hocket.kit.access.audit_log import Action, Actor
from hocket.kit.access.secret_box import SecretUnreadable
from hocket.kit.postgres.errors import STATEMENT_ERRORS

LOOK_S = 0.5
"""How often to look for due messages."""
LEASE_S = 60
"""Longer than any try takes."""
AT_ONCE = 256
"""Messages that one process sends at once."""
OF_WEBHOOK = 4
"""How many of them to one webhook."""
OF_TENANT = 16
"""How many of them to the webhooks of one tenant."""
PLATFORM = Actor("service:admin", "")
AWAY: tuple[type[BaseException], ...] = (TimeoutError, OSError, *STATEMENT_ERRORS)

CLAIM = """
WITH of_webhooks AS (SELECT * FROM unnest($3::text[], $4::int[]) AS busy (webhook_id, sending)),
of_tenants AS (SELECT * FROM unnest($5::text[], $6::int[]) AS busy (tenant, sending)),
waiting AS (
    SELECT w.tenant, d.webhook_id, d.message_id, d.next_at,
           row_number() OVER (PARTITION BY d.webhook_id ORDER BY d.next_at, d.message_id) AS place
    FROM hocket.webhook w
    CROSS JOIN LATERAL (
        SELECT webhook_id, message_id, next_at FROM hocket.webhook_delivery
        WHERE webhook_id = w.webhook_id AND state = 'pending'
          AND next_at <= $1 AND leased_until <= $1
        ORDER BY next_at LIMIT $7) AS d
    WHERE w.enabled),
ordered AS (
    SELECT o.*, row_number() OVER (PARTITION BY o.tenant ORDER BY o.next_at, o.message_id) AS turn
    FROM waiting o LEFT JOIN of_webhooks b USING (webhook_id)
    WHERE o.place <= $7 - coalesce(b.sending, 0)),
due AS (
    SELECT o.webhook_id, o.message_id FROM ordered o LEFT JOIN of_tenants b USING (tenant)
    WHERE o.turn <= $8 - coalesce(b.sending, 0)
    ORDER BY o.turn, o.next_at LIMIT $9),
mine AS (
    SELECT d.webhook_id, d.message_id
    FROM hocket.webhook_delivery d JOIN due USING (webhook_id, message_id)
    WHERE d.state = 'pending' AND d.leased_until <= $1
    FOR UPDATE OF d SKIP LOCKED)
UPDATE hocket.webhook_delivery d SET leased_until = $1 + make_interval(secs => $2),
    attempts = attempts + 1, tried_at = $1
FROM mine JOIN hocket.webhook w ON w.webhook_id = mine.webhook_id
WHERE d.webhook_id = mine.webhook_id AND d.message_id = mine.message_id
RETURNING d.webhook_id, d.message_id, d.tenant, d.body, d.attempts, w.name, w.url, w.content,
    w.secret, w.former_secret, w.former_until, d.tried_at
"""
"""Claim due messages within the limits of their webhook and their tenant, tenants in turn."""
SETTLE = """
UPDATE hocket.webhook_delivery SET state = $3, next_at = coalesce($4, next_at), last_status = $5,
    last_error = $6, leased_until = '-infinity'
WHERE webhook_id = $1 AND message_id = $2 AND attempts = $7 AND tried_at = $8 AND state = 'pending'
"""
WELL = """
UPDATE hocket.webhook SET failing_since = NULL WHERE webhook_id = $1 AND failing_since IS NOT NULL
"""
FAILING = """
UPDATE hocket.webhook SET failing_since = coalesce(failing_since, $2)
WHERE webhook_id = $1 AND url = $3
RETURNING failing_since
"""
DISABLE = """
UPDATE hocket.webhook SET enabled = false, disabled_reason = $2, revision = revision + 1
WHERE webhook_id = $1 AND enabled AND url = $3
RETURNING tenant, name
"""

log = structlog.get_logger(__name__)


class Delivering:
    """Sends messages with the connections of one process."""

    def __init__(
        self, context: Context, sender: WebhookSender, registry: prometheus_client.CollectorRegistry
    ) -> None:
        self._context = context
        self._sender = sender
        self._sending: set[asyncio.Task[None]] = set()
        self._of_webhook: Counter[str] = Counter()
        self._of_tenant: Counter[str] = Counter()
        self._upkeep = Upkeep(context)
        self._attempts = prometheus_client.Counter(
            "hocket_webhook_attempts_total",
            "Attempts to send webhook messages: delivered, failed (will be retried), dead.",
            ("result",),
            registry=registry,
        )

    async def run(self) -> None:
        """Send until cancelled. Messages being sent at that moment are sent again by another process."""
        asked = self._context.webhooks_asked
        try:
            while True:
                asked.clear()
                try:
                    while await self.look():
                        pass
                    await self._upkeep.look()
                except AWAY as error:
                    log.warning("webhooks_wait", reason=str(error) or repr(error))
                except Exception:
                    log.exception("webhooks_failed")
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await asked.wait()
        finally:
            for task in self._sending:
                task.cancel()

    async def look(self) -> int:
        """Start sending due messages within the limits; return how many."""
        places = AT_ONCE - len(self._sending)
        if places <= 0:
            return 0
        busy = [
            column
            for counter in (self._of_webhook, self._of_tenant)
            for column in (list(counter), list(counter.values()))
        ]
        pool = self._context.pool
        now = await self._context.database_now(pool)
        values = (now, LEASE_S, *busy, OF_WEBHOOK, OF_TENANT, places)
        rows = await pool.fetch(CLAIM, *values, timeout=QUERY_TIMEOUT_S)
        for row in rows:
            self._of_webhook[row["webhook_id"]] += 1
            self._of_tenant[row["tenant"]] += 1
            task = asyncio.create_task(self._send(row))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return len(rows)

    async def until_sent(self) -> None:
        """Wait until all messages being sent have been sent."""
        while self._sending:
            await asyncio.wait(set(self._sending))

    async def _send(self, row: asyncpg.Record) -> None:
        try:
            outcome = await self._outcome(row)
            await self._settle(row, outcome)
        except AWAY as error:
            log.warning("webhooks_wait", reason=str(error) or repr(error))
        except Exception:
            log.exception("webhook_failed", webhook=row["webhook_id"])
        finally:
            for counter, name in (
                (self._of_webhook, row["webhook_id"]),
                (self._of_tenant, row["tenant"]),
            ):
                counter[name] -= 1
                if not counter[name]:
                    del counter[name]
            self._context.webhooks_asked.set()

    async def _outcome(self, row: asyncpg.Record) -> Outcome:
        now, secrets = row["tried_at"], box(self._context)
        owner = store.owner_of(row["webhook_id"])
        try:
            keys = [secrets.open(row["secret"], owner)]
        except SecretUnreadable as error:
            return Outcome(error=str(error))
        if row["former_secret"] is not None and row["former_until"] > now:
            with suppress(SecretUnreadable):  # it was rotated because it cannot be read any more
                keys.append(secrets.open(row["former_secret"], owner))
        body = row["body"] if row["content"] else messages.without_content(row["body"])
        headers = messages.headers(keys, row["message_id"], body, now)
        return await self._sender.send(row["url"], headers, body)

    async def _settle(self, row: asyncpg.Record, outcome: Outcome) -> None:
        """Write the outcome of a try, and what it means for the webhook."""
        webhook_id, again = row["webhook_id"], None
        now = await self._context.database_now(self._context.pool)
        if not outcome.is_taken:
            message, attempts = row["message_id"], row["attempts"]
            again = tries.next_try(outcome, webhook_id, message, attempts, now)
        state = "delivered" if outcome.is_taken else "dead" if again is None else "pending"
        self._attempts.labels("failed" if state == "pending" else state).inc()
        async with (
            self._context.pool.acquire(timeout=QUERY_TIMEOUT_S) as connection,
            connection.transaction(),
        ):
            values = (state, again, outcome.status, outcome.error, row["attempts"], row["tried_at"])
            await connection.execute(SETTLE, webhook_id, row["message_id"], *values)
            if outcome.is_taken:
                await connection.execute(WELL, webhook_id)
                return
            log.info("webhook_try_failed", webhook=webhook_id, status=outcome.status, state=state)
            since = await connection.fetchval(FAILING, webhook_id, now, row["url"])
            if since is None:  # it has another address now, or is gone
                return
            if reason := tries.why_disabled(outcome, since, now):
                await self._disable(connection, webhook_id, reason, row["url"])

    async def _disable(
        self, connection: asyncpg.Connection, webhook_id: str, reason: str, url: str
    ) -> None:
        row = await connection.fetchrow(DISABLE, webhook_id, reason, url)
        if row is not None:
            log.warning("webhook_disabled", webhook=webhook_id, reason=reason)
            target = f"webhook:{row['name']}"
            done = Action("webhooks.disable", target, row["tenant"], after={"reason": reason})
            await audit_log.record(connection, PLATFORM, done)
