"""What all servers of a NATS cluster answer to a question in their own account."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from nats.aio.msg import Msg

from hocket.kit.nats.bus import Bus


async def answers_of_all(
    bus: Bus,
    subject: str,
    asked: Mapping[str, Any],
    *,
    first_s: float,
    quiet_s: float,
    enough: int = 0,
) -> list[dict[str, Any]]:
    """Ask all servers, and return their answers: the first one is waited for `first_s`, and each
    further one `quiet_s`, for nobody says how many servers there are; where somebody knows, no more
    than `enough` are waited for."""
    answers: list[dict[str, Any]] = []
    came = asyncio.Event()

    async def hear(message: Msg) -> None:
        answers.append(json.loads(message.data))
        came.set()

    inbox = bus.nc.new_inbox()
    subscription = await bus.subscribe(inbox, hear, confirmed=False)
    try:
        bus.publish_nowait(subject, json.dumps(asked).encode(), reply=inbox)
        with suppress(TimeoutError):
            while not enough or len(answers) < enough:
                async with asyncio.timeout(quiet_s if answers else first_s):
                    await came.wait()
                came.clear()
    finally:
        await subscription.unsubscribe()
    return answers
