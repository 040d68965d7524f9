"""The world: virtual time, randomness from one seed, processes that can stop, stall and die, and a
trace.

One call of `run` plays everything. While processes have something ready, a seeded choice decides whose
handle runs next; when none has, time jumps to the next event (a message arrives, a timer fires). A
process keeps the order of its own handles, as asyncio promises; between processes any order is
possible. Nothing here or in the processes reads real time, real randomness, or the order of a set.
"""

import asyncio
import contextvars
import hashlib
import heapq
import logging
from asyncio import events
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any

import nats.aio.client
import nats.js.client
import nats.nuid
import structlog

from hocket.kit.process import clock
from simulation.engine.loop import ProcessLoop
from simulation.engine.swaps import swapped

EPOCH_S = 1_750_000_000.0
"""The wall clock at the start of every simulation."""
SLICE_S = 0.001
"""Events this close may occur between two handles of one instant, since real processes take time."""
EVENT_CHANCE = 0.1
MAX_STEPS = 400_000
"""Maximum number of handles and events in one simulation; more means that something is in an endless
loop."""


class RunsInCircles(Exception):
    """Something goes on for ever without getting anywhere."""


class World:
    """The time, the randomness and the processes of one play."""

    def __init__(self, seed: str, *, verbose: bool = False) -> None:
        self.seed = seed
        self.now_s = 0.0
        self.verbose = verbose
        self.trace: list[tuple[float, str, str]] = []
        self.processes: list[Process] = []
        self.steps = 0
        self.current: Process | None = None
        self.running: ProcessLoop | None = None
        """The loop that asyncio regards as running."""
        self.alarms: list[tuple[str, str, str]] = []
        """Errors logged by processes: process, event, and the remaining fields."""
        self._digest = hashlib.blake2b(digest_size=16)
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._hashes = 0
        self._ready: list[Process] = []
        self._stopped = False
        self._choice = self.dice("schedule")
        self._dead: list[asyncio.Task[Any]] = []

    # ---- randomness and time ----------------------------------------------------------------

    def dice(self, purpose: str) -> Random:
        """Return a random generator for one purpose, so that using one more often does not change the
        others."""
        return Random(f"{self.seed}:{purpose}")

    def at(self, when_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Run an action at a given time."""
        self._count += 1
        heapq.heappush(self._events, (max(when_s, self.now_s), self._count, action, arguments))

    def after(self, delay_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Run an action after a delay."""
        self.at(self.now_s + delay_s, action, *arguments)

    def next_hash(self) -> int:
        """Return the hash of the next task or future: this gives sets of them the same order in each
        play."""
        self._hashes += 1
        return self._hashes

    def wall_s(self) -> float:
        """Return the wall clock of the running process; if none is running, that of the servers."""
        process = self.current
        if process is None:
            return EPOCH_S + self.now_s
        return EPOCH_S + process.skew_s + self.now_s * process.rate

    def monotonic_s(self) -> float:
        return self.now_s

    # ---- trace ------------------------------------------------------------------------------

    def note(self, who: str, what: str) -> None:
        """Record that something happened; the hash of the trace shows whether two plays are the same."""
        self._digest.update(f"{self.now_s!r} {who} {what}\n".encode())
        if self.verbose:
            self.trace.append((self.now_s, who, what))

    def trace_hash(self) -> str:
        return self._digest.hexdigest()

    # ---- processes --------------------------------------------------------------------------

    def process(self, name: str) -> "Process":
        process = Process(self, name)
        self.processes.append(process)
        return process

    def is_ready(self, process: "Process") -> None:
        """Add a process to those that have something to run."""
        self._ready.append(process)

    def bury(self, loop: ProcessLoop) -> None:
        """Keep the tasks of a dead process, so that none of their code runs before the end."""
        self._dead += [task for task in asyncio.all_tasks(loop) if not task.done()]

    # ---- play -------------------------------------------------------------------------------

    def stop(self) -> None:
        """End `run` after the current step."""
        self._stopped = True

    def run(self, until_s: float) -> bool:
        """Play until `stop` is called; return whether that happened before `until_s`."""
        calendar, ready, choice = self._events, self._ready, self._choice.random
        self._stopped = False
        try:
            while not self._stopped:
                self.steps += 1
                if self.steps > MAX_STEPS:
                    raise RunsInCircles(f"{MAX_STEPS} steps at {self.now_s:.3f} s")
                if ready:
                    near = calendar and calendar[0][0] <= self.now_s + SLICE_S
                    if near and choice() < EVENT_CHANCE:
                        self._next_event()
                        continue
                    count = len(ready)
                    place = 0 if count == 1 else int(choice() * count)
                    process = ready[place]
                    if not process.step():
                        ready[place] = ready[-1]
                        ready.pop()
                        process.in_round = False
                elif not calendar or calendar[0][0] > until_s:
                    self.now_s = until_s
                    return False
                else:
                    self._next_event()
        finally:
            self.current = self.running = None
            events._set_running_loop(None)
        return True

    def _next_event(self) -> None:
        when_s, _, action, arguments = heapq.heappop(self._events)
        if when_s > self.now_s:
            self.now_s = when_s
        self.current = None
        action(*arguments)

    def close(self) -> None:
        """Discard everything that is still waiting, without running any of it."""
        for process in self.processes:
            process.kill()
        leftover = (
            asyncio.new_event_loop()
        )  # otherwise dead code that asks for a loop would create one and keep it
        events.set_event_loop(leftover)
        try:
            self._close_coroutines()
        finally:
            events.set_event_loop(None)
            leftover.close()
        self._events.clear()

    def _close_coroutines(self) -> None:
        for task in self._dead:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            for _ in range(3):
                try:
                    coroutine.close()
                    break
                except BaseException:  # exceptions from dead code do not matter
                    continue
        self._dead.clear()


class Process:
    """One simulated process: an event loop, its own clock, and a lifecycle."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.skew_s = 0.0
        self.rate = 1.0
        self.loop: ProcessLoop | None = None
        self.paused = False
        self.in_round = False
        self.starts = 0
        self.connections: list[Any] = []
        self.on_exit: Callable[[BaseException | None], None] = lambda error: None

    @property
    def alive(self) -> bool:
        return self.loop is not None

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        """Start with a main coroutine; `on_exit` is called when it ends."""
        assert self.loop is None, f"{self.name} runs"
        self.starts += 1
        self.paused = False
        loop = self.loop = ProcessLoop(self)
        self.world.note(self.name, f"starts ({self.starts})")

        def ended(task: "asyncio.Task[None]") -> None:
            if self.loop is loop:
                error = None if task.cancelled() else task.exception()
                self.world.note(self.name, f"exits: {error!r}")
                self.kill()
                self.on_exit(error)

        def begin() -> None:
            loop.create_task(main, name="main").add_done_callback(ended)

        loop.call_soon(begin, context=contextvars.Context())

    def kill(self) -> None:
        """Kill it at once: none of its code runs again, and its connections break."""
        loop, self.loop = self.loop, None
        if loop is None:
            return
        loop.die()
        self.world.bury(loop)
        connections, self.connections = self.connections, []
        for connection in connections:
            connection.break_(self.name + " died")

    def pause(self) -> None:
        """Pause in the middle of whatever it does (SIGSTOP)."""
        self.paused = True

    def go_on(self) -> None:
        self.paused = False
        if self.loop is not None and self.loop.ready:
            self.wake()

    def wake(self) -> None:
        """Join the ready processes: there is something to run."""
        if not self.in_round and not self.paused:
            self.in_round = True
            self.world.is_ready(self)

    def step(self) -> bool:
        """Run one handle; return whether there may be more."""
        loop = self.loop
        if loop is None or self.paused or not loop.ready:
            return False
        handle = loop.ready.popleft()
        if not handle.is_cancelled:
            world = self.world
            world.current = self
            if world.running is not loop:
                world.running = loop
                events._set_running_loop(loop)
            try:
                handle.context.run(handle.callback, *handle.arguments)
            except Exception as error:
                loop.call_exception_handler({"message": "in a callback", "exception": error})
        return self.loop is loop and bool(loop.ready)


# ---- replacements while a world plays -----------------------------------------------------


@contextmanager
def replaced(world: World, transport: Callable[[], Any]) -> Iterator[None]:
    """Give the product's code the world's time, randomness and sockets inside the `with`."""
    dice, tokens = world.dice("ids"), world.dice("tokens")
    time = SimpleNamespace(monotonic=world.monotonic_s, time=world.wall_s)
    logs = structlog.get_config()
    sockets_and_dice = swapped(
        (nats.aio.client, "TcpTransport", transport),
        (nats.aio.client, "time", time),
        (nats.aio.client, "shuffle", lambda servers: None),
        (nats.aio.client, "token_hex", lambda count: tokens.randbytes(count).hex()),
        (nats.js.client, "time", time),
        (nats.nuid, "randbelow", lambda limit: dice.randrange(limit)),
        (nats.nuid, "token_bytes", lambda count: dice.randbytes(count)),
    )
    with sockets_and_dice, clock.source(world.wall_s, world.monotonic_s):
        _log_to(world)
        try:
            yield
        finally:
            world.close()
            structlog.configure(**logs)


def _log_to(world: World) -> None:
    def keep(_logger: Any, method: str, event: dict[str, Any]) -> str:
        who = world.current.name if world.current is not None else "world"
        rest = " ".join(f"{key}={value}" for key, value in event.items() if key != "event")
        if world.verbose:
            world.trace.append((world.now_s, who, f"log {method} {event.get('event')} {rest}"))
        if method in ("error", "exception", "critical"):
            world.alarms.append((who, str(event.get("event")), rest))
        raise structlog.DropEvent

    level = logging.DEBUG if world.verbose else logging.ERROR
    structlog.configure(
        processors=[structlog.processors.format_exc_info, keep],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )
