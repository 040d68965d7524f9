"""How many tasks are not done yet: their streams keep those that are until coordinators remove them."""

import asyncio

from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from hocket.schemas import subjects


async def tasks_left(js: JetStreamContext, stream: str = subjects.TASKS) -> int:
    """Return the number of tasks in a stream that no coordinator has acknowledged."""
    try:
        info = await js.consumer_info(stream, subjects.INTAKE)
    except NotFoundError:
        return (await js.stream_info(stream)).state.messages
    return (info.num_pending or 0) + (info.num_ack_pending or 0)


async def all_tasks_done(js: JetStreamContext) -> None:
    """Return once coordinators have acknowledged every task. They do so after they have told its end,
    and the server takes it in after that."""
    async with asyncio.timeout(60):
        while await tasks_left(js):  # noqa: ASYNC110 - the server does not tell
            await asyncio.sleep(0.02)
