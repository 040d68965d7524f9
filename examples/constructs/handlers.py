"""The functions that the examples in docs/reference/constructs call: small, and deterministic from run
to run."""

import asyncio
import json
from typing import Any

from hocket.schemas.messages import CallRequest, Completion
from hocket.worker import Context, ErrorClass, HocketError, Retryable


class SourceClosed(HocketError):
    """The source `{source}` is closed today."""

    code = "source_closed"
    error_class = ErrorClass.UNAVAILABLE


async def echo(given: Any) -> Any:
    """Return the input."""
    return given


async def words(given: dict[str, Any]) -> list[str]:
    """Split a text into its words."""
    return str(given["text"]).split()


async def count(given: dict[str, Any]) -> int:
    """Count the items of a list."""
    return len(given["items"])


async def square(given: dict[str, Any]) -> float:
    """Square a number; refuse anything else."""
    number = given["number"]
    if not isinstance(number, int | float):
        raise ValueError(f"{number!r} is not a number")
    return float(number * number)


async def improve(given: dict[str, Any]) -> float:
    """Improve a guess at a square root (Newton's method)."""
    number, guess = float(given["number"]), float(given["guess"])
    return (guess + number / guess) / 2


async def search(given: dict[str, Any]) -> dict[str, Any]:
    """Find something after a while, with some certainty."""
    await asyncio.sleep(float(given["takes_ms"]) / 1000)
    return {"from": given["source"], "sure": given["sure"]}


async def closed(given: dict[str, Any]) -> Any:
    """Fail: the source is closed."""
    raise SourceClosed(source=given.get("source", "archive"))


async def flaky(context: Context) -> dict[str, Any]:
    """Fail until the third attempt."""
    if context.step.attempt < 3:
        raise Retryable(f"attempt {context.step.attempt} fails on purpose")
    return {"attempts": context.step.attempt}


async def slow(given: dict[str, Any]) -> Any:
    """Take longer than its caller waits."""
    await asyncio.sleep(30)
    return given


async def ask(given: dict[str, Any], context: Context) -> str:
    """Call a model."""
    reply = await context.model("clerk", str(given["question"]))
    return reply.text


async def clerk(request: CallRequest) -> Completion:
    """A model: give the same answer to every question. It runs in the gateway (hocket.yaml)."""
    words_in = len(request.messages[-1].content.split())
    return Completion(text="It is filed.", input_tokens=words_in, output_tokens=3)


async def planner(request: CallRequest) -> Completion:
    """A model: plan one step per word of the question, and one step that counts them."""
    question = str(request.context["question"])
    steps: dict[str, Any] = {
        f"w{number}": {"type": "python", "handler": "handlers:echo", "with": {"word": word}}
        for number, word in enumerate(question.split(), start=1)
    }
    items = ["{{ nodes." + name + ".output.word }}" for name in steps]
    total = {"type": "python", "handler": "handlers:count", "with": {"items": items}}
    plan = {"nodes": {**steps, "total": total}, "output": "{{ nodes.total.output }}"}
    return Completion(text=json.dumps(plan), data=plan)
