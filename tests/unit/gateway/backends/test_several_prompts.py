"""Backends that are asked as in a chat take one prompt."""

from typing import Any, cast

import pytest

from hocket.gateway.backends.function import FunctionBackend
from hocket.gateway.backends.protocol import Backend, BackendUnsuited
from hocket.gateway.backends.triton.backend import TritonBackend
from hocket.gateway.core.config.table import BackendSpec
from hocket.schemas.messages import CallRequest, Completion, OpenAIBody

ASKED: list[CallRequest] = []


async def answers(request: CallRequest) -> Completion:
    ASKED.append(request)
    return Completion(text="tidal")


def completion(prompt: Any) -> CallRequest:
    openai = OpenAIBody(path="completions", body={"model": "m", "prompt": prompt})
    return CallRequest(call_id="c", model="m", openai=openai, deadline_at_ms=0)


def built(kind: str) -> Backend:
    if kind == "function":
        return FunctionBackend(BackendSpec("b", "function", f"{__name__}:answers"))
    return TritonBackend(BackendSpec("b", "triton", "m"), cast(Any, None))


@pytest.mark.parametrize("kind", ["function", "triton"])
@pytest.mark.parametrize("prompt", [["Once", "Twice"], [[7, 8], [9]]])
async def test_several_prompts_are_not_answered_as_one(kind: str, prompt: Any) -> None:
    ASKED.clear()
    with pytest.raises(BackendUnsuited, match="`prompt`"):
        await built(kind).call(completion(prompt), timeout_ms=1_000)
    assert not ASKED


@pytest.mark.parametrize("prompt", ["Once", ["Once"]])
async def test_one_prompt_is_asked_as_a_message(prompt: Any) -> None:
    ASKED.clear()
    made = await built("function").call(completion(prompt), timeout_ms=1_000)
    assert (made.text, [one.messages[0].content for one in ASKED]) == ("tidal", ["Once"])
