"""The partitions that this coordinator owns: taken, maintained while they are read, left or dropped."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import asyncpg
import structlog

from hocket.coordinator.core.run.faults import reason_of
from hocket.coordinator.partition.partition import Partition
from hocket.coordinator.partition.shared_services import SharedServices
from hocket.coordinator.partition.takeover import take_over
from hocket.coordinator.partition.wake_ups import WAKE_EVERY_S
from hocket.kit.postgres.errors import AWAY

LEAVE_S = 5.0
"""How long a partition's decisions may take to be written and announced before it is left anyway."""
RETRY_S = 0.25
UPKEEP_EVERY_S = 0.5
"""Measurements enter the logs at most this often."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Owned:
    partition: Partition
    reading: asyncio.Task[None]


class PartitionSet:
    """The partitions that this coordinator owns now. `owner` is the name of this coordinator."""

    def __init__(self, services: SharedServices, owner: str) -> None:
        self._services = services
        self._owner = owner
        self._owned: dict[int, _Owned] = {}
        self.unreadable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails when the log of a partition can no longer be read."""

    def __len__(self) -> int:
        return len(self._owned)

    def __contains__(self, number: int) -> bool:
        return number in self._owned

    # ---- for the ownership ------------------------------------------------------------------

    async def take(self, number: int, cause: str, lost: Callable[[], None]) -> None:
        """Load a partition and begin to read its log; wait as long as Postgres is away. `lost` is
        called when another coordinator takes it from us."""
        bus = self._services.bus
        while True:
            losses = bus.losses
            try:
                partition = await take_over(
                    number, self._services, self._owner, cause=cause, lost=lost
                )
                break
            except (*AWAY, asyncpg.PostgresError) as error:  # refused or away: it passes
                log.warning("partition_waits", partition=number, reason=reason_of(error))
                await asyncio.sleep(RETRY_S)
        reading = asyncio.create_task(partition.read(), name=f"partition-{number}")
        reading.add_done_callback(self._stopped_reading)
        self._owned[number] = _Owned(partition, reading)
        if bus.losses != losses and bus.connected:  # it came back while the partition was loaded
            partition.came_back()

    async def leave(self, number: int) -> None:
        """Stop reading, write what was decided, and forget the partition."""
        owned = self._owned[number]
        owned.reading.cancel()
        try:
            async with asyncio.timeout(LEAVE_S):
                await asyncio.wait({owned.reading})
                await owned.partition.leave()
        except TimeoutError:
            log.warning("partition_left_unwritten", partition=number)
        self.drop(number)

    def drop(self, number: int) -> None:
        """Forget a partition at once."""
        owned = self._owned.pop(number, None)
        if owned is not None:
            owned.reading.cancel()
            owned.partition.end()

    # ---- looking after them -----------------------------------------------------------------

    def came_back(self) -> None:
        """Tell the partitions that NATS is back."""
        for owned in self._owned.values():
            owned.partition.came_back()

    async def upkeep(self) -> None:
        """Do regular upkeep; never returns, cancel to stop."""
        turns = self._services.turns
        while True:
            await asyncio.sleep(UPKEEP_EVERY_S)
            for number, owned in list(self._owned.items()):
                await turns.take()
                if self._owned.get(number) is not owned:
                    continue  # lost meanwhile
                begun_ms = turns.begin()
                try:
                    owned.partition.upkeep()
                except Exception:  # neither the other partitions nor this one's log are affected
                    log.exception("partition_upkeep_failed", partition=number)
                turns.worked(begun_ms)

    async def wake_parked(self) -> None:
        """Wake parked runs in time; never returns, cancel to stop."""
        while True:
            for owned in list(self._owned.values()):
                try:
                    await owned.partition.wake_parked()
                except AWAY as error:
                    log.warning("parked_not_woken", reason=str(error))
                    break
                except Exception:  # asked again in a moment
                    log.exception("parked_not_woken")
            await asyncio.sleep(WAKE_EVERY_S)

    def readings(self) -> list[asyncio.Task[None]]:
        """Return the tasks that read the logs; cancel them before `close`."""
        return [owned.reading for owned in self._owned.values()]

    def close(self) -> None:
        """Drop all of them."""
        for number in list(self._owned):
            self.drop(number)

    # ---- how much they have in memory -------------------------------------------------------

    def in_flight(self) -> int:
        """Return the number of runs in memory."""
        return sum(owned.partition.in_flight for owned in self._owned.values())

    def held(self) -> tuple[int, int]:
        """Return the number of runs in memory, and how many bytes they count."""
        held = [owned.partition for owned in self._owned.values()]
        return sum(one.in_flight for one in held), sum(one.in_flight_bytes for one in held)

    def held_by(self) -> dict[str, tuple[int, int]]:
        """Return the same for each tenant."""
        held: dict[str, tuple[int, int]] = {}
        for owned in self._owned.values():
            for tenant, theirs in owned.partition.held_by_tenant.items():
                runs, size_bytes = held.get(tenant, (0, 0))
                held[tenant] = (runs + theirs.runs, size_bytes + theirs.size_bytes)
        return held

    def _stopped_reading(self, reading: asyncio.Task[None]) -> None:
        if reading.cancelled() or self.unreadable.done():
            return
        error = reading.exception()
        assert error is not None, "a log has no end"
        self.unreadable.set_exception(error)
