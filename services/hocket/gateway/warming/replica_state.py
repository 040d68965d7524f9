"""The state of one managed replica: its level, and the start in progress.

Levels: cold, provisioned, ready. While `ready_at_ms` is set, it is starting.
"""

from collections.abc import Callable

from hocket.gateway.core.warming.warm_leases import ColdStart, Level, Startup
from hocket.gateway.core.warming.warm_rule import Action
from hocket.gateway.metrics import GatewayMetrics

NEWEST_WEIGHT = 0.3
"""The weight of the newest measured start in the average."""
STARTS: frozenset[Action] = frozenset({"provision", "load"})
_STOPS: frozenset[Action] = frozenset({"unload", "release"})


class ReplicaState:
    """The state of a replica; `changed` is called after each change."""

    def __init__(
        self, key: str, startup: Startup, metrics: GatewayMetrics, changed: Callable[[], None]
    ) -> None:
        self.level = Level.COLD
        self.ready_at_ms: float | None = None
        """When the start in progress should be done; None if there is none."""
        self.unfinished: Action | None = None
        """A step that was begun and has not succeeded: the server may hold more than its level."""
        self.startup = startup
        self._key = key
        self._metrics = metrics
        self._changed = changed

    @property
    def startup_ms(self) -> float:
        """How long it takes to become ready from its current level."""
        return self.startup.between(self.level, Level.READY)

    @property
    def cold_start(self) -> ColdStart | None:
        """The start needed before the replica can take calls; None if it is ready."""
        if self.level is Level.READY:
            return None
        return ColdStart(self.startup_ms, self.ready_at_ms)

    @property
    def is_active(self) -> bool:
        """Whether it is ready or starting."""
        return self.level is Level.READY or self.ready_at_ms is not None

    @property
    def is_held(self) -> bool:
        """Whether its time must be paid for: it has a machine, is getting one, or could not be
        stopped."""
        is_stopping = self.unfinished in _STOPS
        return self.level is not Level.COLD or self.ready_at_ms is not None or is_stopping

    def move(self, level: Level, ready_at_ms: float | None = None) -> None:
        """Change to a level, or begin a start that should be done at `ready_at_ms`."""
        self.level, self.ready_at_ms = level, ready_at_ms
        self._metrics.warm_level.labels(self._key).set(int(level))
        self._changed()

    def adopt(
        self,
        level: Level,
        ready_at_ms: float | None,
        unfinished: Action | None,
        startup: Startup,
    ) -> None:
        """Adopt the state published by the leading gateway."""
        self.startup = startup
        self.unfinished = unfinished
        if (level, ready_at_ms) != (self.level, self.ready_at_ms):
            self.move(level, ready_at_ms)

    def measured(self, action: Action, took_ms: float) -> None:
        """Update the expected duration of a step up from a measurement."""
        s = self.startup
        if action == "provision":
            self.startup = Startup(_mean(s.provision_ms, took_ms), s.load_ms)
        else:
            self.startup = Startup(s.provision_ms, _mean(s.load_ms, took_ms))


def _mean(before_ms: float, took_ms: float) -> float:
    return took_ms if before_ms <= 0 else before_ms + NEWEST_WEIGHT * (took_ms - before_ms)
