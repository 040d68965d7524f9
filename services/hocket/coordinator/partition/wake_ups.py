"""When runs continue by themselves: their timers, and the parking of idle runs.

A run in which nothing happens for long is parked: its row says until when, and it leaves the
memory. It comes back with the first event about it, which may be its timer.
"""

from functools import partial

from hocket.coordinator.core.run.state.run import Run
from hocket.coordinator.partition.tenure_context import TenureContext
from hocket.coordinator.partition.timers import Timers
from hocket.kit.process.clock import now_ms
from hocket.schemas.messages import TimerFired

WAKE_EVERY_S = 5.0
"""How often Postgres is asked for parked runs whose time is near."""
MAX_WOKEN = 5_000


class WakeUps:
    """The wake-ups of one partition's runs."""

    def __init__(self, context: TenureContext) -> None:
        services = context.services
        self._store = services.store
        self._load = services.load
        self._metrics = services.metrics
        self._tenure = context.tenure
        self._runs = context.runs
        self._posts = context.posts
        self._timers = Timers(self._fire, is_wanted=self._is_awaited)
        self._waking: set[str] = set()
        """Parked runs whose time is near, until the log has their timer: while NATS is away, it would
        be posted again and again."""

    def arm(self, run_id: str, at_ms: float) -> None:
        """Wake a run at a time (epoch ms)."""
        self._timers.arm(run_id, at_ms)

    def clear(self) -> None:
        """Forget all timers."""
        self._timers.clear()

    def park(self) -> None:
        """Park the runs that are idle; to be called regularly."""
        now = now_ms()
        self._runs.forget_large(now)
        for run, until_ms in self._runs.resting(now):
            self._runs.marked.add(run.run_id)
            self._tenure.add(
                run,
                changed=(),
                run_changed=True,
                first=False,
                attempts=[],
                urgent=False,
                parked_until_ms=until_ms,
            )
            self._tenure.after_commit(partial(self._parked, run, run.revision), run_id=run.run_id)

    async def wake_parked(self) -> None:
        """Arm the timers of parked runs whose time is near; to be called every WAKE_EVERY_S."""
        until_ms = now_ms() + 2_000 * WAKE_EVERY_S
        found = await self._store.parked(self._tenure.partition, until_ms, MAX_WOKEN)
        for run_id, at_ms in found:
            if run_id not in self._waking and not self._tenure.over:
                self._waking.add(run_id)
                self._timers.arm(run_id, at_ms)

    def _parked(self, run: Run, revision: int) -> None:
        if self._runs.park(run, revision):
            self._load.ended(run.run_id)
            self._metrics.parked()

    def _is_awaited(self, run_id: str) -> bool:
        return run_id in self._runs.in_flight or run_id in self._waking

    def _fire(self, run_id: str, due_at_ms: float) -> None:
        event = TimerFired(run_id=run_id, due_at_ms=due_at_ms)
        msg_id = f"{run_id}:timer:{due_at_ms}:{self._tenure.epoch}"
        try:
            posted = self._posts.post_to_run(event, msg_id)
        except BaseException:
            self._waking.discard(run_id)
            raise
        posted.add_done_callback(lambda _: self._waking.discard(run_id))
