"""What a stream begins with waits until there is some of the answer."""

from typing import Any

import pytest

from hocket.gateway.backends import first_chunks
from hocket.gateway.backends.first_chunks import FirstChunks
from hocket.gateway.backends.protocol import Chunk
from hocket.gateway.core.protocols.openai_api import Assembly
from support.gateway.routing_rig import request

BODY = {"path": "chat/completions", "body": {"model": "m", "messages": []}}


def piece(reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


ROLE = piece(role="assistant", content="")
EMPTY = {
    "a role": ROLE,
    "empty fields": piece(content=None, refusal=None, tool_calls=[], reasoning_content=""),
    "no delta": {"choices": [{"index": 0, "finish_reason": None}]},
    "no choices": {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
    "usage": {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 0}},
}
SPOKEN = {
    "text": piece(content="ti"),
    "reasoning": piece(reasoning_content="It is"),
    "reasoning of another name": piece(reasoning="It is"),
    "hidden reasoning": piece(content="", reasoning_details=[{"type": "reasoning.encrypted"}]),
    "a refusal": piece(refusal="No."),
    "a tool call": piece(tool_calls=[{"index": 0, "id": "t", "function": {"name": "tide"}}]),
    "sound": piece(audio={"data": "AAAA"}),
    "an end": piece("stop"),
    "another choice": {"choices": [{"index": 1, "delta": {"content": "lo"}}]},
}


class Sent:
    """The chunks that a stream has sent, as its backend sends them."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self._assembly = Assembly(request(openai=BODY))
        self._first = FirstChunks(self._take)

    async def add(self, event: dict[str, Any]) -> None:
        text = self._assembly.add(event).text
        await self._first.send(Chunk(text, openai=event), spoke=self._assembly.spoke)

    async def _take(self, chunk: Chunk) -> None:
        self.events.append(chunk.openai)


@pytest.mark.parametrize("spoken", SPOKEN.values(), ids=SPOKEN.keys())
async def test_what_holds_none_of_the_answer_waits_for_what_does_and_then_comes_in_order(
    spoken: dict[str, Any],
) -> None:
    sent, first = Sent(), list(EMPTY.values())
    for event in first:
        await sent.add(event)
        assert sent.events == []
    await sent.add(spoken)
    assert sent.events == [*first, spoken]
    await sent.add(ROLE)
    assert sent.events == [*first, spoken, ROLE]


async def test_the_text_of_a_legacy_completion_counts_and_its_other_fields_do_not() -> None:
    assembly = Assembly(request(openai={"path": "completions", "body": {"prompt": "a"}}))
    assembly.add({"choices": [{"index": 0, "text": "", "finish_reason": None, "stop_reason": 5}]})
    assert not assembly.spoke
    assembly.add({"choices": [{"index": 0, "text": "ti", "finish_reason": None}]})
    assert assembly.spoke


async def test_a_stream_of_empty_chunks_takes_little_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(first_chunks, "MAX_HELD_BYTES", 20_000)
    sent, added = Sent(), 0
    while not sent.events:
        await sent.add(piece(role="assistant"))
        added += 1
        assert added < 200
    assert len(sent.events) == added > 1, "all that waited"
    await sent.add(ROLE)
    assert len(sent.events) == added + 1


async def test_chunks_that_nobody_is_shown_do_not_wait() -> None:
    texts: list[str] = []

    async def take(chunk: Chunk) -> None:
        texts.append(chunk.text)

    await FirstChunks(take).send(Chunk(""), spoke=False)
    assert texts == [""]
