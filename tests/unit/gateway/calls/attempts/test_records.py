"""What the gateway learns from the answers of its backends."""

import asyncio
from typing import Any

import pytest

from hocket.gateway.backends.protocol import Chunks
from hocket.schemas.messages import CallRequest, Completion
from support.gateway.routing_rig import Rig, Scripted, backend


@pytest.mark.parametrize("field", [{}, {"prompt": [""] * 100_000}, {"best_of": 128}, {"n": 128}])
async def test_nobody_makes_an_engine_look_slow_by_asking_for_answers_that_it_does_not_give(
    field: dict[str, Any],
) -> None:
    async def takes_a_second(_: CallRequest, __: Chunks | None) -> Completion:
        rig.now_ms += 1_000
        return Completion(text="tidal", input_tokens=5, output_tokens=100)

    rig = Rig({"writer": {"backends": [backend("a")]}}, a=Scripted(takes_a_second))
    body = {"messages": [{"role": "user", "content": "a"}], **field}
    await rig.make(messages=(), openai={"path": "chat/completions", "body": body})
    await asyncio.sleep(0)
    written = rig.calls.spending.speeds.tokens_within("a", 2_000)
    assert written is None or written == pytest.approx(200)
    assert (written is None) is bool(field.keys() - {"prompt"})
