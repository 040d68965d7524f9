"""Asks all servers of a NATS cluster a question in the system account."""

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
    """Ask all servers and return their answers. Waits up to `first_s` for the first answer, and
    `quiet_s` for each further one, because the number of servers is not known; if it is, waiting ends
    after `enough` answers."""
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
