"""A NATS server in memory: core subjects, and the part of JetStream that the product uses
(`jetstream`).

It speaks the client protocol over `nats_transport`, so the client library above it is the real one. It
may lose core messages in either direction, be slow, break connections, and crash and come back without
the tails of its fast streams.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from simulation.engine.jetstream import JetStream
from simulation.engine.nats_transport import Connection
from simulation.engine.world import World

VERSION = "2.15.1"
MAX_PAYLOAD = 1_048_576
CRLF = b"\r\n"


@dataclass(slots=True)
class Subscription:
    """A subscription of a connection."""

    connection: Connection
    sid: int
    subject: str
    queue: str
    left: int | None = None


_OF_LOG = "$JS.ACK.LOG."


@dataclass
class Weather:
    """The current condition of the network."""

    latency_s: tuple[float, float] = (0.0001, 0.001)
    slow_chance: float = 0.0
    slow_s: float = 0.0
    drop_chance: float = 0.0


@dataclass(slots=True)
class Message:
    """A message on its way through the server; headers are kept as received."""

    subject: str
    reply: str
    headers: bytes
    data: bytes
    fields: dict[str, str] = field(default_factory=dict)


class Server:
    """A simulated NATS server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.weather = Weather()
        self.log_drop_chance = 0.0
        """The probability that a message of the log does not reach its reader."""
        self.up = True
        self.connections: list[Connection] = []
        self.jetstream = JetStream(self)
        self.observers: list[Callable[[str, Connection, Message], None]] = []
        """Called for every publish that arrives, before it is processed."""
        self._dice = world.dice("network")
        self._log_dice = world.dice("log losses")
        self._count = 0
        self._subscriptions: dict[tuple[int, int], Subscription] = {}
        self._exact: dict[str, list[Subscription]] = {}
        self._under: dict[str, list[Subscription]] = {}
        """Subscriptions to `prefix.*`, by prefix."""
        self._wild: list[tuple[list[str], Subscription]] = []

    # ---- weather ----------------------------------------------------------------------------

    def latency_s(self) -> float:
        weather, dice = self.weather, self._dice
        low, high = weather.latency_s
        delay_s = low + (high - low) * dice.random()
        if weather.slow_chance and dice.random() < weather.slow_chance:
            delay_s += weather.slow_s * dice.random()
        return delay_s

    def loses(self) -> bool:
        """Decide whether this message is lost."""
        chance = self.weather.drop_chance
        return chance > 0.0 and self._dice.random() < chance

    def _loses_of_log(self, reply: str) -> bool:
        """Decide whether the message with this ack subject is one of the log and is lost."""
        chance = self.log_drop_chance
        return chance > 0.0 and reply.startswith(_OF_LOG) and self._log_dice.random() < chance

    # ---- lifecycle --------------------------------------------------------------------------

    def connect(self, process: Any) -> Connection:
        if not self.up:
            raise ConnectionRefusedError("no server")
        self._count += 1
        connection = Connection(self, process, self._count)
        process.connections.append(connection)
        self.connections.append(connection)
        info = {
            "server_id": "simulated",
            "version": VERSION,
            "max_payload": MAX_PAYLOAD,
            "headers": True,
            "jetstream": True,
            "client_id": self._count,
        }
        connection.to_client(b"INFO " + json.dumps(info).encode() + b" \r\n")
        return connection

    def forget(self, connection: Connection) -> None:
        """Remove the subscriptions of a broken connection."""
        self.connections.remove(connection)
        if connection in connection.process.connections:
            connection.process.connections.remove(connection)
        for key in [key for key in self._subscriptions if key[0] == connection.number]:
            self._unlisten(key)

    def crash(self, down_s: float, *, lose: bool) -> None:
        """Crash, and restart after a while, perhaps without the tail of what was stored."""
        if not self.up:
            return
        self.world.note("nats", f"crash, lose={lose}")
        self.up = False
        for connection in list(self.connections):
            connection.break_("the server crashed")
        self.jetstream.crash(lose=lose)
        self.world.after(down_s, self._boot)

    def _boot(self) -> None:
        self.world.note("nats", "boot")
        self.up = True
        self.jetstream.boot()

    # ---- requests of clients ----------------------------------------------------------------

    def receive(self, connection: Connection, data: bytes) -> None:
        buffer = connection.buffer
        buffer += data
        while connection.open:
            end = buffer.find(CRLF)
            if end < 0:
                return
            line = bytes(buffer[:end])
            verb = line[:4]
            if verb == b"HPUB":
                head = line.split()
                size, total = int(head[-2]), int(head[-1])
                if len(buffer) < end + 4 + total:
                    return
                body = bytes(buffer[end + 2 : end + 2 + total])
                del buffer[: end + 4 + total]
                reply = head[2].decode() if len(head) == 5 else ""
                message = Message(head[1].decode(), reply, body[:size], body[size:])
                self._published(connection, message)
            elif verb == b"PUB ":
                head = line.split()
                total = int(head[-1])
                if len(buffer) < end + 4 + total:
                    return
                body = bytes(buffer[end + 2 : end + 2 + total])
                del buffer[: end + 4 + total]
                reply = head[2].decode() if len(head) == 4 else ""
                self._published(connection, Message(head[1].decode(), reply, b"", body))
            else:
                del buffer[: end + 2]
                self._control(connection, line)

    def _control(self, connection: Connection, line: bytes) -> None:
        words = line.decode().split()
        verb = words[0].upper()
        if verb == "PING":
            connection.to_client(b"PONG\r\n")
        elif verb == "SUB":
            queue = words[2] if len(words) == 4 else ""
            self._listen(Subscription(connection, int(words[-1]), words[1], queue))
        elif verb == "UNSUB":
            key = (connection.number, int(words[1]))
            limit = int(words[2]) if len(words) == 3 else 0
            if limit and key in self._subscriptions:
                self._subscriptions[key].left = limit
            else:
                self._unlisten(key)
        elif verb not in ("CONNECT", "PONG"):
            raise AssertionError(f"a client said {line!r}")

    def _published(self, connection: Connection, message: Message) -> None:
        subject = message.subject
        for observer in self.observers:
            observer("arrived", connection, message)
        if self.loses():
            self.world.note("nats", f"loses {subject} from {connection.process.name}")
            return
        if subject.startswith("$JS."):
            if message.headers:
                message.fields = parse_headers(message.headers)
            self.jetstream.asked(message)
            return
        stream = self.jetstream.stream_of(subject)
        if stream is not None:
            if message.headers:
                message.fields = parse_headers(message.headers)
            self.jetstream.publish(stream, message)
        heard = self.route(message)
        if not heard and stream is None and message.reply:
            self.send(message.reply, b"", headers=b"NATS/1.0 503\r\n\r\n")

    # ---- subscriptions ----------------------------------------------------------------------

    def _listen(self, subscription: Subscription) -> None:
        self._subscriptions[subscription.connection.number, subscription.sid] = subscription
        subject = subscription.subject
        if subject.endswith(".*") and "*" not in subject[:-1]:
            self._under.setdefault(subject[:-2], []).append(subscription)
        elif "*" in subject or ">" in subject:
            self._wild.append((subject.split("."), subscription))
        else:
            self._exact.setdefault(subject, []).append(subscription)
        self.jetstream.interest_changed(subject)

    def _unlisten(self, key: tuple[int, int]) -> None:
        subscription = self._subscriptions.pop(key, None)
        if subscription is None:
            return
        for place, name in (
            (self._exact, subscription.subject),
            (self._under, subscription.subject[:-2]),
        ):
            found = place.get(name)
            if found is not None and subscription in found:
                found.remove(subscription)
                if not found:
                    del place[name]
        self._wild = [entry for entry in self._wild if entry[1] is not subscription]

    def listeners(self, subject: str) -> list[Subscription]:
        """Return the subscriptions that receive a message on a subject: one of each queue group."""
        found = list(self._exact.get(subject, ()))
        found += self._under.get(subject.rpartition(".")[0], ())
        if self._wild:
            words = subject.split(".")
            found += [s for pattern, s in self._wild if matches(pattern, words)]
        if all(not subscription.queue for subscription in found):
            return found
        groups: dict[str, list[Subscription]] = {}
        alone = []
        for subscription in found:
            if subscription.queue:
                groups.setdefault(subscription.queue, []).append(subscription)
            else:
                alone.append(subscription)
        return alone + [self._dice.choice(members) for members in groups.values()]

    def has_interest(self, subject: str, queue: str = "") -> bool:
        for subscription in self._exact.get(subject, ()):
            if not queue or subscription.queue == queue:
                return True
        return any(
            not queue or subscription.queue == queue
            for subscription in self._under.get(subject.rpartition(".")[0], ())
        )

    # ---- delivery ---------------------------------------------------------------------------

    def route(self, message: Message) -> bool:
        """Deliver a message to all who listen; return whether anybody did."""
        listeners = self.listeners(message.subject)
        for subscription in listeners:
            self._deliver(
                subscription, message.subject, message.reply, message.headers, message.data
            )
        return bool(listeners)

    def send(self, subject: str, data: bytes, *, reply: str = "", headers: bytes = b"") -> bool:
        """Send a message of the server itself."""
        return self.route(Message(subject, reply, headers, data))

    def send_as(self, deliver: str, subject: str, reply: str, headers: bytes, data: bytes) -> None:
        """Send a stored message to the subscribers of `deliver`, under its own subject."""
        for subscription in self.listeners(deliver):
            self._deliver(subscription, subject, reply, headers, data)

    def _deliver(
        self, subscription: Subscription, subject: str, reply: str, headers: bytes, data: bytes
    ) -> None:
        if subscription.left is not None:
            subscription.left -= 1
            if subscription.left <= 0:
                self._unlisten((subscription.connection.number, subscription.sid))
        if self.loses() or self._loses_of_log(reply):
            who = subscription.connection.process.name
            self.world.note("nats", f"loses {subject} to {who}")
            return
        sid = subscription.sid
        if headers:
            size = len(headers)
            line = f"HMSG {subject} {sid} {reply} {size} {size + len(data)}\r\n"
        else:
            line = f"MSG {subject} {sid} {reply} {len(data)}\r\n"
        subscription.connection.to_client(b"".join((line.encode(), headers, data, CRLF)))


def parse_headers(raw: bytes) -> dict[str, str]:
    """Return the fields of a header block."""
    fields = {}
    for line in raw.split(CRLF)[1:]:
        name, mark, value = line.partition(b":")
        if mark:
            fields[name.decode()] = value.strip().decode()
    return fields


def matches(pattern: Iterable[str], words: list[str]) -> bool:
    """Return whether a subject matches a pattern with `*` and `>`."""
    place = 0
    for part in pattern:
        if part == ">":
            return place < len(words)
        if place >= len(words) or part not in ("*", words[place]):
            return False
        place += 1
    return place == len(words)
