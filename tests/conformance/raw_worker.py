"""A worker written from docs/reference/worker-protocol.md, with nothing but a NATS client. The variable
FAULT plants one of the faults that the suite has to catch."""

import asyncio
import hashlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import nats
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NothingCame
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

FAULT = os.environ.get("FAULT", "")
TYPE, NAME = "conformance.step", f"raw-{os.getpid()}"
ACK_WAIT_S = 10.0
SLOTS = 4
BLOBS = Path(os.environ["HOCKET_BLOBS_DIR"])
MAX_RESULT_BYTES = 512 * 1024


class Failed(Exception):
    """A step's error."""

    def __init__(self, code: str, error_class: str, message: str) -> None:
        self.info = {"code": code, "error_class": error_class, "message": message}


async def do(task: dict[str, Any]) -> Any:
    match task["do"]:
        case "echo":
            return task["value"]
        case "sleep":
            await asyncio.sleep(task["ms"] / 1000)
            return task.get("value")
        case "fail" if FAULT == "dies-on-error":
            os._exit(3)
        case "fail":
            raise Failed("handler_failed", "permanent", task["message"])
        case "length":
            return len(task["value"])
        case "large":
            return {"text": "y" * task["chars"]}


def shown(step: dict[str, Any]) -> str | None:
    """Return what a cancellation of the step shows."""
    capability = step.get("capability")
    return None if capability is None else hashlib.sha256(capability.encode()).hexdigest()


class Worker:
    async def run(self) -> None:
        self.connection = await nats.connect(os.environ["NATS_URL"])
        self.js = self.connection.jetstream()
        self.running: dict[str, tuple[asyncio.Task[Any], dict[str, Any]]] = {}
        self.cancelled: dict[tuple[str, str, int, str | None], float] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.slots = asyncio.Semaphore(1_000 if FAULT == "no-slots" else SLOTS)
        self.stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        stop = (lambda: os._exit(0)) if FAULT == "no-drain" else self.stopping.set
        loop.add_signal_handler(signal.SIGTERM, stop)
        await self.connection.subscribe("hocket.cancel", cb=self.cancel)
        await self.connection.subscribe("hocket.worker.asked", cb=self.announce)
        pulls = [asyncio.create_task(self.pull(lane)) for lane in ("urgent", "normal", "batch")]
        announcing = asyncio.create_task(self.keep_announcing())
        await self.stopping.wait()
        announcing.cancel()
        for pull in pulls:
            pull.cancel()
        await self.tell({})
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.connection.close()

    async def keep_announcing(self) -> None:
        while True:
            await self.announce(None)
            await asyncio.sleep(3_600 if FAULT == "silent" else 2)

    async def announce(self, asked: Msg | None) -> None:
        if asked is not None and FAULT == "silent":
            return
        await self.tell({TYPE: SLOTS})
        described = {"worker": NAME, "type": TYPE, "concurrency": SLOTS}
        await self.connection.publish("hocket.worker.described", json.dumps(described).encode())

    async def tell(self, slots: dict[str, int]) -> None:
        announced = {"worker": NAME, "slots": slots, "bundles": FAULT == "claims-bundles"}
        await self.connection.publish("hocket.worker.announced", json.dumps(announced).encode())

    async def pull(self, lane: str) -> None:
        name = f"step-{TYPE.replace('.', '-')}-{lane}"
        config = ConsumerConfig(
            name=name, durable_name=name, ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_WAIT_S,
            deliver_policy=DeliverPolicy.ALL, max_deliver=-1, max_ack_pending=65_536,
            max_waiting=8_192, filter_subject=f"hocket.step.{TYPE.replace('.', '-')}.{lane}",
        )  # fmt: skip
        await self.js.add_consumer("STEPS", config)
        pull = await self.js.pull_subscribe_bind(consumer=name, stream="STEPS")
        while True:
            try:
                (message,) = await pull.fetch(1, timeout=30)
            except NothingCame:
                continue
            task = asyncio.create_task(self.take(message))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def take(self, message: Msg) -> None:
        try:
            step = json.loads(message.data)
            assert {"run_id", "step", "attempt", "input", "partition", "timeout_ms"} <= step.keys()
        except (ValueError, AssertionError, AttributeError):
            await self.bury(message)
            return
        if FAULT == "ack-first":
            await message.ack()
        beating = asyncio.create_task(self.beat(message))
        async with self.slots:
            result = await self.attempt(step)
        result |= {name: step.get(name) for name in ("run_id", "step", "attempt")}
        result |= {name: step.get(name) for name in ("dispatched_at_ms", "capability")}
        result |= {"worker": NAME, "delivery": message.metadata.num_delivered}
        if FAULT == "wrong-attempt":
            result["attempt"] += 1
        if FAULT == "no-capability":
            del result["capability"]
        await self.post(step, result)
        beating.cancel()
        if FAULT != "ack-first":
            await message.ack()

    async def attempt(self, step: dict[str, Any]) -> dict[str, Any]:
        now_ms = time.time() * 1000
        end_ms = step.get("run_deadline_at_ms") or step["deadline_at_ms"]
        key = (step["run_id"], step["step"], step["attempt"], shown(step))
        try:
            if key in self.cancelled:
                raise Failed("attempt_cancelled", "cancelled", "it was cancelled before")
            if now_ms >= end_ms and FAULT != "runs-late":
                raise Failed("deadline_passed", "timeout", "it came too late")
            left_s = min(step["timeout_ms"], end_ms - now_ms) / 1000
            if FAULT == "runs-late":
                left_s = step["timeout_ms"] / 1000
            work = asyncio.create_task(do(resolved(step["tenant"], step["input"])))
            self.running[step["run_id"]] = work, step
            output = await asyncio.wait_for(work, None if FAULT == "no-timeout" else left_s)
        except Failed as error:
            return {"error": error.info}
        except TimeoutError:
            return {"error": Failed("attempt_timeout", "timeout", "it took too long").info}
        except asyncio.CancelledError:
            return {"error": Failed("attempt_cancelled", "cancelled", "it was cancelled").info}
        finally:
            self.running.pop(step["run_id"], None)
        return {"output": lighter(step["tenant"], output)}

    async def beat(self, message: Msg) -> None:
        while FAULT != "no-heartbeat":
            await asyncio.sleep(ACK_WAIT_S / 3)
            await message.in_progress()

    async def post(self, step: dict[str, Any], result: dict[str, Any]) -> None:
        attempt = f"{step['run_id']}:{step['step']}:{step['attempt']}"
        msg_id = f"{attempt}:{round(step['dispatched_at_ms'] * 1000)}:f:{step['capability']}"
        headers = {} if FAULT == "no-message-id" else {"Nats-Msg-Id": msg_id}
        subject = f"hocket.log.{step['partition']}.finished"
        await self.js.publish(subject, json.dumps(result).encode(), headers=headers)

    async def cancel(self, message: Msg) -> None:
        told = json.loads(message.data)
        key = (told["run_id"], told["step"], told["attempt"], told.get("capability_sha256"))
        self.cancelled[key] = time.time()
        if FAULT == "ignores-cancellation" or told["run_id"] not in self.running:
            return
        work, step = self.running[told["run_id"]]
        if shown(step) == told.get("capability_sha256") or FAULT == "obeys-strangers":
            work.cancel()

    async def bury(self, message: Msg) -> None:
        if FAULT == "keeps-junk":
            return
        error = {"code": "step_malformed", "error_class": "invalid", "message": "it is no step"}
        headers = {
            "Hocket-Dead-Subject": message.subject,
            "Hocket-Dead-Error": json.dumps(error),
        }
        subject = "hocket.dlq.step._unattributed"
        await self.js.publish(subject, message.data, headers=headers)
        await message.term()


def resolved(tenant: str, value: Any) -> Any:
    if isinstance(value, list):
        return [resolved(tenant, item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$blob" not in value:
        return {name: resolved(tenant, item) for name, item in value.items()}
    name = value["$blob"]
    data = (BLOBS / f"tenant-{tenant}" / name[:2] / name).read_bytes()
    return data.decode() if value["type"] == "text" else json.loads(data)


def lighter(tenant: str, output: Any) -> Any:
    data = json.dumps(output).encode()
    if len(data) <= MAX_RESULT_BYTES or FAULT == "inline-blobs":
        return output
    name = hashlib.sha256(data).hexdigest()
    path = BLOBS / f"tenant-{tenant}" / name[:2] / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return {"$blob": name, "size": len(data), "type": "json"}


asyncio.run(Worker().run())
