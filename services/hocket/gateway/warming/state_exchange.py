"""Exchanges the state of one replica among gateways: the leader publishes it, the others follow.

The state is kept in the gateways' bucket (`warm.<hash>`).
"""

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Any

from hocket.gateway.capacity.membership import Membership
from hocket.gateway.core.routing.membership_records import WARM
from hocket.gateway.core.warming.warm_leases import Level, Startup
from hocket.gateway.core.warming.warm_rule import ACTIONS, Action
from hocket.gateway.warming.accounting import WarmAccounting
from hocket.gateway.warming.replica_state import ReplicaState
from hocket.kit.process.task_stop import stop_tasks


@dataclass(slots=True)
class _Published:
    """The state last published by the leading gateway."""

    level: Level = Level.COLD
    ready_at_ms: float | None = None
    accounted_ms: float = 0.0
    unfinished: Action | None = None


class StateExchange:
    """Publishes the state of a replica, or follows it."""

    def __init__(
        self, key: str, membership: Membership, state: ReplicaState, accounting: WarmAccounting
    ) -> None:
        self._key = WARM + hashlib.blake2b(key.encode(), digest_size=12).hexdigest()
        self._membership = membership
        self._state = state
        self._accounting = accounting
        self._published = _Published()
        self._leading = False
        self._publishing: asyncio.Task[None] | None = None

    @property
    def leading(self) -> bool:
        """Whether this gateway publishes."""
        return self._leading

    @property
    def accounted_ms(self) -> float:
        """The time up to which the leader had recorded usage when it last published; 0 if the
        replica was not held."""
        return self._published.accounted_ms

    def lead(self) -> None:
        """Adopt the state the former leader published, and publish from now on."""
        self.follow()
        self._leading = True

    def follow(self) -> None:
        """Adopt the state that the leading gateway publishes."""
        self._leading = False
        for _, _, content in self._membership.told(self._key):
            if isinstance(content, dict):
                self._adopt(content)

    def publish_soon(self) -> None:
        """Publish shortly if the state has changed; the state at that moment is published."""
        if self._leading and (self._publishing is None or self._publishing.done()):
            self._publishing = asyncio.create_task(self.publish())

    def look(self) -> None:
        """Publish again if the entry was overwritten by something foreign."""
        if self._leading and self._membership.is_overwritten(self._key):
            self._published = _Published()
            self.publish_soon()

    async def publish(self) -> None:
        """Publish the state until the others know the latest one; give up if NATS is unreachable."""
        while self._leading:
            state = self._state
            accounted_ms = self._accounting.recorded_ms if state.is_held else 0.0
            now = _Published(state.level, state.ready_at_ms, accounted_ms, state.unfinished)
            if now == self._published and not self._membership.is_overwritten(self._key):
                return
            content = {
                "level": int(now.level),
                "ready_at_ms": now.ready_at_ms,
                "provision_ms": state.startup.provision_ms,
                "load_ms": state.startup.load_ms,
                "accounted_ms": now.accounted_ms,
                "unfinished": now.unfinished,
            }
            if await self._membership.put(self._key, content) is None:
                return
            self._published = now

    async def close(self) -> None:
        """Stop publishing."""
        if self._publishing is not None:
            await stop_tasks([self._publishing])

    def _adopt(self, content: dict[str, Any]) -> None:
        level, ready_at_ms = Level(int(content["level"])), content["ready_at_ms"]
        startup = Startup(float(content["provision_ms"]), float(content["load_ms"]))
        named = content.get("unfinished")  # older gateways do not publish it
        unfinished = next((action for action in ACTIONS if action == named), None)
        accounted_ms = float(content["accounted_ms"])
        self._published = _Published(level, ready_at_ms, accounted_ms, unfinished)
        self._state.adopt(level, ready_at_ms, unfinished, startup)
