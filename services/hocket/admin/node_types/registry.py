"""The registry of node types in a process: listens to workers, and stores their descriptions in
Postgres.

Each process of the REST API has one, and all of them hear the same. While Postgres is unavailable, new
descriptions are kept in memory and stored later.
"""

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import asyncpg
import structlog
from pydantic import ValidationError

from hocket.admin.node_types.descriptions import Description, believed
from hocket.admin.node_types.kept import KnownType
from hocket.admin.node_types.known import KnownTypes
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.errors import AWAY
from hocket.kit.process.clock import monotonic_ms, now_ms
from hocket.schemas import subjects
from hocket.schemas.messages import TypeDescribed, WorkerAnnounced, encoded
from hocket.schemas.pipeline.handlers import HandlerQueues
from hocket.schemas.subjects import MAX_DESCRIPTION_BYTES, WORKER_DESCRIBED, pool_token
from hocket.schemas.worker_slots import is_worker, of_subject, pool_of_subject

if TYPE_CHECKING:
    from nats.aio.msg import Msg

TICK_S = 0.5
STORE_EVERY_TICKS = 2
SEEN_EVERY_TICKS = 120
"""Every so many ticks (a minute), the time at which each type was last seen is stored."""
SETTLED_MS = 2_500.0
"""After so long, every live worker has been heard: workers announce themselves every 2 s."""
NEWS_PER_TICK = 5
"""New descriptions checked per tick; workers repeat the others within 30 s ..."""
MAX_NEWS = 100
"""... after a burst of up to this many ..."""
MAX_NEWS_OF_TYPE = 8
"""... of which one type may have so many, and one more in each tick, to leave room for other types."""

log = structlog.get_logger(__name__)


class NodeTypes:
    """What is known about node types. Others only read `types`, and `queues` (the queues of handlers'
    packages)."""

    def __init__(self, queues: HandlerQueues | None = None) -> None:
        self.types = KnownTypes()
        self.queues = queues or HandlerQueues({}, "queues")
        self._news = float(MAX_NEWS)
        self._news_of: dict[str, int] = {}
        """How many descriptions of each type were checked lately."""
        self._opened_at_ms: float | None = None
        self._reporting = Reporting()

    @property
    def is_settled(self) -> bool:
        """Whether it has listened for so long that a worker not heard by now is not running."""
        opened = self._opened_at_ms
        return opened is not None and monotonic_ms() - opened > SETTLED_MS

    def has_workers(self, pool: str) -> bool:
        """Tell whether a worker currently takes the steps of a pool; True while that is not known."""
        return self.types.slots.slots(pool) > 0 or not self.is_settled

    async def run(self, bus: Bus, pool: Pool) -> None:
        """Read the stored types, then listen and store, until cancelled."""
        for subject in (subjects.WORKER_ANNOUNCED, f"{subjects.WORKER_ANNOUNCED}.*"):
            await bus.subscribe(subject, self._announced)
        for subject in (subjects.WORKER_DESCRIBED, f"{subjects.WORKER_DESCRIBED}.*"):
            await bus.subscribe(subject, self.heard_description)
        bus.on_reconnect.append(lambda: self._came_back(bus))
        self._came_back(bus)
        read = False
        ticks = 0
        while True:
            try:
                if not read:
                    await self._read(pool)
                    read = True
                elif ticks % STORE_EVERY_TICKS == 0:
                    await self._store(pool, seen=ticks % SEEN_EVERY_TICKS == 0)
            except (*AWAY, asyncpg.PostgresError) as error:
                if count := self._reporting.due("not stored"):
                    log.warning("node_types_not_stored", reason=str(error), count=count)
            await asyncio.sleep(TICK_S)
            ticks += 1
            self.refill()
            if bus.connected:  # otherwise no worker can be heard
                self.types.tick(now_ms())

    def refill(self) -> None:
        """Allow some more descriptions to be checked; called on each tick."""
        self._news = min(self._news + NEWS_PER_TICK, MAX_NEWS)
        self._news_of = {name: count - 1 for name, count in self._news_of.items() if count > 1}

    def _came_back(self, bus: Bus) -> None:
        self._opened_at_ms = monotonic_ms()
        self.types.slots.hears_again(now_ms())
        bus.publish_nowait(subjects.WORKER_ASKED, b"")

    async def _announced(self, message: "Msg") -> None:
        try:
            announced = WorkerAnnounced.model_validate_json(message.data)
        except ValidationError:
            return  # coordinators report it
        if is_worker(announced):
            announced = of_subject(announced, message.subject)
            pool = pool_of_subject(message.subject)
            self.types.announced(announced.worker, announced.slots, now_ms(), pool)

    async def heard_description(self, message: "Msg") -> None:
        """Process a worker's description of a type, if it is credible."""
        try:
            if len(message.data) > MAX_DESCRIPTION_BYTES:
                raise ValueError(f"it has more than {MAX_DESCRIPTION_BYTES} bytes")
            described = TypeDescribed.model_validate_json(message.data)
            token = message.subject.removeprefix(WORKER_DESCRIBED).removeprefix(".")
            if token and pool_token(described.type) != token:
                raise ValueError(f"it does not describe the type of its subject, {token}")
            is_news = self.types.is_news(described)
            if is_news:
                lately = self._news_of.get(described.type, 0)
                if self._news < 1 or lately >= MAX_NEWS_OF_TYPE:
                    raise ValueError("too many new descriptions arrive at once")
                self._news -= 1
                self._news_of[described.type] = lately + 1
            known = self.types.described(described, now_ms(), has_key=bool(token))
            if known is None:
                raise ValueError("there is no room for more node types")
            if is_news:
                self._tell_faults(known)
        except ValueError as error:
            if count := self._reporting.due("description"):
                reason = " ".join(str(error).split())[:300]
                log.warning("description_not_believed", reason=reason, count=count)

    def _tell_faults(self, known: KnownType) -> None:
        faults = known.described.faults
        if faults and (count := self._reporting.due(f"faults of {known.described.type}")):
            log.warning(
                "description_not_used_as_a_whole",
                type=known.described.type,
                version=known.described.version,
                reason=" ".join(faults),
                count=count,
            )

    # ---- Postgres ---------------------------------------------------------------------------

    async def _read(self, pool: Pool) -> None:
        for row in await pool.fetch(_ALL, timeout=QUERY_TIMEOUT_S):
            try:
                stored = Description.model_validate_json(row["described"])
                described, config = believed(stored)
            except ValueError as error:  # of a release with other rules
                if count := self._reporting.due("not read"):
                    reason = " ".join(str(error).split())[:300]
                    log.warning("node_type_not_read", reason=reason, count=count)
                continue
            first_ms, last_ms = (row[name].timestamp() * 1000 for name in _SEEN)
            size = len(row["described"])
            told = None if described.faults else TypeDescribed(**stored.model_dump())
            self.types.read_back(KnownType(described, size, first_ms, last_ms, config, told))

    async def _store(self, pool: Pool, *, seen: bool) -> None:
        changed, changes = self.types.kept.taken_changes()
        if seen:
            changed = [one for name in self.types.names() for one in self.types.versions(name)]
        if not (changed or changes.removed):
            return
        try:
            async with pool.acquire(timeout=QUERY_TIMEOUT_S) as connection:
                if changed:
                    await connection.execute(_KEEP, *_columns(changed), timeout=QUERY_TIMEOUT_S)
                for name, version in changes.removed:
                    await connection.execute(_REMOVE, name, version, timeout=QUERY_TIMEOUT_S)
        except asyncpg.DataError:
            raise  # data that Postgres cannot store is not retried
        except BaseException:
            self.types.kept.changes_again(changes)
            raise


def _columns(changed: list[KnownType]) -> tuple[list[object], ...]:
    rows = [
        (
            known.described.type,
            known.described.version,
            encoded(known.described).decode(),
            datetime.fromtimestamp(known.first_seen_ms / 1000, UTC),
            datetime.fromtimestamp(known.last_seen_ms / 1000, UTC),
        )
        for known in changed
    ]
    return tuple(list(column) for column in zip(*rows, strict=True))


_SEEN = ("first_seen_at", "last_seen_at")
_ALL = """
SELECT described, first_seen_at, last_seen_at FROM hocket.node_type
ORDER BY last_seen_at DESC LIMIT 8000
"""
_KEEP = """
INSERT INTO hocket.node_type (name, version, described, first_seen_at, last_seen_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::jsonb[], $4::timestamptz[], $5::timestamptz[])
ON CONFLICT (name, version) DO UPDATE
SET described = excluded.described,
    last_seen_at = greatest(node_type.last_seen_at, excluded.last_seen_at)
"""
_REMOVE = "DELETE FROM hocket.node_type WHERE name = $1 AND version = $2"
