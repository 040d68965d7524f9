"""A model in the gateway's process that answers at once and counts its calls where other processes can
read it: one count for each worker."""

import mmap
import os
import struct
from functools import cache
from pathlib import Path

from hocket.schemas.messages import CallRequest, Completion

CALLS_FILE = "BENCH_CALLS_FILE"
"""Environment variable that names the file with the count."""
COUNTS = struct.Struct("16q")
"""What the file holds: the calls of each worker."""
_COUNT = struct.Struct("q")
INPUT_TOKENS, OUTPUT_TOKENS = 12, 3
_REPLY = Completion(
    text="5.1 m", input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS, finish_reason="stop"
)


async def answer(_request: CallRequest) -> Completion:
    """Count the call in a file that outlives this process, and answer."""
    counts, place = _counts()
    _COUNT.pack_into(counts, place, _COUNT.unpack_from(counts, place)[0] + 1)
    return _REPLY


@cache
def _counts() -> tuple[mmap.mmap, int]:
    """Return the file, and the place of this process's count in it."""
    number = int(os.environ["HOCKET_INSTANCE"].partition("-")[2] or 1)
    with Path(os.environ[CALLS_FILE]).open("r+b") as file:
        return mmap.mmap(file.fileno(), COUNTS.size), _COUNT.size * (number - 1)
