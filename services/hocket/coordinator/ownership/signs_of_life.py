"""Our sign of life, which the other coordinators see, and the signs that dead coordinators have left."""

import structlog

from hocket.coordinator.core.scheduling.lease_records import MEMBER, encoded, named
from hocket.coordinator.intake.capacity import CapacityLimit
from hocket.coordinator.ownership.background import Background
from hocket.coordinator.ownership.sightings import Sighting
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.kv.entry import Leases, RevisionPassed
from hocket.kit.nats.membership import take_out_dead
from hocket.schemas.errors import HocketError

PUT_TIMEOUT_MS = 2_000.0
FORGET_S = 60.0
"""After this time the last sign of life of a dead coordinator is removed."""

log = structlog.get_logger(__name__)


class CoordinatorReplaced(HocketError):
    """Another coordinator with the name `{name}` was started, so this one ends. Give each coordinator
    its own name: HOCKET_INSTANCE."""

    code = "coordinator_replaced"


class SignsOfLife:
    """The signs of life of one coordinator, which also say whether it is full or leaving."""

    def __init__(
        self,
        leases: Leases,
        capacity: CapacityLimit,
        background: Background,
        *,
        name: str,
        incarnation: str,
    ) -> None:
        self.leaving = False
        """Whether this coordinator is giving everything back."""
        self._leases = leases
        self._capacity = capacity
        self._background = background
        self._name = name
        self._incarnation = incarnation
        self._beaten_at = 0
        """The revision of our first sign of life."""

    @property
    def given(self) -> bool:
        """Whether the bucket has stored a sign of ours."""
        return self._beaten_at > 0

    def leave(self) -> None:
        """Say from now on that this coordinator is leaving."""
        self.leaving = True

    async def beat(self) -> None:
        """Give a sign of life."""
        state = "leaving" if self.leaving else "full" if self._capacity.here() else "serving"
        whose = named(self._capacity.look()) if state == "full" else {}
        sign = encoded(incarnation=self._incarnation, state=state, **whose)
        revision = await self._put_quietly(sign)
        if revision is not None and not self._beaten_at:
            self._beaten_at = revision

    async def withdraw(self) -> None:
        """Delete our sign of life."""
        await self._put_quietly(None)

    def check_name(self, seen: Sighting) -> None:
        """Raise CoordinatorReplaced if another coordinator gives signs of life under our name."""
        entry = self._leases.entries.get(MEMBER + self._name)
        member = seen.members.get(self._name)
        if entry is None or member is None or not self._beaten_at:
            return
        if entry.overwritten:  # its content is older than its revision
            return
        if member.incarnation != self._incarnation and entry.revision > self._beaten_at:
            raise CoordinatorReplaced(name=self._name)

    def forget_dead(self, seen: Sighting, live: frozenset[str], now_s: float) -> None:
        """Remove old signs of dead coordinators, if we are the first of the live ones by name."""
        if min(live, default="") != self._name:
            return
        heard_at_s = {name: member.heard_at_s for name, member in seen.members.items()}
        old_s = now_s - FORGET_S
        for key, revision in take_out_dead(self._leases, MEMBER, heard_at_s, live, old_s):
            self._background.run(self._forget(key, revision))

    async def _put_quietly(self, value: bytes | None) -> int | None:
        key = MEMBER + self._name
        try:
            return await self._leases.put(key, value, revision=None, timeout_ms=PUT_TIMEOUT_MS)
        except BusUnavailable as error:  # others will hear from us when NATS is back
            log.debug("bucket_not_written", key=key, reason=str(error))
            return None

    async def _forget(self, key: str, revision: int) -> None:
        try:
            await self._leases.put(key, None, revision=revision, timeout_ms=PUT_TIMEOUT_MS)
        except (RevisionPassed, BusUnavailable):
            log.debug("member_not_forgotten", member=key.removeprefix(MEMBER))
