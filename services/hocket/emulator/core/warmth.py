"""The warmth of an engine: cold -> provisioning -> provisioned -> loading -> ready, and back.

Provisioning obtains a machine, and loading puts the model on it; each takes its time. The time from
the start of provisioning is counted, because it is what is paid for. The time is passed in.
"""

from enum import StrEnum

from hocket.emulator.core.profile import EngineProfile


class State(StrEnum):
    COLD = "cold"
    PROVISIONING = "provisioning"
    PROVISIONED = "provisioned"
    LOADING = "loading"
    READY = "ready"


_STAGES = {State.PROVISIONING: State.PROVISIONED, State.LOADING: State.READY}
_ORDER = tuple(State)


class Warmth:
    """The state of one engine, and the state it is heading for."""

    def __init__(self, profile: EngineProfile, *, now_ms: float) -> None:
        self.state = State.READY if profile.warm else State.COLD
        self.held_ms = 0.0
        """The time since the start of provisioning, for which a machine is paid."""
        self.ready_ms = 0.0
        self._profile = profile
        self._goal = self.state
        self._now_ms = now_ms
        self._stage_ends_ms: float | None = None

    @property
    def ready(self) -> bool:
        """Whether the engine serves."""
        return self.state is State.READY

    def reached(self, goal: State) -> bool:
        """Return whether the engine is at least as warm as `goal`."""
        return _ORDER.index(self.state) >= _ORDER.index(goal)

    def provision(self, now_ms: float) -> None:
        """Provision a machine, unless there is one."""
        self._aim(State.PROVISIONED, now_ms)

    def load(self, now_ms: float) -> None:
        """Make the engine ready, provisioning a machine first if there is none."""
        self._aim(State.READY, now_ms)

    def unload(self, now_ms: float, *, keep: bool = False) -> None:
        """Become cold at once, or `keep` the machine if there is one."""
        self.advance(now_ms)
        kept = keep and _ORDER.index(self.state) >= _ORDER.index(State.PROVISIONED)
        self.state = self._goal = State.PROVISIONED if kept else State.COLD
        self._stage_ends_ms = None

    def advance(self, now_ms: float) -> None:
        """Advance the time."""
        while (ends_ms := self._stage_ends_ms) is not None and ends_ms <= now_ms:
            self._count(ends_ms)
            self.state = _STAGES[self.state]
            self._begin(ends_ms)
        self._count(now_ms)

    def next_event_ms(self) -> float | None:
        """Return when the current stage ends; None if there is none."""
        return self._stage_ends_ms

    def _aim(self, goal: State, now_ms: float) -> None:
        self.advance(now_ms)
        if _ORDER.index(goal) > _ORDER.index(self._goal):
            self._goal = goal
            if self._stage_ends_ms is None:
                self._begin(now_ms)
            self.advance(now_ms)

    def _begin(self, now_ms: float) -> None:
        """Begin the next stage towards the goal, unless it is reached."""
        self._stage_ends_ms = None
        if self.state is self._goal:
            return
        if self.state is State.COLD:
            self.state, took_s = State.PROVISIONING, self._profile.provision_s
        else:
            assert self.state is State.PROVISIONED
            self.state, took_s = State.LOADING, self._profile.load_s
        self._stage_ends_ms = now_ms + took_s * 1000

    def _count(self, now_ms: float) -> None:
        passed_ms = max(now_ms - self._now_ms, 0.0)
        if self.state is not State.COLD:
            self.held_ms += passed_ms
        if self.state is State.READY:
            self.ready_ms += passed_ms
        self._now_ms = max(now_ms, self._now_ms)
