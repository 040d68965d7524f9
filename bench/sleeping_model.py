"""A model that takes as long as its prompt says, in the gateway's process."""

import asyncio

from hocket.schemas.messages import CallRequest, Completion


async def sleep(request: CallRequest) -> Completion:
    """Take as many seconds as the last message says, and use a token for each millisecond."""
    seconds = float(request.messages[-1].content)
    await asyncio.sleep(seconds)
    return Completion(text="slept", input_tokens=1, output_tokens=round(seconds * 1_000))
