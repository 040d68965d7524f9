"""Messages that somebody without a key writes into a play.

These are results, timers, acceptances and measurements of things that never happened, copies of real
ones with other values, ids of future messages, and junk in the log, the steps and the coordinators'
bucket. None of it may affect the outcome of the runs.
"""

import json
from random import Random
from typing import Any

from hocket.schemas import ids, subjects
from simulation.engine.nats_server import Message, Server

KV = f"$KV.{subjects.COORDINATORS}."
FORGED_STEP = "forged"
"""Prefix of the names of forged steps."""
JUNK = (b"", b"null", b"{", b"\xff\xfe", b"[" * 300, b'{"run_id":7}', b'{"a":1e9999}', b"9" * 5_000)


class Forger:
    """Writes into the streams of a server; `written` has the bodies, so that checks can recognise them.
    x"""

    def __init__(self, server: Server, dice: Random, *, partitions: int) -> None:
        self.written: set[bytes] = set()
        self._server = server
        self._dice = dice
        self._partitions = partitions

    def write(self) -> None:
        """Write a few messages."""
        if self._server.up:
            for _ in range(self._dice.randint(1, 6)):
                subject, body, msg_id = self._dice.choice(
                    (self._result, self._result, self._coming_result, self._event, self._copy,
                     self._junk, self._junk_step, self._step, self._accepted, self._entry, self._entry)
                )()  # fmt: skip
                self._publish(subject, body, msg_id)

    def _publish(self, subject: str, body: bytes, msg_id: str = "") -> None:
        stream = self._server.jetstream.stream_of(subject)
        if stream is None:
            return
        self.written.add(body)
        head = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % msg_id.encode() if msg_id else b""
        fields = {"Nats-Msg-Id": msg_id} if msg_id else {}
        self._server.jetstream.publish(stream, Message(subject, "", head, body, fields))

    def _stored(self, name: str) -> list[Any]:
        stream = self._server.jetstream.streams.get(name)
        found = [] if stream is None else list(stream.messages.values())
        return [one for one in found if one.data not in self.written]

    def _a_step(self) -> dict[str, Any] | None:
        found = self._stored(subjects.STEPS)
        return json.loads(self._dice.choice(found).data) if found else None

    def _a_run(self) -> str:
        found = [one for one in self._stored(subjects.LOG) if one.subject.endswith(".accepted")]
        if not found or self._dice.random() < 0.2:
            return ids.run_id("nobody", str(self._dice.random()))
        return str(json.loads(self._dice.choice(found).data)["run_id"])

    def _log(self, run_id: str, kind: str) -> str:
        right = ids.partition_of(run_id, self._partitions)
        partition = right if self._dice.random() < 0.7 else self._dice.randrange(self._partitions)
        return subjects.log(partition, kind)

    def _result_of(self, step: dict[str, Any]) -> dict[str, Any]:
        return {
            "run_id": step["run_id"],
            "step": step["step"],
            "attempt": self._dice.choice((step["attempt"], step["attempt"], step["attempt"] + 1)),
            "output": {"forged": self._dice.random()},
            "spend": {"calls": 1, "cost_usd": "1000"},
            "dispatched_at_ms": step.get("dispatched_at_ms"),
            "capability": self._dice.choice((None, f"{self._dice.getrandbits(128):032x}")),
        }

    def _result(self) -> tuple[str, bytes, str]:
        step = self._a_step()
        if step is None:
            return self._junk()
        body = json.dumps(self._result_of(step)).encode()
        return self._log(step["run_id"], "finished"), body, ""

    def _coming_result(self) -> tuple[str, bytes, str]:
        """Use the message id of a future result."""
        step = self._a_step()
        if step is None:
            return self._junk()
        attempt = ids.attempt_id(step["run_id"], step["step"], step["attempt"])
        body = json.dumps(self._result_of(step)).encode()
        msg_id = ids.result_id(attempt, step.get("dispatched_at_ms"))
        return self._log(step["run_id"], "finished"), body, msg_id

    def _event(self) -> tuple[str, bytes, str]:
        run_id, dice = self._a_run(), self._dice
        kind, more = dice.choice(
            (
                ("timer", {"due_at_ms": dice.choice((1e12, 2e12, 1e15))}),
                ("cancel", {"reason": "forged", "by": "nobody"}),
                ("signal", {"signal_id": str(dice.random()), "name": "go", "payload": 1}),
                ("cache", {"step": "a", "key": "k", "hit": True, "output": "forged"}),
                ("outlook", {"tenant": "t", "pipeline": "p0", "nodes": [
                    {"path": "a", "mean_ms": 1e9, "variance": 0, "weight": 1e6}]}),
            )
        )  # fmt: skip
        body = json.dumps({"run_id": run_id, **more}).encode()
        return self._log(run_id, kind), body, ""

    def _copy(self) -> tuple[str, bytes, str]:
        """Copy an event with one value changed."""
        found = self._stored(subjects.LOG)
        if not found:
            return self._junk()
        stored = self._dice.choice(found)
        body = json.loads(stored.data)
        body[self._dice.choice(sorted(body))] = self._dice.choice((None, -1, 2**70, "x", 1e308, []))
        body["capability"] = None
        return stored.subject, json.dumps(body).encode(), ""

    def _junk(self) -> tuple[str, bytes, str]:
        kinds = ("accepted", "finished", "results", "timer", "nothing")
        partition = self._dice.randrange(self._partitions)
        return subjects.log(partition, self._dice.choice(kinds)), self._dice.choice(JUNK), ""

    def _junk_step(self) -> tuple[str, bytes, str]:
        return subjects.step("python", "normal"), self._dice.choice(JUNK), ""

    def _step(self) -> tuple[str, bytes, str]:
        """Make workers execute something that nobody requested: for a run that does not exist, or a
        step that its run does not have."""
        step = self._a_step()
        if step is None:
            return self._junk_step()
        step["step"] = f"{FORGED_STEP}{self._dice.randrange(3)}"
        step["input"], step["capability"], step["effects_external"] = {"forged": 1}, None, False
        if self._dice.random() < 0.5:
            step["run_id"] = ids.run_id("nobody", str(self._dice.random()))
        return subjects.step(step["type"], "normal"), json.dumps(step).encode(), ""

    def _accepted(self) -> tuple[str, bytes, str]:
        """Accept a run that nobody requested, or an existing one again with a different input."""
        found = [one for one in self._stored(subjects.LOG) if one.subject.endswith(".accepted")]
        if not found:
            return self._junk()
        event = json.loads(self._dice.choice(found).data) | {"input": {"forged": 1}}
        if self._dice.random() < 0.5:
            key = f"forged{self._dice.random()}"
            event |= {"idempotency_key": key, "run_id": ids.run_id(str(event["tenant"]), key)}
        return self._log(event["run_id"], "accepted"), json.dumps(event).encode(), ""

    def _entry(self) -> tuple[str, bytes, str]:
        dice = self._dice
        name = dice.choice(("coordinator-1", "coordinator-2", "ghost"))
        key, value = dice.choice(
            (
                (f"partition.{dice.randrange(self._partitions)}",
                 {"owner": name, "incarnation": "forged"}),
                (f"partition.{dice.randrange(self._partitions)}", {"owner": "", "incarnation": ""}),
                (f"member.{name}", {"incarnation": "forged", "state": "serving"}),
                ("partition.x", 1),
            )
        )  # fmt: skip
        body = json.dumps(value).encode() if dice.random() < 0.7 else dice.choice(JUNK)
        return KV + key, body, ""
