"""Where calls are converted for backends that do not speak OpenAI's API."""

import threading
from typing import Any

import pytest

from hocket.gateway.backends.large_requests import converted
from hocket.gateway.core.calls.request_content import LARGE_TOKENS
from hocket.gateway.core.protocols.openai_api import IDS_AT_ONCE, plain
from hocket.schemas.messages import CallRequest
from support.gateway.routing_rig import request


def of(body: dict[str, Any], path: str = "chat/completions") -> CallRequest:
    return request(messages=(), openai={"path": path, "body": body})


async def test_a_large_call_is_converted_in_a_thread_and_a_small_one_at_once() -> None:
    def thread(_: CallRequest) -> int:
        return threading.get_ident()

    turn = {"role": "user", "content": "?"}
    assert await converted(of({"messages": [turn]}), thread) == threading.get_ident()
    assert await converted(of({"messages": [turn] * LARGE_TOKENS}), thread) != threading.get_ident()


async def test_what_a_conversion_raises_in_a_thread_is_raised() -> None:
    def refused(_: CallRequest) -> None:
        raise ValueError("no counterpart")

    with pytest.raises(ValueError, match="no counterpart"):
        await converted(of({"messages": [{"role": "user", "content": "tide " * 50_000}]}), refused)


def test_token_ids_are_the_same_text_however_many_there_are() -> None:
    ids = list(range(2 * IDS_AT_ONCE + 3))
    (message,) = plain(of({"prompt": ids}, "completions")).messages
    assert message.content == " ".join(map(str, ids))
