"""A model in the gateway's process that answers at once and counts its calls where other processes can
read it."""

import mmap
import os
import struct
from functools import cache
from pathlib import Path

from hocket.schemas.messages import CallRequest, Completion

CALLS_FILE = "BENCH_CALLS_FILE"
"""Environment variable that names the file with the count."""
COUNTER = struct.Struct("q")
INPUT_TOKENS, OUTPUT_TOKENS = 12, 3
_REPLY = Completion(
    text="5.1 m", input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS, finish_reason="stop"
)


async def answer(_request: CallRequest) -> Completion:
    """Count the call in a file that outlives this process, and answer."""
    calls = _calls()
    COUNTER.pack_into(calls, 0, COUNTER.unpack_from(calls)[0] + 1)
    return _REPLY


@cache
def _calls() -> mmap.mmap:
    with Path(os.environ[CALLS_FILE]).open("r+b") as file:
        return mmap.mmap(file.fileno(), COUNTER.size)
