"""MCP over stdio: a line that is no message is answered, and the next one is read."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Any

import pytest
from mcp_types import JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from hocket.cli.mcp.stdio import refused
from support.shared.scripted_api import Answer, as_json, scripted_api

BOUND_S = 60.0


def call(of: Any, **more: Any) -> str:
    params = {"name": "asks", "arguments": more}
    return json.dumps({"jsonrpc": "2.0", "id": of, "method": "tools/call", "params": params})


def refusal_of(line: str) -> JSONRPCError | None:
    """Return the answer to a line; None if it has none."""
    with pytest.raises(ValidationError) as caught:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
    return refused(caught.value)


def answer(line: str) -> tuple[int, object] | None:
    """Return the code and the id of the answer to a line; None if it has none."""
    refusal = refusal_of(line)
    return None if refusal is None else (refusal.error.code, refusal.id)


@pytest.mark.parametrize(
    ("line", "code", "of"),
    [
        (call(7, text="\ud800"), -32700, 7),
        (call("a", text="\ud800"), -32700, "a"),
        (call("\ud800"), -32700, None),
        (call(True, text="\ud800"), -32700, None),
        ('{"jsonrpc":"2.0","id":7,"result":"\\ud800"}', -32700, None),
        ("{", -32700, None),
        ("[" * 100_000, -32700, None),
        ("5", -32600, None),
        ("[]", -32600, None),
        ('{"jsonrpc":"2.0","id":7,"method":"ping","params":5}', -32600, 7),
        ('{"id":7,"method":"ping"}', -32600, 7),
    ],
    ids=range(11),
)
def test_a_line_that_is_no_message_is_answered_with_its_id(line: str, code: int, of: Any) -> None:
    assert answer(line) == (code, of)


@pytest.mark.parametrize(
    "line", ["\n", '{"jsonrpc":"2.0","id":7,"result":5}', '{"method":"notifications/cancelled"}']
)
def test_what_nobody_waits_for_is_not_answered(line: str) -> None:
    assert answer(line) is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (call(7, text="\ud800"), "on each line, with complete Unicode characters."),
        ("{", "Send one JSON-RPC message on each line."),
        ("5", "Send one JSON-RPC message on each line."),
        ('{"jsonrpc":"2.0","id":7,"method":5}', "check `jsonrpc`, `id`, `method` and `params`."),
    ],
    ids=range(4),
)
def test_what_is_wrong_with_a_line_is_told(line: str, words: str) -> None:
    """The method was not named, and each fault was said to be of the characters."""
    refusal = refusal_of(line)
    assert refusal is not None
    assert refusal.error.message.endswith(words)


def answering(asked: str, body: Any) -> Answer:
    if asked.startswith("GET /v1/pipelines"):
        return as_json(200, {"pipelines": []})
    ended = {"run_id": "r1", "pipeline": "asks", "status": "succeeded", "finished_at": "now"}
    return as_json(200, {**ended, "output": body["input"]})


async def test_a_client_is_answered_after_a_line_that_cannot_be_read(tmp_path: Path) -> None:
    """It waited for ever: the line was dropped without a word."""
    info = {"name": "c", "version": "1"}
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        call(2, text="\ud800"),
        call(3, text="whole"),
    ]
    env = {**os.environ, "HOME": str(tmp_path), "HOCKET_API_KEY": "hk_a_b"}
    with scripted_api(answering) as api:
        words = ("-m", "hocket.cli", "--api", api.url, "mcp")
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=env
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        async with asyncio.timeout(BOUND_S):
            found = [json.loads(await process.stdout.readline()) for _ in range(3)]
        process.stdin.close()
        async with asyncio.timeout(BOUND_S):
            assert await process.wait() == 0
    by_id = {one["id"]: one for one in found}
    assert by_id[2]["error"]["code"] == -32700
    assert by_id[3]["result"]["structuredContent"]["output"] == {"text": "whole"}
