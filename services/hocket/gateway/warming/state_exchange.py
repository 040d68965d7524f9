"""Exchanges the state of one replica among gateways: the leader publishes it, the others follow.

The state is kept in the gateways' bucket (`warm.<hash>`). A reload that replaces a replica's manager
hands it over in this process (`Predecessor`), because the bucket may not have the latest yet.
"""

import asyncio
import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from hocket.gateway.capacity.membership import Membership
from hocket.gateway.core.routing.membership_records import WARM
from hocket.gateway.core.warming.warm_leases import Level, Startup
from hocket.gateway.core.warming.warm_rule import ACTIONS, Action
from hocket.gateway.warming.accounting import WarmAccounting
from hocket.gateway.warming.replica_state import ReplicaState
from hocket.kit.process.task_stop import stop_tasks

log = structlog.get_logger()

Content = dict[str, Any]
"""A state as it is published."""


@dataclass(slots=True)
class _Published:
    """The state last published by the leading gateway."""

    level: Level = Level.COLD
    ready_at_ms: float | None = None
    accounted_ms: float = 0.0
    unfinished: Action | None = None
    revision: int = field(default=0, compare=False)
    """That of its entry in the bucket; 0 if there is none."""


@dataclass(frozen=True, slots=True)
class Handed:
    """The state that a manager leaves to the next one, and what was published when it did so."""

    content: Content
    published: _Published

    def is_latest(self, now: _Published) -> bool:
        """Tell whether no other gateway has led since, by the latest that was heard: it was published at
        the hand-over or, if it is heard late, before. The state itself may have been published, too;
        then it does not matter which is used."""
        if now.revision < self.published.revision:
            return True
        return now == self.published and now.revision == self.published.revision


class Predecessor:
    """The manager of the same replica before a reload, which is being closed; there may be none."""

    def __init__(self, closing: "asyncio.Task[Handed | None] | None") -> None:
        self._closing = closing
        self._handed: Handed | None = None

    @property
    def is_closing(self) -> bool:
        """Whether it has not yet been waited for."""
        return self._closing is not None

    async def closed(self) -> None:
        """Wait until it has counted its time and is closed."""
        closing = self._closing
        if closing is not None:
            await asyncio.wait([closing])
            self._closing = None
            try:
                self._handed = closing.result()
            except Exception:  # the bucket has an earlier state
                log.exception("replica_not_handed_over", task=closing.get_name())

    def handed(self) -> Handed | None:
        """Return the state that it left, once; None if it did not lead."""
        handed, self._handed = self._handed, None
        return handed


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

    def lead(self, handed: Handed | None = None) -> float:
        """Adopt the state the former leader published or, if it was in this gateway and no other has led
        since, handed over, and publish from now on. Return the time up to which it had recorded usage;
        0 if the replica was not held."""
        self.follow()
        published = self._published
        accounted_ms = published.accounted_ms
        if handed is not None and handed.is_latest(published):
            self._adopt(handed.content)
            accounted_ms, self._published = self._published.accounted_ms, published
        self._leading = True
        return accounted_ms

    def state(self) -> Handed:
        """Return the state for the manager that takes over in this gateway."""
        return Handed(self._content(self._current()), self._published)

    def follow(self) -> None:
        """Adopt the state that the leading gateway publishes."""
        self._leading = False
        for _, revision, content in self._membership.told(self._key):
            if isinstance(content, dict):
                self._adopt(content, revision)

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
            now = self._current()
            if now == self._published and not self._membership.is_overwritten(self._key):
                return
            revision = await self._membership.put(self._key, self._content(now))
            if revision is None:
                return
            self._published = replace(now, revision=revision)

    async def close(self) -> None:
        """Publish the last state, unless another gateway leads, and stop publishing."""
        if self._publishing is not None:
            await stop_tasks([self._publishing])
        if self._membership.leads:
            await self.publish()
        self._leading = False

    def _current(self) -> _Published:
        state = self._state
        accounted_ms = self._accounting.recorded_ms if state.is_held else 0.0
        return _Published(state.level, state.ready_at_ms, accounted_ms, state.unfinished)

    def _content(self, now: _Published) -> Content:
        return {
            "level": int(now.level),
            "ready_at_ms": now.ready_at_ms,
            "provision_ms": self._state.startup.provision_ms,
            "load_ms": self._state.startup.load_ms,
            "accounted_ms": now.accounted_ms,
            "unfinished": now.unfinished,
        }

    def _adopt(self, content: Content, revision: int = 0) -> None:
        level, ready_at_ms = Level(int(content["level"])), content["ready_at_ms"]
        startup = Startup(float(content["provision_ms"]), float(content["load_ms"]))
        named = content.get("unfinished")  # older gateways do not publish it
        unfinished = next((action for action in ACTIONS if action == named), None)
        accounted_ms = float(content["accounted_ms"])
        self._published = _Published(level, ready_at_ms, accounted_ms, unfinished, revision)
        self._state.adopt(level, ready_at_ms, unfinished, startup)
