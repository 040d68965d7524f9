"""The model of the healthy runs."""

from fuzz.load import TOKENS
from hocket.schemas.messages import CallRequest, Completion


async def answer(request: CallRequest) -> Completion:
    """Say back what was asked, for a known number of tokens."""
    text = request.messages[-1].content if request.messages else ""
    return Completion(
        text=text, input_tokens=TOKENS[0], output_tokens=TOKENS[1], finish_reason="stop"
    )
