"""What a forger writes: messages that were heard and changed, and messages of its own making.

Everything is drawn from a seed, but what is heard depends on the machine. A forger has no capability:
one that was heard is replaced (NATS credentials decide who may read the streams of steps).
"""

import json
import random
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hocket.schemas import ids, subjects
from support.forger import head_of

MAX_HEARD = 200
"""Number of messages kept for one kind of subject."""
MAX_BODY_BYTES = 256 * 1024
HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, 2**70, -(2**70), 1e308, -1e308, 5e-324, "", "x" * 5_000,
    "\u0000", "\u202e", "../..", "NaN", [], {}, [[[[[[]]]]]], {"$blob": "0" * 64}, "*", ">", "a.b",
    "{{ 1 }}", "hocket.log.0.finished", "_INBOX.>", "1e-20000", 1.5, "r" * 25,
)  # fmt: skip
RAW: tuple[bytes, ...] = (
    b"", b"null", b"{}", b"[]", b"0", b"\xff\xfe\x00", b"{" * 3_000, b"[" * 100_000, b'"',
    b"9" * 10_000, b'{"a":1e99999}', b'{"a":NaN}', b'{"a":"\\ud800"}', b'{"a":1,"a":2}',
    b"\x00" * 1_000, b"{}\n{}\n", b'{"results":[]}', b'{"results":[{}]}',
)  # fmt: skip
HEADS: tuple[bytes, ...] = (
    b"",
    b"",
    head_of(b"traceparent: \xff\xfe"),
    head_of(b"Nats-Msg-Id: \x00"),
    head_of(b"Nats-Msg-Id: " + b"i" * 5_000),
    head_of(b"KV-Operation: PURGE"),
    head_of(b"Hocket-Idempotency-Key: a\nb"),
    head_of(b"Hocket-Reply-To: hocket.log.0.finished"),
    head_of(b"Hocket-Asked-Again: 1"),
    head_of(b"x: " + b"y" * 30_000),
    head_of(b": nameless"),
)
TYPES = ("python", "llm", "sql", "retrieval", "nothing", "a*")
TENANT = "default"


@dataclass(frozen=True)
class Forged:
    """One message to write."""

    subject: bytes
    body: bytes
    head: bytes = b""
    reply: bytes = b""


class Corpus:
    """The messages heard, by the kind of their subject."""

    def __init__(self) -> None:
        self._heard: dict[str, deque[tuple[str, bytes, bytes]]] = defaultdict(
            lambda: deque(maxlen=MAX_HEARD)
        )
        self.runs: deque[str] = deque(maxlen=MAX_HEARD)
        """Other users' runs that may be in progress."""

    def hear(self, subject: str, head: bytes, body: bytes) -> None:
        """Keep one of the platform's own messages."""
        kind = ".".join(subject.split(".")[:3:2]) if subject.startswith("hocket.") else "kv"
        if subject.startswith("hocket.log."):
            kind = "log." + subject.rsplit(".", 1)[1]
        self._heard[kind].append((subject, head, body))

    def draw(self, dice: random.Random) -> tuple[str, bytes, bytes] | None:
        """Return one message, choosing each kind with equal probability."""
        if not self._heard:
            return None
        kind = dice.choice(sorted(self._heard))
        return dice.choice(self._heard[kind])

    @property
    def kinds(self) -> list[str]:
        return sorted(self._heard)


def draw(dice: random.Random, corpus: Corpus, *, partitions: int) -> Forged:
    """Return the next message: a mutated one, a forged one, or junk that is no message at all."""
    roll = dice.random()
    heard = corpus.draw(dice)
    if heard is not None and roll < 0.5:
        return _mutated(dice, *heard, partitions=partitions)
    if roll < 0.9:
        return dice.choice(_FORGERIES)(dice, _Scene(corpus, partitions))
    return Forged(_anywhere(dice, partitions), dice.choice(RAW), dice.choice(HEADS))


def _mutated(
    dice: random.Random, subject: str, head: bytes, body: bytes, *, partitions: int
) -> Forged:
    how = dice.randrange(6)
    where = subject
    if how == 0:
        body = _with_noise(dice, body)
    elif how == 1:
        body = body[: dice.randrange(len(body) + 1)]
    else:
        body = _with_hostile_values(dice, body)
    if how == 2 and subject.startswith("hocket.log."):
        tokens = subject.split(".")
        tokens[2] = str(dice.randrange(partitions))
        where = ".".join(tokens)
    if dice.random() < 0.5 or subject.startswith("hocket.task."):
        head = dice.choice(
            HEADS
        )  # not another user's key and inbox: those are a matter of who may publish tasks
    return Forged(where.encode(), _without_capability(dice, body), head)


def _with_noise(dice: random.Random, body: bytes) -> bytes:
    noisy = bytearray(body)
    for _ in range(dice.randrange(1, 8)):
        if noisy:
            noisy[dice.randrange(len(noisy))] = dice.randrange(256)
    return bytes(noisy)


def _with_hostile_values(dice: random.Random, body: bytes) -> bytes:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return _with_noise(dice, body)
    for _ in range(dice.randrange(1, 4)):
        value = _changed(dice, value)
    return json.dumps(value).encode("utf-8", "replace")[:MAX_BODY_BYTES]


def _changed(dice: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and dice.random() < 0.9:
        name = dice.choice(sorted(value))
        if dice.random() < 0.1:
            return {key: one for key, one in value.items() if key != name}
        return {**value, name: _changed(dice, value[name])}
    if isinstance(value, list) and value and dice.random() < 0.9:
        index = dice.randrange(len(value))
        return [*value[:index], _changed(dice, value[index]), *value[index + 1 :]]
    return dice.choice(HOSTILE)


def _without_capability(dice: random.Random, body: bytes) -> bytes:
    """Replace the capabilities in a message, because a forger has none."""
    marker, guess = b'"capability":"', f"{dice.getrandbits(128):032x}".encode()
    at = 0
    while (at := body.find(marker, at)) >= 0:
        at += len(marker)
        end = body.find(b'"', at)
        if end < 0:
            return body[:at]
        body = body[:at] + guess + body[end:]
    spaced = marker.replace(b":", b": ")
    return body if spaced not in body else _without_capability(dice, body.replace(spaced, marker))


# ---- forgeries ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scene:
    corpus: Corpus
    partitions: int

    def run(self, dice: random.Random) -> str:
        """Return the id of a run: another user's that is in progress, or one that does not exist."""
        if self.corpus.runs and dice.random() < 0.7:
            return dice.choice(self.corpus.runs)
        return ids.run_id(TENANT, str(dice.random()))

    def partition(self, dice: random.Random, run_id: str) -> int:
        if dice.random() < 0.8:
            return ids.partition_of(run_id, self.partitions)
        return dice.randrange(self.partitions + 2)


Forgery = Callable[[random.Random, _Scene], Forged]


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _id(text: str) -> bytes:
    return head_of(b"Nats-Msg-Id: " + text.encode())


def _result(dice: random.Random, scene: _Scene) -> Forged:
    run_id = scene.run(dice)
    step, attempt = dice.choice(("first", "second", "asked", "x")), dice.choice((1, 1, 2, 7, 2**31))
    body = {
        "run_id": run_id, "step": step, "attempt": attempt, "output": {"n": -1, "text": "forged"},
        "finished_at_ms": dice.choice((0, 1e15, -5)), "worker": "forger",
        "spend": {"calls": 1, "cost_usd": dice.choice(("0", "999999", "-5"))},
        "error": dice.choice((None, {"code": "forged", "message": "forged"})),
    }  # fmt: skip
    kind = dice.choice(("finished", "results"))
    content = {"results": [body] * dice.choice((1, 3))} if kind == "results" else body
    msg_id = ids.result_id(ids.attempt_id(run_id, step, attempt), None)
    where = f"hocket.log.{scene.partition(dice, run_id)}.{kind}"
    return Forged(where.encode(), _json(content), _id(msg_id))


def _acceptance(dice: random.Random, scene: _Scene) -> Forged:
    run_id = scene.run(dice)
    body = {
        "run_id": run_id, "tenant": dice.choice((TENANT, "other", "a b")),
        "pipeline": dice.choice(("chain", "call", "none")), "version": dice.choice((1, 0, 99)),
        "input": {"n": 1}, "priority": "interactive",
        "deadline_at_ms": dice.choice((0, 1e15, 4e12)), "budget_usd": dice.choice((None, "1e-30")),
        "task_ack": dice.choice((None, "$JS.ACK.TASKS.x.1.1.1.1.1", "hocket.step.python.urgent")),
        "reply_to": dice.choice((None, "hocket.log.0.cancel", "_INBOX.forger")),
        "rejected": dice.choice((None, {"code": "forged", "message": "forged"})),
    }  # fmt: skip
    where = f"hocket.log.{scene.partition(dice, run_id)}.accepted"
    return Forged(where.encode(), _json(body), _id(f"{run_id}:accepted:1:1"))


def _timer(dice: random.Random, scene: _Scene) -> Forged:
    run_id = scene.run(dice)
    body = {"run_id": run_id, "due_at_ms": dice.choice((0, 1e15, 4e12, -1e15, 1.9e12))}
    return Forged(f"hocket.log.{scene.partition(dice, run_id)}.timer".encode(), _json(body))


def _outlook(dice: random.Random, scene: _Scene) -> Forged:
    node = {
        "path": dice.choice(("first", "asked", "x" * 3_000)),
        "mean_ms": dice.choice((1e308, -1, 1e14, 3_600_000)),
        "variance": dice.choice((1e308, -1, 0)), "weight": dice.choice((1e308, 1_000, -1)),
    }  # fmt: skip
    body = {"tenant": TENANT, "pipeline": dice.choice(("chain", "call")), "nodes": [node]}
    return Forged(f"hocket.log.{dice.randrange(scene.partitions)}.outlook".encode(), _json(body))


def _cache(dice: random.Random, scene: _Scene) -> Forged:
    run_id = scene.run(dice)
    body = {
        "run_id": run_id, "step": dice.choice(("first", "second")), "key": "k",
        "hit": dice.random() < 0.5, "output": "forged", "saved_usd": dice.choice(("0", "1e12")),
    }  # fmt: skip
    return Forged(f"hocket.log.{scene.partition(dice, run_id)}.cache".encode(), _json(body))


def _charge(dice: random.Random, scene: _Scene) -> Forged:
    run_id = scene.run(dice)
    body = {
        "run_id": run_id, "tenant": TENANT, "source": dice.choice(("mine", "earlier", "")),
        "total_usd": dice.choice(("1e12", "1", "-1", "NaN")),
    }  # fmt: skip
    return Forged(f"hocket.log.{scene.partition(dice, run_id)}.charged".encode(), _json(body))


def _step(dice: random.Random, scene: _Scene) -> Forged:
    run_id, kind = scene.run(dice), dice.choice(TYPES)
    step = {
        "run_id": run_id, "tenant": TENANT, "pipeline": "chain", "version": 1,
        "step": dice.choice(("first", "x")), "node": "first", "type": kind,
        "attempt": dice.choice((1, 2, -1, 2**40)), "input": dice.choice(({}, {"$blob": "0" * 64})),
        "config": dice.choice(({}, {"handler": "os:system"}, {"handler": "subprocess:getoutput"})),
        "deadline_at_ms": dice.choice((0, 1e15, 4e12)), "slack_ms": dice.choice((-1e15, 0, 1e15)),
        "timeout_ms": dice.choice((-1, 0, 1, 1e15, 1_000)), "priority": "batch",
        "partition": dice.choice((0, 10**6, -1, scene.partition(dice, run_id))), "epoch": 1,
    }  # fmt: skip
    where = f"hocket.step.{kind}.{dice.choice((*subjects.LANES, 'none'))}"
    msg_id = ids.dispatch_id(ids.attempt_id(run_id, str(step["step"]), 1), None)
    return Forged(where.encode(), _json(step), _id(msg_id))


def _cancellation(dice: random.Random, scene: _Scene) -> Forged:
    run_id = scene.run(dice)
    if dice.random() < 0.5:
        body: dict[str, Any] = {
            "run_id": run_id,
            "step": dice.choice((None, "first")),
            "attempt": 1,
        }
        return Forged(b"hocket.cancel", _json(body))
    return Forged(b"hocket.gateway.cancel", _json({"call_id": f"{run_id}:asked:1:1:1"}))


def _announcement(dice: random.Random, _scene: _Scene) -> Forged:
    slots = dice.choice(
        (
            {"python": 10**9}, {"python": -5}, {}, {"python": 0}, {"x" * 500: 1}, {"a": 2**70},
            {f"type{n}": 1 for n in range(1_000)}, {"a.b@gpu": 3}, {"python@": 1}, {"a.b@c@d": 1},
        )
    )  # fmt: skip
    worker = dice.choice((f"ghost-{dice.randrange(10**6)}", "x" * 5_000, ""))
    if dice.random() < 0.5:
        return Forged(b"hocket.worker.described", _json(_description(dice, worker)))
    return Forged(b"hocket.worker.announced", _json({"worker": worker, "slots": slots}))


def _description(dice: random.Random, worker: str) -> dict[str, Any]:
    schemas = (
        {"type": "no such"},
        {"pattern": "(a+)+$"},
        {"const": "\0"},
        {"enum": ["x" * 60_000]},
        7,
    )
    return {
        "worker": worker,
        "type": dice.choice(("python", f"a.b{dice.randrange(10**6)}", "a..b", "A.b", "x." * 500)),
        "version": dice.choice(("1", str(dice.randrange(10**6)), "../1", "")),
        "description": dice.choice(("", "x" * 2_000, "x" * 2_001)),
        dice.choice(("config", "input", "output")): dice.choice(schemas),
        "timeout_ms": dice.choice((None, 1, -1, 1e300)),
    }


def _gateway(dice: random.Random, scene: _Scene) -> Forged:
    run_id = scene.run(dice)
    reply = dice.choice(
        (b"", b"_INBOX.forger", b"hocket.log.0.cancel", b"hocket.step.python.batch")
    )
    subject, body = dice.choice(
        (
            (subjects.GATEWAY_HELD, {"call_id": f"{run_id}:asked:1:1:1", "reply_to": "hocket.usage"}),
            (subjects.GATEWAY_CONTROL, {"action": "status", "backend": "none"}),
            (subjects.RUNS_EXPECTED, {"tenant": TENANT, "pipeline": "call", "version": 1,
             "runs": 10**9, "accepted_at_ms": 1e15, "nodes": [{"node": "asked", "after_ms": 1e15}]}),
            (subjects.REPLICAS_USED, {"gateway": "ghost", "busy_ms": {"x": 1e308}}),
            (subjects.GATEWAY_EXPERIMENTS, {"action": "rollback", "experiment": "x" * 3_000}),
            (subjects.GATEWAY_OUTCOME, {"run_id": run_id, "good": False}),
            (subjects.GATEWAY_CALL, {"call_id": f"{run_id}:asked:1:1:1", "model": "probe",
             "deadline_at_ms": 1e15, "attribution": {"tenant": TENANT, "run_id": run_id,
             "step": "asked", "attempt": 2**40}, "chunks_to": "hocket.log.0.cancel"}),
            (subjects.GATEWAY_CALL, {"call_id": f"{run_id}:asked:1:1:1", "model": "probe",
             "messages": [{"role": "user", "content": "forged"}], "deadline_at_ms": 4e12,
             "attribution": {"tenant": TENANT, "run_id": run_id, "step": "asked", "attempt": 1}}),
        )
    )  # fmt: skip
    return Forged(subject.encode(), _json(body), b"", reply)


def _fact(dice: random.Random, scene: _Scene) -> Forged:
    run_id = scene.run(dice)
    body = {"run_id": run_id, "tenant": TENANT, "pipeline": "chain", "status": "failed"}
    subject, head = dice.choice(
        (
            (f"hocket.event.{TENANT}.forged.run-finished", b""),
            (
                f"hocket.dlq.task.{TENANT}",
                head_of(b"Hocket-Dead-Subject: hocket.step.python.batch"),
            ),
            ("hocket.call.opened", b""),
            ("hocket.call.refused", b""),
        )
    )
    return Forged(subject.encode(), _json(body), head)


def _task(dice: random.Random, _scene: _Scene) -> Forged:
    pipeline = dice.choice(("none", "a*", "\u202e", "x" * 100))
    return Forged(f"hocket.task.other.{pipeline}".encode(), dice.choice(RAW), dice.choice(HEADS))


def _entry(dice: random.Random, scene: _Scene) -> Forged:
    name = dice.choice(("coordinator", "coordinator-2", "ghost", f"g{dice.randrange(10**6)}"))
    sign = {"incarnation": dice.choice(("x", "")), "state": dice.choice(("serving", "leaving"))}
    bucket, key, value = dice.choice(
        (
            (subjects.COORDINATORS, f"member.{name}", sign),
            (subjects.COORDINATORS, f"partition.{dice.randrange(scene.partitions + 2)}",
             {"owner": dice.choice((name, "")), "incarnation": "x"}),
            (subjects.COORDINATORS, dice.choice(("partition.x", "a.b.c", "*", ">")), 1),
            (subjects.GATEWAYS, f"member.{name}", dice.choice(({}, [], 7))),
            (subjects.GATEWAYS, f"limit.{dice.getrandbits(96):024x}", {name: [10**9, -1]}),
            (subjects.GATEWAYS, "warm.x", {"level": 10**9}),
            (subjects.GATEWAYS, "arm.a.b", {"epoch": 2**70, "off": True, "identity": "x"}),
        )
    )  # fmt: skip
    body = _json(value) if dice.random() < 0.7 else dice.choice(RAW)
    return Forged(f"$KV.{bucket}.{key}".encode(), body[:8_000], dice.choice(HEADS))


def _usage(dice: random.Random, scene: _Scene) -> Forged:
    body = {
        "call_id": f"forged-{dice.random()}", "model": "probe", "backend": "b", "status": "ok",
        "attribution": {"tenant": dice.choice(("other", "x" * 6_000, "\u0000")), "attempt": 2**40},
        "cost_usd": dice.choice(("1e400", "-5", "1e12")), "started_at_ms": 1e15, "latency_ms": -1,
        "input_tokens": dice.choice((2**70, -1)),
    }  # fmt: skip
    return Forged(subjects.USAGE_SUBJECT.encode(), _json(body))


def _booking(dice: random.Random, scene: _Scene) -> Forged:
    """A record that could be booked on another user's run: for a new call, or for one that the run will
    make."""
    run_id = scene.run(dice)
    body = {
        "call_id": dice.choice((f"{run_id}:asked:1:1:1", f"{run_id}:asked:1", f"new-{dice.random()}")),
        "model": "probe", "backend": "b", "status": "ok", "cost_usd": dice.choice(("0.004", "1e9")),
        "attribution": {"tenant": TENANT, "pipeline": "call", "version": 1, "run_id": run_id,
                        "node": "asked", "step": "asked", "attempt": 1},
        "started_at_ms": 1.9e12, "latency_ms": 5.0, "input_tokens": 3, "output_tokens": 1,
    }  # fmt: skip
    guess = f"{dice.getrandbits(128):032x}".encode()
    head = dice.choice((b"", head_of(b"Hocket-Seal: " + guess), _id(f"{TENANT}/{body['call_id']}")))
    return Forged(subjects.USAGE_SUBJECT.encode(), _json(body), head)


_FORGERIES: tuple[Forgery, ...] = (
    _result, _result, _acceptance, _timer, _outlook, _cache, _charge, _step, _cancellation,
    _announcement,
    _gateway, _gateway, _fact, _task, _entry, _entry, _usage, _booking,
)  # fmt: skip


def _anywhere(dice: random.Random, partitions: int) -> bytes:
    number = dice.randrange(partitions + 2)
    kinds = (
        "accepted",
        "finished",
        "results",
        "signal",
        "cancel",
        "timer",
        "outlook",
        "cache",
        "x",
    )
    return dice.choice(
        (
            f"hocket.log.{number}.{dice.choice(kinds)}".encode(),
            f"hocket.log.{number}.".encode() + bytes([dice.randrange(128, 256)]),
            b"hocket.log.0." + b"x" * 3_000,
            b"hocket.step.python.normal",
            b"hocket.task.other.none",
            b"hocket.usage",
            b"hocket.call.opened",
            b"hocket.gateway.call",
            b"hocket.gateway.used",
            b"hocket.gateway.prompt",
            b"hocket.gateway.expected",
            b"hocket.gateway.experiments",
            b"hocket.worker.announced",
            b"hocket.worker.described",
            b"hocket.cancel",
            b"hocket.event.default.chain.run-finished",
            b"hocket.dlq.step.default",
            b"$KV.hocket-coordinators.partition.0",
            b"$KV.hocket-gateways.member.\xff",
        )
    )
