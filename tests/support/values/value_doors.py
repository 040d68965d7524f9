"""Further ways into a running platform beside those of `values_rig`: name=value options of the command
line, rows of a real Postgres, references to blobs, the gateway's HTTP door, addresses."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from hocket.schemas.errors import HocketError
from support.values.values_rig import House, Outcome, told_by

DATABASE = "hostile"
READS = {
    "pipeline": "reads",
    "nodes": {
        "q": {"type": "sql", "database": DATABASE, "with": {"sql": "{{ input.sql }}"}},
        "a": {
            "type": "python",
            "handler": "hocket.workers.builtin:echo",
            "with": {"v": "{{ nodes.q.output.rows[0][0] }}"},
        },
    },
    "output": {"v": "{{ nodes.a.output.v }}"},
}
APPROVES = {
    "pipeline": "approves",
    "nodes": {"ok": {"type": "approval"}},
    "output": {"v": "{{ nodes.ok.output.note }}"},
}


async def by_pair(house: House, text: str) -> Outcome:
    """Send it as a command-line option, `-i v=...`."""
    printed, error = await house.cli("run", "vals", "-i", f"v={text}", "--json")
    if isinstance(error, HocketError):
        return Outcome(error=error.info().model_dump(), text=str(error))
    assert error is None, (printed, error)
    return told_by(json.loads(printed))


async def by_row(house: House, sql: str) -> Outcome:
    """Return it from a query, in the first row and column."""
    body = {"pipeline": "reads", "wait_ms": 30_000, "input": {"sql": sql}}
    _, answer = await house.post("/v1/runs", json.dumps(body).encode())
    return told_by(answer)


async def by_approval(house: House, text: bytes) -> Outcome:
    """Send it as the note of an approval."""
    _, receipt = await house.post("/v1/runs", b'{"pipeline": "approves"}')
    run_id = receipt["run_id"]
    body = b'{"name": "ok", "payload": {"approved": true, "by": "x", "note": ' + text + b"}}"
    status, answer = await house.post(f"/v1/runs/{run_id}/signals", body)
    if status != 202:
        await house.post(f"/v1/runs/{run_id}/cancel", b"{}")
        return Outcome(error=answer["error"])
    return told_by(await house.ended(run_id))


async def raw(
    url: str,
    method: str,
    path: str,
    headers: Mapping[str, bytes],
    body: bytes = b"",
    length: int | None = None,
    *,
    key: str = "",
    follows: bool = False,
) -> tuple[int, Any]:
    """Send a raw request that no client library would send, and return status and body.

    `length` is the announced length of the body, if it is to be wrong. With `follows`, only the head is
    read of an answer that is a stream of events, because it may never end."""
    parts = urlsplit(url)
    if key:
        headers = {**headers, "Authorization": f"Bearer {key}".encode()}
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    lines = [f"{method} {path} HTTP/1.1".encode(), b"Connection: close"]
    if "Host" not in headers:
        lines.append(f"Host: {parts.netloc}".encode())
    lines += [name.encode() + b": " + value for name, value in headers.items()]
    lines.append(b"Content-Length: %d" % (len(body) if length is None else length))
    writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
    async with asyncio.timeout(30):
        answer = await reader.readuntil(b"\r\n\r\n")
        if not follows or b"text/event-stream" not in answer.lower():
            answer += await reader.read()
    writer.close()
    head, _, content = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    said = head.lower()
    if b"transfer-encoding: chunked" in said:
        content = _unchunked(content)
    return status, json.loads(content) if (
        b"/json" in said or b"+json" in said
    ) and content else content


def _unchunked(content: bytes) -> bytes:
    whole = b""
    while content:
        size, _, content = content.partition(b"\r\n")
        length = int(size, 16)
        whole, content = whole + content[:length], content[length + 2 :]
    return whole


def percent(text: str | bytes) -> str:
    """Return a text percent-encoded, as one segment of an address."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return quote(data, safe="")
