"""The model of the healthy runs, with its own meter of the calls that were really made."""

import os

from fuzz.load import TOKENS
from hocket.schemas.messages import CallRequest, Completion


async def answer(request: CallRequest) -> Completion:
    """Repeat the question as the answer, for a known number of tokens."""
    meter = os.open(os.environ["FUZZ_METER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(meter, f"{request.attribution.run_id or ''}\n".encode())
    os.close(meter)
    text = request.messages[-1].content if request.messages else ""
    return Completion(
        text=text, input_tokens=TOKENS[0], output_tokens=TOKENS[1], finish_reason="stop"
    )
