"""Reads the ends of runs from EVENTS for webhooks, only while one is enabled, because reading has a cost
for every run.

All REST processes share a durable consumer. It begins at the time when the first webhook was enabled,
and is deleted when none is left; a process still pulling from it recreates it. Ends read twice because
of that produce the same message ids.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import structlog
from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError
from nats.js.errors import NotFoundError

from hocket.admin.context import Context
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.kit.nats.consumers.record_pull import RecordPull
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawMessage
from hocket.schemas import subjects
from hocket.schemas.access.nats_table import WEBHOOKS
from hocket.schemas.messages import RunFinished

PULL_MS, GATHER_MS = 1_000.0, 50.0
LOOK_S = 2.0
"""How often a process checks whether a webhook is enabled."""
MAX_AGE = timedelta(hours=1)
"""Older ends are not read if the consumer was lost."""
SUBJECT = subjects.event("*", "*", RunFinished.kind)
EARLIEST = "SELECT min(enabled_at) FROM hocket.webhook WHERE enabled"

log = structlog.get_logger(__name__)


class EndReader:
    """The ends of runs for this process. States: looking (nothing is read) or reading."""

    def __init__(self, context: Context, *, ack_wait_ms: float) -> None:
        self._context = context
        self._ack_wait_ms = ack_wait_ms
        self._pull: RecordPull | None = None
        self._looked_s: float | None = None

    async def batch(self) -> Sequence[RawMessage]:
        """Return unacknowledged ends; empty after a while without one. Raises BusUnavailable."""
        now_s = asyncio.get_running_loop().time()
        if self._looked_s is None or now_s - self._looked_s >= LOOK_S:
            await self._look()
            self._looked_s = now_s
        if self._pull is None:
            await asyncio.sleep(LOOK_S)
            return ()
        try:
            return await self._pull.batch(PULL_MS, GATHER_MS)
        except (
            BusUnavailable
        ):  # another process may have deleted the consumer: look again from when to read
            await self.close()
            self._looked_s = None
            raise

    async def close(self) -> None:
        """Stop reading, leaving further ends to the other processes."""
        pull, self._pull = self._pull, None
        if pull is not None:
            await pull.close()

    async def _look(self) -> None:
        since = await self._context.pool.fetchval(EARLIEST, timeout=QUERY_TIMEOUT_S)
        if since is not None and self._pull is None:
            now = await self._context.database_now(self._context.pool)
            self._pull = RecordPull(
                self._context.bus,
                subjects.EVENTS,
                SUBJECT,
                ack_wait_ms=self._ack_wait_ms,
                since=max(since, now - MAX_AGE),
                durable=WEBHOOKS,
            )
        elif since is None and (self._pull is not None or self._looked_s is None):
            await self.close()
            await self._delete()

    async def _delete(self) -> None:
        try:
            await self._context.bus.js.delete_consumer(subjects.EVENTS, WEBHOOKS)
        except NotFoundError:
            return
        except (NatsError, JetStreamError, OSError, TimeoutError) as error:
            log.info("webhooks_consumer_not_deleted", reason=repr(error))
