"""How many tasks are not done yet: their streams keep those that are until coordinators remove them."""

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
