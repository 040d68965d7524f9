"""A handler that calls the gateway's HTTP door for its run, one that charges, one that charges and waits
to be stopped, and a model that answers at once."""

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

from hocket.schemas.messages import CallRequest, Completion
from hocket.workers.runtime.execution.context import Context


def ask(given: dict[str, Any]) -> dict[str, Any]:
    """Make `calls` calls of `model` at the door `url`, in the name of the run `run_id`."""
    message = {"role": "user", "content": "How high is the tide?"}
    body = json.dumps({"model": given["model"], "messages": [message], "max_tokens": 5}).encode()
    for _ in range(given["calls"]):
        request = urllib.request.Request(
            f"{given['url']}/chat/completions",
            body,
            {"Content-Type": "application/json", "X-Hocket-Run-Id": given["run_id"]},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
    return {"calls": given["calls"]}


async def charge_and_wait(given: dict[str, Any], context: Context) -> None:
    """Charge `usd`, leave the file `path`, and wait to be stopped."""
    context.charge(given["usd"])
    await asyncio.to_thread(Path(given["path"]).touch)
    await asyncio.Event().wait()


def charge(given: dict[str, Any], context: Context) -> None:
    """Charge `usd`."""
    context.charge(given["usd"])


async def complete(request: CallRequest) -> Completion:
    """Answer."""
    return Completion(text="high", input_tokens=3, output_tokens=1, finish_reason="stop")
