"""A model in the gateway's process that takes as long as its prompt says, and meters its calls.

It generates one token per millisecond. If `SLEEPING_MODEL_METER` names a file, every call adds a line
to it when it ends or is stopped: run, node, tokens requested, begin and end (seconds of the wall
clock), and whether it was answered.
"""

import asyncio
import json
import os
import time
from functools import cache

from hocket.schemas.messages import CallRequest, Completion

METER = "SLEEPING_MODEL_METER"


async def sleep(request: CallRequest) -> Completion:
    """Sleep for the number of seconds in the last message."""
    begun_s = time.time()
    seconds, answered = float(request.messages[-1].content), False
    tokens = round(seconds * 1_000)
    try:
        await asyncio.sleep(seconds)
        answered = True
    finally:
        if METER in os.environ:
            who = request.attribution
            line = [who.run_id, who.node, tokens, begun_s, time.time(), answered]
            os.write(_meter(), json.dumps(line).encode() + b"\n")
    return Completion(text="slept", output_tokens=tokens)


@cache
def _meter() -> int:
    return os.open(os.environ[METER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
