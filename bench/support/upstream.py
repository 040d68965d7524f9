"""A model endpoint that answers every request at once with one chat completion, over keep-alive
connections.

.venv/bin/python -m bench.support.upstream PORT
"""

import asyncio
import json
import sys
from typing import Any

import uvloop

USAGE = {
    "prompt_tokens": 120,
    "completion_tokens": 7,
    "total_tokens": 127,
    "prompt_tokens_details": {"cached_tokens": 20},
}
BODY = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m-1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "tidal"},
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
    }
).encode()
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY)
) + BODY
END_OF_HEAD = b"\r\n\r\n"
LENGTH = b"content-length:"


class Connection(asyncio.Protocol):
    """Reads each request to its end and answers it."""

    def __init__(self) -> None:
        self._buffer = b""
        self._wanted = 0
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while True:
            if not self._wanted:
                end = self._buffer.find(END_OF_HEAD)
                if end < 0:
                    return
                self._wanted = end + len(END_OF_HEAD) + _length(self._buffer[:end].lower())
            if len(self._buffer) < self._wanted:
                return
            self._buffer = self._buffer[self._wanted :]
            self._wanted = 0
            self._transport.write(ANSWER)


def _length(head: bytes) -> int:
    _, found, rest = head.partition(LENGTH)
    return int(rest.split(b"\r\n", 1)[0]) if found else 0


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
