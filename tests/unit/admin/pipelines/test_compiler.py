"""Documents are read beside the event loop, in their tenants' turns."""

import asyncio
import threading

import pytest

from hocket.admin.node_types.registry import NodeTypes
from hocket.admin.pipelines import compiler
from hocket.admin.pipelines.compiler import Compiler
from hocket.schemas.errors import InvalidInput

WAIT_S = 20


async def test_a_tenant_with_many_documents_keeps_one_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = {name: threading.Event() for name in (b"greedy", b"other")}
    begun: list[bytes] = []

    def compiled(_media_type: str, body: bytes, _models: object, _types: object) -> bytes:
        begun.append(body)
        assert release[body].wait(WAIT_S)
        return body

    monkeypatch.setattr(compiler, "_compiled", compiled)
    compiling = Compiler()
    greedy = [
        asyncio.create_task(compiling.compile("greedy", "", b"greedy", None, NodeTypes()))
        for _ in range(5)
    ]
    await asyncio.sleep(0)
    other = asyncio.create_task(compiling.compile("other", "", b"other", None, NodeTypes()))
    release[b"other"].set()

    async with asyncio.timeout(WAIT_S):
        await other
        assert sorted(begun) == [b"greedy", b"other"]
        greedy[1].cancel()
        release[b"greedy"].set()
        await asyncio.gather(*greedy, return_exceptions=True)
    assert begun.count(b"greedy") == 4
    assert compiling._turns == {}


async def test_the_event_loop_turns_while_a_document_is_read() -> None:
    text = b"nodes:\n" + b"".join(b"  k%d: {a: b}\n" % n for n in range(5_000))
    reading = asyncio.create_task(
        Compiler().compile("default", "application/yaml", text, None, NodeTypes())
    )
    turns = 0
    while not reading.done():
        await asyncio.sleep(0.001)
        turns += 1
    with pytest.raises(InvalidInput, match="pipeline"):
        await reading
    assert turns > 10


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1"])
@pytest.mark.parametrize("media_type", ["", "application/yaml", "application/json"])
async def test_a_document_that_is_not_utf_8_is_refused_and_says_so(
    encoding: str, media_type: str
) -> None:
    text = '{"pipeline": "hello", "description": "é", "nodes": {"a": {"type": "signal"}}}'
    with pytest.raises(InvalidInput) as refused:
        await Compiler().compile("default", media_type, text.encode(encoding), None, NodeTypes())
    assert refused.value.fields["field"] == "(document)"
    assert "UTF-8" in str(refused.value)
