"""Runs an engine in real time: jobs are submitted, and those waiting for their tokens are woken
when these are due.

A single timer is set to the engine's next event. Virtual time runs `speed` times as fast as real
time. A job is cancelled by leaving the context manager `job` early.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager

from hocket.emulator.core.engine import Engine
from hocket.emulator.core.job import Event, Job, Prefilled
from hocket.emulator.core.profile import EngineProfile
from hocket.emulator.core.warmth import State, Warmth
from hocket.schemas.errors import ErrorClass, HocketError

MIN_WAIT_S = 0.001
"""The resolution of the event loop's timers."""


class EngineCold(HocketError):
    """The model is not loaded: {state}."""

    code = "engine_cold"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class EngineUnloaded(HocketError):
    """The model was unloaded while this request ran."""

    code = "engine_unloaded"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class VirtualClock:
    """Milliseconds since its creation, running `speed` times as fast as real time."""

    def __init__(self, speed: float, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self.speed = speed
        self._monotonic_s = monotonic_s
        self._began_s = monotonic_s()

    def now_ms(self) -> float:
        """Return the virtual time."""
        return (self._monotonic_s() - self._began_s) * 1000 * self.speed

    def real_s(self, virtual_ms: float) -> float:
        """Return the real duration (s) of a virtual one."""
        return virtual_ms / 1000 / self.speed


class RunningJob:
    """A submitted job; times are virtual, and None until they are reached."""

    def __init__(self, job: Job, submitted_ms: float) -> None:
        self.job = job
        self.submitted_ms = submitted_ms
        self.prefilled_ms: float | None = None
        self.finished_ms: float | None = None
        self.cached_tokens = 0
        self.emitted = 0
        self.unloaded = False
        self._changed = asyncio.Event()

    def happened(self, event: Event) -> None:
        """Record an event of this job."""
        if isinstance(event, Prefilled):
            self.prefilled_ms, self.cached_tokens = event.at_ms, event.cached_tokens
        else:
            self.finished_ms, self.emitted = event.at_ms, self.job.output_tokens
        self._changed.set()

    def unload(self) -> None:
        """Record that the engine was unloaded."""
        self.unloaded = True
        self._changed.set()

    async def changed(self, timeout_s: float | None) -> None:
        """Wait until something happens to the job, or the time is up; raise EngineUnloaded."""
        if timeout_s is None:
            await self._changed.wait()
        else:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
            except TimeoutError:
                return
        self._changed.clear()
        if self.unloaded:
            raise EngineUnloaded(component="engine")

    async def finished(self) -> None:
        """Wait until the job has all its tokens; raise EngineUnloaded."""
        while self.finished_ms is None:
            await self.changed(None)


class Idleness:
    """Tracks since when an engine has had no requests, and when it is unloaded for that."""

    def __init__(self, idle_s: float, now_ms: float) -> None:
        self.since_ms = now_ms
        self._idle_s = idle_s

    def ends_ms(self, warmth: Warmth, jobs: Collection[str]) -> float | None:
        """Return when the idle engine will be unloaded; None if it will not be."""
        if not self._idle_s or not warmth.ready or jobs:
            return None
        return self.since_ms + self._idle_s * 1000


class Serving:
    """One engine, its warmth and the jobs in it."""

    def __init__(self, profile: EngineProfile, clock: VirtualClock) -> None:
        now_ms = clock.now_ms()
        self.profile = profile
        self.clock = clock
        self.warmth = Warmth(profile, now_ms=now_ms)
        self._engine = Engine(profile, now_ms=now_ms, is_open=profile.warm)
        self._jobs: dict[str, RunningJob] = {}
        self._numbers = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._idleness = Idleness(profile.idle_s, now_ms)

    @property
    def running(self) -> int:
        """The number of jobs in the batch."""
        return self._engine.running

    @property
    def waiting(self) -> int:
        """The number of jobs waiting for the batch."""
        return self._engine.waiting

    @property
    def cache_usage(self) -> float:
        """The share of the cache's tokens that running jobs hold, 0 to 1."""
        room = self.profile.cache_blocks * self.profile.block_tokens
        return min(self._engine.tokens_held / room, 1.0) if room else 0.0

    @asynccontextmanager
    async def job(
        self, prompt_tokens: int, output_tokens: int, chain: Sequence[str]
    ) -> AsyncIterator[RunningJob]:
        """Run a job inside the block; raise EngineCold or EngineFull if it is not accepted."""
        self._advance()
        if not self.warmth.ready:
            if self.profile.while_cold == "refuse":
                raise EngineCold(state=self.warmth.state.value, component="engine")
            self.load()
        now_ms = self.clock.now_ms()
        job = Job(str(next(self._numbers)), prompt_tokens, output_tokens, chain)
        running = self._jobs[job.job_id] = RunningJob(job, now_ms)
        try:
            self._deliver(self._engine.submit(job, now_ms))
            self._plan()
            yield running
        finally:
            del self._jobs[job.job_id]
            if running.finished_ms is None:
                running.emitted, events = self._engine.cancel(job.job_id, self.clock.now_ms())
                self._deliver(events)
            self._idleness.since_ms = self.clock.now_ms()
            self._plan()

    async def next_token(self, running: RunningJob) -> None:
        """Wait until a job has more tokens than `running.emitted`, and update that count."""
        while running.finished_ms is None:
            self._advance()
            if (emitted := self._engine.emitted(running.job.job_id)) > running.emitted:
                running.emitted = emitted
                return
            due_ms = self._engine.next_token_ms(running.job.job_id)
            wait_s = None
            if due_ms is not None:
                wait_s = max(self.clock.real_s(due_ms - self.clock.now_ms()), MIN_WAIT_S)
            await running.changed(wait_s)

    def provision(self) -> None:
        """Provision a machine."""
        self.warmth.provision(self.clock.now_ms())
        self._advance()

    def load(self) -> None:
        """Make the engine ready."""
        self.warmth.load(self.clock.now_ms())
        self._idleness.since_ms = self.clock.now_ms()
        self._advance()

    async def until(self, goal: State) -> None:
        """Wait until the engine has reached a state, or is no longer heading there."""
        while not self.warmth.reached(goal):
            ends_ms = self.warmth.next_event_ms()
            if ends_ms is None:
                return
            wait_s = self.clock.real_s(ends_ms - self.clock.now_ms())
            await asyncio.sleep(max(wait_s, MIN_WAIT_S))
            self._advance()

    def unload(self, *, keep: bool = False) -> None:
        """Unload at once, optionally keeping the machine; running jobs fail with EngineUnloaded."""
        now_ms = self.clock.now_ms()
        self.warmth.unload(now_ms, keep=keep)
        self._deliver(self._engine.close(now_ms))
        for running in self._jobs.values():
            if running.finished_ms is None:
                running.unload()
        self._plan()

    def forget_prefixes(self) -> None:
        """Empty the prefix cache."""
        self._engine.cache.clear()

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _advance(self) -> None:
        now_ms = self.clock.now_ms()
        was_ready = self.warmth.ready
        self.warmth.advance(now_ms)
        if self.warmth.ready and not was_ready:
            self._idleness.since_ms = now_ms
        if self.warmth.ready:
            self._deliver(self._engine.open(now_ms))
        else:
            self._deliver(self._engine.advance(now_ms))
        if (
            gone_ms := self._idleness.ends_ms(self.warmth, self._jobs)
        ) is not None and gone_ms <= now_ms:
            self.unload()
            return
        self._plan()

    def _deliver(self, events: Sequence[Event]) -> None:
        for event in events:
            running = self._jobs.get(event.job_id)
            if running is not None:
                running.happened(event)

    def _plan(self) -> None:
        """Set the timer to the next event."""
        times = [
            self._engine.next_event_ms(),
            self.warmth.next_event_ms(),
            self._idleness.ends_ms(self.warmth, self._jobs),
        ]
        due = [at_ms for at_ms in times if at_ms is not None]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due:
            delay_s = max(self.clock.real_s(min(due) - self.clock.now_ms()), 0.0)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._advance)
