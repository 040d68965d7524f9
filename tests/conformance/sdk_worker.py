"""The conformance suite's worker, written with the SDK: `hocket-worker sdk_worker:worker`."""

import asyncio
import secrets
from typing import Any

from hocket.worker import Context, Retryable, Worker

worker = Worker()


@worker.node("conformance.step", concurrency=4)
async def step(task: dict[str, Any], context: Context) -> Any:
    """Do what the task says."""
    match task["do"]:
        case "echo":
            return task["value"]
        case "sleep":
            await asyncio.sleep(task["ms"] / 1000)
            return task.get("value")
        case "fail":
            raise ValueError(task["message"])
        case "length":
            return len(task["value"])
        case "large":
            return {"text": "y" * task["chars"]}
        case "journaled":
            text = await context.step("make", secrets.token_hex)
            await asyncio.sleep(task["ms"] / 1000)
            await context.step("end", len, text)
            if context.step.attempt == 1:
                raise Retryable("attempt 1 fails")
            return text
        case "waits":
            text = await context.step("make", secrets.token_hex)
            return [text, await context.wait_for_signal(task["signal"])]
        case "calls":
            text = await context.step("make", secrets.token_hex)
            return [text, await context.call_node(task["node"], task["input"])]
        case "beside":
            first = context.step.attempt == 1
            charged, slow = await asyncio.gather(
                context.step("charge", _charge, fails=first),
                context.step("slow", _slow, task["ms"]),
                return_exceptions=True,
            )
            if isinstance(charged, BaseException):
                raise charged
            return [charged, slow]
        case "call-many":
            text = "x" * task["chars"]
            inputs = [{"number": number, "text": text} for number in range(task["count"])]
            return await asyncio.gather(*(context.call_node(task["node"], one) for one in inputs))


def _charge(*, fails: bool) -> str:
    if fails:
        raise RuntimeError("attempt 1 is told to fail")
    return "charged"


async def _slow(ms: float) -> str:
    await asyncio.sleep(ms / 1000)
    return secrets.token_hex()
