"""Handlers and models that the processes under chaos import; they record what they did in journals."""

import asyncio
import json
import time
from typing import Any

from chaos import journal
from hocket.schemas.messages import CallRequest, Completion
from hocket.workers.errors import Retryable
from hocket.workers.runtime.execution.context import Context

TAKES_S = 0.03
UNITS = 5


async def note(given: Any, context: Context) -> Any:
    """Return the input after a moment, to leave time for a fault."""
    _executed("begun", context)
    await asyncio.sleep(TAKES_S)
    _executed("ended", context)
    return given


async def flaky(given: Any, context: Context) -> Any:
    """Fail until the third attempt."""
    _executed("begun", context)
    if context.step.attempt < 3:
        raise Retryable(f"attempt {context.step.attempt} is told to fail")
    _executed("ended", context)
    return given


async def refuse(given: Any, context: Context) -> Any:
    """Fail in every attempt."""
    _executed("begun", context)
    raise ValueError("told to fail")


async def linger(given: Any, context: Context) -> Any:
    """Run long enough for a cancellation to arrive before the end."""
    _executed("begun", context)
    await asyncio.sleep(1.0)
    _executed("ended", context)
    return given


async def durable(given: Any, context: Context) -> Any:
    """Do five units, each once per step, with a model call between them."""
    place = _delivered(context)
    value = given["v"]
    for unit in range(UNITS):
        value = await context.step(f"unit {unit}", _unit, f"{place}|{unit}", value)
        if unit == UNITS // 2:
            value += len((await context.model("probe", f"{value}")).text) - len("done")
    _executed("ended", context)
    return {"v": value}


async def suspended(given: Any, context: Context) -> Any:
    """Do one unit, wait for a signal without occupying a worker, and do another unit."""
    place = _delivered(context)
    value = await context.step("unit 0", _unit, f"{place}|0", given["v"])
    await context.wait_for_signal("go")
    value = await context.step("unit 1", _unit, f"{place}|1", value)
    _executed("ended", context)
    return {"v": value}


async def pay(given: Any, context: Context) -> Any:
    """Do one unit and call a model: the cost of a called step."""
    place = _delivered(context)
    value = await context.step("unit 0", _unit, f"{place}|0", given["v"])
    value += len((await context.model("probe", f"{value}")).text) - len("done")
    _executed("ended", context)
    return {"v": value}


async def calling(given: Any, context: Context) -> Any:
    """Do one unit, call a node that costs money, then a node and a pipeline in parallel, and do another
    unit."""
    place = _delivered(context)
    value = await context.step("unit 0", _unit, f"{place}|0", given["v"])
    paid = await context.call_node("pay", {"v": value})
    noted, below = await asyncio.gather(
        context.call_node("note", paid), context.call_node("sub", paid)
    )
    assert (noted, below) == (paid, paid["v"]), (paid, noted, below)
    value = await context.step("unit 1", _unit, f"{place}|1", below)
    _executed("ended", context)
    return {"v": value}


async def _unit(name: str, value: int) -> int:
    journal.write(journal.UNITS, "begun", name, time.time())
    await asyncio.sleep(TAKES_S)
    journal.write(journal.UNITS, "ended", name, time.time())
    return value + 1


async def answer(request: CallRequest) -> Completion:
    """A model that meters the call; the ledger must have the same."""
    _called("begun", request)
    await asyncio.sleep(TAKES_S)
    _called("ended", request)
    return Completion(text="done", input_tokens=3, output_tokens=1, finish_reason="stop")


async def plan(request: CallRequest) -> Completion:
    """A model: plan one step per word of the question."""
    _called("begun", request)
    words = str(request.context["question"]).split()
    steps: dict[str, Any] = {
        f"w{number}": {
            "type": "python",
            "handler": "chaos.chaos_handlers:note",
            "with": {"w": word},
        }
        for number, word in enumerate(words)
    }
    planned = {"nodes": steps, "output": ["{{ nodes." + name + ".output.w }}" for name in steps]}
    _called("ended", request)
    return Completion(text=json.dumps(planned), data=planned, input_tokens=3, output_tokens=9)


def _delivered(context: Context) -> str:
    """Record that a handler with a journal begins, and return its step's id in the journals."""
    _executed("begun", context)
    place = f"{context.step.run_id}|{context.step.step}"
    journal.write(journal.DELIVERIES, "begun", place, time.time())
    return place


def _executed(what: str, context: Context) -> None:
    step = context.step
    journal.write(journal.ATTEMPTS, what, f"{step.run_id}|{step.step}|{step.attempt}", time.time())


def _called(what: str, request: CallRequest) -> None:
    journal.write(journal.CALLS, what, request.call_id, time.time())
