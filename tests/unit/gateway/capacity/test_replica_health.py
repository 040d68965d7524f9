"""What breakers are told of calls: those in flight that wait too long, and those that say nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hocket.gateway.backends.protocol import BackendRefused, BackendTimedOut, Chunk
from hocket.gateway.capacity.replica_health import ReplicaHealth
from hocket.gateway.capacity.slot import PlacementRequest, Slot
from hocket.gateway.core.config.table import BackendSpec, ModelSpec, RoutingTable
from hocket.gateway.core.routing.breaker import BreakerState
from hocket.gateway.core.routing.history import CallDurations, Kind
from hocket.gateway.core.routing.replica_choice import CallFacts, Decision
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import Priority

SPEC = BackendSpec("a", "openai", "m")
SHORT, LONG = ("writer", "report", "tag"), ("writer", "report", "draft")


class Timer:
    """A timer of the clock below."""

    def __init__(self) -> None:
        self.is_set = True

    def cancel(self) -> None:
        self.is_set = False


class Clock:
    """An event loop's clock and timers, moved by the test."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._timers: list[tuple[float, Timer, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, after_s: float, run: Callable[..., None], *given: Any) -> Timer:
        timer = Timer()
        self._timers.append((self.now_s + after_s, timer, lambda: run(*given)))
        return timer

    def go(self, to_s: float) -> None:
        """Move to a time, running the timers that are due by then, in order."""
        while due := [one for one in self._timers if one[0] <= to_s]:
            first = min(due, key=lambda one: one[0])
            self._timers.remove(first)
            self.now_s = max(self.now_s, first[0])
            if first[1].is_set:
                first[2]()
        self.now_s = to_s


class Replica:
    """One replica's health, on a clock that the test moves."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        table = RoutingTable({"writer": ModelSpec((SPEC,))})
        self.health = ReplicaHealth(
            table, CallDurations(), lambda: clock.now_s * 1000, None, changed=lambda: None
        )

    @property
    def state(self) -> BreakerState:
        return self.health.breakers[SPEC.key].state

    def begin(self, kind: Kind, *, in_pieces: bool = False) -> "Made":
        now_ms = self.clock.now_s * 1000
        request = PlacementRequest(
            CallFacts("writer"), kind, Priority.STANDARD, now_ms + 1e6, in_pieces=in_pieces
        )
        decision = Decision("writer", (), SPEC, "only")
        silence = self.health.silence(SPEC.key)
        slot = Slot(
            lambda *_: None, request, decision, began_ms=now_ms, queue_ms=0.0, silence=silence
        )
        self.health.began(slot)
        return Made(self, slot)

    def streamed(self, kind: Kind, piece_s: float, *, pieces: int, times: int) -> None:
        """Make successful streams, one after the other."""
        for _ in range(times):
            one = self.begin(kind, in_pieces=True)
            self.writes([one], piece_s, pieces=pieces)
            one.end()

    def writes(self, streams: "list[Made]", piece_s: float, *, pieces: int) -> None:
        """Write pieces of streams, all of them at the same times."""
        for _ in range(pieces):
            self.clock.go(self.clock.now_s + piece_s)
            for one in streams:
                one.hear()

    def made(self, kind: Kind, took_s: float, *, times: int) -> None:
        """Make successful calls, one after the other."""
        for _ in range(times):
            one = self.begin(kind)
            self.clock.go(self.clock.now_s + took_s)
            one.end()


class Made:
    """A call in flight."""

    def __init__(self, replica: Replica, slot: Slot) -> None:
        self._replica, self._slot = replica, slot
        self._hear = slot.silence.broken_by(_taken) if slot.request.in_pieces else None

    def hear(self) -> None:
        assert self._hear is not None
        heard: Any = self._hear(Chunk("a"))
        with pytest.raises(StopIteration):
            heard.send(None)

    def end(self, error: HocketError | None = None) -> None:
        now_ms = self._replica.clock.now_s * 1000
        self._replica.health.ended(self._slot, error, now_ms, unused=False)


async def _taken(_: Chunk) -> None:
    pass


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Replica:
    clock = Clock()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)
    return Replica(clock)


def quiet(replica: Replica) -> None:
    """Let the window of the breaker pass."""
    replica.clock.go(replica.clock.now_s + 11.0)


@pytest.mark.parametrize("ends", [True, False])
def test_long_streams_are_not_slow_as_long_as_their_pieces_come(
    replica: Replica, ends: bool
) -> None:
    replica.made(SHORT, 0.01, times=30)
    quiet(replica)
    streams = [replica.begin(LONG, in_pieces=True) for _ in range(12)]
    replica.writes(streams, 0.05, pieces=200)
    for one in streams if ends else ():
        one.end()
    assert replica.state is BreakerState.CLOSED


@pytest.mark.parametrize("heard", [0, 5])
def test_streams_that_fall_silent_are_found_after_a_second(replica: Replica, heard: int) -> None:
    replica.made(SHORT, 0.01, times=30)
    quiet(replica)
    streams = [replica.begin(LONG, in_pieces=True) for _ in range(12)]
    replica.writes(streams, 0.05, pieces=heard)
    replica.clock.go(replica.clock.now_s + 0.9)
    assert replica.state is BreakerState.CLOSED
    replica.clock.go(replica.clock.now_s + 0.2)
    assert replica.state is BreakerState.OPEN


def test_calls_in_one_piece_are_not_slow_because_streams_are_never_silent_for_long(
    replica: Replica,
) -> None:
    replica.streamed(LONG, 0.05, pieces=60, times=30)
    quiet(replica)
    calls = [replica.begin(LONG) for _ in range(12)]
    replica.clock.go(replica.clock.now_s + 8.0)
    for one in calls:
        one.end()
    assert replica.state is BreakerState.CLOSED


@pytest.mark.parametrize(
    ("factor", "state"),
    [
        (1.0, BreakerState.CLOSED),
        (3.8, BreakerState.CLOSED),
        (5.0, BreakerState.OPEN),
        (45.0, BreakerState.OPEN),
    ],
)
def test_streams_that_write_much_slower_than_usual_are_found(
    replica: Replica, factor: float, state: BreakerState
) -> None:
    replica.streamed(LONG, 0.02, pieces=150, times=30)
    quiet(replica)
    streams = [replica.begin(LONG, in_pieces=True) for _ in range(12)]
    replica.writes(streams, 0.02 * factor, pieces=150)
    assert replica.state is state
    for one in streams:
        one.end()
    assert replica.state is state


def test_a_stream_that_has_fallen_behind_leaves_calls_in_one_piece_their_say(
    replica: Replica,
) -> None:
    replica.made(SHORT, 10.0, times=20)
    replica.streamed(LONG, 0.02, pieces=150, times=30)
    quiet(replica)
    for _ in range(40):
        replica.begin(SHORT)
    streams = [replica.begin(LONG, in_pieces=True) for _ in range(12)]
    replica.writes(streams, 0.9, pieces=5)
    assert replica.state is BreakerState.CLOSED


@pytest.mark.parametrize("times", [19, 20])
def test_a_stream_out_of_time_counts_as_a_failure_if_it_fell_behind(
    replica: Replica, times: int
) -> None:
    replica.streamed(LONG, 0.02, pieces=150, times=times)
    quiet(replica)
    for _ in range(3):
        one = replica.begin(LONG, in_pieces=True)
        replica.writes([one], 0.5, pieces=20)
        one.end(BackendTimedOut(component="a", timeout_ms=10_000))
    assert replica.state is (BreakerState.OPEN if times == 20 else BreakerState.CLOSED)


def test_streams_of_few_pieces_do_not_tell_how_fast_a_replica_writes(replica: Replica) -> None:
    replica.streamed(LONG, 0.0, pieces=3, times=128)
    quiet(replica)
    streams = [replica.begin(LONG, in_pieces=True) for _ in range(12)]
    replica.writes(streams, 0.05, pieces=200)
    assert replica.state is BreakerState.CLOSED


def test_streams_of_few_large_pieces_are_not_judged_by_the_pace_of_others(replica: Replica) -> None:
    replica.streamed(LONG, 0.02, pieces=150, times=30)
    quiet(replica)
    for _ in range(3):
        streams = [replica.begin(LONG, in_pieces=True) for _ in range(12)]
        replica.writes(streams, 0.5, pieces=7)
        for one in streams:
            one.end()
    assert replica.state is BreakerState.CLOSED


def test_streams_whose_pieces_came_in_bursts_do_not_make_a_usual_pace_slow(
    replica: Replica,
) -> None:
    replica.streamed(LONG, 0.0002, pieces=150, times=128)
    quiet(replica)
    streams = [replica.begin(LONG, in_pieces=True) for _ in range(12)]
    replica.writes(streams, 0.02, pieces=200)
    assert replica.state is BreakerState.CLOSED


def test_a_known_kind_of_long_calls_is_judged_by_itself(replica: Replica) -> None:
    replica.made(LONG, 10.0, times=20)
    replica.made(SHORT, 0.01, times=128)
    quiet(replica)
    calls = [replica.begin(LONG) for _ in range(12)]
    replica.clock.go(replica.clock.now_s + 10.0)
    for one in calls:
        one.end()
    assert replica.state is BreakerState.CLOSED


def test_a_replica_that_hangs_is_found_by_its_short_calls_among_many_long_ones(
    replica: Replica,
) -> None:
    replica.made(LONG, 10.0, times=20)
    replica.made(SHORT, 0.01, times=128)
    quiet(replica)
    for _ in range(40):
        replica.begin(LONG)
    for _ in range(10):
        replica.begin(SHORT)
    replica.clock.go(replica.clock.now_s + 1.1)
    assert replica.state is BreakerState.OPEN


def test_a_replica_that_still_answers_others_does_not_hang(replica: Replica) -> None:
    replica.made(LONG, 10.0, times=20)
    replica.made(SHORT, 0.01, times=128)
    quiet(replica)
    answered = [replica.begin(LONG) for _ in range(40)]
    for _ in range(10):
        replica.begin(SHORT)
    replica.clock.go(replica.clock.now_s + 0.5)
    answered.pop().end()
    replica.clock.go(replica.clock.now_s + 0.6)
    assert replica.state is BreakerState.CLOSED


def test_a_stream_that_writes_until_its_deadline_does_not_count_as_a_failure(
    replica: Replica,
) -> None:
    for _ in range(3):
        one = replica.begin(LONG, in_pieces=True)
        for _ in range(40):
            replica.clock.go(replica.clock.now_s + 0.05)
            one.hear()
        one.end(BackendTimedOut(component="a", timeout_ms=2_000))
    assert replica.state is BreakerState.CLOSED
    for _ in range(3):
        one = replica.begin(LONG, in_pieces=True)
        replica.clock.go(replica.clock.now_s + 2.0)
        one.end(BackendTimedOut(component="a", timeout_ms=2_000))
    assert replica.state is BreakerState.OPEN


def test_a_call_that_was_not_sent_says_nothing_of_its_server(replica: Replica) -> None:
    refused = BackendRefused(component="a", status="request", reason="no", unsent=True)
    broken = BackendTimedOut(component="a", timeout_ms=2_000)
    for _ in range(3):
        replica.begin(SHORT).end(refused)
        one = replica.begin(SHORT)
        replica.clock.go(replica.clock.now_s + 2.0)
        one.end(broken)
    assert replica.state is BreakerState.OPEN
    replica.clock.go(replica.clock.now_s + 2.0)
    replica.begin(SHORT).end(refused)
    assert replica.state is BreakerState.HALF_OPEN
    replica.begin(SHORT).end(BackendRefused(component="a", status=400, reason="no"))
    assert replica.state is BreakerState.CLOSED
