"""JetStream in memory: streams with sequences and a window of message ids, push and pull consumers.

It implements what the product uses of the JSON API; anything else is an AssertionError. A crash loses
what a real server may lose: ephemeral consumers and pending pull requests always, and, with `lose`, the
tail of streams that are written asynchronously (their sequence numbers are used again) and removals
that were not on disk yet (an acknowledged message of a work queue comes back).
"""

from base64 import b64encode
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

if TYPE_CHECKING:
    from simulation.engine.nats_server import Message, Server

NS = 1_000_000_000
MAX_LOST = (4, 12, 40)
"""Maximum number of messages of a fast stream that a crash may lose; one of these is drawn."""
MAX_BACK = 4
"""Maximum number of removals that a crash may undo."""


class Refused(Exception):
    """An error of the API: code, number and text."""

    def __init__(self, code: int, number: int, text: str) -> None:
        super().__init__(text)
        self.code, self.number, self.text = code, number, text


@dataclass(slots=True)
class Stored:
    """A message in a stream."""

    seq: int
    subject: str
    headers: bytes
    data: bytes
    time_ns: int
    msg_id: str


@dataclass(slots=True)
class Pending:
    """A message that was delivered and is not acknowledged."""

    count: int
    deadline_s: float


@dataclass(slots=True)
class Request:
    """A pending pull request."""

    reply: str
    left: int
    expires_s: float
    heartbeat_s: float
    heard_s: float


class Stream:
    """One stream."""

    def __init__(self, jetstream: "JetStream", config: dict[str, Any]) -> None:
        self.jetstream = jetstream
        self.config = config
        self.name: str = config["name"]
        self.messages: OrderedDict[int, Stored] = OrderedDict()
        self.last_seq = 0
        self.consumers: dict[str, Consumer] = {}
        self.removed: deque[Stored] = deque(maxlen=MAX_BACK)
        self._ids: dict[str, tuple[int, float]] = {}
        self._filters = [subject.split(".") for subject in config.get("subjects", ())]
        self._created = jetstream.timestamp()

    @property
    def is_queue(self) -> bool:
        return self.config.get("retention") == "workqueue"

    @property
    def is_fast(self) -> bool:
        return self.config.get("persist_mode") == "async"

    @property
    def first_seq(self) -> int:
        return next(iter(self.messages), self.last_seq + 1)

    def takes(self, words: list[str]) -> bool:
        matches = self.jetstream.matches
        return any(matches(pattern, words) for pattern in self._filters)

    def store(self, message: "Message") -> tuple[Stored, bool]:
        """Store a message; return it, and whether it was a duplicate."""
        msg_id = message.fields.get("Nats-Msg-Id", "")
        now_s = self.jetstream.now_s
        window_s = self.jetstream.duplicate_window_s
        if msg_id:
            found = self._ids.get(msg_id)
            if found is not None and now_s - found[1] < window_s:
                stored = self.messages.get(found[0])
                return stored or Stored(found[0], message.subject, b"", b"", 0, msg_id), True
        self._check_expectations(message)
        self.last_seq += 1
        time_ns = int((self.jetstream.epoch_s + now_s) * NS)
        stored = Stored(
            self.last_seq, message.subject, message.headers, message.data, time_ns, msg_id
        )
        self.messages[stored.seq] = stored
        if msg_id:
            self._ids[msg_id] = (stored.seq, now_s)
        limit = self.config.get("max_msgs_per_subject", -1)
        if limit and limit > 0:
            self._trim(message.subject, limit)
        return stored, False

    def last_of(self, subject: str) -> Stored | None:
        for stored in reversed(self.messages.values()):
            if stored.subject == subject:
                return stored
        return None

    def remove(self, seq: int, why: str) -> bool:
        stored = self.messages.pop(seq, None)
        if stored is None:
            return False
        self.removed.append(stored)
        for consumer in self.consumers.values():
            consumer.forget(seq)
        for observer in self.jetstream.observers:
            observer("removed", self, stored, why)
        return True

    def lose_from(self, first_seq: int) -> None:
        """Lose the tail from this sequence number on, with the message ids and the consumers' knowledge
        of it. The numbers are used again."""
        for seq in range(first_seq, self.last_seq + 1):
            stored = self.messages.pop(seq, None)
            if stored is not None:
                for observer in self.jetstream.observers:
                    observer("lost", self, stored, "tail")
        self.last_seq = first_seq - 1
        self._ids = {key: found for key, found in self._ids.items() if found[0] < first_seq}
        for consumer in self.consumers.values():
            consumer.lose_from(first_seq)

    def crash(self, *, lose: bool) -> None:
        dice = self.jetstream.dice
        if lose and self.is_fast:
            count = min(dice.randrange(dice.choice(MAX_LOST) + 1), self.last_seq)
            self.lose_from(self.last_seq - count + 1)
        for consumer in self.consumers.values():
            if lose and consumer.is_durable and not self.is_queue:
                for stored in consumer.lose_acks():
                    for observer in self.jetstream.observers:
                        observer("back", self, stored, "acknowledgement lost")
        if lose and self.is_queue:
            back = list(self.removed)
            for stored in back[len(back) - dice.randrange(len(back) + 1) :]:
                if stored.seq <= self.last_seq:
                    self.messages[stored.seq] = stored
                    for observer in self.jetstream.observers:
                        observer("back", self, stored, "removal undone")
            self.messages = OrderedDict(sorted(self.messages.items()))
        self.removed.clear()
        now_s, epoch_s = self.jetstream.now_s, self.jetstream.epoch_s
        self._ids = {
            stored.msg_id: (stored.seq, stored.time_ns / NS - epoch_s)
            for stored in self.messages.values()
            if stored.msg_id
            and stored.time_ns / NS - epoch_s > now_s - self.jetstream.duplicate_window_s
        }
        for consumer in list(self.consumers.values()):
            if consumer.is_durable:
                consumer.crash()
            else:
                del self.consumers[consumer.name]

    def info(self) -> dict[str, Any]:
        return {
            "type": "io.nats.jetstream.api.v1.stream_info_response",
            "config": self.config,
            "created": self._created,
            "ts": self.jetstream.timestamp(),
            "state": {
                "messages": len(self.messages),
                "bytes": sum(len(stored.data) for stored in self.messages.values()),
                "first_seq": self.first_seq,
                "last_seq": self.last_seq,
                "consumer_count": len(self.consumers),
                "first_ts": self._created,
                "last_ts": self._created,
            },
        }

    def _check_expectations(self, message: "Message") -> None:
        expected = message.fields.get("Nats-Expected-Last-Subject-Sequence")
        if expected is not None:
            last = self.last_of(message.subject)
            found = 0 if last is None else last.seq
            if found != int(expected):
                raise Refused(400, 10071, f"wrong last sequence: {found}")

    def _trim(self, subject: str, limit: int) -> None:
        kept = [stored.seq for stored in self.messages.values() if stored.subject == subject]
        for seq in kept[:-limit]:
            del self.messages[seq]


class Consumer:
    """One consumer: durable or ephemeral, push or pull."""

    def __init__(self, stream: Stream, name: str, config: dict[str, Any]) -> None:
        self.stream = stream
        self.name = name
        self.config = config
        self.is_durable = bool(config.get("durable_name"))
        self.alive = True
        self.next_seq = self._first_seq()
        self._jetstream = stream.jetstream
        self._server = stream.jetstream.server
        self._delivered = 0
        self._pending: dict[int, Pending] = {}
        self._counts: dict[int, int] = {}
        self._acked: dict[int, None] = {}
        """Acknowledged messages that the stream still has, in the order of their acknowledgements."""
        self._again: deque[int] = deque()
        self._requests: deque[Request] = deque()
        self._filter: str = config.get("filter_subject", "")
        self._pattern = self._filter.split(".")
        self._fits: dict[str, bool] = {}
        self._sweeping = False
        self._spoke_s = 0.0
        self._idle_since_s = self._jetstream.now_s
        self.heartbeat_s = config.get("idle_heartbeat", 0) / NS
        if self.deliver_subject and (self.heartbeat_s or not self.is_durable):
            self._jetstream.after(self.heartbeat_s or 5.0, self._beat)

    @property
    def deliver_subject(self) -> str:
        return self.config.get("deliver_subject") or ""

    @property
    def is_acked(self) -> bool:
        return self.config.get("ack_policy", "explicit") != "none"

    def info(self) -> dict[str, Any]:
        return {
            "type": "io.nats.jetstream.api.v1.consumer_info_response",
            "stream_name": self.stream.name,
            "name": self.name,
            "created": self._jetstream.timestamp(),
            "config": self.config,
            "delivered": {"consumer_seq": self._delivered, "stream_seq": self.next_seq - 1},
            "ack_floor": {"consumer_seq": 0, "stream_seq": self.floor()},
            "num_ack_pending": len(self._pending),
            "num_redelivered": 0,
            "num_waiting": len(self._requests),
            "num_pending": self._count_left(),
            "ts": self._jetstream.timestamp(),
            "push_bound": bool(
                self.deliver_subject and self._server.has_interest(self.deliver_subject)
            ),
        }

    # ---- delivery ---------------------------------------------------------------------------

    def offer(self) -> None:
        """Deliver everything that can be delivered now."""
        if self.deliver_subject:
            group = self.config.get("deliver_group") or ""
            while self._has_room() and self._server.has_interest(self.deliver_subject, group):
                seq = self._take()
                if seq is None:
                    return
                self._give(seq, self.deliver_subject)
            return
        while self._requests and self._has_room():
            request = self._next_request()
            if request is None:
                return
            seq = self._take()
            if seq is None:
                self._requests.appendleft(request)
                return
            request.left -= 1
            request.heard_s = self._jetstream.now_s
            if request.left:
                self._requests.append(request)
            self._give(seq, request.reply)

    def ask(self, body: dict[str, Any], reply: str) -> None:
        """Accept a pull request."""
        now_s = self._jetstream.now_s
        expires_s = body.get("expires", 0) / NS
        batch = body.get("batch", 1)
        request = Request(
            reply, batch, now_s + expires_s, body.get("idle_heartbeat", 0) / NS, now_s
        )
        if body.get("no_wait") or not expires_s:
            self._requests.append(request)
            self.offer()
            if request in self._requests:
                self._requests.remove(request)
                self._status(request.reply, "404 No Messages", request.left)
            return
        self._requests.append(request)
        self._jetstream.after(expires_s, self._expire, request)
        if request.heartbeat_s:
            self._jetstream.after(request.heartbeat_s, self._beat_request, request)
        self.offer()

    def acked(self, seq: int, word: bytes) -> None:
        """Process a client's acknowledgement of a message."""
        pending = self._pending.get(seq)
        if pending is None:
            return
        if word.startswith(b"+WPI"):
            pending.deadline_s = self._jetstream.now_s + self._ack_wait_s()
            return
        del self._pending[seq]
        if word.startswith(b"-NAK"):
            self._again.append(seq)
        elif self.stream.is_queue:
            self.stream.remove(seq, word.decode() or "+ACK")
        elif self.is_durable:
            self._acked[seq] = None
            for observer in self._jetstream.observers:
                observer("acked", self.stream, self.stream.messages[seq], word.decode() or "+ACK")
        self.offer()

    def floor(self) -> int:
        """Return the sequence up to which everything is acknowledged."""
        return min((*self._pending, *self._again, self.next_seq)) - 1

    def lose_acks(self) -> list[Stored]:
        """Lose the last acknowledgements, which were not on disk; return their messages."""
        acked = list(self._acked)
        lost = acked[len(acked) - self._jetstream.dice.randrange(min(len(acked), MAX_BACK) + 1) :]
        for seq in lost:
            del self._acked[seq]
        self._again.extend(lost)
        return [self.stream.messages[seq] for seq in lost]

    def forget(self, seq: int) -> None:
        """Forget a message that has left the stream."""
        self._pending.pop(seq, None)
        self._counts.pop(seq, None)
        self._acked.pop(seq, None)

    def lose_from(self, first_seq: int) -> None:
        """Forget the sequence numbers from this one on, as a server does that starts and finds a
        consumer ahead of its stream."""
        self.next_seq = min(self.next_seq, first_seq)
        for seq in [seq for seq in self._pending if seq >= first_seq]:
            del self._pending[seq]
        self._again = deque(seq for seq in self._again if seq < first_seq)

    def crash(self) -> None:
        """Restore the state that was on disk."""
        dice = self._jetstream.dice
        self._requests.clear()
        for seq in [seq for seq in self._pending if seq not in self.stream.messages]:
            del self._pending[seq]
        if dice.random() < 0.5:  # unacknowledged messages are redelivered
            self._again = deque(sorted({*self._pending, *self._again}))
            self._pending.clear()
        else:
            for pending in self._pending.values():
                pending.deadline_s = self._jetstream.now_s + self._ack_wait_s()
        self._again = deque(seq for seq in self._again if seq in self.stream.messages)
        for seq, stored in self.stream.messages.items():  # includes removals that were undone
            known = seq >= self.next_seq or any(
                seq in known for known in (self._pending, self._again, self._acked)
            )
            if not known and self._wants(stored.subject):
                self._again.append(seq)
        self._counts = {seq: n for seq, n in self._counts.items() if seq in self.stream.messages}

    def resume(self) -> None:
        """Continue after the server has restarted."""
        if self._pending:
            self._sweep_later()
        if self.deliver_subject and self.heartbeat_s:
            self._jetstream.after(self.heartbeat_s, self._beat)

    def close(self) -> None:
        self.alive = False
        for request in self._requests:
            self._status(request.reply, "409 Consumer Deleted", request.left)
        self._requests.clear()

    # ---- internals --------------------------------------------------------------------------

    def _first_seq(self) -> int:
        policy = self.config.get("deliver_policy", "all")
        if policy == "by_start_sequence":
            return int(self.config["opt_start_seq"])
        if policy == "new":
            return self.stream.last_seq + 1
        if policy == "last_per_subject":
            newest = {stored.subject: stored.seq for stored in self.stream.messages.values()}
            return min(newest.values(), default=self.stream.last_seq + 1)
        assert policy == "all", policy
        return 1

    def _has_room(self) -> bool:
        limit = self.config.get("max_ack_pending", 1_000)
        return not self.is_acked or limit < 0 or len(self._pending) < limit

    def _next_request(self) -> Request | None:
        while self._requests:
            request = self._requests.popleft()
            if self._server.has_interest(request.reply):
                return request
        return None

    def _take(self) -> int | None:
        messages = self.stream.messages
        while self._again:
            seq = self._again.popleft()
            if seq in messages and seq not in self._pending:
                return seq
        while self.next_seq <= self.stream.last_seq:
            seq = self.next_seq
            self.next_seq += 1
            stored = messages.get(seq)
            if stored is not None and self._wants(stored.subject):
                return seq
        return None

    def _wants(self, subject: str) -> bool:
        if not self._filter:
            return True
        fits = self._fits.get(subject)
        if fits is None:
            fits = self._jetstream.matches(self._pattern, subject.split("."))
            self._fits[subject] = fits
        return fits

    def _give(self, seq: int, deliver: str) -> None:
        stored = self.stream.messages[seq]
        self._delivered += 1
        count = self._counts.get(seq, 0) + 1
        if self.is_acked:
            self._counts[seq] = count
            self._pending[seq] = Pending(count, self._jetstream.now_s + self._ack_wait_s())
            self._sweep_later()
        counted = self.is_acked or self.config.get("deliver_policy") == "last_per_subject"
        left = self._count_left() if counted else 0
        reply = (
            f"$JS.ACK.{self.stream.name}.{self.name}.{count}.{seq}.{self._delivered}."
            f"{stored.time_ns}.{left}"
        )
        self._spoke_s = self._jetstream.now_s
        self._server.send_as(deliver, stored.subject, reply, stored.headers, stored.data)

    def _count_left(self) -> int:
        messages, first = self.stream.messages, self.next_seq
        return sum(
            1
            for seq in range(first, self.stream.last_seq + 1)
            if seq in messages and self._wants(messages[seq].subject)
        )

    def _ack_wait_s(self) -> float:
        return self.config.get("ack_wait", 30 * NS) / NS

    def _sweep_later(self) -> None:
        if not self._sweeping and self._pending:
            self._sweeping = True
            earliest = min(pending.deadline_s for pending in self._pending.values())
            self._jetstream.after(max(0.0, earliest - self._jetstream.now_s), self._sweep)

    def _sweep(self) -> None:
        self._sweeping = False
        if not self.alive:
            return
        now_s = self._jetstream.now_s
        most = self.config.get("max_deliver", -1)
        for seq in [seq for seq, pending in self._pending.items() if pending.deadline_s <= now_s]:
            pending = self._pending.pop(seq)
            if 0 < most <= pending.count:
                self._give_up(seq, pending.count)
            else:
                self._again.append(seq)
        self._sweep_later()
        self.offer()

    def _give_up(self, seq: int, count: int) -> None:
        subject = f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{self.stream.name}.{self.name}"
        body = {
            "type": "io.nats.jetstream.advisory.v1.max_deliver",
            "stream": self.stream.name,
            "consumer": self.name,
            "stream_seq": seq,
            "deliveries": count,
        }
        self._server.send(subject, to_json(body))

    def _beat(self) -> None:
        """Send a heartbeat if one is due; delete an ephemeral consumer that nobody has listened to for
        long."""
        if not self.alive or self.stream.consumers.get(self.name) is not self:
            return
        now_s = self._jetstream.now_s
        if self._server.has_interest(self.deliver_subject):
            self._idle_since_s = now_s
            if self.heartbeat_s and now_s - self._spoke_s >= self.heartbeat_s:
                self._spoke_s = now_s
                headers = (
                    "NATS/1.0 100 Idle Heartbeat\r\n"
                    f"Nats-Last-Consumer: {self._delivered}\r\n"
                    f"Nats-Last-Stream: {self.next_seq - 1}\r\n\r\n"
                )
                self._server.send(self.deliver_subject, b"", headers=headers.encode())
        elif not self.is_durable:
            limit_s = self.config.get("inactive_threshold", 5 * NS) / NS
            if now_s - self._idle_since_s >= limit_s:
                self.alive = False
                del self.stream.consumers[self.name]
                return
        self._jetstream.after(self.heartbeat_s or 5.0, self._beat)

    def _expire(self, request: Request) -> None:
        if request in self._requests:
            self._requests.remove(request)
            self._status(request.reply, "408 Request Timeout", request.left)

    def _beat_request(self, request: Request) -> None:
        if request not in self._requests:
            return
        if self._jetstream.now_s - request.heard_s >= request.heartbeat_s:
            request.heard_s = self._jetstream.now_s
            self._server.send(request.reply, b"", headers=b"NATS/1.0 100 Idle Heartbeat\r\n\r\n")
        self._jetstream.after(request.heartbeat_s, self._beat_request, request)

    def _status(self, reply: str, text: str, left: int) -> None:
        headers = (
            f"NATS/1.0 {text}\r\nNats-Pending-Messages: {left}\r\nNats-Pending-Bytes: 0\r\n\r\n"
        )
        self._server.send(reply, b"", headers=headers.encode())


@dataclass
class JetStream:
    """The streams of a server, and the API for them."""

    server: "Server"
    streams: dict[str, Stream] = field(default_factory=dict)
    observers: list[Callable[[str, Stream, Stored, str], None]] = field(default_factory=list)
    """Called for every message that a stream stores, removes, loses or restores."""
    duplicate_window_s: float = 120.0
    """Applies to every stream, whatever its configuration says: plays are shorter than the real window.
    x"""

    def __post_init__(self) -> None:
        from simulation.engine.nats_server import matches
        from simulation.engine.world import EPOCH_S

        self.matches = matches
        self.epoch_s = EPOCH_S
        self.dice = self.server.world.dice("storage")
        self._life = 0
        self._streams_of: dict[str, Stream | None] = {}

    @property
    def now_s(self) -> float:
        return self.server.world.now_s

    def timestamp(self) -> str:
        moment = datetime.fromtimestamp(self.epoch_s + self.now_s, UTC)
        return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")

    def after(self, delay_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Run an action later, unless the server crashes before."""
        self.server.world.after(delay_s, self._if_same_life, self._life, action, arguments)

    def _if_same_life(
        self, life: int, action: Callable[..., None], arguments: tuple[Any, ...]
    ) -> None:
        if life == self._life:
            action(*arguments)

    def crash(self, *, lose: bool) -> None:
        self._life += 1
        for stream in self.streams.values():
            stream.crash(lose=lose)
            for consumer in stream.consumers.values():
                consumer._sweeping = False

    def boot(self) -> None:
        for stream in self.streams.values():
            for consumer in stream.consumers.values():
                consumer.resume()

    # ---- streams ----------------------------------------------------------------------------

    def make(self, config: dict[str, Any]) -> Stream:
        """Create a stream."""
        stream = self.streams[config["name"]] = Stream(self, config)
        self._streams_of.clear()
        return stream

    def stream_of(self, subject: str) -> Stream | None:
        """Return the stream that stores messages of a subject."""
        if subject.startswith("_INBOX."):
            return None
        if subject not in self._streams_of:
            words = subject.split(".")
            found = [stream for stream in self.streams.values() if stream.takes(words)]
            self._streams_of[subject] = found[0] if found else None
        return self._streams_of[subject]

    def publish(self, stream: Stream, message: "Message") -> None:
        """Store a message, acknowledge it, and deliver it."""
        try:
            stored, repeated = stream.store(message)
        except Refused as refused:
            if message.reply:
                self._refuse(message.reply, refused, extra={"stream": stream.name, "seq": 0})
            return
        self.server.world.note(
            "nats",
            f"{stream.name} {stored.seq} {message.subject} {stored.msg_id}"
            f"{' again' if repeated else ''}",
        )
        if message.reply:
            answer: dict[str, Any] = {"stream": stream.name, "seq": stored.seq}
            if repeated:
                answer["duplicate"] = True
            self.server.send(message.reply, to_json(answer))
        if repeated:
            return
        for observer in self.observers:
            observer("stored", stream, stored, "")
        for consumer in list(stream.consumers.values()):
            consumer.offer()

    def interest_changed(self, subject: str) -> None:
        """Deliver to push consumers that waited for a subscriber of this subject."""
        for stream in self.streams.values():
            for consumer in list(stream.consumers.values()):
                if consumer.deliver_subject == subject:
                    consumer.offer()

    # ---- the API ----------------------------------------------------------------------------

    def asked(self, message: "Message") -> None:
        """Handle a message on `$JS.`: an acknowledgement, or a call of the API."""
        words = message.subject.split(".")
        if words[1] == "ACK":
            stream = self.streams.get(words[2])
            consumer = stream.consumers.get(words[3]) if stream else None
            if consumer is not None:
                consumer.acked(int(words[5]), message.data)
            return
        if words[1] != "API":
            return
        if words[2:5] == ["CONSUMER", "MSG", "NEXT"]:
            self._pull(words, message)
            return
        try:
            body = from_json(message.data) if message.data else {}
            answer = self._call(words[2:], body)
        except Refused as refused:
            self._refuse(message.reply, refused)
            return
        self.server.send(message.reply, to_json(answer))

    def _pull(self, words: list[str], message: "Message") -> None:
        stream = self.streams.get(words[5])
        consumer = stream.consumers.get(words[6]) if stream else None
        if consumer is None:
            self.server.send(message.reply, b"", headers=b"NATS/1.0 503\r\n\r\n")
            return
        text = message.data.decode()
        body = from_json(text) if text.startswith("{") else {"batch": int(text or 1)}
        consumer.ask(body, message.reply)

    def _call(self, words: list[str], body: dict[str, Any]) -> dict[str, Any]:
        match words:
            case ["INFO"]:
                return {
                    "type": "io.nats.jetstream.api.v1.account_info_response",
                    "memory": 0,
                    "storage": 0,
                    "streams": len(self.streams),
                    "consumers": 0,
                    "limits": {
                        "max_memory": -1,
                        "max_storage": -1,
                        "max_streams": -1,
                        "max_consumers": -1,
                    },
                    "api": {"total": 0, "errors": 0},
                }
            case ["STREAM", "NAMES"]:
                wanted = body.get("subject", "").split(".")
                names = [name for name, stream in self.streams.items() if stream.takes(wanted)]
                return {"total": len(names), "offset": 0, "limit": 1024, "streams": names}
            case ["STREAM", "INFO", name]:
                return self._stream(name).info()
            case ["STREAM", "CREATE", name]:
                if name in self.streams:
                    if self.streams[name].config == body:
                        return self.streams[name].info()
                    raise Refused(400, 10058, "stream name already in use")
                return {**self.make(body).info(), "did_create": True}
            case ["STREAM", "UPDATE", name]:
                self._stream(name).config.update(body)
                return self._stream(name).info()
            case ["STREAM", "MSG", "GET", name]:
                return self._message(self._stream(name), body)
            case ["STREAM", "MSG", "DELETE", name]:
                if not self._stream(name).remove(body["seq"], "deleted"):
                    raise Refused(400, 10043, "could not delete message: no message found")
                return {"success": True}
            case ["STREAM", "PURGE", name]:
                stream = self._stream(name)
                of = [
                    number
                    for number, one in stream.messages.items()
                    if one.subject == body.get("filter", one.subject)
                    and number < body.get("seq", number + 1)
                ]
                return {"success": True, "purged": sum(stream.remove(n, "purged") for n in of)}
            case ["CONSUMER", "CREATE", name, *rest]:
                consumer = rest[0] if rest else body["config"].get("name", "")
                return self._make(self._stream(name), consumer, body["config"])
            case ["CONSUMER", "DURABLE", "CREATE", name, consumer]:
                return self._make(self._stream(name), consumer, body["config"])
            case ["CONSUMER", "INFO", name, consumer]:
                return self._consumer(name, consumer).info()
            case ["CONSUMER", "DELETE", name, consumer]:
                self._consumer(name, consumer).close()
                del self.streams[name].consumers[consumer]
                return {"success": True}
        raise AssertionError(f"the simulated server has no $JS.API.{'.'.join(words)}")

    def _stream(self, name: str) -> Stream:
        stream = self.streams.get(name)
        if stream is None:
            raise Refused(404, 10059, "stream not found")
        return stream

    def _consumer(self, stream: str, name: str) -> Consumer:
        consumer = self._stream(stream).consumers.get(name)
        if consumer is None:
            raise Refused(404, 10014, "consumer not found")
        return consumer

    def _make(self, stream: Stream, name: str, config: dict[str, Any]) -> dict[str, Any]:
        assert name, config
        found = stream.consumers.get(name)
        if found is not None:
            fixed = ("deliver_policy", "ack_policy", "opt_start_seq")
            if any(found.config.get(key) != config.get(key) for key in fixed):
                raise Refused(400, 10012, "consumer already exists")
            found.config = {**found.config, **config}
            return found.info()
        consumer = stream.consumers[name] = Consumer(stream, name, config)
        answer = consumer.info()
        self.after(0.0, consumer.offer)
        return answer

    def _message(self, stream: Stream, body: dict[str, Any]) -> dict[str, Any]:
        if "last_by_subj" in body:
            stored = stream.last_of(body["last_by_subj"])
        else:
            stored = stream.messages.get(body.get("seq", 0))
        if stored is None:
            raise Refused(404, 10037, "no message found")
        second, nanoseconds = divmod(stored.time_ns, NS)
        moment = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        message = {
            "subject": stored.subject,
            "seq": stored.seq,
            "data": b64encode(stored.data).decode(),
            "time": f"{moment}.{nanoseconds:09d}Z",
        }
        if stored.headers:
            message["hdrs"] = b64encode(stored.headers).decode()
        return {"type": "io.nats.jetstream.api.v1.stream_msg_get_response", "message": message}

    def _refuse(self, reply: str, refused: Refused, *, extra: dict[str, Any] | None = None) -> None:
        error = {
            "code": refused.code,
            "err_code": refused.number,
            "description": refused.text,
        }
        self.server.send(reply, to_json({**(extra or {}), "error": error}))
