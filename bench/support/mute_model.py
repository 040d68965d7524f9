"""A model in the gateway's process that answers at once and always the same."""

from hocket.schemas.messages import CallRequest, Completion


async def answer(_request: CallRequest) -> Completion:
    """Answer with one word."""
    return Completion(text="done", input_tokens=3, output_tokens=1, finish_reason="stop")
