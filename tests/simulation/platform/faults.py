"""The faults of a play, drawn before it begins; at the end everything works again."""

from collections.abc import Callable
from random import Random

from hocket.schemas.messages import StepRequested
from simulation.engine.jetstream import Stored, Stream
from simulation.engine.nats_server import Weather
from simulation.platform.platform import Platform

CALM = Weather()


class Faults:
    """The faults of one play: `count` of them between `from_s` and `until_s`, followed by calm."""

    def __init__(
        self, platform: Platform, dice: Random, *, count: int, from_s: float, until_s: float
    ) -> None:
        self.platform = platform
        self.calm = False
        self.lossy_until_s = 0.0
        self._world = platform.world
        self._dice = dice
        self._until_s = until_s
        kinds: list[Callable[[], None]] = [
            self._kill_coordinator,
            self._kill_coordinator,
            self._kill_worker,
            self._kill_worker,
            self._kill_gateway,
            self._pause,
            self._pause,
            self._crash_nats,
            self._crash_nats,
            self._break_connections,
            self._drop,
            self._slow_network,
            self._stall,
            self._database_down,
            self._database_slow,
            self._lose_answers,
            self._terminate,
            self._terminate,
            self._cut_off,
            self._turn_clock,
            self._repeat_result,
            self._black_out,
            self._black_out_behind,
            self._black_out_behind,
            self._ambush,
            self._ambush,
            self._ambush,
            self._ambush,
        ]
        for _ in range(count):
            when_s = from_s + (until_s - from_s) * dice.random()
            self._world.at(when_s, self._happen, dice.choice(kinds))
        forging = self._world.dice(
            "forging"
        )  # a separate one, which leaves the other faults unchanged
        for _ in range(forging.choice((0, 0, 3, 10)) if count else 0):
            when_s = from_s + (until_s - from_s) * forging.random()
            self._world.at(when_s, self._happen, self._forge)
        losing = self._world.dice("losing")  # a separate one: most plays stay unchanged
        for _ in range(losing.choice((0, 0, 2, 4)) if count else 0):
            when_s = from_s + (until_s - from_s) * losing.random()
            lose = losing.choice((self._lose_log_messages, self._lose_steps_in_hand))
            self._world.at(when_s, self._happen, lose)
        swapping = self._world.dice("swapping")  # separate, too
        if count and len(platform.workers()) > 1 and swapping.random() < 0.4:
            when_s = from_s + 0.5 * (until_s - from_s) * swapping.random()
            self._world.at(when_s, self._happen, self._swap_places)
        self._world.at(until_s, self._end)

    def _happen(self, fault: Callable[[], None]) -> None:
        if not self.calm:
            self._world.note("fault", fault.__name__.strip("_"))
            fault()

    def _end(self) -> None:
        self._world.note("fault", "calm")
        self.calm = True
        self.platform.server.weather = Weather()
        self.platform.server.log_drop_chance = 0.0
        weather = self.platform.database.weather
        weather.down, weather.slow_s, weather.lose_answer_chance = False, 0.0, 0.0
        for process in self.platform.processes.values():
            process.skew_s = 0.0
            process.go_on()

    def _later(self, longest_s: float, action: Callable[[], None]) -> None:
        left_s = self._until_s - self._world.now_s
        self._world.after(min(left_s, longest_s * self._dice.random()), action)

    # ---- processes --------------------------------------------------------------------------

    def _kill_coordinator(self) -> None:
        self.platform.kill(self._dice.choice(self.platform.coordinators()))

    def _kill_worker(self) -> None:
        self.platform.kill(self._dice.choice(self.platform.workers()))

    def _kill_worker_unless_calm(self) -> None:
        if not self.calm:
            self._kill_worker()

    def _kill_gateway(self) -> None:
        self.platform.kill("gateway")

    def _pause(self) -> None:
        name = self._dice.choice([*self.platform.coordinators(), *self.platform.workers()])
        process = self.platform.processes[name]
        process.pause()
        self._later(8.0, process.go_on)

    def _terminate(self) -> None:
        platform = self.platform
        platform.terminate(self._dice.choice([*platform.coordinators(), *platform.workers()]))

    def _cut_off(self) -> None:
        """Isolate a coordinator: for a while it does not hear the others, nor they it, but it reaches
        Postgres."""
        process = self.platform.processes[self._dice.choice(self.platform.coordinators())]
        for connection in process.connections:
            connection.stalled_until_s = min(self._world.now_s + 5.0, self._until_s)

    def _turn_clock(self) -> None:
        process = self._dice.choice(list(self.platform.processes.values()))
        process.skew_s = self._dice.uniform(-3.0, 3.0)

    def _black_out(self) -> None:
        """Power failure: NATS crashes without its tail, and some of the processes beside it are killed.
        x"""
        self._strike_out(self._dice.choice(("worker-", "coordinator-", "no")))

    def _black_out_behind(self) -> None:
        """The same while commits are far behind: much was decided and dispatched, and little is stored.
        x"""
        weather = self.platform.database.weather
        weather.slow_s = 2.0

        def strike() -> None:
            weather.slow_s = 0.0
            if not self.calm:
                self._strike_out("worker-")

        self._later(1.5, strike)

    def _lose_steps_in_hand(self) -> None:
        """Crash NATS so that it loses steps that workers are executing; others take their sequence
        numbers. A little later, kill workers that may hold one of these."""
        left = 1

        def strike() -> None:
            self._strike_out("worker-")
            for longest_s in (0.5, 2.0):
                self._later(longest_s, self._kill_worker_unless_calm)

        def happened(what: str, stream: Stream, *_: object) -> None:
            nonlocal left
            if left and not self.calm and (stream.name, what) == ("STEPS", "stored"):
                left = 0
                self._world.note("fault", "steps in hand")
                self._world.after(0.01, strike)

        self.platform.server.jetstream.observers.append(happened)

    def _swap_places(self) -> None:
        """Let NATS lose a finished step and a later one that a worker still executes: everything that
        is dispatched again has other sequence numbers, and the next step has that of the one being
        executed."""
        left = 1

        def happened(what: str, stream: Stream, stored: Stored, why: str) -> None:
            nonlocal left
            if not left or self.calm or (stream.name, what, why) != ("STEPS", "removed", "+ACK"):
                return
            if any(seq > stored.seq and _takes_long(one) for seq, one in stream.messages.items()):
                left = 0
                self._world.after(0.0, strike, stream, stored.seq)

        def strike(stream: Stream, first_seq: int) -> None:
            self._world.note("fault", f"places from {first_seq} on")
            stream.lose_from(first_seq)
            self.platform.server.crash(0.02, lose=False)

        self.platform.server.jetstream.observers.append(happened)

    def _strike_out(self, spare: str) -> None:
        self.platform.server.crash(0.05 + self._dice.random(), lose=True)
        for name in self.platform.processes:
            if not name.startswith(spare):
                self.platform.kill(name)

    def _ambush(self) -> None:
        """Strike at a critical moment: when something has just been written and nobody knows it yet."""
        dice, platform = self._dice, self.platform
        moment = dice.choice(("committed", "LOG stored", "STEPS stored", "STEPS removed", "owned"))
        strike = dice.choice(
            (
                self._kill_coordinator,
                self._kill_coordinator,
                self._kill_worker,
                self._crash_nats,
                self._black_out,
                self._black_out,
            )
        )
        left = dice.randint(1, 4)

        def happened(what: str) -> None:
            nonlocal left
            if what == moment and left and not self.calm:
                left -= 1
                if not left:
                    self._world.note("fault", f"ambush at {what}")
                    self._world.after(dice.choice((0.0, 0.0, 0.003, 0.01)), strike)

        platform.database.observers.append(lambda what, detail: happened(what))
        platform.server.jetstream.observers.append(
            lambda what, stream, stored, why: happened(f"{stream.name} {what}")
        )

    # ---- NATS -------------------------------------------------------------------------------

    def _crash_nats(self) -> None:
        self.platform.server.crash(0.05 + 2.0 * self._dice.random(), lose=self._dice.random() < 0.7)

    def _break_connections(self) -> None:
        for connection in list(self.platform.server.connections):
            if self._dice.random() < 0.5:
                connection.break_("broken")

    def _drop(self) -> None:
        self._weather(Weather(drop_chance=self._dice.choice((0.02, 0.1, 0.3))), 2.0)

    def _lose_log_messages(self) -> None:
        """Lose messages of the log on their way to its readers, as happens to a slow consumer."""
        server = self.platform.server
        server.log_drop_chance = 0.2
        self._later(2.0, lambda: setattr(server, "log_drop_chance", 0.0))

    def _slow_network(self) -> None:
        self._weather(Weather(latency_s=(0.001, 0.05), slow_chance=0.1, slow_s=1.0), 3.0)

    def _weather(self, weather: Weather, longest_s: float) -> None:
        server = self.platform.server
        server.weather = weather

        def clear() -> None:
            if server.weather is weather:
                server.weather = Weather()

        self._later(longest_s, clear)

    def _stall(self) -> None:
        connections = self.platform.server.connections
        if connections:
            connection = self._dice.choice(connections)
            until_s = self._world.now_s + 6.0 * self._dice.random()
            connection.stalled_until_s = min(until_s, self._until_s)

    def _repeat_result(self) -> None:
        """Let a worker answer again, after the stream has forgotten the first answer."""
        from simulation.engine.nats_server import Message

        jetstream = self.platform.server.jetstream
        stream = jetstream.streams.get("LOG")
        if stream is None or not self.platform.server.up:
            return
        results = [m for m in stream.messages.values() if m.subject.endswith(".finished")]
        for stored in results[-3:]:
            jetstream.publish(stream, Message(stored.subject, "", b"", stored.data))

    def _forge(self) -> None:
        """Write messages as somebody who has no right to."""
        self.platform.forger.write()

    # ---- Postgres ---------------------------------------------------------------------------

    def _database_down(self) -> None:
        weather = self.platform.database.weather
        weather.down = True
        self._later(4.0, lambda: setattr(weather, "down", False))

    def _database_slow(self) -> None:
        weather = self.platform.database.weather
        weather.slow_s = self._dice.choice((0.2, 1.5))
        self._later(4.0, lambda: setattr(weather, "slow_s", 0.0))

    def _lose_answers(self) -> None:
        weather = self.platform.database.weather
        weather.lose_answer_chance = 0.4
        self._later(3.0, lambda: setattr(weather, "lose_answer_chance", 0.0))


def _takes_long(stored: Stored) -> bool:
    try:
        step = StepRequested.model_validate_json(stored.data)
    except ValueError:  # forged junk
        return False
    return step.config.get("handler") in ("sim:slow", "sim:long", "sim:stubborn")
